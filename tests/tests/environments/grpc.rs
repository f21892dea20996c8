//! The services over gRPC, with a real client on a plain connection to the public host.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::support::{CLUSTER, PROJECT, World};
use super::wire;

/// A connection, as what a client sends requests with.
#[derive(Clone)]
struct Wire(SendRequest<tonic::body::Body>);

impl tonic::codegen::Service<http::Request<tonic::body::Body>> for Wire {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

struct Client {
    grpc: Grpc<Wire>,
    _tasks: JoinSet<()>,
}

/// How a call proves who sends it, and what else it says.
#[derive(Clone, Default)]
struct With {
    token: String,
    timeout: Option<Duration>,
    cookie: Option<String>,
}

fn bearer(token: &str) -> With {
    With { token: token.to_owned(), ..With::default() }
}

impl Client {
    async fn connect(world: &World) -> Self {
        let stream = TcpStream::connect(world.gateway.addresses.public).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { connection.await.unwrap_or_default() });
        let origin = format!("http://{}", world.public()).parse().unwrap();
        let grpc = Grpc::with_origin(Wire(sender), origin).max_encoding_message_size(8 << 20);
        Self { grpc, _tasks: tasks }
    }

    fn request<Q>(with: &With, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if !with.token.is_empty() {
            let value = MetadataValue::try_from(format!("Bearer {}", with.token)).unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        if let Some(cookie) = &with.cookie {
            request.metadata_mut().insert("cookie", MetadataValue::try_from(cookie.as_str()).unwrap());
        }
        if let Some(timeout) = with.timeout {
            request.set_timeout(timeout);
        }
        request
    }

    async fn one<Q, A>(&mut self, path: &'static str, with: &With, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.grpc.ready().await.unwrap();
        let codec = ProstCodec::<Q, A>::default();
        let answer = self.grpc.unary(Self::request(with, message), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    async fn many<Q, A>(&mut self, path: &'static str, with: &With, message: Q) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.grpc.ready().await.unwrap();
        let (request, path) = (Self::request(with, message), PathAndQuery::from_static(path));
        Ok(self.grpc.server_streaming(request, path, ProstCodec::<Q, A>::default()).await?.into_inner())
    }

    /// Calls a method that tells what happens, and returns it, with how it ended.
    async fn events<Q>(&mut self, path: &'static str, with: &With, message: Q) -> (Vec<wire::event::Event>, Status)
    where
        Q: Message + 'static,
    {
        let mut stream = match self.many::<Q, wire::Event>(path, with, message).await {
            Ok(stream) => stream,
            Err(status) => return (Vec::new(), status),
        };
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => events.push(event.event.expect("an event")),
                Err(status) => return (events, status),
            }
        }
        (events, Status::ok(""))
    }
}

const UNMET: &str = "/environments.v1.Prerequisites/Unmet";
const COMPLETE: &str = "/environments.v1.Prerequisites/Complete";
const SET_STATE: &str = "/environments.v1.Prerequisites/SetState";
const SHOW: &str = "/environments.v1.Prerequisites/Show";
const GET_DEFAULT: &str = "/environments.v1.Provisioner/GetDefaultEnvironmentTemplate";
const GET: &str = "/environments.v1.Provisioner/GetEnvironmentTemplate";
const RENDER: &str = "/environments.v1.Provisioner/RenderEnvironmentTemplate";
const ENSURE: &str = "/environments.v1.Provisioner/EnsureEnvironment";
const DELETE: &str = "/environments.v1.Provisioner/DeleteEnvironment";

fn asked() -> wire::JobRequest {
    wire::JobRequest { agent_name: CLUSTER.to_owned(), ..wire::JobRequest::default() }
}

fn own() -> Option<wire::Which> {
    Some(wire::Which { agent_name: CLUSTER.to_owned(), ..wire::Which::default() })
}

fn info() -> Option<wire::Info> {
    let agent = wire::info::Agent { name: CLUSTER.to_owned(), ..wire::info::Agent::default() };
    let environment = wire::info::Environment { name: "review/1".to_owned(), ..wire::info::Environment::default() };
    let project =
        wire::info::Project { id: Some(PROJECT), path: "team/app".to_owned(), ..wire::info::Project::default() };
    Some(wire::Info {
        agent: Some(agent),
        environment: Some(environment),
        project: Some(project),
        ..wire::Info::default()
    })
}

/// Returns the code of the protocol, and the gateway's own.
fn codes(status: &Status) -> (Code, String) {
    let own = status.metadata().get("gateway-error").map(|value| value.to_str().unwrap().to_owned());
    (status.code(), own.unwrap_or_default())
}

fn done(events: &[wire::event::Event]) -> &wire::Done {
    match events.last() {
        Some(wire::event::Event::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_prepared_shown_and_stopped_over_grpc() {
    let world = World::start().await;
    let agent = world.agent().await;
    let mut client = Client::connect(&world).await;
    let with = bearer(&world.job(1, &json!({})));
    let unmet: wire::UnmetResponse =
        client.one(UNMET, &with, wire::UnmetRequest { request: Some(asked()) }).await.unwrap();
    assert!(unmet.is_unmet);
    let (events, status) = client.events(COMPLETE, &with, wire::CompleteRequest { request: Some(asked()) }).await;
    assert_eq!((status.code(), events.len()), (Code::Ok, 3), "{events:?}");
    let made = done(&events);
    assert_eq!((made.outcome.as_str(), made.objects.len()), ("completed", 2));
    let unmet: wire::UnmetResponse =
        client.one(UNMET, &with, wire::UnmetRequest { request: Some(asked()) }).await.unwrap();
    assert_eq!((unmet.is_unmet, unmet.reason.as_str()), (false, "completed"));
    let shown: wire::ShowResponse = client.one(SHOW, &with, wire::ShowRequest { which: own() }).await.unwrap();
    let shown = shown.environment.unwrap();
    assert_eq!((shown.name.as_str(), shown.tier.as_str(), shown.project_id), ("review/1", "development", PROJECT));
    let stop = wire::SetStateRequest { which: own(), state: "stopped".to_owned() };
    let stopped: wire::SetStateResponse = client.one(SET_STATE, &with, stop).await.unwrap();
    let stopped = stopped.environment.unwrap();
    assert!(stopped.state == "stopped" && stopped.is_removal_due);
    // An operator goes further, and follows it to its end.
    let operator = bearer(&world.operator);
    let (events, status) =
        client.events(DELETE, &operator, wire::DeleteEnvironmentRequest { environment_id: shown.id }).await;
    assert_eq!((status.code(), done(&events).objects.len()), (Code::Ok, 0), "{status:?}");
    assert!(agent.calls().len() >= 2);
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_gets_renders_and_ensures_templates_over_grpc() {
    let world = World::start().await;
    let agent = world.agent().await;
    let mut client = Client::connect(&world).await;
    let with = bearer(&world.operator);
    let default: wire::GetDefaultEnvironmentTemplateResponse =
        client.one(GET_DEFAULT, &with, wire::GetDefaultEnvironmentTemplateRequest {}).await.unwrap();
    let template = default.template.unwrap();
    let get = wire::GetEnvironmentTemplateRequest { agent_name: CLUSTER.to_owned(), template_name: "none".to_owned() };
    let missing = client.one::<_, wire::GetEnvironmentTemplateResponse>(GET, &with, get).await.unwrap_err();
    assert_eq!(codes(&missing), (Code::NotFound, "no_such_template".to_owned()));
    let render = wire::RenderEnvironmentTemplateRequest { template: Some(template), info: info() };
    let rendered: wire::RenderEnvironmentTemplateResponse = client.one(RENDER, &with, render).await.unwrap();
    let rendered = rendered.template.unwrap();
    assert!(rendered.data.contains("gitlab:project_env:42:") && !rendered.data.contains("{{"), "{}", rendered.data);
    let ensure = wire::EnsureEnvironmentRequest { template: Some(rendered), info: info() };
    let (events, status) = client.events(ENSURE, &with, ensure).await;
    assert_eq!((status.code(), done(&events).objects.len()), (Code::Ok, 2));
    let unknown = "objects:\n  - {apiVersion: v1, kind: '{{ .nope }}'}\n".to_owned();
    let unknown = wire::Template { name: "mine".to_owned(), data: unknown };
    let render = wire::RenderEnvironmentTemplateRequest { template: Some(unknown), info: info() };
    let wrong = client.one::<_, wire::RenderEnvironmentTemplateResponse>(RENDER, &with, render).await.unwrap_err();
    assert_eq!(codes(&wrong), (Code::InvalidArgument, "template_invalid".to_owned()));
    assert!(wrong.message().contains("\nline 2, column "), "{wrong:?}");
    agent.fail(Some(tunnel_proto::environments::ObjectErrorCode::Forbidden));
    let secret = wire::Template { name: "mine".to_owned(), data: "objects: []\n".to_owned() };
    let ensure = wire::EnsureEnvironmentRequest { template: Some(secret), info: None };
    assert_eq!(codes(&client.events(ENSURE, &with, ensure).await.1), (Code::InvalidArgument, "invalid".to_owned()));
    let default = wire::Template { name: "default".to_owned(), data: String::new() };
    let (events, status) =
        client.events(ENSURE, &with, wire::EnsureEnvironmentRequest { template: Some(default), info: info() }).await;
    assert_eq!(codes(&status), (Code::FailedPrecondition, "objects_failed".to_owned()));
    assert_eq!(done(&events).errors[0].code, "forbidden", "every object's error comes before the status");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_is_refused_says_so_with_codes_of_both_kinds() {
    let world = World::start().await;
    let mut client = Client::connect(&world).await;
    let unmet = || wire::UnmetRequest { request: Some(asked()) };
    let mut refused = async |path: &'static str, with: &With| {
        let status = client.one::<_, wire::UnmetResponse>(path, with, unmet()).await.unwrap_err();
        assert!(status.metadata().contains_key("gateway-trace"), "{status:?}");
        codes(&status)
    };
    let code = |code: Code, own: &str| (code, own.to_owned());
    assert_eq!(refused(UNMET, &bearer("")).await, code(Code::Unauthenticated, "sign_in_required"));
    let other = world.job(1, &json!({"aud": "https://other.test"}));
    assert_eq!(refused(UNMET, &bearer(&other)).await, code(Code::Unauthenticated, "job_refused"));
    assert_eq!(refused(UNMET, &bearer(&world.user)).await, code(Code::PermissionDenied, "forbidden"));
    let job = world.job(1, &json!({}));
    assert_eq!(refused(RENDER, &bearer(&job)).await, code(Code::Unauthenticated, "sign_in_required"));
    assert_eq!(refused("/environments.v1.Nothing/At", &bearer(&job)).await.0, Code::Unimplemented);
    assert_eq!(refused("/environments.v1.Prerequisites/Nothing", &bearer(&job)).await.0, Code::Unimplemented);
    // A browser's cookie is no credential here, whoever is signed in with it.
    let target = world.gateway.sign_in_link.split_once(&world.public()).unwrap().1.to_owned();
    let mut raw = e2e::raw::Raw::connect(world.gateway.addresses.public).await;
    let visit = "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";
    raw.send(format!("GET {target} HTTP/1.1\r\nhost: {}\r\n{visit}\r\n", world.public())).await;
    let signed_in = raw.message().await.unwrap();
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let with = With { cookie: Some(cookie), ..With::default() };
    assert_eq!(refused(UNMET, &with).await, code(Code::Unauthenticated, "sign_in_required"));
    // A job without a number is nobody's.
    let job = Some(wire::Job { project_id: Some(PROJECT), user_id: Some(1), ..wire::Job::default() });
    let request = wire::UnmetRequest { request: Some(wire::JobRequest { job, ..asked() }) };
    let with = bearer(&world.operator);
    let status = client.one::<_, wire::UnmetResponse>(UNMET, &with, request).await.unwrap_err();
    assert_eq!(codes(&status), code(Code::InvalidArgument, "invalid"));
    assert!(status.message().contains("/request/job/job_id"), "{status:?}");
    let large = wire::Template { name: "a".to_owned(), data: "x".repeat(600 * 1024) };
    let render = wire::RenderEnvironmentTemplateRequest { template: Some(large), info: info() };
    let status = client.one::<_, wire::RenderEnvironmentTemplateResponse>(RENDER, &with, render).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_of_the_caller_ends_a_stream_and_not_the_work() {
    let world = World::start().await;
    let mut client = Client::connect(&world).await;
    let job = world.job(1, &json!({}));
    let with = With { timeout: Some(Duration::from_millis(700)), ..bearer(&job) };
    let (events, status) = client.events(COMPLETE, &with, wire::CompleteRequest { request: Some(asked()) }).await;
    assert_eq!(codes(&status), (Code::DeadlineExceeded, "response_timeout".to_owned()), "{status:?} {events:?}");
    let agent = world.agent().await;
    let (events, status) =
        client.events(COMPLETE, &bearer(&job), wire::CompleteRequest { request: Some(asked()) }).await;
    assert_eq!((status.code(), done(&events).outcome.as_str()), (Code::Ok, "completed"));
    assert_eq!(agent.calls().len(), 1);
    world.gateway.stop().await;
}

/// As much of `grpc/reflection/v1/reflection.proto` as a client needs that lists services.
#[derive(Clone, PartialEq, prost::Message)]
struct Asked {
    #[prost(string, optional, tag = "4")]
    symbol: Option<String>,
    #[prost(string, optional, tag = "7")]
    list: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Reflected {
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "6")]
    list: Option<List>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Named>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_tells_everybody_which_services_there_are() {
    let world = World::start().await;
    let mut client = Client::connect(&world).await;
    client.grpc.ready().await.unwrap();
    let asked = [
        Asked { list: Some("*".to_owned()), symbol: None },
        Asked { list: None, symbol: Some("environments.v1.Prerequisites".to_owned()) },
    ];
    let path = PathAndQuery::from_static("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
    let request = Request::new(futures_util::stream::iter(asked));
    let answer = client.grpc.streaming(request, path, ProstCodec::<Asked, Reflected>::default()).await.unwrap();
    let reflected: Vec<Reflected> = answer.into_inner().map(|one| one.unwrap()).collect().await;
    let names: Vec<&str> =
        reflected[0].list.as_ref().unwrap().services.iter().map(|service| service.name.as_str()).collect();
    for name in ["environments.v1.Provisioner", "environments.v1.Prerequisites"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!reflected[1].files.as_ref().unwrap().files.is_empty(), "and what is in them");
    world.gateway.stop().await;
}
