//! `ci`: workspaces in jobs of CI systems.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keys::{Key, Keys, keys, last, section};
use super::reader::{DottedKey, Reader};
use super::value::{COUNT_32, DURATION, ENDPOINT, FILE_PATH, FILE_PATHS, TEXT, ValueKind, YES_OR_NO, words};
use gateway_types::{Endpoint, JOB_TIMES, JobTime, ProviderName, PublicUrl, SAVE_TIMES, hexadecimal};

/// Bounds of a workspace's time limits.
const LIFE_TIMES: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(365 * 24);

/// Most minutes without use: about a year.
const IDLE_MINUTES_MAX: u32 = 8760 * 60;

const QUOTA_MAX: u32 = 1_000_000;

section! {
    /// Workspaces in jobs of CI systems.
    #[derive(Default)]
    pub struct Ci, CI: CiKeys below "ci." {
        /// Lets workspaces be made in jobs of CI systems, and existing ones be reconciled.
        enabled: bool = YES_OR_NO, or false;
        /// Programs of the workspace agent that jobs download from the gateway, one for each architecture.
        agent_files: Vec<PathBuf> = FILE_PATHS, or Vec::new();
        /// URL that agents in jobs dial, if not the public host on the port of `listen.agents`.
        agents_url: String = URL, optional;
        /// Authorities that jobs are to trust to reach this gateway, in PEM, beside their own.
        ca_file: PathBuf = FILE_PATH, optional;
    } also {
        /// The CI systems, by their names (`ci.providers.NAME`).
        providers: Vec<CiProvider>,
    }
}

keys! {
    SYSTEM: SystemKeys below "ci.providers.NAME." {
        /// Kind of CI system.
        kind: Kind = KIND, required;
    }
}

section! {
    /// A CI system, and the bounds of its workspaces.
    pub struct CiProvider, PROVIDER: ProviderKeys below "ci.providers.NAME." {
        /// Runners of workspaces that name none.
        tags: Vec<String> = TAGS, or Vec::new();
        /// Runners that workspaces may name.
        allowed_tags: Vec<String> = TAGS, or Vec::new();
        /// Time after which the system ends a job.
        job_timeout: Duration = DURATION, or Duration::from_hours(8), in JOB_TIMES;
        /// Longest time that a job takes to save its files.
        save_max: Duration = DURATION, or Duration::from_mins(30), in SAVE_TIMES;
        /// Variables of the system that stay in the environment of a workspace's processes.
        inherit_variables: Vec<String> = VARIABLES, or Vec::new();
        /// Largest number of workspaces that are not to be terminated.
        quota: u32 = COUNT_32, optional;
        /// Largest number of workspaces of one owner that are not to be terminated.
        quota_per_user: u32 = COUNT_32, optional;
        /// Time that a workspace runs after its owner last asked for it; then it is stopped.
        active_max: Duration = DURATION, or Duration::from_hours(36), in LIFE_TIMES;
        /// Time that a workspace is kept after its owner stopped it; then it is terminated.
        stopped_max: Duration = DURATION, or Duration::from_hours(31 * 24), in LIFE_TIMES;
        /// Greatest age of a workspace; then it is terminated.
        age_max: Duration = DURATION, or Duration::from_hours(365 * 24), in LIFE_TIMES;
        /// Minutes without use after which a workspace whose owner says nothing is stopped; 0 for never.
        idle_minutes: u32 = COUNT_32, or 0, in 0..=IDLE_MINUTES_MAX;
        /// Largest number of those minutes that an owner can ask for, and a limit for all workspaces; 0 for none.
        max_idle_minutes: u32 = COUNT_32, or 0, in 0..=IDLE_MINUTES_MAX;
    } also {
        /// Its name.
        name: ProviderName,
        /// Kind of CI system, and how to reach it.
        system: CiSystem,
        /// Source of the editor.
        editor: CiEditor,
    }
}

keys! {
    EDITOR: EditorKeys below "ci.providers.NAME." {
        /// Source of the editor: none, the image, or an archive.
        editor: EditorFrom = EDITOR_FROM, or EditorFrom::None;
        /// URL of the editor's archive; with `archive` only.
        editor_archive_url: String = URL, optional;
        /// Expected SHA-256 of the editor's archive; with `archive` only.
        editor_archive_sha256: [u8; 32] = SHA256, optional;
    }
}

section! {
    /// A project of a GitLab whose pipelines are the runs of workspaces.
    pub struct GitlabCi, GITLAB: GitlabKeys below "ci.providers.NAME." {
        /// `gitlab`: address, without `/api/v4`.
        url: Endpoint = ENDPOINT, required;
        /// `gitlab`: project whose pipelines workspaces are, its number or path.
        project: Box<str> = TEXT, required;
        /// `gitlab`: branch or tag that pipelines are made for.
        reference as "ref": Box<str> = TEXT, or "main".into();
        /// `gitlab`: file with the token of the gateway's requests, with the scope `api`; read for each.
        token_file: PathBuf = FILE_PATH, required;
        /// `gitlab`: kind of the token in that file.
        token: GitlabToken = TOKEN, or GitlabToken::Private;
        /// `gitlab`: authority of the GitLab's servers, beside the system's.
        ca_file: PathBuf = FILE_PATH, optional;
        /// `gitlab`: `iss` of the jobs' tokens; `url` unless set.
        issuer: Endpoint = ENDPOINT, open;
        /// `gitlab`: `aud` of the jobs' tokens; `public_url` unless set.
        audience: Box<str> = TEXT, follows;
        /// `gitlab`: URL of the published keys of those tokens, if not the one that the issuer names.
        jwks_url: Endpoint = ENDPOINT, optional;
    } also {}
}

section! {
    /// A program that runs pipelines.
    pub struct CommandCi, COMMAND: CommandKeys below "ci.providers.NAME." {
        /// `command`: the program and its arguments.
        program: Vec<String> = PROGRAM, required;
        /// `command`: folder in which each workspace gets a folder.
        dir: PathBuf = FILE_PATH, required;
        /// `command`: variables of the gateway that the program gets by name, beside those without which no program
        /// works.
        environment: Vec<String> = VARIABLES, or Vec::new();
        /// `command`: the operator's word that the program keeps jobs away from the gateway's files, processes and
        /// account, and from each other. Needed with `auth.mode = "oidc"`.
        isolates_jobs: bool = YES_OR_NO, or false;
    } also {
        /// The gateway's program, if it is not the one that runs. Not a key: for those who run a gateway inside another
        /// program.
        supervisor: Option<PathBuf>,
    }
}

impl CiProvider {
    /// Returns the schedule of a job.
    #[must_use]
    pub fn job_time(&self) -> JobTime {
        JobTime::of(self.job_timeout, self.save_max)
    }
}

/// Kind of CI system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CiSystem {
    /// GitLab, over its REST API (`kind = "gitlab"`).
    Gitlab(GitlabCi),
    /// A program on this machine (`kind = "command"`).
    Command(CommandCi),
}

/// Kinds of tokens of a GitLab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitlabToken {
    /// Of a project, a group or a person: sent as `PRIVATE-TOKEN`.
    Private,
    /// Of a job: sent as `JOB-TOKEN`.
    Job,
}

/// Source of a job's editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CiEditor {
    /// There is none: workspaces have a terminal.
    None,
    /// It is in the image.
    Installed,
    /// It is fetched.
    Archive {
        /// Its URL.
        url: String,
        /// Expected SHA-256 of it.
        sha256: [u8; 32],
    },
}

const URL: ValueKind<String> = ValueKind::new(
    "an http or https URL",
    |text| match url::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => Err("not an http URL".to_owned()),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err("it must not contain a user or password".to_owned())
        }
        Ok(_) if !text.bytes().all(|byte| byte.is_ascii_graphic()) => Err("it has other characters".to_owned()),
        Ok(_) => Ok(text.trim_end_matches('/').to_owned()),
        Err(error) => Err(error.to_string()),
    },
    String::clone,
);

/// Tags may contain spaces, but no commas.
const TAGS: ValueKind<Vec<String>> = ValueKind::new(
    "tags with commas between them",
    |text| {
        let tags: Vec<String> =
            text.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
        let is_good = |tag: &String| tag.len() <= 255 && !tag.chars().any(char::is_control);
        if tags.iter().all(is_good) { Ok(tags) } else { Err("a tag is too long, or has control characters".to_owned()) }
    },
    |tags| tags.join(", "),
);

const VARIABLES: ValueKind<Vec<String>> = ValueKind::new(
    "names of environment variables with spaces or commas between them",
    |text| {
        let split = |byte: char| byte == ',' || byte.is_ascii_whitespace();
        let names: Vec<String> = text.split(split).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_name = |name: &String| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            name.len() <= 255 && name.bytes().all(plain) && !name.starts_with(|first: char| first.is_ascii_digit())
        };
        if names.iter().all(is_name) { Ok(names) } else { Err("not the name of an environment variable".to_owned()) }
    },
    |names| names.join(" "),
);

const PROGRAM: ValueKind<Vec<String>> = ValueKind::new(
    "a program and its arguments with spaces between them such as `gitlab-ci-local --shell-isolation`",
    |text| {
        let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
        if words.is_empty() { Err("the program is missing".to_owned()) } else { Ok(words) }
    },
    |words| words.join(" "),
)
.anchored(program_in);

const SHA256: ValueKind<[u8; 32]> = ValueKind::new(
    "64 hexadecimal digits",
    |text| {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Vec<u8> = text.as_bytes().iter().filter_map(digit).collect();
        let bytes: Vec<u8> =
            digits.chunks_exact(2).map(|two| two.iter().fold(0, |byte, digit| (byte << 4) | digit)).collect();
        match <[u8; 32]>::try_from(bytes) {
            Ok(hash) if text.len() == 64 && digits.len() == 64 => Ok(hash),
            Ok(_) | Err(_) => Err("not a SHA-256".to_owned()),
        }
    },
    |hash| hexadecimal(hash),
);

/// Value of `kind`; the rest is in other keys.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Gitlab,
    Command,
}

const KIND: ValueKind<Kind> =
    words!("`gitlab` or `command`", "unknown kind of CI system", "gitlab" => Kind::Gitlab, "command" => Kind::Command);

const TOKEN: ValueKind<GitlabToken> = words!(
    "`private` or `job`", "unknown kind of token", "private" => GitlabToken::Private, "job" => GitlabToken::Job
);

/// Value of `editor`; the rest is in other keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EditorFrom {
    None,
    Installed,
    Archive,
}

const EDITOR_FROM: ValueKind<EditorFrom> = words!(
    "`none`, `installed` or `archive`", "unknown place of an editor",
    "none" => EditorFrom::None, "installed" => EditorFrom::Installed, "archive" => EditorFrom::Archive
);

/// Reads `ci`.
pub(super) fn read(reader: &mut Reader, public_url: &PublicUrl) -> Ci {
    let enabled = reader.take(&CI.enabled);
    let agent_files = reader.take(&CI.agent_files);
    let agents_url = reader.take(&CI.agents_url);
    let ca_file = reader.take(&CI.ca_file);
    let list = SYSTEM.kind.collection();
    let names = reader.sections(list);
    if enabled && names.is_empty() {
        let wrong = format!("needs a provider: without any ([{list}.NAME]), no workspace could be made");
        reader.object(&CI.enabled, wrong);
    }
    if enabled && agent_files.is_empty() && reader.is_sound(&[&CI.agent_files.name]) {
        reader.object(&CI.agent_files, "is missing: jobs download the agent from here");
    }
    let providers = names.iter().filter_map(|name| read_provider(reader, name, public_url)).collect();
    Ci { enabled, agent_files, agents_url, ca_file, providers }
}

/// Returns the section of a provider.
fn entry_of(name: &str) -> String {
    format!("{}.{name}", SYSTEM.kind.collection())
}

/// Returns the key `kind` of a provider.
pub(super) fn kind_of(name: &ProviderName) -> DottedKey {
    SYSTEM.at(&entry_of(name.as_str())).kind.name
}

fn read_provider(reader: &mut Reader, name: &str, public_url: &PublicUrl) -> Option<CiProvider> {
    let entry = entry_of(name);
    let kind_key = SYSTEM.at(&entry).kind;
    let kind = reader.take(&kind_key);
    let provider: Option<ProviderName> = name.parse().ok();
    if provider.is_none() {
        reader.object(&kind_key, gateway_types::BadProviderName.to_string());
    }
    let system = match kind {
        Some(Kind::Gitlab) => read_gitlab(reader, &entry, public_url).map(CiSystem::Gitlab),
        Some(Kind::Command) => read_command(reader, &entry).map(CiSystem::Command),
        None => None,
    };
    let keys = PROVIDER.at(&entry);
    let tags = reader.take(&keys.tags);
    let allowed_tags = reader.take(&keys.allowed_tags);
    let job_timeout = reader.take(&keys.job_timeout);
    let save_max = reader.take(&keys.save_max);
    let inherit_variables = reader.take(&keys.inherit_variables);
    let editor = read_editor(reader, &entry);
    Some(CiProvider {
        tags,
        allowed_tags,
        job_timeout,
        save_max,
        inherit_variables,
        quota: read_quota(reader, &keys.quota),
        quota_per_user: read_quota(reader, &keys.quota_per_user),
        active_max: reader.take(&keys.active_max),
        stopped_max: reader.take(&keys.stopped_max),
        age_max: reader.take(&keys.age_max),
        idle_minutes: reader.take(&keys.idle_minutes),
        max_idle_minutes: reader.take(&keys.max_idle_minutes),
        // After all keys are read, so that the problems of all of them are noted.
        name: provider?,
        system: system?,
        editor: editor?,
    })
}

fn read_quota(reader: &mut Reader, key: &Key<u32, Option<u32>>) -> Option<u32> {
    let quota = reader.take(key);
    if quota.is_some_and(|quota| quota > QUOTA_MAX) {
        reader.object(key, format!("must be at most {QUOTA_MAX}"));
    }
    quota
}

fn read_gitlab(reader: &mut Reader, entry: &str, public_url: &PublicUrl) -> Option<GitlabCi> {
    let keys = GITLAB.at(entry);
    let url = reader.take(&keys.url);
    let project = reader.take(&keys.project);
    let reference = reader.take(&keys.reference);
    let token_file = reader.take(&keys.token_file);
    let token = reader.take(&keys.token);
    let ca_file = reader.take(&keys.ca_file);
    let issuer = reader.take(&keys.issuer);
    let audience = reader.take_or(&keys.audience, public_url.to_string().into());
    let jwks_url = reader.take(&keys.jwks_url);
    let (url, project, token_file) = (url?, project?, token_file?);
    let issuer = issuer.unwrap_or_else(|| url.clone());
    Some(GitlabCi { url, project, reference, token_file, token, ca_file, issuer, audience, jwks_url })
}

fn read_command(reader: &mut Reader, entry: &str) -> Option<CommandCi> {
    let keys = COMMAND.at(entry);
    let program = reader.take(&keys.program);
    let dir = reader.take(&keys.dir);
    let environment = reader.take(&keys.environment);
    let isolates_jobs = reader.take(&keys.isolates_jobs);
    Some(CommandCi { program: program?, dir: dir?, environment, isolates_jobs, supervisor: None })
}

/// Anchors a program that is named by a relative path at a folder; a bare name is searched for in `PATH`.
fn program_in(mut words: Vec<String>, folder: &Path) -> Vec<String> {
    if let Some(program) = words.first_mut().filter(|program| program.contains('/')) {
        *program = folder.join(&*program).display().to_string();
    }
    words
}

fn read_editor(reader: &mut Reader, entry: &str) -> Option<CiEditor> {
    let EditorKeys { editor, editor_archive_url, editor_archive_sha256 } = EDITOR.at(entry);
    let from = reader.take(&editor);
    let url = reader.take(&editor_archive_url);
    let sha256 = reader.take(&editor_archive_sha256);
    match (from, url, sha256) {
        (EditorFrom::None, None, None) => Some(CiEditor::None),
        (EditorFrom::Installed, None, None) => Some(CiEditor::Installed),
        (EditorFrom::Archive, Some(url), Some(sha256)) => Some(CiEditor::Archive { url, sha256 }),
        (EditorFrom::Archive, _, _) => {
            let others = [&*editor_archive_url.name, &editor_archive_sha256.name];
            if reader.is_sound(&others) {
                reader.object(&editor, format!("needs {} beside it", others.map(last).join(" and ")));
            }
            None
        }
        (EditorFrom::None | EditorFrom::Installed, url, _) => {
            let key = if url.is_some() { editor_archive_url.name } else { editor_archive_sha256.name };
            reader.object(key, format!("has no effect: {} is not `archive`", last(&editor.name)));
            None
        }
    }
}
