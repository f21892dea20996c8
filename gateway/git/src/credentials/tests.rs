//! Answers of one gateway and of two on one database, with a token endpoint that rotates.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use super::*;
use gateway_store::NewGitCredential;
use gateway_types::UnixSeconds;

/// A server that rotates refresh tokens, and counts exchanges.
#[derive(Debug, Default)]
struct Rotating {
    exchanges: AtomicU32,
    /// Refuses with this.
    refuses: Mutex<Option<ExchangeError>>,
}

impl TokenEndpoint for Rotating {
    fn exchange<'a>(&'a self, refresh: &'a Secret) -> BoxFuture<'a, Result<ExchangedTokens, ExchangeError>> {
        Box::pin(async move {
            sleep(Duration::from_millis(250)).await;
            if let Some(error) = self.refuses.lock().clone() {
                return Err(error);
            }
            let number = self.exchanges.fetch_add(1, Ordering::Relaxed);
            if refresh.reveal() != format!("refresh-{number}") {
                return Err(ExchangeError::Ended);
            }
            let next = number + 1;
            let secret = |text: String| Secret::new(text);
            let (access, refresh) = (secret(format!("access-{next}")), secret(format!("refresh-{next}")));
            Ok(ExchangedTokens { access, refresh: Some(refresh), expires_in: Some(100) })
        })
    }

    fn user(&self) -> &'static str {
        "oauth2"
    }
}

struct World {
    store: Store,
    server: Arc<Rotating>,
    now: Arc<AtomicI64>,
    ann: UserName,
}

impl World {
    async fn new() -> Self {
        let store = Store::open("sqlite::memory:").await.unwrap();
        Self { store, server: Arc::default(), now: Arc::new(AtomicI64::new(1_000)), ann: "ann".parse().unwrap() }
    }

    /// A gateway on this world's database.
    fn gateway(&self) -> Arc<GitCredentials> {
        let now = self.now.clone();
        let clock: Clock = Arc::new(move || UnixSeconds::new(now.load(Ordering::Relaxed)));
        let endpoint: Arc<dyn TokenEndpoint> = self.server.clone();
        let plain = vec![host("plain.example")];
        GitCredentials::of(self.store.clone(), plain, HashMap::from([(host("forge.example"), endpoint)]), clock)
    }

    async fn put(&self, at: &str, kind: GitCredentialKind, secret: &str) {
        let secret = SecretText::new(secret.to_owned());
        let new = NewGitCredential { kind, user: "ann", secret: &secret };
        assert!(self.store.put_git_credential(&self.ann, &host(at), new, UnixSeconds::new(1)).await.unwrap());
    }

    async fn ask(&self, gateway: &Arc<GitCredentials>, url: &str) -> Result<String, NoGitCredential> {
        ask(gateway, &self.ann, 1, url).await
    }
}

fn host(text: &str) -> GitHost {
    text.parse().unwrap()
}

async fn ask(
    gateway: &Arc<GitCredentials>,
    owner: &UserName,
    workspace: i64,
    url: &str,
) -> Result<String, NoGitCredential> {
    let (protocol, host) = url.split_once("://").unwrap();
    let protocol = GitProtocol::parse(protocol).unwrap();
    let request = GitCredentialRequest { protocol, host: host.to_owned(), is_refused: false };
    let asker = Asker { workspace: format!("w-{workspace}").parse().unwrap(), owner };
    gateway.answer(asker, &request).await.map(|credential| credential.password)
}

#[tokio::test]
async fn workspace_gets_its_owners_credential_for_its_host_and_no_other() {
    let world = World::new().await;
    let gateway = world.gateway();
    world.put("git.example", GitCredentialKind::Basic, "hunter2").await;
    world.put("plain.example", GitCredentialKind::Basic, "hunter3").await;
    assert_eq!(world.ask(&gateway, "https://git.example").await.as_deref(), Ok("hunter2"));
    assert_eq!(world.ask(&gateway, "https://GIT.example:443").await.as_deref(), Ok("hunter2"));
    assert_eq!(world.ask(&gateway, "http://git.example").await, Err(NoGitCredential::PlainHttp));
    assert_eq!(world.ask(&gateway, "http://plain.example").await.as_deref(), Ok("hunter3"));
    for other in ["https://git.example:8443", "https://example", "https://git.example.evil", "https://git.example/x"] {
        assert_eq!(world.ask(&gateway, other).await, Err(NoGitCredential::NotStored), "{other}");
    }
    let bob: UserName = "bob".parse().unwrap();
    assert_eq!(ask(&gateway, &bob, 2, "https://git.example").await, Err(NoGitCredential::NotStored));
    // Only users that are known can be disabled.
    world.store.create_user_token(&world.ann, UnixSeconds::new(5)).await.unwrap();
    assert!(world.store.disable_user(&world.ann, UnixSeconds::new(5)).await.unwrap());
    assert_eq!(world.ask(&gateway, "https://git.example").await, Err(NoGitCredential::OwnerDisabled));
}

#[tokio::test]
async fn workspace_that_asks_too_often_waits_and_others_do_not() {
    let world = World::new().await;
    let gateway = world.gateway();
    world.put("git.example", GitCredentialKind::Basic, "hunter2").await;
    for _ in 0..QUESTIONS_AT_ONCE.get() {
        assert!(world.ask(&gateway, "https://git.example").await.is_ok());
    }
    let refused = async || {
        for _ in 0..5 {
            if world.ask(&gateway, "https://git.example").await == Err(NoGitCredential::TooOften) {
                return true;
            }
        }
        false
    };
    assert!(refused().await);
    assert!(ask(&gateway, &world.ann, 2, "https://git.example").await.is_ok(), "another workspace");
}

#[tokio::test]
async fn all_that_ask_at_once_share_one_exchange_on_two_gateways() {
    let world = World::new().await;
    let gateways = [world.gateway(), world.gateway()];
    world.put("forge.example", GitCredentialKind::Oauth, "refresh-0").await;
    let asked = (0..20).map(|number| {
        let gateway = &gateways[number % 2];
        world.ask(gateway, "https://forge.example")
    });
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.as_deref(), Ok("access-1"));
    }
    assert_eq!(world.server.exchanges.load(Ordering::Relaxed), 1);
    // It is given out until shortly before its end, and then exchanged again, with the rotated refresh token.
    world.now.fetch_add(74, Ordering::Relaxed);
    assert_eq!(world.ask(&gateways[1], "https://forge.example").await.as_deref(), Ok("access-1"));
    world.now.fetch_add(1, Ordering::Relaxed);
    assert_eq!(world.ask(&gateways[1], "https://forge.example").await.as_deref(), Ok("access-2"));
    assert_eq!(world.server.exchanges.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn exchange_goes_on_when_the_one_who_asked_went_away() {
    let world = World::new().await;
    let gateway = world.gateway();
    world.put("forge.example", GitCredentialKind::Oauth, "refresh-0").await;
    let gone = tokio::time::timeout(Duration::from_millis(50), world.ask(&gateway, "https://forge.example")).await;
    assert!(gone.is_err(), "{gone:?}");
    sleep(Duration::from_millis(600)).await;
    let found = world.store.git_credential(&world.ann, &host("forge.example")).await.unwrap().unwrap();
    assert_eq!((found.secret.reveal(), found.version), ("refresh-1", 2));
}

#[tokio::test]
async fn access_token_that_the_server_refused_is_not_given_out_again() {
    let world = World::new().await;
    let gateway = world.gateway();
    world.put("forge.example", GitCredentialKind::Oauth, "refresh-0").await;
    assert_eq!(world.ask(&gateway, "https://forge.example").await.as_deref(), Ok("access-1"));
    let erase =
        GitCredentialRequest { protocol: GitProtocol::Https, host: "forge.example".to_owned(), is_refused: true };
    let asker = Asker { workspace: "w-1".parse().unwrap(), owner: &world.ann };
    assert_eq!(gateway.answer(asker, &erase).await.unwrap().password, "");
    assert_eq!(world.ask(&gateway, "https://forge.example").await.as_deref(), Ok("access-2"));
}

#[tokio::test]
async fn refresh_token_that_has_ended_is_told_and_not_tried_again() {
    let world = World::new().await;
    let gateway = world.gateway();
    world.put("forge.example", GitCredentialKind::Oauth, "refresh-0").await;
    *world.server.refuses.lock() = Some(ExchangeError::Failed("no answer".to_owned()));
    assert_eq!(world.ask(&gateway, "https://forge.example").await, Err(NoGitCredential::Failed));
    *world.server.refuses.lock() = Some(ExchangeError::Ended);
    assert_eq!(world.ask(&gateway, "https://forge.example").await, Err(NoGitCredential::SignInAgain));
    *world.server.refuses.lock() = None;
    assert_eq!(world.ask(&gateway, "https://forge.example").await, Err(NoGitCredential::SignInAgain));
    assert_eq!(world.server.exchanges.load(Ordering::Relaxed), 0);
    world.put("forge.example", GitCredentialKind::Oauth, "refresh-0").await;
    assert_eq!(world.ask(&gateway, "https://forge.example").await.as_deref(), Ok("access-1"));
}

#[tokio::test]
async fn refresh_token_without_a_configured_server_is_told() {
    let world = World::new().await;
    world.put("other.example", GitCredentialKind::Oauth, "refresh-0").await;
    let gateway = world.gateway();
    assert_eq!(world.ask(&gateway, "https://other.example").await, Err(NoGitCredential::NotConfigured));
}
