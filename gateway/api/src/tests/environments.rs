//! Environments over both ways in: who asks is known before anything is read, and what jobs are told.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http_body::Frame;
use serde_json::json;

use super::*;
use crate::environments::caller::ProvenJob;
use crate::stack;
use gateway_environments::request::JobFacts;
use gateway_types::UnixSeconds;

/// A body that never comes, and notes that somebody waits for it.
#[derive(Default)]
struct Awaited(Arc<AtomicBool>);

impl http_body::Body for Awaited {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.store(true, Ordering::Relaxed);
        Poll::Pending
    }
}

/// What became of a call.
#[derive(Debug, PartialEq, Eq)]
struct Called {
    status: String,
    code: String,
    /// For metrics and the log.
    failed: Option<&'static str>,
    is_read: bool,
}

fn refused(status: u8, code: &'static str) -> Called {
    Called { status: status.to_string(), code: code.to_owned(), failed: Some(code), is_read: false }
}

/// Calls a method with a message that never comes.
async fn call(api: &Api, path: &str, caller: Caller) -> Called {
    let body = Awaited::default();
    let is_read = body.0.clone();
    // A call that waits for its message comes to an end too.
    let mut request =
        Request::builder().method("POST").uri(path).header("grpc-timeout", "200m").body(body).unwrap().map(Body::new);
    request.extensions_mut().insert(caller);
    let response = stack::call(api.services(), request).await;
    let failed = response.extensions().get().map(|RefusalCode { code, .. }| *code);
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, code) = (header("grpc-status").unwrap(), header("gateway-error").unwrap());
    Called { status, code, failed, is_read: is_read.load(Ordering::Relaxed) }
}

fn job() -> Caller {
    let facts = JobFacts {
        project_id: 42,
        project_path: "team/app".to_owned(),
        environment: Some("review/1".to_owned()),
        tier: None,
        action: None,
        is_ref_protected: false,
        pipeline_id: None,
        job_id: 1,
        user_id: 1,
        username: "ann".to_owned(),
    };
    nobody().vouched(Some(VouchedCaller::Job(Arc::new(ProvenJob { facts, expires_at: UnixSeconds::new(i64::MAX) }))))
}

pub(super) fn operator() -> Caller {
    let principal = Principal { user: OPERATOR.parse().unwrap(), groups: Arc::default(), via: Via::ApiToken };
    let shape = shape(RequestSource::Unstated, Purpose::Change);
    Caller::new(Some(principal), OfferedCredential::Token([1; 32]), false, shape, [192, 0, 2, 1].into(), "trace")
}

const PROVISIONER: [&str; 5] = [
    "GetEnvironmentTemplate",
    "GetDefaultEnvironmentTemplate",
    "RenderEnvironmentTemplate",
    "EnsureEnvironment",
    "DeleteEnvironment",
];

const PREREQUISITES: [&str; 4] = ["Unmet", "Complete", "SetState", "Show"];

#[tokio::test]
async fn who_calls_is_known_before_a_byte_of_the_message_is_read() {
    let api = api().await;
    for (service, methods) in [("Provisioner", &PROVISIONER[..]), ("Prerequisites", &PREREQUISITES)] {
        for method in methods {
            let called = call(&api, &format!("/environments.v1.{service}/{method}"), nobody()).await;
            assert_eq!(called, refused(16, "sign_in_required"), "{method}");
        }
    }
}

#[tokio::test]
async fn call_whose_time_is_over_is_not_its_callers_mistake() {
    let api = api().await;
    let called = call(&api, "/environments.v1.Prerequisites/Unmet", job()).await;
    assert_eq!(called, Called { is_read: true, ..refused(4, "response_timeout") });
}

#[tokio::test]
async fn templates_that_are_sent_take_the_permits_of_large_bodies() {
    let api = api().await;
    let user: UserName = OPERATOR.parse().unwrap();
    let permits: Vec<_> = (0..UPLOADS.0).map(|_| api.shared.uploads.take(&user).unwrap()).collect();
    for method in ["RenderEnvironmentTemplate", "EnsureEnvironment"] {
        let called = call(&api, &format!("/environments.v1.Provisioner/{method}"), operator()).await;
        assert_eq!(called, refused(8, "too_many_requests"), "{method}");
    }
    drop(permits);
    let called = call(&api, "/environments.v1.Provisioner/RenderEnvironmentTemplate", operator()).await;
    assert!(called.is_read, "{called:?}");
    assert!(api.shared.uploads.take(&user).is_ok(), "and gives it back");
}

#[tokio::test]
async fn job_is_not_told_which_agents_there_are() {
    let api = api().await;
    let mut told = Vec::new();
    for agent in [CLUSTER, "nowhere"] {
        let body = format!(r#"{{"agent": "{agent}"}}"#);
        let post = Request::post("/api/v1/environments/complete").header("content-type", "application/json");
        let complete = ask_as(&api, job(), post.body(Full::from(body)).unwrap()).await;
        let get = Request::get(format!("/api/v1/environments?agent={agent}"));
        let list = ask_as(&api, job(), get.body(Empty::<Bytes>::new()).unwrap()).await;
        for answer in [complete, list] {
            let code = answer.headers().get("gateway-error").map(|code| code.to_str().unwrap().to_owned());
            told.push((agent, answer.status().as_u16(), code));
        }
    }
    let refused = |agent| (agent, 403, Some("project_not_allowed".to_owned()));
    assert_eq!(told, [refused(CLUSTER), refused(CLUSTER), refused("nowhere"), refused("nowhere")]);
    let service = &api.shared.environments.service;
    assert!(service.agent(&CLUSTER.parse().unwrap()).is_ok() && service.agent(&"nowhere".parse().unwrap()).is_err());
}

#[tokio::test]
async fn file_of_a_template_that_is_refused_is_told_to_whoever_asks_for_the_template() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = folder.path().join(CLUSTER).join("environment_templates").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("web.yaml", "objects: []\n");
    let store = Store::open("sqlite::memory:").await.unwrap();
    let begun = async || {
        let templates = TemplateFiles::new(Some(folder.path().to_owned()));
        templates.begin(&store).await.unwrap();
        api_of(store.clone(), templates).await
    };
    let get = async |api: &Api, path: &str| {
        let request = Request::get(format!("/api/v1{path}")).body(Empty::<Bytes>::new()).unwrap();
        let answer = ask_as(api, operator(), request).await;
        (answer.status().as_u16(), serde_json::from_slice::<Value>(answer.body()).unwrap())
    };
    let api = begun().await;
    let (_, list) = get(&api, "/agents/prod/environment-templates").await;
    assert_eq!(list, json!({"templates": [{"name": "default"}, {"name": "web"}], "refused": []}));
    let web = json!({"name": "web", "data": "objects: []\n"});
    assert_eq!(get(&api, "/agents/prod/environment-templates/web").await, (200, web));
    assert_eq!(get(&api, "/agents/prod").await.1["environment_templates_refused"], false);

    write("web.yaml", "objects: []\nmore: 1\n");
    write("default.yml", "objects: []\n");
    let api = begun().await;
    let (_, list) = get(&api, "/agents/prod/environment-templates").await;
    assert_eq!(list["templates"], json!([{"name": "default"}, {"name": "web"}]));
    let files: Vec<_> =
        list["refused"].as_array().unwrap().iter().map(|one| (&one["file"], &one["template"])).collect();
    let [default, web] = ["default.yml", "web.yaml"].map(|file| json!(format!("environment_templates/{file}")));
    assert_eq!(files, [(&default, &json!("default")), (&web, &json!("web"))]);
    let problem = &list["refused"][1]["problems"][0];
    assert_eq!((&problem["path"], &problem["line"]), (&json!("more"), &json!(2)), "{list}");
    let (status, web) = get(&api, "/agents/prod/environment-templates/web").await;
    assert_eq!((status, &web["data"]), (200, &json!("objects: []\n")), "the last good one");
    let problem = &web["problems"][0];
    assert_eq!(problem["path"], "environment_templates/web.yaml: more", "{web}");
    let (status, refused) = get(&api, "/agents/prod/environment-templates/default").await;
    assert_eq!((status, &refused["code"]), (422, &json!("template_invalid")));
    assert_eq!(refused["problems"][0]["path"], "environment_templates/default.yml", "{refused}");
    assert_eq!(get(&api, "/agents/prod").await.1["environment_templates_refused"], true);
}
