//! The document, the routes and the router agree, and who may speak through a cookie.

use std::collections::BTreeSet;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use serde_json::Value;

use super::*;
use crate::stack::{Delivery, call, gather};
use gateway_auth::browser::Lifetimes;
use gateway_auth::policy::Operators;
use gateway_environments::files::TemplateFiles;
use gateway_environments::service::{Environments, EnvironmentsParts as EnvironmentsOf};
use gateway_net::telemetry::Metrics;
use gateway_types::opaque::Opaque;
use gateway_workspaces::addresses::Addresses;
use gateway_workspaces::changes::Changes;
use gateway_workspaces::orphans::Orphans;

mod bodies;
mod environments;

/// Methods that a document can list.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// The one user who may do with every environment what they want.
const OPERATOR: &str = "olga";

/// The one cluster that is known.
const CLUSTER: &str = "prod";

fn document() -> Value {
    serde_json::from_str(include_str!("openapi.json")).unwrap()
}

/// A gateway without CI systems.
struct NoCi;

impl Definitions for NoCi {
    fn definition<'a>(
        &'a self,
        _headers: &'a http::HeaderMap,
    ) -> futures_util::future::BoxFuture<'a, Result<String, NoDefinition>> {
        Box::pin(async { Err(NoDefinition::Disabled) })
    }
}

async fn api() -> Api {
    api_of(Store::open("sqlite::memory:").await.unwrap(), TemplateFiles::new(None)).await
}

async fn api_of(store: Store, templates: Arc<TemplateFiles>) -> Api {
    let site = Site::new(&"http://localhost:8080".parse().unwrap()).unwrap();
    let sessions = Arc::new(BrowserSessions::new(Instant::now(), Lifetimes::default()));
    store.ensure_cluster(&CLUSTER.parse().unwrap(), gateway_store::wall_clock()).await.unwrap();
    let (public_url, agents_url) = ("http://localhost:8080".to_owned(), "http://localhost:8081".to_owned());
    let registry = Arc::new(Registry::new(10, 1));
    let environments = EnvironmentParts {
        service: Environments::open(EnvironmentsOf {
            store: store.clone(),
            registry: registry.clone(),
            peers: None,
            templates,
            audit: Audit::default(),
            metrics: Metrics::default(),
            settings: gateway_config::Environments::default(),
            public_url: public_url.clone(),
            clock: Arc::new(gateway_store::wall_clock),
        })
        .await
        .unwrap(),
        jobs: None,
        dev: Some(OPERATOR.parse().unwrap()),
        hook: None,
    };
    let addresses = Addresses { zone: "localhost".parse().unwrap(), public_url, agents_url };
    let orphans = Orphans::new(store.clone(), registry.clone(), None, "localhost".parse().unwrap());
    let parts = ApiParts {
        registry,
        peers: None,
        environments,
        rules: HostRules::new(site.authority(), "localhost".parse().unwrap()).unwrap(),
        site,
        identities: Arc::new(Identities::new(sessions.clone())),
        sessions,
        devices: Arc::default(),
        workspaces: Arc::new(Cache::new()),
        public_ports: Arc::default(),
        accesses: Arc::default(),
        traffic: Arc::default(),
        audit: Audit::default(),
        lifecycles: Workspaces::new(store.clone(), Changes::default(), addresses),
        cluster_configs: ClusterConfigs::new(None),
        orphans,
        downloads: Arc::new(Downloads::open(&[]).unwrap()),
        definitions: Arc::new(NoCi),
        git: GitCredentials::new(store.clone(), &[], Arc::new(gateway_store::wall_clock)).unwrap(),
        external_max: 10,
        failed: Arc::default(),
        admin: AdminParts {
            operators: arc_swap::ArcSwap::from_pointee(Operators {
                names: vec![OPERATOR.parse().unwrap()],
                ..Operators::default()
            }),
            settings: arc_swap::ArcSwap::default(),
            certificates: Vec::new(),
            refusals: Arc::default(),
            provider: None,
            directory: "memory",
            database: "sqlite",
        },
        drain: Drain::default(),
        store,
    };
    Api::new(parts, Router::new())
}

/// Asks, for an answer that comes to an end.
async fn ask<B>(api: &Api, request: Request<B>) -> Response<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    ask_as(api, nobody(), request).await
}

/// Asks as somebody.
async fn ask_as<B>(api: &Api, caller: Caller, request: Request<B>) -> Response<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(caller);
    let (parts, body) = call(api.documents(), request).await.into_parts();
    assert!(parts.extensions.get::<Delivery>().is_none(), "an answer without an end: {parts:?}");
    Response::from_parts(parts, gather(body).await)
}

fn shape(source: RequestSource, purpose: Purpose) -> RequestShape {
    RequestShape { purpose, source }
}

fn nobody() -> Caller {
    Caller::new(
        None,
        OfferedCredential::Nothing,
        false,
        shape(RequestSource::Unstated, Purpose::Read),
        [192, 0, 2, 1].into(),
        "trace",
    )
}

#[test]
fn document_lists_exactly_the_routes() {
    let document = document();
    let described: BTreeSet<(String, BTreeSet<String>)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, item)| {
            let methods = item.as_object().unwrap().keys().filter(|name| METHODS.contains(&name.as_str()));
            (path.clone(), methods.cloned().collect())
        })
        .collect();
    let routes: BTreeSet<(String, BTreeSet<String>)> = routes()
        .iter()
        .map(|(path, methods, _)| ((*path).to_owned(), methods.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    assert_eq!(described, routes);
}

#[tokio::test]
async fn router_answers_the_listed_methods_and_no_other() {
    let api = api().await;
    for (path, methods, _) in routes() {
        let path =
            format!("{PREFIX}{}", path.replace("{name}", "app").replace("{id}", "t-1").replace("{template}", "x"));
        for method in METHODS {
            let name = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let request = Request::builder().method(name).uri(&path).body(Empty::<Bytes>::new()).unwrap();
            let answer = ask(&api, request).await;
            let is_listed = methods.contains(&method) || (method == "head" && methods.contains(&"get"));
            assert_eq!(answer.status() != StatusCode::METHOD_NOT_ALLOWED, is_listed, "{method} {path}");
            assert_eq!(answer.headers()["gateway-trace"], "trace");
            assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
            if !is_listed {
                assert!(answer.headers().contains_key("allow"), "{method} {path}");
            }
        }
    }
}

#[test]
fn document_refers_only_to_what_it_has() {
    fn check(value: &Value, document: &Value, found: &mut usize) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(name)) = members.get("$ref") {
                    assert!(document.pointer(name.trim_start_matches('#')).is_some(), "{name}");
                    *found += 1;
                }
                members.values().for_each(|value| check(value, document, found));
            }
            Value::Array(values) => values.iter().for_each(|value| check(value, document, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let (document, mut found) = (document(), 0);
    check(&document, &document, &mut found);
    assert!(found > 50, "{found}");
}

#[test]
fn cookie_speaks_only_where_no_other_page_can_have_asked() {
    let browser = || Principal { user: "ann".parse().unwrap(), groups: Arc::default(), via: Via::Browser };
    let speaks = |is_page, source, purpose| {
        let offered = OfferedCredential::Session(Opaque::random().unwrap().digest());
        let caller =
            Caller::new(Some(browser()), offered, is_page, shape(source, purpose), [192, 0, 2, 1].into(), "trace");
        caller.user().is_ok()
    };
    use Purpose::{Change, PageVisit, Read};
    for (source, expected) in [
        (RequestSource::SameOrigin, [true, true, true]),
        (RequestSource::UserInitiated, [true, true, false]),
        (RequestSource::Unstated, [true, true, false]),
        (RequestSource::SameWorkspace, [false, false, false]),
        (RequestSource::Foreign, [false, false, false]),
    ] {
        let api = [PageVisit, Read, Change].map(|purpose| speaks(false, source, purpose));
        assert_eq!(api, expected, "{source:?}");
        let page = [PageVisit, Change].map(|purpose| speaks(true, source, purpose));
        assert_eq!(
            page,
            [true, source == RequestSource::SameOrigin],
            "{source:?}: a link may open a page, and no more"
        );
    }
    let token = Principal { via: Via::ApiToken, ..browser() };
    let foreign = shape(RequestSource::Foreign, Change);
    let caller =
        Caller::new(Some(token), OfferedCredential::Token([1; 32]), false, foreign, [192, 0, 2, 1].into(), "trace");
    assert!(caller.user().is_ok(), "no page has somebody's token");
}

#[tokio::test]
async fn problem_repeats_nothing_and_says_where_to_look() {
    let api = api().await;
    for (method, path, body) in [
        ("GET", "/api/v1/secret-path", ""),
        ("GET", "/api", ""),
        ("PATCH", "/api/v1/whoami", ""),
        ("GET", "/api/v1/workspaces/secret-name", ""),
        ("POST", "/api/v1/device", "{\"secret-name\": \"secret-value\"}"),
        ("POST", "/api/v1/device", "{secret"),
        ("POST", "/api/v1/device", "[\"secret\"]"),
        ("POST", "/api/v1/device/token", "{\"device_code\": \"secret\"}"),
        ("POST", "/api/v1/device/token", "{}"),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        let answer = ask(&api, request).await;
        let text = String::from_utf8(answer.body().to_vec()).unwrap();
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert!(!text.contains("secret"), "{method} {path}: {text}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        assert_eq!(answer.headers()["gateway-error"], *problem["code"].as_str().unwrap(), "{method} {path}");
        assert_eq!(problem["status"], answer.status().as_u16());
        assert_eq!(problem["trace_id"], "trace");
    }
}

#[tokio::test]
async fn body_that_is_too_large_or_no_json_is_refused_by_name() {
    let api = api().await;
    let post = async |content_type: &str, body: String| {
        let request = Request::builder()
            .method("POST")
            .uri("/api/v1/device")
            .header("content-type", content_type)
            .body(Full::from(body))
            .unwrap();
        let answer = ask(&api, request).await;
        (answer.status().as_u16(), answer.headers().get("gateway-error").map(|code| code.to_str().unwrap().to_owned()))
    };
    let of_length = |length: usize| format!("{{\"machine\": \"{}\"}}", "x".repeat(length - 15));
    let code = |code: &str| Some(code.to_owned());
    assert_eq!(post("application/json", of_length(BODY_BYTES_MAX)).await, (200, None));
    assert_eq!(post("application/json", of_length(BODY_BYTES_MAX + 1)).await, (413, code("too_large")));
    assert_eq!(post("text/plain", "{}".to_owned()).await, (415, code("bad_request")));
    assert_eq!(post("Application/JSON; charset=utf-8", "{}".to_owned()).await, (200, None));
    assert_eq!(post("application/json", "[".repeat(60_000)).await, (400, code("bad_request")), "deep nesting");
}

#[test]
fn only_the_api_and_its_page_are_answered_here() {
    for path in ["/api", "/api/", "/api/v1/whoami", "/api/v2", DEVICE_PATH] {
        assert!(Api::has(path), "{path}");
    }
    for path in ["/apis", "/.gateway/device/", "/.gateway/sign-in", "/assets/look.css", "/workspaces/app"] {
        assert!(!Api::has(path), "{path}");
    }
}
