//! `gateway environment` in jobs and for operators, against a running gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser as _;
use e2e::buffer::Buffer;
use e2e::relay::Relay;
use e2e::{PATIENCE, until};
use gateway_cli::{Cli, Console, Exit, GatewayCommand, run_environment};
use serde_json::{Value, json};
use tunnel_proto::environments::ObjectErrorCode;

use super::support::World;

/// Where a command runs: its variables.
struct Shell(BTreeMap<String, String>);

impl Shell {
    /// A CI job's.
    fn of_job(world: &World, token: &str) -> Self {
        let variables =
            [("GATEWAY_URL", format!("http://{}", world.public())), ("GATEWAY_JOB_TOKEN", token.to_owned())];
        Self(variables.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// An operator's.
    fn of_operator(world: &World) -> Self {
        let file = world.file("operator", &world.operator).display().to_string();
        let variables = [("GATEWAY_URL", format!("http://{}", world.public())), ("GATEWAY_TOKEN_FILE", file)];
        Self(variables.map(|(name, value)| (name.to_owned(), value)).into())
    }

    async fn run(&self, words: &str) -> (Exit, String, String) {
        self.run_and_tell(words, &Buffer::default()).await
    }

    /// Runs a command that says on `err` how far it is.
    async fn run_and_tell(&self, words: &str, err: &Buffer) -> (Exit, String, String) {
        let out = Buffer::default();
        let words = format!("gateway environment {words}");
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let mut console = Console::new(Box::new(out.clone()), Box::new(err.clone()), false);
        let GatewayCommand::Environment(args) = &cli.command else { panic!("{cli:?}") };
        let exit = run_environment(args, &self.0, &mut console).await;
        (exit, out.text(), err.text())
    }
}

/// Waits until the one environment that there is has come to be so.
async fn until_it_is(state: &str, world: &World) {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            let found = world.json("GET", "/environments?project_id=42", &world.operator, "", 200).await;
            if found["environments"][0]["state"] == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "it does not come to be {state}");
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn job_has_its_environment_ready_and_ends_it_with_a_line_for_each_thing() {
    let world = World::start().await;
    let agent = world.agent().await;
    let token = world.job(1, &json!({}));
    let shell = Shell::of_job(&world, &token);
    let (exit, out, err) = shell.run("ensure --agent prod --url https://review.example").await;
    assert_eq!((exit, out.as_str()), (Exit::Success, ""), "{err}");
    assert!(
        err.contains("Namespace review-1") && err.contains(" applied\n") && err.contains("is ready, after"),
        "{err}"
    );
    let (exit, out, _) = shell.run("ensure --agent prod --output json").await;
    assert_eq!(exit, Exit::Success);
    let last = lines(&out).pop().unwrap();
    assert_eq!((&last["event"], &last["outcome"]), (&json!("done"), &json!("completed")));
    assert_eq!(agent.calls().len(), 1);

    let (exit, out, _) = shell.run("show --agent prod").await;
    assert_eq!(exit, Exit::Success);
    for word in ["review/1", "available since", "https://review.example", "Namespace review-1"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let (_, out, _) = shell.run("show --agent prod --output json").await;
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["state"], "available");

    // The token may come in a file as well.
    let file = world.file("job", &token);
    let url = format!("--gateway http://{} --token-file {}", world.public(), file.display());
    let bare = Shell(BTreeMap::new());
    let (exit, _, err) = bare.run(&format!("stop --agent prod --begin {url}")).await;
    assert!(exit == Exit::Success && err.contains("review/1 is stopping"), "{err}");
    let (exit, _, err) = bare.run(&format!("stop --agent prod {url}")).await;
    assert!(exit == Exit::Success && err.contains("is gone, after"), "{err}");
    let (exit, out, _) = shell.run("stop --agent prod --output json").await;
    assert_eq!((exit, &lines(&out)[0]["environment"]["state"]), (Exit::Success, &json!("stopped")), "{out}");
    for (words, shown) in [(&out, "id_token"), (&err, "id_token")] {
        assert!(!words.contains(&token), "{shown}");
    }
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_is_refused_or_fails_says_why_and_ends_with_1() {
    let world = World::start().await;
    let agent = world.agent().await;
    let expired = world.job(1, &json!({"exp": super::issuer::now() - 3600}));
    let (exit, _, err) = Shell::of_job(&world, &expired).run("ensure --agent prod").await;
    assert!(exit == Exit::Failed && err.contains("credential_expired"), "{err}");
    let shell = Shell::of_job(&world, &world.job(1, &json!({})));
    let (exit, _, err) = shell.run("ensure --agent prod --environment review/2").await;
    assert!(exit == Exit::Failed && err.contains("another_environment"), "{err}");
    let (exit, out, _) = shell.run("ensure --agent nowhere --output json").await;
    assert_eq!((exit, &lines(&out)[0]["code"]), (Exit::Failed, &json!("project_not_allowed")));
    agent.fail(Some(ObjectErrorCode::Forbidden));
    let (exit, _, err) = shell.run("ensure --agent prod").await;
    assert!(exit == Exit::Failed && err.contains("objects_failed") && err.contains("(forbidden)"), "{err}");
    let (exit, _, err) =
        Shell::of_job(&world, &world.job(2, &json!({"environment": "review/3"}))).run("stop --agent prod").await;
    assert!(exit == Exit::Success && err.contains("nothing was ever made"), "{err}");
    let shell = Shell::of_job(&world, &world.job(5, &json!({})));
    let (exit, _, err) = shell.run("ensure --agent prod --template missing").await;
    assert!(exit == Exit::Failed && err.contains("no_such_template"), "{err}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_that_is_too_long_ends_with_1_and_the_gateway_goes_on() {
    let world = World::start().await;
    let shell = Shell::of_job(&world, &world.job(1, &json!({})));
    let (exit, _, err) = shell.run("ensure --agent prod --timeout 1s").await;
    assert!(exit == Exit::Failed && err.contains("not within 1s"), "{err}");
    let _agent = world.agent().await;
    let (exit, _, err) = shell.run("ensure --agent prod --timeout 30s").await;
    assert_eq!(exit, Exit::Success, "{err}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_says_which_environment_and_a_job_does_not() {
    let world = World::start().await;
    let _agent = world.agent().await;
    let shell = Shell::of_operator(&world);
    let which = "--agent prod --project 42 --environment review/1";
    let (exit, _, err) = shell.run(&format!("ensure {which} --project-path team/app --tier development")).await;
    assert!(exit == Exit::Success && err.contains("review/1 is ready"), "{err}");
    let (exit, out, _) = shell.run(&format!("show {which}")).await;
    assert!(exit == Exit::Success && out.contains("development"), "{out}");
    let (exit, _, err) = shell.run(&format!("stop {which}")).await;
    assert!(exit == Exit::Success && err.contains("is gone"), "{err}");
    let (exit, _, err) = shell.run("stop --agent prod --project 42 --environment review/none").await;
    assert!(exit == Exit::Failed && err.contains("no such environment"), "{err}");
    for words in ["show --agent prod", &format!("ensure {which}")] {
        assert_eq!(shell.run(words).await.0, Exit::Usage, "{words}");
    }
    let job = Shell::of_job(&world, &world.job(1, &json!({})));
    assert_eq!(job.run(&format!("show {which}")).await.0, Exit::Usage);
    let nobody = Shell(BTreeMap::from([("GATEWAY_JOB_TOKEN".to_owned(), "a.b.c".to_owned())]));
    let (exit, _, err) = nobody.run("show --agent prod").await;
    assert!(exit == Exit::Failed && err.contains("GATEWAY_URL"), "{err}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_job_waits_for_a_gateway_that_is_away() {
    let world = World::start().await;
    let _agent = world.agent().await;
    let token = world.job(1, &json!({}));
    assert_eq!(Shell::of_job(&world, &token).run("ensure --agent prod").await.0, Exit::Success);
    let relay = Relay::start(world.gateway.addresses.public).await;
    let mut shell = Shell::of_job(&world, &token);
    shell.0.insert("GATEWAY_URL".to_owned(), format!("http://localhost:{}", relay.address.port()));
    for (flags, said) in [("--begin", "review/1 is stopping"), ("", "is gone, after")] {
        relay.down();
        let told = Buffer::default();
        let words = format!("stop --agent prod {flags}");
        let back = async {
            until("it tries again", || told.text().contains("trying again")).await;
            relay.up();
        };
        let ((exit, _, err), ()) = tokio::join!(shell.run_and_tell(&words, &told), back);
        assert!(exit == Exit::Success && err.contains(said), "{err}");
    }
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_job_does_not_fail_because_a_new_job_of_its_environment_does() {
    let world = World::start().await;
    let agent = world.agent().await;
    let shell = Shell::of_job(&world, &world.job(1, &json!({})));
    assert_eq!(shell.run("ensure --agent prod").await.0, Exit::Success);
    drop(agent);
    let asked_anew = async {
        until_it_is("stopped", &world).await;
        // A new job asks before what there was is gone, and fails.
        let next = Shell::of_job(&world, &world.job(2, &json!({})));
        let agent = async {
            until_it_is("available", &world).await;
            world.agent_that_fails(Some(ObjectErrorCode::Forbidden)).await
        };
        tokio::join!(next.run("ensure --agent prod"), agent)
    };
    let ((exit, _, err), ((failed, ..), _agent)) = tokio::join!(shell.run("stop --agent prod"), asked_anew);
    assert!(exit == Exit::Success && err.contains("is gone, after"), "{err}");
    assert_eq!(failed, Exit::Failed);
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_forgets_an_environment_whose_cluster_never_comes_back_and_hears_what_may_be_left() {
    let world = World::start().await;
    let agent = world.agent().await;
    let which = "--agent prod --project 42 --environment review/1";
    let job = Shell::of_job(&world, &world.job(1, &json!({})));
    assert_eq!(job.run("ensure --agent prod").await.0, Exit::Success);
    let calls = agent.calls().len();
    let (exit, _, err) = job.run("stop --agent prod --forget").await;
    assert!(exit == Exit::Usage && err.contains("for operators"), "{err}");
    let both = format!("gateway environment stop {which} --begin --forget");
    assert!(Cli::try_parse_from(both.split_whitespace()).is_err(), "they do not fit");
    let shell = Shell::of_operator(&world);
    let (exit, out, err) = shell.run(&format!("stop {which} --forget")).await;
    assert_eq!((exit, out.as_str()), (Exit::Success, ""), "{err}");
    assert!(err.contains("review/1 is forgotten; in the cluster may be left:\n  Namespace review-1"), "{err}");
    assert_eq!(agent.calls().len(), calls, "nobody is asked");
    let (exit, _, err) = shell.run(&format!("stop {which} --forget")).await;
    assert!(exit == Exit::Failed && err.contains("no such environment"), "{err}");
    assert_eq!(job.run("ensure --agent prod").await.0, Exit::Success, "the job is asked for anew");
    let (exit, out, _) = shell.run(&format!("stop {which} --forget --output json")).await;
    let told = &lines(&out)[0];
    assert_eq!(
        (exit, &told["event"], &told["environment"]["name"]),
        (Exit::Success, &json!("forgotten"), &json!("review/1"))
    );
    assert!(world.stopped().await.contains("environment_forgotten"));
}
