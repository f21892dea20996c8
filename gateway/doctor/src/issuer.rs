//! The identity provider: its description, its clock, and whether it accepts this gateway's secret.

use std::sync::Arc;

use doctor::judge::{self, ClockReading};
use doctor::{Check, Finding, FindingId, Outcome};
use http::header::DATE;
use tokio::time::Instant;
use tunnel_link::causes;

use crate::way::{bare, found, variable};
use crate::{Installation, now_ms};
use gateway_auth::issuer::DISCOVERY_PATH;
use gateway_auth::jwt::Moment;
use gateway_auth::oidc::metadata::Metadata;
use gateway_auth::oidc::provider::{CodeRefusal, Provider};
use gateway_config::Oidc;
use gateway_net::dial::Dialer;
use gateway_net::fetch::{Credentials, Fetch, FetchedResponse, Trust};
use gateway_store::wall_clock;
use gateway_types::PublicUrl;

const DESCRIPTION: &str = "identity provider";
const CLOCK: &str = "identity provider: clock";
const CLIENT: &str = "identity provider: client";

/// Step of an HTTP `Date`, in milliseconds.
const DATE_STEP: i64 = 1000;

/// An answer, and this machine's clock around it.
struct Description {
    answer: FetchedResponse,
    before: i64,
    after: i64,
}

/// Asks the provider, if one is configured.
pub(crate) async fn look(it: Arc<Installation>, provider: Result<Option<Provider>, String>) -> Vec<Check> {
    let Some(oidc) = &it.config.auth.oidc else {
        return left_out("auth.mode is not oidc: no provider signs users in");
    };
    let provider = match provider {
        Ok(Some(provider)) => provider,
        // What is wrong is in the configuration's findings.
        Ok(None) => return left_out("no provider is configured"),
        Err(why) => return left_out(&format!("it cannot be asked: {why}")),
    };
    let described = match described(&it, oidc).await {
        Ok(described) => described,
        Err(found) => {
            let mut checks = left_out("its description cannot be read");
            if let Some(first) = checks.first_mut() {
                *first = Check::new(DESCRIPTION, found);
            }
            return checks;
        }
    };
    vec![
        Check::new(DESCRIPTION, Outcome::Passed(format!("{} has its description", oidc.issuer))),
        clock(&described),
        client(&provider, oidc).await,
    ]
}

fn left_out(why: &str) -> Vec<Check> {
    [DESCRIPTION, CLOCK, CLIENT].into_iter().map(|name| Check::skipped(name, why)).collect()
}

async fn described(it: &Installation, oidc: &Oidc) -> Result<Description, Finding> {
    proxied(it, oidc).await?;
    let away = |why: String| Finding::new(FindingId::IssuerUnreachable, why);
    let trust = oidc.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
    let fetch = Fetch::new(&trust).map_err(|error| away(error.to_string()))?;
    let at = oidc.issuer.join(DISCOVERY_PATH).map_err(|error| away(error.to_string()))?;
    let before = now_ms();
    let answer = fetch.get(&at, Credentials::Nothing).await.map_err(|error| away(error.to_string()))?;
    let after = now_ms();
    let document = answer.json().map_err(|error| away(error.to_string()))?;
    Metadata::parse(&document, &oidc.issuer).map_err(|error| away(format!("{}: {error}", oidc.issuer)))?;
    Ok(Description { answer, before, after })
}

/// Tries the proxy that leads to the provider, if one does: it says what is wrong, which the client that is used afterwards does not.
async fn proxied(it: &Installation, oidc: &Oidc) -> Result<(), Finding> {
    let Ok(url) = oidc.issuer.origin().parse::<PublicUrl>() else { return Ok(()) };
    if oidc.issuer.is_loopback() {
        return Ok(());
    }
    let dialer = Dialer::new(&url, oidc.ca_file.as_deref(), |name| variable(&it.env, name));
    let dialer = dialer.map_err(|error| Finding::new(FindingId::ProxyFailed, causes::one_line(&error)))?;
    if dialer.proxy().is_none() {
        return Ok(());
    }
    let led = dialer.connect(bare(url.host())).await;
    led.map(drop).map_err(|error| found(&error, &url, FindingId::IssuerUnreachable))
}

fn clock(described: &Description) -> Check {
    let Description { answer, before, after } = described;
    let Some(other) = answer.header(&DATE).and_then(judge::http_date) else {
        return Check::skipped(CLOCK, "its answers have no Date");
    };
    let ahead = ClockReading { before: *before, after: *after, other }.ahead(DATE_STEP);
    let found = judge::clock(ahead, "the identity provider").into_iter().collect();
    Check::new(CLOCK, Outcome::of(found, "it agrees with this machine's"))
}

async fn client(provider: &Provider, oidc: &Oidc) -> Check {
    if oidc.client_secret.is_none() {
        return Check::skipped(CLIENT, "it is a public client, without a secret");
    }
    let now = Moment { wall: wall_clock(), clock: Instant::now() };
    match provider.refusal_of_made_up_code(now).await {
        Ok(refusal) => Check::new(CLIENT, accepted(&refusal)),
        Err(error) => Check::skipped(CLIENT, format!("its token endpoint gives no answer to judge: {error}")),
    }
}

/// Judges the refusal of a made-up code (RFC 6749, section 5.2).
fn accepted(refusal: &CodeRefusal) -> Outcome {
    let CodeRefusal { status, error } = refusal;
    match (status, error.as_str()) {
        (_, "invalid_grant") => Outcome::Passed("it accepts this gateway's id and secret".to_owned()),
        (_, "invalid_client" | "unauthorized_client") | (401, _) => {
            let word = if error.is_empty() { String::new() } else { format!(", {error}") };
            Finding::new(FindingId::IssuerSecretWrong, format!("the token endpoint answers {status}{word}")).into()
        }
        (_, _) => {
            Outcome::Skipped(format!("the token endpoint answers {status}, {error}: that says nothing of the secret"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_code_is_told_from_one_of_the_client() {
        let judged = |status, error: &str| accepted(&CodeRefusal { status, error: error.to_owned() });
        assert!(matches!(judged(400, "invalid_grant"), Outcome::Passed(_)));
        for (status, error) in
            [(401, "invalid_client"), (400, "invalid_client"), (400, "unauthorized_client"), (401, "")]
        {
            let Outcome::Found(found) = judged(status, error) else { panic!("{status} {error}") };
            assert_eq!(found[0].id, FindingId::IssuerSecretWrong);
        }
        assert!(matches!(judged(503, ""), Outcome::Skipped(_)));
        assert!(matches!(judged(400, "invalid_request"), Outcome::Skipped(_)));
    }
}
