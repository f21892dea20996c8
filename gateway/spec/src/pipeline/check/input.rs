//! Checks the input of an operator, the gateway or a request.

use super::{PipelineFindings, fits, may_be_set};
use crate::pipeline::{Editor, PipelineFacts, PipelineSettings, Proof, VariableName};
use crate::project::{Project, is_project_url};
use crate::syntax::is_variable;
use gateway_types::JOB_TIMES;

/// Most tags of a job (GitLab documentation, "tags").
const TAGS_MAX: usize = 50;

/// Longest tag, in bytes.
const TAG_BYTES_MAX: usize = 255;

/// Shortest and longest key of a cache, in characters. A shorter one could be guessed.
const CACHE_KEY: (usize, usize) = (16, 128);

/// Longest list of certificates, in bytes.
const CERTIFICATES_BYTES_MAX: usize = 64 * 1024;

/// Prefixes of our own variables in a job.
const OWN: [&str; 2] = ["GW_", "WORKSPACE_AGENT_"];

/// Checks the operator's settings.
pub(super) fn settings(settings: &PipelineSettings, findings: &mut PipelineFindings) {
    tags("tags", &settings.tags, findings);
    let message = "must be from 10 minutes to 30 days";
    findings.require("job_timeout", JOB_TIMES.contains(&settings.job_timeout), message);
    for name in &settings.inherit_variables {
        let is_own = OWN.iter().any(|own| name.get(..own.len()).is_some_and(|head| head.eq_ignore_ascii_case(own)));
        let place = format!("inherit_variables, {name}");
        findings.require(&place, is_variable(name) && !is_own, "is not the name of a variable that can be inherited");
    }
    if let Editor::Archive { url, .. } = &settings.editor {
        web_url("editor_archive_url", url, findings);
    }
    let lacks = "there is no program of the workspace agent that a job could run (ci.agent_files)";
    findings.require("agents", !settings.agents.is_empty(), lacks);
    for (index, agent) in settings.agents.iter().enumerate() {
        web_url("agents", &agent.url, findings);
        let is_first = settings.agents.iter().take(index).all(|other| other.architecture != agent.architecture);
        findings.require("agents", is_first, "there are two programs for one architecture");
    }
    if let Proof::IdToken { audience } = &settings.proof {
        let is_sound = (1..=512).contains(&audience.len())
            && audience.bytes().all(|byte| byte.is_ascii_graphic())
            && !audience.contains('$');
        findings.require("audience", is_sound, "must be 1 to 512 printable ASCII characters without $");
    }
    if let Some(certificates) = &settings.ca_pem {
        let is_sound = certificates.contains("-----BEGIN CERTIFICATE-----")
            && certificates.len() <= CERTIFICATES_BYTES_MAX
            && !certificates.contains('\0');
        findings.require("ca_file", is_sound, "must be certificates in PEM, of at most 64 KiB");
    }
}

/// Checks the input of the gateway and a request.
pub(super) fn facts(facts: &PipelineFacts<'_>, settings: &PipelineSettings, findings: &mut PipelineFindings) {
    let (least, most) = CACHE_KEY;
    let is_key = (least..=most).contains(&facts.cache_key.len())
        && facts.cache_key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    findings.require("cache_key", is_key, "must be 16 to 128 letters, digits, dashes and underscores");
    web_url("agents_url", facts.agents_url, findings);
    web_url("public_url", facts.public_url, findings);
    tags("tags", facts.tags, findings);
    if let Some(project) = facts.project {
        self::project(project, findings);
    }
    for VariableName { name, is_file, bytes } in facts.variables {
        let place = format!("variable {name}");
        if *bytes > settings.value_bytes_max {
            let message = format!("its value is longer than {} bytes, the CI system's most", settings.value_bytes_max);
            findings.tell(&place, message);
        } else if !is_file {
            fits(name, *bytes, &place, findings);
        }
        if *is_file {
            findings.require(&place, is_file_name(name), "is not the name of a file");
        } else if !is_variable(name) || is_reserved(name) {
            findings.tell(&place, "is not the name of an environment variable that can be set");
        } else {
            findings.require(&place, may_be_set(name), "is read-only in some shells");
        }
    }
}

fn tags(place: &str, tags: &[String], findings: &mut PipelineFindings) {
    findings.require(place, tags.len() <= TAGS_MAX, "there are more than 50");
    for tag in tags.iter().take(TAGS_MAX) {
        // GitLab puts the values of variables into tags.
        let is_sound = (1..=TAG_BYTES_MAX).contains(&tag.len())
            && tag.trim() == tag
            && !tag.contains(|letter: char| letter.is_control() || matches!(letter, '$' | ','));
        let place = format!("{place}, {}", super::shown(tag));
        findings.require(&place, is_sound, "is no tag of a runner: 1 to 255 bytes without $, commas and line breaks");
    }
}

fn web_url(place: &str, url: &str, findings: &mut PipelineFindings) {
    findings.require(place, is_project_url(url), "is no URL of a web server");
}

fn project(project: &Project, findings: &mut PipelineFindings) {
    for problem in project.problems() {
        findings.tell("project", problem.to_string());
    }
}

fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=253).contains(&name.len()) && name != "." && !name.starts_with("..") && name.bytes().all(plain)
}

/// Returns whether a variable is one of the gateway's own.
fn is_reserved(name: &str) -> bool {
    let begins_so = |own: &str| name.get(..own.len()).is_some_and(|head| head.eq_ignore_ascii_case(own));
    ["PROJECTS_ROOT", "PROJECT_SOURCE"].contains(&name) || OWN.iter().any(|own| begins_so(own))
}
