//! Health of what the gateway depends on: the store, the directory of sessions, the identity provider, certificates.
//!
//! Each has a word for programs and a text for people. The answer never fails with the store: that is when it is needed.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::openapi::{failures, values};
use crate::problem::ProblemRow;
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_auth::jwt::IssuerHealth;
use gateway_auth::policy::OperatorGrant;
use gateway_net::availability::ANSWER_TIME_MAX;
use gateway_net::tls::CertificateFacts;
use gateway_store::wall_clock;
use gateway_types::UnixSeconds;

/// Time before the end of a certificate from which it is said: renewals take place earlier.
const ENDS_SOON_SECONDS: i64 = 14 * 24 * 60 * 60;

/// Health of the replica that answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminHealth)]
pub struct HealthBody {
    /// The database.
    pub store: StoreHealth,
    /// What finds the replica that has an agent.
    pub directory: DirectoryHealth,
    /// Null in dev mode.
    #[schema(required)]
    pub identity_provider: Option<ProviderHealth>,
    /// Those that this replica serves and trusts with.
    pub certificates: Vec<CertificateHealth>,
    /// Version of this gateway.
    pub version: &'static str,
}

/// Health of the database.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminStoreHealth)]
pub struct StoreHealth {
    #[schema(schema_with = values::store_word)]
    pub(crate) word: &'static str,
    pub(crate) text: String,
    /// `sqlite` or `postgres`.
    pub(crate) kind: &'static str,
    /// Time of one look-up just now; null if it was not answered.
    #[schema(required)]
    pub(crate) answered_milliseconds: Option<u64>,
}

/// Health of the directory of sessions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminDirectoryHealth)]
pub struct DirectoryHealth {
    #[schema(schema_with = values::directory_word)]
    pub(crate) word: &'static str,
    pub(crate) text: String,
    /// `memory`, `host` or `store`.
    pub(crate) kind: &'static str,
    /// Number of this replica; null for one gateway alone.
    #[schema(required)]
    pub(crate) replica: Option<u64>,
    /// Replicas that live, this one too; null if the store did not say.
    #[schema(required)]
    pub(crate) replicas: Option<u32>,
}

/// Health of the identity provider.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminProviderHealth)]
pub struct ProviderHealth {
    #[schema(schema_with = values::provider_word)]
    pub(crate) word: &'static str,
    pub(crate) text: String,
    pub(crate) issuer: String,
    /// Last time that its metadata and keys could be read.
    #[schema(required, format = DateTime)]
    pub(crate) read_at: Option<String>,
    /// Last time since then that they could not.
    #[schema(required, format = DateTime)]
    pub(crate) failed_at: Option<String>,
}

/// Health of a certificate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminCertificateHealth)]
pub struct CertificateHealth {
    #[schema(schema_with = values::certificate_word)]
    pub(crate) word: &'static str,
    pub(crate) text: String,
    pub(crate) file: String,
    pub(crate) names: Vec<String>,
    #[schema(format = DateTime)]
    pub(crate) expires_at: String,
}

/// Looks at everything. Waits for the store for 1.5 seconds at most.
///
/// # Cancel safety
/// Safe.
pub async fn look(api: &ApiParts, _grant: &OperatorGrant) -> HealthBody {
    let now = wall_clock();
    let certificates = api.admin.certificates.iter().flat_map(|tls| tls.certificates());
    let provider = api.admin.provider.as_ref();
    HealthBody {
        store: store(api).await,
        directory: directory(api).await,
        identity_provider: provider.map(|known| provider_health(&known.issuer, &known.observer.health())),
        certificates: certificates.map(|facts| certificate(&facts, now)).collect(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

async fn store(api: &ApiParts) -> StoreHealth {
    let (availability, began) = (api.store.availability(), Instant::now());
    let answered = tokio::time::timeout(ANSWER_TIME_MAX, api.store.ping()).await;
    let answered = matches!(answered, Ok(Ok(()))).then(|| began.elapsed().as_millis());
    let answered_milliseconds = answered.map(|time| u64::try_from(time).unwrap_or(u64::MAX));
    let seconds = |since: Instant| since.elapsed().as_secs();
    let (word, text) = match (availability.outage(), availability.unwritable_since(), answered_milliseconds) {
        (Some(outage), _, _) => {
            let since = seconds(outage.since.into());
            ("away", format!("It has not answered for {since} seconds. What is remembered counts on for a while."))
        }
        (None, _, None) => ("away", "It did not answer a look-up just now.".to_owned()),
        (None, Some(since), Some(_)) => {
            ("unwritable", format!("It can be read, and has not been written for {} seconds.", seconds(since)))
        }
        (None, None, Some(time)) => ("good", format!("It answers within {time} milliseconds.")),
    };
    StoreHealth { word, text, kind: api.admin.database, answered_milliseconds }
}

async fn directory(api: &ApiParts) -> DirectoryHealth {
    let kind = api.admin.directory;
    let Some(peers) = &api.peers else {
        let text = "One gateway alone: sessions are in its memory.".to_owned();
        return DirectoryHealth { word: "alone", text, kind, replica: None, replicas: Some(1) };
    };
    let own = peers.incarnation();
    let found = tokio::time::timeout(ANSWER_TIME_MAX, api.store.replicas()).await;
    let live = found.ok().and_then(Result::ok).map(|found| found.into_iter().filter(|one| one.is_live()).collect());
    let live: Option<Vec<_>> = live;
    let (word, text) = match &live {
        None => ("away", "The store, which has the directory, did not answer.".to_owned()),
        Some(live) if !live.iter().any(|one| one.incarnation.get() == own) => {
            ("lost", "The lease of this replica is over: agents go to others.".to_owned())
        }
        Some(live) => match peers.provisional() {
            0 => ("good", format!("{} replicas live.", live.len())),
            waiting => ("behind", format!("{waiting} sessions wait for their place, since the store was away.")),
        },
    };
    let replicas = live.map(|live| u32::try_from(live.len()).unwrap_or(u32::MAX));
    DirectoryHealth { word, text, kind, replica: Some(own), replicas }
}

fn provider_health(issuer: &str, health: &IssuerHealth) -> ProviderHealth {
    let IssuerHealth { read_at, failed_at, failure } = health;
    let (word, text) = match (read_at, failed_at) {
        (None, None) => ("unknown", "It has not been asked yet.".to_owned()),
        (Some(_), None) => ("good", "Its metadata and keys were read.".to_owned()),
        (_, Some(_)) => {
            let why = failure.as_deref().unwrap_or("no answer");
            let rest = if read_at.is_some() { "older keys count on" } else { "no user can sign in" };
            ("failing", format!("It could not be read; {rest}: {why}"))
        }
    };
    let time = |time: &Option<UnixSeconds>| time.map(|time| time.to_string());
    ProviderHealth { word, text, issuer: issuer.to_owned(), read_at: time(read_at), failed_at: time(failed_at) }
}

fn certificate(facts: &CertificateFacts, now: UnixSeconds) -> CertificateHealth {
    let left = facts.not_after.get().saturating_sub(now.get());
    let days = left / (24 * 60 * 60);
    let (word, text) = match left {
        ..=0 => ("expired", "Browsers and agents refuse it.".to_owned()),
        1..ENDS_SOON_SECONDS => ("ends_soon", format!("It ends within {} days.", days + 1)),
        _ => ("good", format!("It is good for {days} more days.")),
    };
    CertificateHealth {
        word,
        text,
        file: facts.path.display().to_string(),
        names: facts.names.clone(),
        expires_at: facts.not_after.to_string(),
    }
}

#[utoipa::path(
    get,
    path = "/admin/health",
    operation_id = "getHealth",
    summary = "Health of the store, the directory, the identity provider and the certificates; for operators",
    responses(
        (status = 200, description = "Health of this replica.", body = HealthBody),
        failures::SignedIn,
        failures::Operators,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    Ok(answer::json(StatusCode::OK, &look(&api, &grant).await))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_told_before_they_end() {
        let now = UnixSeconds::new(1_800_000_000);
        let word = |left: i64| {
            let not_after = UnixSeconds::new(now.get() + left);
            certificate(&CertificateFacts { path: "a.pem".into(), names: vec!["a.test".into()], not_after }, now).word
        };
        assert_eq!(
            [word(-1), word(0), word(1), word(ENDS_SOON_SECONDS - 1)],
            ["expired", "expired", "ends_soon", "ends_soon"]
        );
        assert_eq!(word(ENDS_SOON_SECONDS), "good");
    }

    #[test]
    fn provider_is_told_by_what_came_last() {
        let at = |seconds| Some(UnixSeconds::new(seconds));
        let health = |read_at, failed_at| IssuerHealth { read_at, failed_at, failure: Some("refused".to_owned()) };
        let told = |health| {
            let told = provider_health("https://id.example.com", &health);
            (told.word, told.text)
        };
        assert_eq!(told(IssuerHealth::default()).0, "unknown");
        assert_eq!(told(IssuerHealth { read_at: at(1), ..IssuerHealth::default() }).0, "good");
        let (word, text) = told(health(None, at(2)));
        assert!(word == "failing" && text.contains("no user can sign in") && text.contains("refused"), "{text}");
        assert!(told(health(at(1), at(2))).1.contains("older keys count on"));
    }
}
