//! Parses and interprets GitLab's answers. Field names and words are those of its REST API, version 4 (documentation of
//! "Pipelines API" and "Jobs API").

use serde::Deserialize;
use serde_json::Value;

use super::super::text::one_line;
use super::super::{JobStatus, RunState};
use gateway_types::UnixSeconds;

/// Name of the trigger job in the template: its child pipeline is the workspace.
pub(super) const TRIGGER_JOB: &str = "workspace";

/// Longest text of GitLab's that is repeated, in bytes.
const WHY_BYTES_MAX: usize = 300;

/// Longest address that is taken, in bytes.
const ADDRESS_BYTES_MAX: usize = 2048;

/// A pipeline; answers may lack all fields but the id.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pipeline {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) web_url: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<String>,
}

/// A job that starts another pipeline.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Bridge {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) downstream_pipeline: Option<Pipeline>,
}

/// A job.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct GitlabJob {
    pub(super) id: u64,
    #[serde(default)]
    status: String,
    #[serde(default)]
    started_at: Option<String>,
    #[serde(default)]
    failure_reason: Option<String>,
    #[serde(default)]
    web_url: Option<String>,
}

/// A variable of a pipeline.
#[derive(Clone, Deserialize)]
pub(super) struct PipelineVariable {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: Option<String>,
}

impl Pipeline {
    /// Returns the state of the pipeline.
    pub(super) fn state(&self) -> RunState {
        state_of(&self.status)
    }

    /// Returns the time of its creation.
    pub(super) fn created_at(&self) -> Option<UnixSeconds> {
        self.created_at.as_deref()?.parse().ok()
    }
}

impl GitlabJob {
    pub(super) fn state(&self) -> RunState {
        state_of(&self.status)
    }

    pub(super) fn status(&self) -> JobStatus {
        JobStatus {
            id: self.id.to_string(),
            started_at: self.started_at.as_deref().and_then(|text| text.parse().ok()),
            failure: self.failure_reason.as_deref().map(|reason| one_line(reason, WHY_BYTES_MAX)),
        }
    }

    pub(super) fn web_url(&self) -> Option<String> {
        shown_address(self.web_url.as_deref())
    }
}

/// Returns an address that may be shown as a link.
pub(super) fn shown_address(address: Option<&str>) -> Option<String> {
    let address = address.filter(|address| address.len() <= ADDRESS_BYTES_MAX)?;
    let is_link = address.starts_with("https://") || address.starts_with("http://");
    (is_link && address.bytes().all(|byte| byte.is_ascii_graphic())).then(|| address.to_owned())
}

/// Reads a status of a pipeline or a job.
fn state_of(status: &str) -> RunState {
    match status {
        "created"
        | "waiting_for_resource"
        | "waiting_for_callback"
        | "preparing"
        | "pending"
        | "scheduled"
        | "manual" => RunState::Pending,
        "success" => RunState::Succeeded,
        "failed" => RunState::Failed,
        "canceled" | "skipped" => RunState::Cancelled,
        // `running` and `canceling`, and words of newer versions of GitLab: counts as alive until it is known to be
        // over.
        _ => RunState::Running,
    }
}

/// States of a child pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildStates {
    pub(super) pipeline: RunState,
    /// State of its job, if that is there.
    pub(super) job: Option<RunState>,
}

/// Joins the states of the requested pipeline, of its child pipeline, and of that one's job.
///
/// A parent that was cancelled may be over while its child is not: the child counts, as soon as there is one.
pub(super) fn joined(parent: RunState, child: Option<ChildStates>) -> RunState {
    match child {
        None => match parent {
            // Its first job runs, which only fetches the definition.
            RunState::Running | RunState::Pending => RunState::Pending,
            // It ended well and started nothing: the template is not in the project.
            RunState::Succeeded | RunState::Failed => RunState::Failed,
            RunState::Cancelled => RunState::Cancelled,
            RunState::Gone => RunState::Gone,
        },
        Some(ChildStates { pipeline: RunState::Running | RunState::Pending, job: Some(RunState::Pending) }) => {
            RunState::Pending
        }
        Some(ChildStates { pipeline: RunState::Running | RunState::Pending, .. }) => RunState::Running,
        Some(ChildStates { pipeline: over, job }) => match job {
            // The pipeline is cancelled, and its job has not ended yet.
            Some(RunState::Running) => RunState::Running,
            Some(_) | None => over,
        },
    }
}

/// Returns GitLab's own words in a refusal: `message` or `error`, a text, a list, or lists by field.
pub(super) fn why(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return "it gave no reason".to_owned();
    };
    let mut texts = Vec::new();
    for key in ["message", "error_description", "error"] {
        if let Some(value) = value.get(key) {
            collect(value, &mut texts);
        }
    }
    let text = one_line(&texts.join("; "), WHY_BYTES_MAX);
    if text.is_empty() { "it gave no reason".to_owned() } else { text }
}

/// Collects the texts in a value, two levels deep.
fn collect(value: &Value, texts: &mut Vec<String>) {
    let mut inner = |value: &Value| {
        if let Some(text) = value.as_str() {
            texts.push(text.to_owned());
        }
    };
    match value {
        Value::String(_) => inner(value),
        Value::Array(list) => list.iter().for_each(inner),
        Value::Object(fields) => fields.values().for_each(|value| match value {
            Value::Array(list) => list.iter().for_each(&mut inner),
            Value::String(_) => inner(value),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_that_nobody_knows_counts_as_alive() {
        for (status, expected) in [
            ("created", RunState::Pending),
            ("waiting_for_resource", RunState::Pending),
            ("preparing", RunState::Pending),
            ("pending", RunState::Pending),
            ("running", RunState::Running),
            ("canceling", RunState::Running),
            ("success", RunState::Succeeded),
            ("failed", RunState::Failed),
            ("canceled", RunState::Cancelled),
            ("skipped", RunState::Cancelled),
            ("manual", RunState::Pending),
            ("scheduled", RunState::Pending),
            ("hibernating", RunState::Running),
            ("", RunState::Running),
        ] {
            assert_eq!(state_of(status), expected, "{status}");
        }
    }

    #[test]
    fn run_is_over_when_its_child_is() {
        use RunState::{Cancelled, Failed, Gone, Pending, Running, Succeeded};
        for (parent, child, expected) in [
            (Pending, None, Pending),
            (Running, None, Pending),
            (Succeeded, None, Failed),
            (Failed, None, Failed),
            (Cancelled, None, Cancelled),
            (Gone, None, Gone),
            (Running, Some((Pending, None)), Running),
            (Running, Some((Pending, Some(Pending))), Pending),
            (Running, Some((Running, Some(Pending))), Pending),
            (Running, Some((Running, Some(Running))), Running),
            (Cancelled, Some((Running, Some(Running))), Running),
            (Cancelled, Some((Running, Some(Pending))), Pending),
            (Cancelled, Some((Cancelled, Some(Running))), Running),
            (Cancelled, Some((Cancelled, Some(Cancelled))), Cancelled),
            (Running, Some((Succeeded, Some(Succeeded))), Succeeded),
            (Running, Some((Failed, Some(Failed))), Failed),
            (Running, Some((Gone, None)), Gone),
        ] {
            let child = child.map(|(pipeline, job)| ChildStates { pipeline, job });
            assert_eq!(joined(parent, child), expected, "{parent:?} {child:?}");
        }
    }

    #[test]
    fn words_of_a_refusal_are_found_in_each_of_their_shapes() {
        for (body, expected) in [
            (r#"{"message":"404 Project Not Found"}"#, "404 Project Not Found"),
            (r#"{"message":{"base":["Reference not found","b"]}}"#, "Reference not found; b"),
            (r#"{"message":["a","b"]}"#, "a; b"),
            (
                r#"{"error":"invalid_token","error_description":"Token was revoked."}"#,
                "Token was revoked.; invalid_token",
            ),
            ("<html>", "it gave no reason"),
            ("{}", "it gave no reason"),
            (r#"{"message":[[["deep"]]]}"#, "it gave no reason"),
        ] {
            assert_eq!(why(body.as_bytes()), expected);
        }
        assert_eq!(why(format!(r#"{{"message":"{}"}}"#, "x".repeat(10_000)).as_bytes()).len(), WHY_BYTES_MAX);
    }

    #[test]
    fn address_that_is_no_link_is_not_shown() {
        for address in ["javascript:alert(1)", "", "https://a\n", "//a"] {
            assert_eq!(shown_address(Some(address)), None, "{address}");
        }
        assert_eq!(
            shown_address(Some("https://gitlab.test/a/-/jobs/1")).as_deref(),
            Some("https://gitlab.test/a/-/jobs/1")
        );
    }
}
