//! Environments of CI jobs: calls to a cluster's agent over its session, and an agent that is away, old, displaced, busy or
//! dumb.

use std::time::{Duration, Instant};

use e2e::cluster::{ClusterAgent, as_made};
use e2e::jobs::{access, on_record, wish};
use e2e::{PATIENCE, TestGateway};
use gateway_environments::progress::{EnvironmentEvent, PreparationOutcome, ProgressStream};
use gateway_environments::request::{By, JobRequest, Unmet};
use gateway_environments::service::DesiredEnvironment;
use tokio_util::bytes::Bytes;
use tunnel_link::channel_io::ChannelIo;
use tunnel_link::drain::DrainResult;
use tunnel_proto::environments::{Call, CallAnswer, CallProgress, Decoder, Done, ENVIRONMENTS_PORT, ObjectStep};
use tunnel_proto::reason::Reason;

const CLUSTER: &str = "prod";

/// Starts a gateway that prepares environments of `group/app`, for so long.
async fn start(complete_max: Duration) -> TestGateway {
    let gateway = TestGateway::start_with(|config| config.environments.complete_max = complete_max).await;
    gateway.let_jobs(vec![access("group/app", "*")], &request(1)).await;
    gateway
}

fn request(job_id: u64) -> JobRequest {
    let mut request = wish(CLUSTER, "group/app", "production", job_id);
    request.url = Some("https://app.example".to_owned());
    (request.job.tier, request.job.action) = (Some("production".to_owned()), Some("start".to_owned()));
    request
}

/// Asks for what a job needs, as the job.
async fn complete(gateway: &TestGateway, job_id: u64) -> ProgressStream {
    let request = request(job_id);
    let by = on_record(request.job.by()).await;
    let judged = gateway.environments.judge(request).unwrap();
    gateway.environments.complete_by(judged, by).await.unwrap()
}

/// A call that an agent took.
struct Taken {
    call: Call,
    io: ChannelIo,
}

/// Takes the next call.
async fn take(agent: &ClusterAgent) -> Taken {
    let incoming = tokio::time::timeout(PATIENCE, agent.session.accept()).await.expect("in time").expect("a channel");
    assert_eq!(incoming.port, ENVIRONMENTS_PORT);
    let (mut io, mut decoder) = (incoming.accept(), Decoder::<Call>::default());
    loop {
        if let Some(call) = decoder.next_message().expect("a call") {
            return Taken { call, io };
        }
        let bytes = std::future::poll_fn(|context| io.poll_bytes(context)).await.expect("bytes").expect("more");
        decoder.push(&bytes);
    }
}

async fn refuse(agent: &ClusterAgent, reason: Reason) {
    let incoming = tokio::time::timeout(PATIENCE, agent.session.accept()).await.expect("in time").expect("a channel");
    incoming.refuse(reason);
}

impl Taken {
    async fn say(&mut self, answer: &CallAnswer) {
        self.say_bytes(answer.encode()).await;
    }

    async fn say_bytes(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            std::future::poll_fn(|context| self.io.poll_write_bytes(context, &mut bytes)).await.expect("it reads");
        }
    }

    /// Answers that everything is there that is to be.
    async fn done(mut self) {
        let objects = match &self.call {
            Call::Apply(apply) => as_made(&apply.objects),
            Call::Remove(_) => Vec::new(),
        };
        for object in objects.clone() {
            self.say(&CallAnswer::Progress(CallProgress { object, step: ObjectStep::Applied, message: String::new() }))
                .await;
        }
        self.say(&CallAnswer::Done(Done { objects, ..Done::default() })).await;
        // Until the gateway has it.
        std::future::poll_fn(|context| self.io.poll_bytes(context)).await.ok();
    }
}

async fn outcome(following: ProgressStream) -> PreparationOutcome {
    tokio::time::timeout(PATIENCE, following.outcome()).await.expect("it ends")
}

async fn retrying(following: &mut ProgressStream) -> String {
    loop {
        match tokio::time::timeout(PATIENCE, following.next()).await.expect("a word of it") {
            Some(EnvironmentEvent::Retrying { code, .. }) => return code,
            Some(EnvironmentEvent::Waiting { .. } | EnvironmentEvent::Object(_)) => {}
            other @ (Some(EnvironmentEvent::Done(_)) | None) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_prepared_over_the_agents_session_and_what_was_recorded_is_removed_when_it_is_stopped() {
    let gateway = start(Duration::from_secs(60)).await;
    let (agent, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    let mut following = complete(&gateway, 1).await;
    let taken = take(&agent).await;
    let Call::Apply(apply) = &taken.call else { panic!("{:?}", taken.call) };
    assert_eq!(apply.scope.cluster, CLUSTER);
    assert_eq!(apply.scope.identity.as_ref().unwrap().user, "gitlab:ci_job:1");
    assert!(apply.scope.inventory.starts_with(&format!("environment-{}-", apply.scope.environment)));
    assert_eq!(
        as_made(&apply.objects).iter().map(|object| object.kind.as_str()).collect::<Vec<_>>(),
        ["Namespace", "RoleBinding"]
    );
    taken.done().await;
    let Some(EnvironmentEvent::Object(first)) = following.next().await else { panic!("no progress") };
    assert_eq!((first.object.kind.as_str(), first.step), ("Namespace", ObjectStep::Applied));
    let made = outcome(following).await.environment.unwrap();
    assert_eq!((made.objects.len(), made.tier.as_deref()), (2, Some("production")));
    assert!(matches!(gateway.environments.unmet(&request(1)), Unmet::Met(_)));
    // A second job finds it as it is, and asks all the same.
    let second = complete(&gateway, 2).await;
    take(&agent).await.done().await;
    assert_eq!(outcome(second).await.environment.unwrap().id, made.id);
    let by = By::User("dev".parse().unwrap());
    gateway.environments.set_state(made.id, DesiredEnvironment::Stopping, on_record(by.clone()).await).await.unwrap();
    gateway.environments.set_state(made.id, DesiredEnvironment::Stopped, on_record(by).await).await.unwrap();
    let taken = take(&agent).await;
    let Call::Remove(remove) = &taken.call else { panic!("{:?}", taken.call) };
    assert_eq!((remove.tracked.len(), remove.scope.identity.as_ref().unwrap().user.as_str()), (2, "gitlab:ci_job:2"));
    taken.done().await;
    let gone = outcome(gateway.environments.follow(made.id)).await;
    assert!(gone.failure.is_none() && gone.environment.unwrap().objects.is_empty());
    gateway.assert_quiet().await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_is_away_is_named_within_the_jobs_time_and_one_that_comes_is_asked_at_once() {
    // So long that it has looked for the agent by then, however slowly.
    let gateway = start(Duration::from_secs(10)).await;
    let begun = Instant::now();
    let failure = outcome(complete(&gateway, 1).await).await.failure.unwrap();
    assert_eq!(failure.code, "agent_absent");
    // And not within a minute, which is what it has where nobody says otherwise.
    assert!(begun.elapsed() < 2 * PATIENCE, "{:?}", begun.elapsed());
    gateway.stop().await;
    let gateway = start(Duration::from_secs(60)).await;
    let mut following = complete(&gateway, 1).await;
    for _ in 0..3 {
        assert_eq!(retrying(&mut following).await, "agent_absent");
    }
    let (agent, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    take(&agent).await.done().await;
    assert_eq!(outcome(following).await.failure, None);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_is_old_busy_or_dumb_is_named() {
    let gateway = start(Duration::from_secs(60)).await;
    let (agent, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    let mut following = complete(&gateway, 1).await;
    for (reason, code) in [
        (Reason::PortNotAllowed, "agent_too_old"),
        (Reason::Overloaded, "overloaded"),
        (Reason::Protocol, "call_timeout"),
    ] {
        refuse(&agent, reason).await;
        assert_eq!(retrying(&mut following).await, code);
    }
    // One that takes it and then says nothing that is an answer.
    take(&agent).await.say_bytes(Bytes::from_static(&[1, 0xff])).await;
    assert_eq!(retrying(&mut following).await, "call_timeout");
    take(&agent).await.done().await;
    assert_eq!(outcome(following).await.failure, None);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_never_takes_a_call_is_named_within_its_bound() {
    let gateway = start(Duration::from_secs(60)).await;
    let (agent, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    let begun = Instant::now();
    let mut following = complete(&gateway, 1).await;
    let ignored = tokio::time::timeout(PATIENCE, agent.session.accept()).await.expect("in time");
    assert_eq!(retrying(&mut following).await, "call_timeout");
    // One that took it and then is silent has three quarters of a minute.
    assert!((4..40).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    drop(ignored);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_is_displaced_in_the_middle_is_named_and_the_newer_one_is_asked() {
    let gateway = start(Duration::from_secs(60)).await;
    let (older, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    let mut following = complete(&gateway, 1).await;
    let taken = take(&older).await;
    let (newer, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    assert_eq!(retrying(&mut following).await, "agent_displaced");
    let again = take(&newer).await;
    let (Call::Apply(first), Call::Apply(second)) = (&taken.call, &again.call) else { panic!("not applied") };
    assert_eq!((&first.objects, &first.scope), (&second.objects, &second.scope));
    assert_eq!(second.tracked.len(), 2, "what the older one may have made is recorded");
    again.done().await;
    assert_eq!(outcome(following).await.failure, None);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_lets_a_call_come_to_its_end_and_begins_no_other() {
    let gateway = start(Duration::from_secs(60)).await;
    let (agent, _) = ClusterAgent::begun(&gateway, CLUSTER).await;
    let following = complete(&gateway, 1).await;
    let taken = take(&agent).await;
    let waiting = complete(&gateway, 2).await;
    // Not before it has begun: what is asked for until then is begun as ever.
    gateway.begin_drain().await;
    taken.done().await;
    assert_eq!(outcome(following).await.failure, None);
    assert_eq!(gateway.stop().await, DrainResult::Clean);
    drop(waiting);
    let other = tokio::time::timeout(PATIENCE, agent.session.accept()).await.expect("the session ends");
    assert!(other.is_none(), "no other call came");
}
