use std::convert::Infallible;

use http::header::COOKIE;

use super::*;
use crate::browser::Lifetimes;
use gateway_types::opaque::Opaque;
use gateway_types::token::Token;

const HOST: &str = "8080-app.zone";
const PEER: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn token(kind: TokenKind) -> Token {
    Token::generate(kind).unwrap()
}

fn bearer_of(token: &Token) -> String {
    format!("Bearer {}", token.reveal())
}

fn read(lines: &[(HeaderName, &str)]) -> OfferedCredential {
    let pair = |(name, value): &(HeaderName, &str)| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    OfferedCredential::read(&lines.iter().map(pair).collect(), CookieNames::new(false), &LastOffered::default())
}

#[test]
fn own_header_wins_over_authorization_and_both_over_the_cookie() {
    let (first, second) = (token(TokenKind::User), token(TokenKind::User));
    let session = Opaque::random().unwrap();
    let cookie = format!("gateway_session={}", session.reveal());
    let own = (GATEWAY_AUTHORIZATION, &*bearer_of(&first));
    let shared = (AUTHORIZATION, &*bearer_of(&second));
    let cookie = (COOKIE, &*cookie);
    assert_eq!(read(&[cookie.clone(), shared.clone(), own]), OfferedCredential::Token(first.hash()));
    assert_eq!(read(&[cookie.clone(), shared]), OfferedCredential::Token(second.hash()));
    assert_eq!(read(&[cookie]), OfferedCredential::Session(session.digest()));
    assert_eq!(read(&[]), OfferedCredential::Nothing);
}

#[test]
fn authorization_of_the_app_is_none_of_ours() {
    let session = Opaque::random().unwrap();
    let cookie = format!("gateway_session={}", session.reveal());
    for value in ["Basic Z3d1Xw==", "Bearer eyJhbGciOi", "gwu_x", "Bearer", "", "Digest gwu_", "\u{ff}"] {
        assert_eq!(read(&[(AUTHORIZATION, value)]), OfferedCredential::Nothing, "{value}");
        assert_eq!(
            read(&[(AUTHORIZATION, value), (COOKIE, &cookie)]),
            OfferedCredential::Session(session.digest()),
            "{value}"
        );
    }
}

#[test]
fn token_that_cannot_be_used_is_refused_and_never_falls_back_to_the_cookie() {
    let good = token(TokenKind::User);
    let agent = bearer_of(&token(TokenKind::Agent));
    let cluster = bearer_of(&token(TokenKind::Cluster));
    let cookie = format!("gateway_session={}", Opaque::random().unwrap().reveal());
    let cut = bearer_of(&good).replace("gwu_", "gwu_x");
    for value in ["Bearer gwu_", &cut, &agent, &cluster, "bearer gwa_x", "bearer gwc_x", "BEARER  gwu_\u{ff}"] {
        assert_eq!(read(&[(AUTHORIZATION, value), (COOKIE, &cookie)]), OfferedCredential::Refused, "{value}");
        assert!(is_gateway_bearer(&HeaderValue::from_bytes(value.as_bytes()).unwrap()), "{value}");
    }
    // What is in our own header is for us, whatever it is.
    for value in ["", "Basic x", "Bearer eyJ", &agent, good.reveal()] {
        let good = bearer_of(&good);
        let lines = [(GATEWAY_AUTHORIZATION, value), (AUTHORIZATION, &good), (COOKIE, &cookie)];
        assert_eq!(read(&lines), OfferedCredential::Refused, "{value}");
    }
    let twice = bearer_of(&good);
    assert_eq!(read(&[(AUTHORIZATION, &twice), (AUTHORIZATION, &twice)]), OfferedCredential::Refused);
    assert_eq!(read(&[(AUTHORIZATION, &twice), (AUTHORIZATION, "Basic x")]), OfferedCredential::Token(good.hash()));
    assert_eq!(read(&[(GATEWAY_AUTHORIZATION, &twice), (GATEWAY_AUTHORIZATION, &twice)]), OfferedCredential::Refused);
}

#[test]
fn scheme_is_compared_without_regard_to_case() {
    let good = token(TokenKind::User);
    let text = format!("bEaReR {} ", good.reveal());
    assert_eq!(read(&[(AUTHORIZATION, &text)]), OfferedCredential::Token(good.hash()));
}

#[test]
fn cookie_that_occurs_twice_is_refused() {
    let cookie = format!("gateway_session={}", Opaque::random().unwrap().reveal());
    assert_eq!(read(&[(COOKIE, &cookie), (COOKIE, &cookie)]), OfferedCredential::Refused);
}

const WALL: UnixSeconds = UnixSeconds::new(1_000);

/// A store that knows nobody and must not be asked.
async fn nobody(_: [u8; 32]) -> Result<Option<LiveToken>, Infallible> {
    panic!("asked for a credential that is no token");
}

#[tokio::test(start_paused = true)]
async fn session_proves_its_user_at_its_own_host_only() {
    let now = Instant::now();
    let sessions = Arc::new(BrowserSessions::new(now, Lifetimes::default()));
    let (public, host) = (Opaque::random().unwrap(), Opaque::random().unwrap());
    let ann: UserName = "ann".parse().unwrap();
    sessions.open_public(&public, ann.clone(), PEER, now);
    sessions.open_host(&host, public.digest(), HOST, PEER, now).unwrap();
    let identities = Identities::new(sessions);
    let known = Some(Principal { user: ann, via: Via::Browser, groups: Arc::default() });
    for (id, at, expected) in [
        (&public, OfferedAt::Public, &known),
        (&host, OfferedAt::Workspace(HOST), &known),
        (&public, OfferedAt::Workspace(HOST), &None),
        (&host, OfferedAt::Public, &None),
        (&host, OfferedAt::Workspace("8081-app.zone"), &None),
    ] {
        let offered = OfferedCredential::Session(id.digest());
        assert_eq!(&identities.principal(&offered, at, now, WALL, nobody).await.unwrap(), expected, "{at:?}");
    }
    for offered in [OfferedCredential::Nothing, OfferedCredential::Refused] {
        assert_eq!(identities.principal(&offered, OfferedAt::Public, now, WALL, nobody).await, Ok(None));
    }
}

#[tokio::test(start_paused = true)]
async fn token_is_asked_for_once_until_it_is_forgotten() {
    let now = Instant::now();
    let identities = Identities::new(Arc::new(BrowserSessions::new(now, Lifetimes::default())));
    let hash = token(TokenKind::User).hash();
    let bob: UserName = "bob".parse().unwrap();
    let at = OfferedAt::Workspace(HOST);
    let offered = OfferedCredential::Token(hash);
    let found = |asked| {
        assert_eq!(asked, hash);
        async {
            Ok::<_, Infallible>(Some(LiveToken {
                user: bob.clone(),
                expires_at: Some(UnixSeconds::new(WALL.get() + 1)),
            }))
        }
    };
    let known = Ok(Some(Principal { user: bob.clone(), via: Via::ApiToken, groups: Arc::default() }));
    assert_eq!(identities.principal(&offered, at, now, WALL, found).await, known);
    assert_eq!(identities.principal(&offered, at, now, WALL, nobody).await, known);
    let later = UnixSeconds::new(WALL.get() + 1);
    assert_eq!(
        identities.principal(&offered, at, now, later, nobody).await,
        Ok(None),
        "it has expired while it was known"
    );
    identities.forget_token(&hash, now);
    let gone = |_| async { Ok::<_, Infallible>(None) };
    assert_eq!(identities.principal(&offered, at, now, WALL, gone).await, Ok(None));
}
