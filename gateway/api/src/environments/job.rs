//! Reads the facts of a job from its token (GitLab documentation, `id_tokens`): everything that counts, and none of it
//! comes from the request.

use serde_json::Value;

use gateway_auth::jwt::Claims;
use gateway_environments::request::JobFacts;
use workspace_spec::environment::facts::ID_MAX;

/// Longest text of a claim, in bytes. The parts of an environment are checked when they are used.
const CLAIM_BYTES_MAX: usize = 1024;

/// The name of a refusal: a claim is missing, or has another form than the documented one.
const BAD: &str = "credential_claims";

/// Reads the claims of a token that is good.
///
/// # Errors
/// The name of the refusal.
pub(super) fn facts_of(claims: &Claims) -> Result<JobFacts, &'static str> {
    Ok(JobFacts {
        project_id: number(claims, "project_id")?.ok_or(BAD)?,
        project_path: text(claims, "project_path")?.ok_or(BAD)?,
        environment: text(claims, "environment")?,
        tier: text(claims, "deployment_tier")?,
        action: text(claims, "environment_action")?,
        is_ref_protected: truth(claims, "ref_protected")?,
        pipeline_id: number(claims, "pipeline_id")?,
        job_id: number(claims, "job_id")?.ok_or(BAD)?,
        user_id: number(claims, "user_id")?.ok_or(BAD)?,
        username: text(claims, "user_login")?.ok_or(BAD)?,
    })
}

/// Reads a claim that may be missing; jobs without an environment have an empty one.
fn text(claims: &Claims, name: &str) -> Result<Option<String>, &'static str> {
    match claims.rest.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        // A line break would be a line of its own in a log.
        Some(Value::String(text)) if text.len() <= CLAIM_BYTES_MAX && !text.chars().any(char::is_control) => {
            Ok(Some(text.clone()))
        }
        Some(_) => Err(BAD),
    }
}

/// Reads a number, which the claims have as text.
fn number(claims: &Claims, name: &str) -> Result<Option<u64>, &'static str> {
    let number = match claims.rest.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Some(_) => None,
    };
    number.filter(|number| *number <= ID_MAX).map(Some).ok_or(BAD)
}

/// Reads a truth value, which the claims have as text. A missing one counts as the more restrictive value.
fn truth(claims: &Claims, name: &str) -> Result<bool, &'static str> {
    match claims.rest.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(Value::String(text)) => match text.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(BAD),
        },
        Some(_) => Err(BAD),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(change: Value) -> Claims {
        let mut rest = json!({
            "project_id": "42", "project_path": "team/app", "namespace_path": "team", "user_id": "7", "user_login": "ann",
            "pipeline_id": "900", "job_id": "1000", "ref_protected": "true", "environment": "review/1",
            "deployment_tier": "development", "environment_action": "start",
        });
        let (Value::Object(members), Value::Object(change)) = (&mut rest, change) else { panic!("objects") };
        members.extend(change);
        Claims { rest: members.clone(), ..Claims::default() }
    }

    #[test]
    fn claims_of_the_documentation_are_read() {
        let facts = facts_of(&claims(json!({}))).unwrap();
        let expected = JobFacts {
            project_id: 42,
            project_path: "team/app".to_owned(),
            environment: Some("review/1".to_owned()),
            tier: Some("development".to_owned()),
            action: Some("start".to_owned()),
            is_ref_protected: true,
            pipeline_id: Some(900),
            job_id: 1000,
            user_id: 7,
            username: "ann".to_owned(),
        };
        assert_eq!(facts, expected);
        let without = facts_of(&claims(json!({"environment": null, "deployment_tier": "", "ref_protected": null})));
        let without = without.unwrap();
        assert_eq!((without.environment, without.tier, without.is_ref_protected), (None, None, false));
        assert_eq!(facts_of(&claims(json!({"job_id": 1001}))).unwrap().job_id, 1001);
    }

    #[test]
    fn claims_of_another_form_are_refused() {
        for wrong in [
            json!({"project_id": null}),
            json!({"project_id": "-1"}),
            json!({"project_id": ""}),
            json!({"project_id": "9007199254740993"}),
            json!({"project_id": 1.5}),
            json!({"project_path": ["team/app"]}),
            json!({"project_path": ""}),
            json!({"environment": "a\nb"}),
            json!({"environment": "x".repeat(1025)}),
            json!({"ref_protected": "yes"}),
            json!({"ref_protected": 1}),
            json!({"user_login": null}),
            json!({"job_id": "1e3"}),
        ] {
            assert_eq!(facts_of(&claims(wrong.clone())), Err(BAD), "{wrong}");
        }
    }
}
