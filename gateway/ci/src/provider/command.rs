//! Runs jobs with a program on this machine: it is started on the generated definition, in a folder of the workspace's
//! own. With `gitlab-ci-local`, all of it works on one machine.
//!
//! The gateway starts a supervisor for each run (`gateway ci-run`) and may exit: the state of a run is on disk, and a
//! lock tells whether it is under way. Secrets reach the program in files that no other user can read, never in its
//! arguments and never in its environment.

mod folder;
mod log;
mod process;
mod supervise;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use self::folder::{Files, Folder, How, Lock, RunPlan, RunRecord, SupervisedEnd, failed};
use self::log::LOG_BYTES_MAX;
use self::supervise::{STARTED, find_program, own_program};
pub use self::supervise::{SUBCOMMAND, become_program, supervise};
use super::text::{end_of_log, one_line};
use super::{
    CacheDeletion, CacheKey, JobStatus, NewRun, ProviderError, RUN_VARIABLE, RunKey, RunRef, RunState, RunStatus,
    TOKEN_VARIABLE, variable_name,
};
use gateway_store::Variable;
use gateway_types::UnixSeconds;
use gateway_types::token::Token;

/// Variables of the gateway's environment that a program gets, beside those that the settings name.
pub const ENVIRONMENT: [&str; 24] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Longest time until a supervisor reports that its run began.
const START_TIME: Duration = Duration::from_secs(10);

/// Longest report of a supervisor, in bytes.
const SAID_BYTES_MAX: u64 = 1024;

/// Program to run, and its folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSettings {
    /// The program, by its absolute path or a bare name, and its arguments.
    pub program: Vec<String>,
    /// Folder with the folders of all workspaces.
    pub directory: PathBuf,
    /// Names of variables that the program gets from the gateway's environment, beside [`ENVIRONMENT`].
    pub environment: Vec<String>,
    /// Longest time that the program may take to end on request.
    pub stop_grace: Duration,
    /// The gateway's program, which supervises; `None` for the running one.
    pub supervisor: Option<PathBuf>,
}

/// A program that runs jobs. Clones share its state.
#[derive(Clone, Debug)]
pub struct CommandProvider {
    inner: Arc<ProviderShared>,
}

#[derive(Debug)]
struct ProviderShared {
    settings: CommandSettings,
    supervisor: PathBuf,
    start_time: Duration,
}

/// Work that is left before a run exists.
enum BeginNext {
    Nothing,
    Start(Folder),
}

impl CommandProvider {
    /// Sets the provider up; starts nothing.
    ///
    /// # Errors
    /// [`ProviderError::Program`] without any program.
    pub fn new(mut settings: CommandSettings) -> Result<Self, ProviderError> {
        if settings.program.is_empty() {
            return Err(ProviderError::Program { program: PathBuf::new(), why: "none is named".to_owned() });
        }
        // Jobs find their files from wherever they go.
        let directory = std::path::absolute(&settings.directory);
        settings.directory = directory.map_err(|error| failed("use", &settings.directory, &error))?;
        let supervisor = settings.supervisor.clone().map_or_else(own_program, Ok)?;
        Ok(Self { inner: Arc::new(ProviderShared { settings, supervisor, start_time: START_TIME }) })
    }

    /// Changes the time until a supervisor must report that its run began.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_start_time(self, start_time: Duration) -> Self {
        let ProviderShared { settings, supervisor, start_time: _ } = &*self.inner;
        let inner = ProviderShared { settings: settings.clone(), supervisor: supervisor.clone(), start_time };
        Self { inner: Arc::new(inner) }
    }

    pub(super) async fn create(&self, run: &NewRun<'_>) -> Result<RunRef, ProviderError> {
        let reference = RunRef { id: format!("{}/{}", run.cache_key, run.key), child: None };
        let (key, cache) = (run.key.clone(), run.cache_key.clone());
        let (definition, secrets) = (run.yaml.to_owned(), secrets(run.token, run.variables));
        match self.blocking(move |inner| inner.prepare(key, &cache, &definition, &secrets)).await? {
            BeginNext::Nothing => {}
            BeginNext::Start(folder) => self.inner.start(&folder, run.key).await?,
        }
        Ok(reference)
    }

    pub(super) async fn find(&self, key: &RunKey, workspace: &CacheKey) -> Result<Option<RunRef>, ProviderError> {
        let (key, workspace) = (key.clone(), workspace.clone());
        self.blocking(move |inner| inner.find(&key, &workspace)).await
    }

    pub(super) async fn status(&self, run: &RunRef) -> Result<RunStatus, ProviderError> {
        let (folder, key) = self.inner.of(run)?;
        let (state, job) = self.blocking(move |_| status(&folder, &key)).await?;
        Ok(RunStatus { state, run: run.clone(), job, web_url: None })
    }

    pub(super) async fn cancel(&self, run: &RunRef) -> Result<(), ProviderError> {
        let (folder, key) = self.inner.of(run)?;
        self.blocking(move |_| cancel(&folder, &key)).await
    }

    pub(super) async fn trace(&self, run: &RunRef, bytes_max: usize) -> Result<String, ProviderError> {
        let (folder, key) = self.inner.of(run)?;
        self.blocking(move |_| {
            if folder.record()?.is_none_or(|record| record.key != key) {
                return Ok(String::new());
            }
            let path = folder.run_path();
            // Marks and colours are taken out: more is read than is kept.
            let wanted = u64::try_from(bytes_max).unwrap_or(LOG_BYTES_MAX).saturating_mul(2).saturating_add(4096);
            let (bytes, is_cut) =
                log::end(&path, wanted.min(LOG_BYTES_MAX)).map_err(|error| failed("read", &path, &error))?;
            Ok(end_of_log(&bytes, bytes_max, is_cut))
        })
        .await
    }

    pub(super) async fn forget(&self, workspace: &CacheKey) -> Result<CacheDeletion, ProviderError> {
        let folder = self.inner.folder(workspace);
        self.blocking(move |_| {
            if !folder.is_there() {
                return Ok(CacheDeletion::Gone);
            }
            folder.make()?;
            let lock = quiet(&folder)?.ok_or(ProviderError::Busy)?;
            folder.delete(lock)?;
            Ok(CacheDeletion::Gone)
        })
        .await
    }

    /// Runs work that waits for a disk on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ProviderShared) -> Result<T, ProviderError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|error| {
            Err(ProviderError::Folder {
                what: "use",
                path: self.inner.settings.directory.clone(),
                why: error.to_string(),
            })
        })
    }
}

impl ProviderShared {
    fn folder(&self, workspace: &CacheKey) -> Folder {
        Folder::at(self.settings.directory.join(workspace.as_str()))
    }

    /// Parses the provider's name of a run.
    fn of(&self, run: &RunRef) -> Result<(Folder, RunKey), ProviderError> {
        let (cache, key) = run.id.split_once('/').ok_or(ProviderError::NotOurs)?;
        let cache: CacheKey = cache.parse().map_err(|_| ProviderError::NotOurs)?;
        Ok((self.folder(&cache), key.parse().map_err(|_| ProviderError::NotOurs)?))
    }

    /// Writes the files that the run needs, unless they exist.
    fn prepare(
        &self,
        key: RunKey,
        workspace: &CacheKey,
        definition: &str,
        secrets: &[(String, String)],
    ) -> Result<BeginNext, ProviderError> {
        let mut program = self.settings.program.clone();
        if let Some(name) = program.first_mut() {
            let found = find_program(name, std::env::var_os("PATH").as_deref())?;
            *name = found.to_string_lossy().into_owned();
        }
        let folder = self.folder(workspace);
        folder.make()?;
        if folder.record()?.is_some_and(|record| record.key == key) {
            return Ok(BeginNext::Nothing);
        }
        let Some(lock) = quiet(&folder)? else {
            // This run's own supervisor may hold the lock, and have written no record yet.
            return if is_beginning(&folder, &key)? { Ok(BeginNext::Nothing) } else { Err(ProviderError::Busy) };
        };
        // The run may have begun between reading the record and taking the lock.
        if folder.record()?.is_some_and(|record| record.key == key) {
            return Ok(BeginNext::Nothing);
        }
        let grace_seconds = self.settings.stop_grace.as_secs();
        let plan = RunPlan { key, program, grace_seconds, log_bytes_max: LOG_BYTES_MAX };
        folder.write(&Files { definition, secrets, plan: &plan }, &lock)?;
        Ok(BeginNext::Start(folder))
    }

    /// Starts the supervisor of a run, which takes the lock.
    async fn start(&self, folder: &Folder, key: &RunKey) -> Result<(), ProviderError> {
        let no = |why: String| ProviderError::Program { program: self.supervisor.clone(), why };
        let mut child = tokio::process::Command::new(&self.supervisor)
            .args([SUBCOMMAND, key.as_str()])
            .current_dir(folder.path())
            .env_clear()
            .envs(self.environment())
            .env(RUN_VARIABLE, key.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A group of its own: a signal from a terminal to the gateway's group does not end the run.
            .process_group(0)
            .kill_on_drop(false)
            .spawn()
            .map_err(|error| no(error.to_string()))?;
        let output = child.stdout.take().ok_or_else(|| no("it has no output".to_owned()))?;
        let mut line = String::new();
        let mut output = BufReader::new(output.take(SAID_BYTES_MAX));
        let said = tokio::time::timeout(self.start_time, output.read_line(&mut line)).await;
        match (said, line.trim_end()) {
            (Ok(Ok(_)), STARTED) => Ok(()),
            (Ok(Ok(0)), _) => Err(no("it ended before it had begun".to_owned())),
            (Ok(Ok(_)), why) => Err(no(one_line(why, 300))),
            (Ok(Err(error)), _) => Err(no(error.to_string())),
            // It may still begin: whether it did is on disk.
            (Err(_), _) => Err(ProviderError::NotBegun { program: self.supervisor.clone(), after: self.start_time }),
        }
    }

    fn environment(&self) -> BTreeMap<&str, OsString> {
        let names = ENVIRONMENT.into_iter().chain(self.settings.environment.iter().map(String::as_str));
        names.filter_map(|name| Some((name, std::env::var_os(name)?))).collect()
    }

    /// Looks in the workspace's own folder and in no other, so that a broken folder affects only its workspace.
    fn find(&self, key: &RunKey, workspace: &CacheKey) -> Result<Option<RunRef>, ProviderError> {
        let folder = self.folder(workspace);
        let is_begun = folder.record()?.is_some_and(|record| record.key == *key);
        let is_there = is_begun || is_beginning(&folder, key)?;
        Ok(is_there.then(|| RunRef { id: format!("{workspace}/{key}"), child: None }))
    }
}

/// Returns whether a supervisor is about to begin a run.
fn is_beginning(folder: &Folder, key: &RunKey) -> Result<bool, ProviderError> {
    let is_wanted = folder.plan()?.is_some_and(|plan| plan.key == *key);
    Ok(is_wanted && folder.try_lock()?.is_none())
}

fn status(folder: &Folder, key: &RunKey) -> Result<(RunState, Option<JobStatus>), ProviderError> {
    let of_run = |record: &RunRecord| record.key == *key;
    let Some(record) = folder.record()?.filter(of_run) else {
        let is_beginning = folder.is_there() && is_beginning(folder, key)?;
        return Ok((if is_beginning { RunState::Pending } else { RunState::Gone }, None));
    };
    if record.end.is_some() {
        return Ok(told(&record));
    }
    let _lock = quiet(folder)?;
    // Rewritten if the run has ended: by its supervisor, or by `quiet` because it had none any more.
    Ok(folder.record()?.filter(of_run).map_or((RunState::Gone, None), |record| told(&record)))
}

/// Takes the folder's lock if no process of any run is left; `None` if there is one. A run whose supervisor was killed
/// is ended first.
fn quiet(folder: &Folder) -> Result<Option<Lock>, ProviderError> {
    let Some(lock) = folder.try_lock()? else { return Ok(None) };
    let Some(mut record) = folder.record()?.filter(|record| record.end.is_none()) else { return Ok(Some(lock)) };
    let boot = process::boot().map_err(|error| failed("read", Path::new("/proc"), &error))?;
    if record.boot == boot {
        let left = process::left_over(&record.key, record.program);
        if !left.is_empty() {
            process::signal_all(&left, Signal::KILL);
            if !process::left_over(&record.key, record.program).is_empty() {
                return Ok(None);
            }
        }
    }
    record.end = Some(SupervisedEnd { how: How::Lost, is_canceled: folder.is_asked_to_end(&record.key)? });
    folder.forget_secrets()?;
    folder.put_record(&record)?;
    Ok(Some(lock))
}

/// Converts a record to the states that all providers share.
fn told(record: &RunRecord) -> (RunState, Option<JobStatus>) {
    let (state, failure) = match record.end {
        None => (RunState::Running, None),
        Some(SupervisedEnd { is_canceled: true, .. }) => (RunState::Cancelled, None),
        Some(SupervisedEnd { how: How::Exited(0), .. }) => (RunState::Succeeded, None),
        Some(SupervisedEnd { how: How::Exited(status), .. }) => {
            (RunState::Failed, Some(format!("exit_status_{status}")))
        }
        Some(SupervisedEnd { how: How::Killed(signal), .. }) => (RunState::Failed, Some(format!("signal_{signal}"))),
        Some(SupervisedEnd { how: How::Lost, .. }) => (RunState::Failed, Some("supervisor_lost".to_owned())),
    };
    let started_at = Some(UnixSeconds::new(record.started_at));
    (state, Some(JobStatus { id: record.supervisor.pid.to_string(), started_at, failure }))
}

fn cancel(folder: &Folder, key: &RunKey) -> Result<(), ProviderError> {
    let Some(record) = folder.record()?.filter(|record| record.key == *key && record.end.is_none()) else {
        if folder.is_there() && folder.plan()?.is_some_and(|plan| plan.key == *key) {
            // A supervisor that is about to begin reads it.
            folder.ask_to_end(key)?;
        }
        return Ok(());
    };
    folder.ask_to_end(key)?;
    if let Some(_lock) = quiet(folder)? {
        return Ok(());
    }
    let boot = process::boot().map_err(|error| failed("read", Path::new("/proc"), &error))?;
    if record.boot == boot {
        let end = record.supervisor.signal(Signal::TERM);
        end.map_err(|error| failed("signal the supervisor of", folder.path(), &error))?;
    }
    Ok(())
}

/// Returns the names of a job's secret variables and the contents of their files; each variable holds its file's path:
/// see [`variable_name`].
fn secrets(token: Option<&Token>, variables: &[Variable]) -> Vec<(String, String)> {
    let token = token.map(|token| (TOKEN_VARIABLE.to_owned(), token.reveal().to_owned()));
    let value =
        |(number, variable): (usize, &Variable)| (variable_name(number), STANDARD.encode(variable.value.reveal()));
    token.into_iter().chain((1..).zip(variables).map(value)).collect()
}

#[cfg(test)]
mod tests;
