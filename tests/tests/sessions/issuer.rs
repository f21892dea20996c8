//! Somebody who makes tokens, publishes keys, and answers a cluster's questions: a server in this process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use e2e::TestGateway;
use gateway_config::Config;
use gateway_store::wall_clock;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// For whom tokens are made.
pub(crate) const AUDIENCE: &str = "https://gateway.test";

/// What an issuer answers with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// Its keys, unless they are the real ones.
    pub(crate) keys: Option<Value>,
    /// To the question whose a token is.
    pub(crate) review: Option<Value>,
    /// It takes connections and says nothing.
    pub(crate) hangs: bool,
}

/// A question that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

pub(crate) struct Issuer {
    pub(crate) url: String,
    key: KeyPair,
    kid: String,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct State {
    answers: Mutex<Answers>,
    asked: Mutex<Vec<Asked>>,
}

/// Now, in seconds.
pub(crate) fn now() -> i64 {
    wall_clock().get()
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let kid = URL_SAFE_NO_PAD.encode(&key.der_bytes()[..6]);
        let state = Arc::new(State::default());
        let documents = Arc::new((json!({"issuer": url, "jwks_uri": format!("{url}/keys")}), keys_of(&key, &kid)));
        let mut tasks = JoinSet::new();
        let shared = state.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, documents) = (shared.clone(), documents.clone());
                let service = service_fn(move |request| answer(state.clone(), documents.clone(), request));
                connections.spawn(async move {
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { url, key, kid, state, _tasks: tasks }
    }

    /// Changes what it answers.
    pub(crate) fn answer(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.state.answers.lock().unwrap());
    }

    /// Returns what was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Returns how often it was asked whose a token is.
    pub(crate) fn reviews(&self) -> usize {
        self.asked().iter().filter(|asked| asked.path.ends_with("/tokenreviews")).count()
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": "EdDSA", "typ": "JWT", "kid": self.kid}), claims)
    }

    /// Signs claims under a header of the test's.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Claims that an issuer's token has anyway, for an hour, and more.
    pub(crate) fn claims(&self, more: &Value) -> Value {
        let mut claims = json!({
            "iss": self.url, "aud": AUDIENCE, "sub": "somebody", "iat": now(), "nbf": now(), "exp": now() + 3600,
        });
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        claims
    }
}

fn keys_of(key: &KeyPair, kid: &str) -> Value {
    let public = URL_SAFE_NO_PAD.encode(key.der_bytes());
    json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": public, "kid": kid, "use": "sig", "alg": "EdDSA"}]})
}

async fn answer(
    state: Arc<State>,
    documents: Arc<(Value, Value)>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let accepted = request.headers().get("accept").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    state.asked.lock().unwrap().push(Asked { path: path.clone(), authorization, body });
    let answers = state.answers.lock().unwrap().clone();
    if answers.hangs {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let (discovery, keys) = &*documents;
    let found = match path.as_str() {
        "/.well-known/openid-configuration" => Some(discovery.clone()),
        // As a cluster's API server has it, which answers 406 to who wants plain JSON.
        "/keys" if !accepted.contains("application/jwk-set+json") => None,
        "/keys" => Some(answers.keys.unwrap_or_else(|| keys.clone())),
        "/apis/authentication.k8s.io/v1/tokenreviews" => answers.review,
        _ => None,
    };
    let mut response = Response::new(Full::default());
    match found {
        Some(document) => *response.body_mut() = Full::from(document.to_string()),
        None => *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR,
    }
    Ok(response)
}

/// Starts a gateway with what a file says of `auth.agents`.
pub(crate) async fn gateway_with(agents: &str, change: impl FnOnce(&mut Config)) -> TestGateway {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, format!("public_url = '{AUDIENCE}'\n{agents}")).expect("written");
    let loaded = Config::load(Some(&file), &std::collections::BTreeMap::new()).expect("a configuration");
    TestGateway::start_with(|config| {
        config.auth.agents = loaded.auth.agents;
        change(config);
    })
    .await
}
