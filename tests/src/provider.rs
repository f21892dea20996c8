//! An OpenID Connect provider over real HTTP with real signatures, which keeps the rules as a client is meant to rely on,
//! and breaks one of them when a test says so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gateway_config::{AuthMode, ClientSecret, Config, Oidc};
use gateway_store::wall_clock;
use gateway_types::Secret;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use url::Url;

use crate::raw::{Message, Raw, RawApp};

/// How the provider knows the gateway.
pub const CLIENT_ID: &str = "gateway";
/// With characters that have to be encoded before they go into a header.
pub const CLIENT_SECRET: &str = "s3cret:%+/x";

/// How an ID token is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// With the published key.
    Good,
    /// Not at all.
    None,
    /// With the published key's bytes as the secret of a HMAC.
    HmacOfPublicKey,
    /// With another key of the same id.
    OtherKey,
    /// With a key that is published nowhere.
    UnknownKey,
}

/// What the provider does with the next sign-in.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Claims of the ID token; those of a well-made one are there already, and `null` takes one out.
    pub claims: Value,
    /// How it is signed.
    pub signature: Signature,
    /// `iss` in the redirect; `None` for none.
    pub answer_issuer: Option<String>,
    /// `error` instead of a code.
    pub error: Option<&'static str>,
    /// What is said of the user when the provider is asked, with an access token, instead of in the ID token.
    pub user_info: Option<Value>,
}

/// A provider.
pub struct TestProvider {
    /// Its issuer, and its address.
    pub issuer: String,
    state: Arc<State>,
    _app: RawApp,
}

struct State {
    signer: Signer,
    plan: Mutex<Plan>,
    codes: Mutex<HashMap<String, Grant>>,
    count: AtomicUsize,
    keys_asked: AtomicUsize,
    is_down: AtomicBool,
    seen: Mutex<Vec<Message>>,
}

/// What a code was given for.
struct Grant {
    redirect_uri: String,
    challenge: String,
    nonce: String,
}

struct Signer {
    id: String,
    key: EncodingKey,
    public: Vec<u8>,
}

impl Signer {
    fn new(id: &str) -> Self {
        let pair = Ed25519KeyPair::generate().expect("a key");
        let key = EncodingKey::from_ed_der(pair.to_pkcs8().expect("its encoding").as_ref());
        Self { id: id.to_owned(), key, public: pair.public_key().as_ref().to_vec() }
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.id.clone());
        jsonwebtoken::encode(&header, claims, &self.key).expect("a token")
    }
}

impl TestProvider {
    /// Starts one that signs `ann` in.
    pub async fn start() -> Self {
        let plan =
            Plan { claims: json!({}), signature: Signature::Good, answer_issuer: None, error: None, user_info: None };
        let state = Arc::new(State {
            signer: Signer::new("key-1"),
            plan: Mutex::new(plan),
            codes: Mutex::default(),
            count: AtomicUsize::new(0),
            keys_asked: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let served = state.clone();
        let app = RawApp::start(move |raw| serve(raw, served.clone())).await;
        let issuer = format!("http://127.0.0.1:{}", app.port);
        state.plan.lock().expect("a plan").answer_issuer = Some(issuer.clone());
        let provider = Self { issuer, state, _app: app };
        provider.person("u-ann", "ann", &["devs"]);
        provider
    }

    /// Configures a gateway to use it.
    pub fn configure(&self, config: &mut Config) {
        config.auth.mode = AuthMode::Oidc;
        config.auth.oidc = Some(Oidc {
            issuer: self.issuer.parse().expect("an issuer"),
            client_id: CLIENT_ID.to_owned(),
            client_secret: Some(ClientSecret::Value(Secret::new(CLIENT_SECRET.to_owned()))),
            scopes: "openid profile email".to_owned(),
            username_claim: "preferred_username".to_owned(),
            groups_claim: "groups".to_owned(),
            required_group: None,
            ca_file: None,
        });
    }

    /// Says who signs in from now on, well-behaved.
    pub fn person(&self, subject: &str, name: &str, groups: &[&str]) {
        let claims =
            json!({"sub": subject, "preferred_username": name, "groups": groups, "sid": format!("s-{subject}")});
        let answer_issuer = Some(self.issuer.clone());
        *self.plan() = Plan { claims, signature: Signature::Good, answer_issuer, error: None, user_info: None };
    }

    /// Changes what it does.
    pub fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.state.plan.lock().expect("a plan")
    }

    /// Changes one claim; `null` takes it out.
    pub fn claim(&self, name: &str, value: Value) {
        self.plan().claims[name] = value;
    }

    /// Stops answering, or answers again.
    pub fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Returns how often its keys were asked for.
    pub fn keys_asked(&self) -> usize {
        self.state.keys_asked.load(Ordering::SeqCst)
    }

    /// Returns everything that it was asked.
    pub fn seen(&self) -> Vec<Message> {
        self.state.seen.lock().expect("requests").clone()
    }

    /// Makes a logout token; `change` may spoil it.
    pub fn logout_token(
        &self,
        subject: Option<&str>,
        session: Option<&str>,
        change: impl FnOnce(&mut Value),
    ) -> String {
        let now = wall_clock().get();
        let number = self.state.count.fetch_add(1, Ordering::SeqCst);
        let mut claims = json!({
            "iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 120, "jti": format!("logout-{number}"),
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        });
        for (name, value) in [("sub", subject), ("sid", session)] {
            if let Some(value) = value {
                claims[name] = json!(value);
            }
        }
        change(&mut claims);
        self.state.signer.sign(&claims)
    }

    /// Signs any claims with a key that is not published.
    pub fn forge(&self, key_id: &str, claims: &Value) -> String {
        Signer::new(key_id).sign(claims)
    }
}

async fn serve(mut raw: Raw, state: Arc<State>) {
    while let Some(request) = raw.message().await {
        if state.is_down.load(Ordering::SeqCst) {
            return;
        }
        let answer = state.answer(&request, &issuer_of(&request));
        state.seen.lock().expect("requests").push(request);
        if raw.try_send(answer).await.is_err() {
            return;
        }
    }
}

fn issuer_of(request: &Message) -> String {
    format!("http://{}", request.header("host").expect("a host"))
}

fn respond(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{body}", body.len())
}

impl State {
    fn answer(&self, request: &Message, issuer: &str) -> String {
        let target = request.start.split(' ').nth(1).expect("a target");
        let url = Url::parse(&format!("{issuer}{target}")).expect("a target");
        match url.path() {
            "/.well-known/openid-configuration" => respond("200 OK", "", &self.description(issuer).to_string()),
            "/keys" => {
                self.keys_asked.fetch_add(1, Ordering::SeqCst);
                let key = json!({
                    "kty": "OKP", "crv": "Ed25519", "kid": self.signer.id, "use": "sig", "alg": "EdDSA",
                    "x": URL_SAFE_NO_PAD.encode(&self.signer.public),
                });
                respond("200 OK", "", &json!({"keys": [key]}).to_string())
            }
            "/authorize" => self.authorize(&url),
            "/token" => self.token(request, issuer),
            "/userinfo" if request.header("authorization") == Some("Bearer access-1") => {
                let plan = self.plan.lock().expect("a plan");
                respond(
                    "200 OK",
                    "",
                    &plan.user_info.clone().unwrap_or_else(|| json!({"sub": plan.claims["sub"]})).to_string(),
                )
            }
            _ => respond("404 Not Found", "", ""),
        }
    }

    fn description(&self, issuer: &str) -> Value {
        json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "userinfo_endpoint": format!("{issuer}/userinfo"),
            "end_session_endpoint": format!("{issuer}/end"),
            "authorization_response_iss_parameter_supported": true,
        })
    }

    /// Signs the user in without asking anything.
    fn authorize(&self, url: &Url) -> String {
        let asked: HashMap<String, String> = url.query_pairs().into_owned().collect();
        let is_good = asked["response_type"] == "code"
            && asked["client_id"] == CLIENT_ID
            && asked["code_challenge_method"] == "S256"
            && asked["scope"].split(' ').any(|scope| scope == "openid");
        if !is_good {
            return respond("400 Bad Request", "", "not a question of ours");
        }
        let plan = self.plan.lock().expect("a plan").clone();
        let code = format!("code-{}", self.count.fetch_add(1, Ordering::SeqCst));
        let grant = Grant {
            redirect_uri: asked["redirect_uri"].clone(),
            challenge: asked["code_challenge"].clone(),
            nonce: asked["nonce"].clone(),
        };
        self.codes.lock().expect("codes").insert(code.clone(), grant);
        let mut back = Url::parse(&asked["redirect_uri"]).expect("an address");
        {
            let mut query = back.query_pairs_mut();
            query.append_pair("state", &asked["state"]);
            match plan.error {
                Some(error) => query.append_pair("error", error),
                None => query.append_pair("code", &code),
            };
            if let Some(issuer) = &plan.answer_issuer {
                query.append_pair("iss", issuer);
            }
        }
        respond("302 Found", &format!("location: {back}\r\n"), "")
    }

    fn token(&self, request: &Message, issuer: &str) -> String {
        let refuse = |error: &str| respond("400 Bad Request", "", &json!({ "error": error }).to_string());
        let encoded: String = url::form_urlencoded::byte_serialize(CLIENT_SECRET.as_bytes()).collect();
        let expected = format!("Basic {}", STANDARD.encode(format!("{CLIENT_ID}:{encoded}")));
        if request.header("authorization") != Some(expected.as_str()) {
            return refuse("invalid_client");
        }
        let form: HashMap<String, String> = url::form_urlencoded::parse(&request.body).into_owned().collect();
        let Some(grant) = self.codes.lock().expect("codes").remove(&form["code"]) else {
            return refuse("invalid_grant");
        };
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, form["code_verifier"].as_bytes()));
        let is_good = form["grant_type"] == "authorization_code"
            && form["redirect_uri"] == grant.redirect_uri
            && challenge == grant.challenge;
        if !is_good {
            return refuse("invalid_grant");
        }
        let plan = self.plan.lock().expect("a plan").clone();
        let now = wall_clock().get();
        let mut claims = json!({
            "iss": issuer, "aud": CLIENT_ID, "nonce": grant.nonce, "iat": now, "exp": now + 300,
        });
        for (name, value) in plan.claims.as_object().expect("claims") {
            if value.is_null() {
                drop(claims.as_object_mut().expect("claims").remove(name));
            } else {
                claims[name] = value.clone();
            }
        }
        let token = self.id_token(plan.signature, &claims);
        respond(
            "200 OK",
            "",
            &json!({"access_token": "access-1", "token_type": "Bearer", "id_token": token}).to_string(),
        )
    }

    fn id_token(&self, signature: Signature, claims: &Value) -> String {
        match signature {
            Signature::Good => self.signer.sign(claims),
            Signature::None => {
                let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
                format!("{}.{}.", part(json!({"alg": "none"})), part(claims.clone()))
            }
            Signature::HmacOfPublicKey => {
                let mut header = Header::new(Algorithm::HS256);
                header.kid = Some(self.signer.id.clone());
                let key = EncodingKey::from_secret(&self.signer.public);
                jsonwebtoken::encode(&header, claims, &key).expect("a token")
            }
            Signature::OtherKey => Signer::new(&self.signer.id).sign(claims),
            Signature::UnknownKey => Signer::new("key-of-somebody").sign(claims),
        }
    }
}
