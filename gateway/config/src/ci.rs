//! `ci`: workspaces in jobs of CI systems.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::agents::YES_OR_NO;
use super::reader::Reader;
use super::value::{COUNT_32, DURATION, ENDPOINT, FILE_PATH, FILE_PATHS, TEXT, ValueKind};
use gateway_types::PublicUrl;
use gateway_types::{Endpoint, JOB_TIMES, JobTime, ProviderName, SAVE_TIMES, hexadecimal};

const ENABLED: &str = "ci.enabled";
const AGENT_FILES: &str = "ci.agent_files";
const PROVIDERS: &str = "ci.providers";

/// Bounds of a workspace's time limits.
const LIFE_TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(365 * 24 * 60 * 60);

const QUOTA_MAX: u32 = 1_000_000;

/// Workspaces in jobs of CI systems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ci {
    /// Whether workspaces can be made in CI systems, and existing ones are reconciled (`ci.enabled`).
    pub enabled: bool,
    /// Programs of the workspace agent that jobs download from here, one for each architecture (`ci.agent_files`).
    pub agent_files: Vec<PathBuf>,
    /// URL that agents in jobs dial; by default the public host on the port for agents (`ci.agents_url`).
    pub agents_url: Option<String>,
    /// Authorities in PEM that jobs are to trust besides their own, to reach this gateway (`ci.ca_file`).
    pub ca_file: Option<PathBuf>,
    /// The CI systems, by their names (`ci.providers.NAME`).
    pub providers: Vec<CiProvider>,
}

/// A CI system, and the bounds of its workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiProvider {
    /// Its name.
    pub name: ProviderName,
    /// Kind of CI system, and how to reach it.
    pub system: CiSystem,
    /// The runners of workspaces that name none (`tags`).
    pub tags: Vec<String>,
    /// The runners that workspaces may name (`allowed_tags`).
    pub allowed_tags: Vec<String>,
    /// Time after which it ends a job (`job_timeout`).
    pub job_timeout: Duration,
    /// Longest time that a job takes to save its files (`save_max`).
    pub save_max: Duration,
    /// Its own variables that stay in the environment of a workspace's processes (`inherit_variables`).
    pub inherit_variables: Vec<String>,
    /// Source of the editor (`editor`, `editor_archive_url`, `editor_archive_sha256`).
    pub editor: CiEditor,
    /// Most workspaces that are not to be terminated (`quota`).
    pub quota: Option<u32>,
    /// The same, of one owner (`quota_per_user`).
    pub quota_per_user: Option<u32>,
    /// Time that a workspace runs after its owner last asked for it; then it is stopped (`active_max`).
    pub active_max: Duration,
    /// Time that a workspace is kept after it was asked to stop; then it is terminated (`stopped_max`).
    pub stopped_max: Duration,
    /// Greatest age of a workspace; then it is terminated (`age_max`).
    pub age_max: Duration,
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

/// A project of a GitLab whose pipelines are the runs of workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitlabCi {
    /// The GitLab, without `/api/v4` (`url`).
    pub url: Endpoint,
    /// The project's number, or its path (`project`).
    pub project: Box<str>,
    /// The branch or tag that pipelines are made for (`ref`).
    pub reference: Box<str>,
    /// File with the token of the gateway's requests to it; read for each (`token_file`).
    pub token_file: PathBuf,
    /// Kind of that token (`token`).
    pub token: GitlabToken,
    /// The authority of its servers, besides the system's (`ca_file`).
    pub ca_file: Option<PathBuf>,
    /// `iss` of its jobs' tokens; its address unless set (`issuer`).
    pub issuer: Endpoint,
    /// `aud` of its jobs' tokens (`audience`).
    pub audience: Box<str>,
    /// URL of the published keys of those tokens, if not the one that the issuer names (`jwks_url`).
    pub jwks_url: Option<Endpoint>,
}

/// Kinds of tokens of a GitLab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitlabToken {
    /// Of a project, a group or a person: sent as `PRIVATE-TOKEN`.
    Private,
    /// Of a job: sent as `JOB-TOKEN`.
    Job,
}

/// A program that runs pipelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandCi {
    /// The program and its arguments (`program`).
    pub program: Vec<String>,
    /// Folder in which each workspace gets a folder (`dir`).
    pub dir: PathBuf,
    /// The gateway's own variables that the program gets by name, besides those without which no program works
    /// (`environment`).
    pub environment: Vec<String>,
    /// The operator's word that the program keeps jobs away from the gateway's files, processes and account, and from each
    /// other (`isolates_jobs`); needed where others than the operator sign in.
    pub isolates_jobs: bool,
    /// The gateway's program, if it is not the one that runs. Not a key: for those who run a gateway inside another program.
    pub supervisor: Option<PathBuf>,
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

const URL: ValueKind<String> = ValueKind {
    accepted: "an http or https URL",
    parse: |text| match url::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => Err("not an http URL".to_owned()),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err("it must not contain a user or password".to_owned())
        }
        Ok(_) if !text.bytes().all(|byte| byte.is_ascii_graphic()) => Err("it has other characters".to_owned()),
        Ok(_) => Ok(text.trim_end_matches('/').to_owned()),
        Err(error) => Err(error.to_string()),
    },
    show: String::clone,
    secret: false,
};

/// Tags may contain spaces, but no commas.
const TAGS: ValueKind<Vec<String>> = ValueKind {
    accepted: "tags with commas between them",
    parse: |text| {
        let tags: Vec<String> =
            text.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
        let is_good = |tag: &String| tag.len() <= 255 && !tag.chars().any(char::is_control);
        if tags.iter().all(is_good) { Ok(tags) } else { Err("a tag is too long, or has control characters".to_owned()) }
    },
    show: |tags| tags.join(", "),
    secret: false,
};

const VARIABLES: ValueKind<Vec<String>> = ValueKind {
    accepted: "names of environment variables with spaces or commas between them",
    parse: |text| {
        let split = |byte: char| byte == ',' || byte.is_ascii_whitespace();
        let names: Vec<String> = text.split(split).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_name = |name: &String| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            name.len() <= 255 && name.bytes().all(plain) && !name.starts_with(|first: char| first.is_ascii_digit())
        };
        if names.iter().all(is_name) { Ok(names) } else { Err("not the name of an environment variable".to_owned()) }
    },
    show: |names| names.join(" "),
    secret: false,
};

const WORDS: ValueKind<Vec<String>> = ValueKind {
    accepted: "a program and its arguments with spaces between them such as `gitlab-ci-local --shell-isolation`",
    parse: |text| {
        let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
        if words.is_empty() { Err("the program is missing".to_owned()) } else { Ok(words) }
    },
    show: |words| words.join(" "),
    secret: false,
};

const SHA256: ValueKind<[u8; 32]> = ValueKind {
    accepted: "64 hexadecimal digits",
    parse: |text| {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Vec<u8> = text.as_bytes().iter().filter_map(digit).collect();
        let bytes: Vec<u8> =
            digits.chunks_exact(2).map(|two| two.iter().fold(0, |byte, digit| (byte << 4) | digit)).collect();
        match <[u8; 32]>::try_from(bytes) {
            Ok(hash) if text.len() == 64 && digits.len() == 64 => Ok(hash),
            Ok(_) | Err(_) => Err("not a SHA-256".to_owned()),
        }
    },
    show: |hash| hexadecimal(hash),
    secret: false,
};

#[derive(Clone, Copy)]
enum Which {
    Gitlab,
    Command,
}

const KIND: ValueKind<Which> = ValueKind {
    accepted: "`gitlab` or `command`",
    parse: |text| match text {
        "gitlab" => Ok(Which::Gitlab),
        "command" => Ok(Which::Command),
        _ => Err("unknown kind of CI system".to_owned()),
    },
    show: |which| match which {
        Which::Gitlab => "gitlab".to_owned(),
        Which::Command => "command".to_owned(),
    },
    secret: false,
};

const TOKEN: ValueKind<GitlabToken> = ValueKind {
    accepted: "`private` or `job`",
    parse: |text| match text {
        "private" => Ok(GitlabToken::Private),
        "job" => Ok(GitlabToken::Job),
        _ => Err("unknown kind of token".to_owned()),
    },
    show: |token| match token {
        GitlabToken::Private => "private".to_owned(),
        GitlabToken::Job => "job".to_owned(),
    },
    secret: false,
};

/// Value of `editor`; the rest is in other keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EditorFrom {
    None,
    Installed,
    Archive,
}

const EDITOR: ValueKind<EditorFrom> = ValueKind {
    accepted: "`none`, `installed` or `archive`",
    parse: |text| match text {
        "none" => Ok(EditorFrom::None),
        "installed" => Ok(EditorFrom::Installed),
        "archive" => Ok(EditorFrom::Archive),
        _ => Err("unknown place of an editor".to_owned()),
    },
    show: |from| match from {
        EditorFrom::None => "none".to_owned(),
        EditorFrom::Installed => "installed".to_owned(),
        EditorFrom::Archive => "archive".to_owned(),
    },
    secret: false,
};

/// Reads `ci`.
pub(super) fn read(reader: &mut Reader, public_url: &PublicUrl) -> Ci {
    let enabled = reader.take(ENABLED, false, &YES_OR_NO);
    let agent_files = reader.take_anchored(AGENT_FILES, Some(Vec::new()), &FILE_PATHS, |files, folder| {
        files.into_iter().map(|file: PathBuf| folder.join(file)).collect()
    });
    let agent_files = agent_files.unwrap_or_default();
    let agents_url = reader.take_optional("ci.agents_url", &URL);
    let ca_file = reader.take_path("ci.ca_file");
    let names = reader.sections(PROVIDERS);
    if enabled && names.is_empty() {
        reader.object(ENABLED, "needs a provider: without any ([ci.providers.NAME]), no workspace could be made");
    }
    if enabled && agent_files.is_empty() && reader.is_sound(&[AGENT_FILES]) {
        reader.object(AGENT_FILES, "is missing: jobs download the agent from here");
    }
    let providers = names.iter().filter_map(|name| read_provider(reader, name, public_url)).collect();
    Ci { enabled, agent_files, agents_url, ca_file, providers }
}

fn read_provider(reader: &mut Reader, name: &str, public_url: &PublicUrl) -> Option<CiProvider> {
    let key = format!("{PROVIDERS}.{name}");
    let of = |name: &str| format!("{key}.{name}");
    let hours = |count: u64| Duration::from_secs(count * 60 * 60);
    let kind = reader.take_required(of("kind"), &KIND);
    let provider: Option<ProviderName> = name.parse().ok();
    if provider.is_none() {
        reader.object(of("kind"), gateway_types::BadProviderName.to_string());
    }
    let system = match kind {
        Some(Which::Gitlab) => read_gitlab(reader, &key, public_url).map(CiSystem::Gitlab),
        Some(Which::Command) => read_command(reader, &key).map(CiSystem::Command),
        None => None,
    };
    let tags = reader.take(of("tags"), Vec::new(), &TAGS);
    let allowed_tags = reader.take(of("allowed_tags"), Vec::new(), &TAGS);
    let job_timeout = reader.take_within(of("job_timeout"), hours(8), JOB_TIMES, &DURATION);
    let save_max = reader.take_within(of("save_max"), Duration::from_secs(30 * 60), SAVE_TIMES, &DURATION);
    let inherit_variables = reader.take(of("inherit_variables"), Vec::new(), &VARIABLES);
    let editor = read_editor(reader, &key);
    let mut quota = |name| {
        let value = reader.take_optional(of(name), &COUNT_32);
        if value.is_some_and(|value| value > QUOTA_MAX) {
            reader.object(of(name), format!("must be at most {QUOTA_MAX}"));
        }
        value
    };
    let (quota, quota_per_user) = (quota("quota"), quota("quota_per_user"));
    let mut life = |name, default| reader.take_within(of(name), default, LIFE_TIMES, &DURATION);
    let (active_max, stopped_max) = (life("active_max", hours(36)), life("stopped_max", hours(31 * 24)));
    let age_max = life("age_max", hours(365 * 24));
    Some(CiProvider {
        name: provider?,
        system: system?,
        tags,
        allowed_tags,
        job_timeout,
        save_max,
        inherit_variables,
        editor: editor?,
        quota,
        quota_per_user,
        active_max,
        stopped_max,
        age_max,
    })
}

fn read_gitlab(reader: &mut Reader, key: &str, public_url: &PublicUrl) -> Option<GitlabCi> {
    let of = |name: &str| format!("{key}.{name}");
    let url = reader.take_required(of("url"), &ENDPOINT);
    let project = reader.take_required(of("project"), &TEXT);
    let reference = reader.take(of("ref"), "main".into(), &TEXT);
    let token_file = reader.take_required_anchored(of("token_file"), &FILE_PATH, |path, folder| folder.join(path));
    let token = reader.take(of("token"), GitlabToken::Private, &TOKEN);
    let ca_file = reader.take_path(of("ca_file"));
    let issuer = reader.take_optional(of("issuer"), &ENDPOINT);
    let audience = reader.take(of("audience"), public_url.to_string().into(), &TEXT);
    let jwks_url = reader.take_optional(of("jwks_url"), &ENDPOINT);
    let url = url?;
    let issuer = issuer.unwrap_or_else(|| url.clone());
    Some(GitlabCi {
        url,
        project: project?,
        reference,
        token_file: token_file?,
        token,
        ca_file,
        issuer,
        audience,
        jwks_url,
    })
}

fn read_command(reader: &mut Reader, key: &str) -> Option<CommandCi> {
    let of = |name: &str| format!("{key}.{name}");
    let program = reader.take_required_anchored(of("program"), &WORDS, program_in);
    let dir = reader.take_required_anchored(of("dir"), &FILE_PATH, |path, folder| folder.join(path));
    let environment = reader.take(of("environment"), Vec::new(), &VARIABLES);
    let isolates_jobs = reader.take(of("isolates_jobs"), false, &YES_OR_NO);
    Some(CommandCi { program: program?, dir: dir?, environment, isolates_jobs, supervisor: None })
}

/// Anchors a program that is named by a relative path at a folder; a bare name is searched for in `PATH`.
fn program_in(mut words: Vec<String>, folder: &Path) -> Vec<String> {
    if let Some(program) = words.first_mut().filter(|program| program.contains('/')) {
        *program = folder.join(&*program).display().to_string();
    }
    words
}

fn read_editor(reader: &mut Reader, key: &str) -> Option<CiEditor> {
    let of = |name: &str| format!("{key}.{name}");
    let from = reader.take(of("editor"), EditorFrom::None, &EDITOR);
    let url = reader.take_optional(of("editor_archive_url"), &URL);
    let sha256 = reader.take_optional(of("editor_archive_sha256"), &SHA256);
    match (from, url, sha256) {
        (EditorFrom::None, None, None) => Some(CiEditor::None),
        (EditorFrom::Installed, None, None) => Some(CiEditor::Installed),
        (EditorFrom::Archive, Some(url), Some(sha256)) => Some(CiEditor::Archive { url, sha256 }),
        (EditorFrom::Archive, _, _) => {
            if reader.is_sound(&[&of("editor_archive_url"), &of("editor_archive_sha256")]) {
                reader.object(of("editor"), "needs editor_archive_url and editor_archive_sha256 beside it");
            }
            None
        }
        (EditorFrom::None | EditorFrom::Installed, url, _) => {
            let name = if url.is_some() { "editor_archive_url" } else { "editor_archive_sha256" };
            reader.object(of(name), "has no effect: editor is not `archive`");
            None
        }
    }
}
