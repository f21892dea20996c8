//! Supervises one run in a process of its own: `gateway ci-run`. It outlives the gateway that started it.
//!
//! It holds the folder's lock, bounds the log, records the outcome of the program, and makes sure that no process of
//! the run is left before it does so: orphaned processes of the program become its children, also those in sessions of
//! their own (`PR_SET_CHILD_SUBREAPER`, prctl(2)). If it is killed itself, the kernel kills the program
//! (`PR_SET_PDEATHSIG`), and the gateway finds the rest by the run's key.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, setsid, umask, wait,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};
use tokio::time::Instant;

use super::super::{ProviderError, RunKey};
use super::folder::{Folder, How, Lock, RunPlan, RunRecord, SupervisedEnd, failed};
use super::log::Log;
use super::process::{self, ProcessId};
use gateway_store::wall_clock;

/// The hidden command that supervises, and begins a program.
pub const SUBCOMMAND: &str = "ci-run";

/// Report of a supervisor once its run is recorded.
pub(super) const STARTED: &str = "started";

/// Longest time that the gateway which starts a supervisor may still hold the lock.
const LOCK_TIME: Duration = Duration::from_secs(5);

/// Longest time for processes that the program leaves behind to end: a job's script gives its own ten seconds.
const REST_TIME: Duration = Duration::from_secs(15);

/// Longest wait for output that no process of the run can add to any more.
const LAST_OUTPUT_TIME: Duration = Duration::from_secs(2);

/// Interval at which remaining processes are killed once their time is over: a process may start another while it is
/// killed.
const KILL_INTERVAL: Duration = Duration::from_millis(50);

/// Poll interval that backs up a missed signal.
const TICK: Duration = Duration::from_secs(1);

/// Exit status of a program that could not be started, as the shell has it (POSIX, section 2.8.2).
const NOT_FOUND: i32 = 127;

const READ_BYTES: usize = 16 * 1024;

/// Supervises the run `key` in the working folder until no process of it is left, and reports on standard output that
/// it began, or why not.
///
/// To be run on the first thread of a process of its own: the kernel kills the program when that thread ends.
#[must_use]
pub async fn supervise(key: &RunKey) -> ExitCode {
    let folder = Folder::at(PathBuf::from("."));
    // First of all: once the record exists, a cancelling gateway sends signals.
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let begun = match begin(&folder, key).await {
        Ok(begun) => {
            say(STARTED);
            begun
        }
        Err(why) => {
            say(&why);
            return ExitCode::FAILURE;
        }
    };
    let Some(mut run) = begun else { return ExitCode::SUCCESS };
    run.watch(signals).await;
    match run.end() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Becomes the program of the run `key` in the working folder, as the first of a session that the kernel ends with
/// `supervisor`. Returns only if that is not possible.
#[must_use]
pub fn become_program(key: &RunKey, supervisor: u32) -> ExitCode {
    let program = Folder::at(PathBuf::from(".")).plan().ok().flatten().filter(|plan| plan.key == *key);
    let Some((name, arguments)) = program.as_ref().and_then(|plan| plan.program.split_first()) else {
        return ExitCode::FAILURE;
    };
    let is_alone = setsid().is_ok() && set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    // The supervisor may have been killed before the kernel was told.
    let parent = getppid().map(Pid::as_raw_nonzero).and_then(|pid| u32::try_from(pid.get()).ok());
    if !is_alone || parent != Some(supervisor) {
        return ExitCode::FAILURE;
    }
    // The program's files, variables among them, must not be readable by other users.
    umask(Mode::RWXG | Mode::RWXO);
    let error = Command::new(name).args(arguments).exec();
    drop(writeln!(io::stderr().lock(), "{name} cannot be started: {error}"));
    ExitCode::from(u8::try_from(NOT_FOUND).unwrap_or(1))
}

/// Signals that a supervisor handles.
struct Signals {
    children: Listener,
    terminate: Listener,
    interrupt: Listener,
    hang_up: Listener,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            children: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// A supervised run.
struct SupervisedRun {
    folder: Folder,
    record: RunRecord,
    plan: RunPlan,
    log: Log,
    output: pipe::Receiver,
    program: Option<Pid>,
    how: Option<How>,
    is_canceled: bool,
    /// Time at which remaining processes are killed.
    deadline: Option<Instant>,
    _lock: Lock,
}

/// Begins the run; `None` if it has been begun already.
async fn begin(folder: &Folder, key: &RunKey) -> Result<Option<SupervisedRun>, String> {
    let lock = lock(folder).await?;
    let plan = folder.plan().map_err(text)?.filter(|plan| plan.key == *key);
    let plan = plan.ok_or("another run is wanted by now")?;
    if folder.record().map_err(text)?.is_some_and(|record| record.key == *key) {
        return Ok(None);
    }
    set_child_subreaper(Some(getpid())).map_err(text)?;
    let (output, input) = io::pipe().map_err(text)?;
    let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output)).map_err(text)?;
    let log = Log::begin(&folder.run_path(), plan.log_bytes_max).map_err(text)?;
    let supervisor = ProcessId::of(std::process::id()).ok_or("/proc does not show this process")?;
    let record = RunRecord {
        key: key.clone(),
        boot: process::boot().map_err(text)?,
        supervisor,
        program: None,
        started_at: wall_clock().get(),
        end: None,
    };
    // Stored before the program starts: from here on no other supervisor begins this run.
    folder.put_record(&record).map_err(text)?;
    let is_canceled = folder.is_asked_to_end(key).map_err(text)?;
    let folder = folder.clone();
    let mut run = SupervisedRun {
        folder,
        record,
        plan,
        log,
        output,
        program: None,
        how: None,
        is_canceled,
        deadline: None,
        _lock: lock,
    };
    if is_canceled {
        run.how = Some(How::Killed(Signal::TERM.as_raw()));
    } else {
        run.start(input)?;
    }
    Ok(Some(run))
}

async fn lock(folder: &Folder) -> Result<Lock, String> {
    let give_up_at = Instant::now() + LOCK_TIME;
    loop {
        if let Some(lock) = folder.try_lock().map_err(text)? {
            return Ok(lock);
        }
        if Instant::now() >= give_up_at {
            return Err("another run of this workspace has not ended".to_owned());
        }
        tokio::time::sleep(KILL_INTERVAL).await;
    }
}

impl SupervisedRun {
    /// Starts the program, with both its outputs in `input`.
    fn start(&mut self, input: io::PipeWriter) -> Result<(), String> {
        let own = std::env::current_exe().map_err(text)?;
        let child = Command::new(own)
            .args([SUBCOMMAND, self.record.key.as_str(), "--program-of", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(input.try_clone().map_err(text)?)
            .stderr(input)
            .spawn();
        match child {
            Ok(child) => {
                self.program = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                self.record.program = ProcessId::of(child.id());
                self.folder.put_record(&self.record).map_err(text)
            }
            Err(error) => {
                self.note(&format!("the program cannot be started: {error}\n"));
                self.how = Some(How::Exited(NOT_FOUND));
                Ok(())
            }
        }
    }

    /// Watches until no process of the run is left.
    async fn watch(&mut self, mut signals: Signals) {
        let mut bytes = vec![0; READ_BYTES];
        let mut is_open = true;
        while !self.reap() {
            let next = self.next_look();
            tokio::select! {
                read = self.output.read(&mut bytes), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(length) => self.log(bytes.get(..length).unwrap_or_default()),
                },
                _ = signals.children.recv() => {}
                _ = signals.terminate.recv() => self.cancel(),
                _ = signals.interrupt.recv() => self.cancel(),
                _ = signals.hang_up.recv() => {}
                () = tokio::time::sleep_until(next) => self.kill_if_due(),
            }
        }
        // No process is left that could write, unless the output was handed to a process outside the run. It is read
        // and not only tried: the runtime may not know yet of output that came at the same time as the end.
        while is_open {
            match tokio::time::timeout(LAST_OUTPUT_TIME, self.output.read(&mut bytes)).await {
                Ok(Ok(length)) if length > 0 => self.log(bytes.get(..length).unwrap_or_default()),
                Ok(_) | Err(_) => is_open = false,
            }
        }
    }

    /// Reaps children that have ended. Returns whether none is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if Some(pid) == self.program => self.program_ended(status),
                Ok(Some(_)) => {}
                Ok(None) => return false,
                // No child at all.
                Err(_) => return true,
            }
        }
    }

    fn program_ended(&mut self, status: WaitStatus) {
        let how = status.exit_status().map(How::Exited).or_else(|| status.terminating_signal().map(How::Killed));
        self.how = Some(how.unwrap_or(How::Lost));
        // If the run was asked to end, its processes already have the rest of the granted time.
        if self.deadline.is_none() {
            process::signal_all(&process::descendants(std::process::id()), Signal::TERM);
            self.deadline = Some(Instant::now() + REST_TIME);
        }
    }

    fn cancel(&mut self) {
        self.is_canceled = true;
        if self.deadline.is_some() {
            return;
        }
        self.deadline = Some(Instant::now() + Duration::from_secs(self.plan.grace_seconds));
        let Some(program) = self.program else { return };
        // Until it leads a group, there is only the process itself.
        kill_process_group(program, Signal::TERM).or_else(|_| kill_process(program, Signal::TERM)).unwrap_or_default();
    }

    fn kill_if_due(&self) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            process::signal_all(&process::descendants(std::process::id()), Signal::KILL);
        }
    }

    fn next_look(&self) -> Instant {
        let now = Instant::now();
        match self.deadline {
            Some(deadline) if now >= deadline => now + KILL_INTERVAL,
            Some(deadline) => deadline.min(now + TICK),
            None => now + TICK,
        }
    }

    /// Appends to the log. A full disk costs the log, not the run.
    fn log(&mut self, bytes: &[u8]) {
        self.log.write(bytes).unwrap_or_default();
    }

    fn note(&mut self, line: &str) {
        self.log(line.as_bytes());
    }

    /// Records the outcome of the run.
    fn end(&mut self) -> io::Result<()> {
        self.record.end = Some(SupervisedEnd { how: self.how.unwrap_or(How::Lost), is_canceled: self.is_canceled });
        let secrets = self.folder.forget_secrets();
        self.folder.put_record(&self.record).and(secrets).map_err(io::Error::other)
    }
}

/// Reports one line to the process that started this one, and closes the pipe.
fn say(line: &str) {
    // A parent that no longer listens finds the record.
    drop(writeln!(io::stdout().lock(), "{}", line.replace('\n', " ")));
    drop(io::stdout().lock().flush());
    if let Ok(nowhere) = File::options().write(true).open("/dev/null") {
        rustix::stdio::dup2_stdout(&nowhere).unwrap_or_default();
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns the path of a program to run, or the reason why it cannot be.
pub(super) fn find_program(name: &str, path: Option<&std::ffi::OsStr>) -> Result<PathBuf, ProviderError> {
    let no = |why: &str| ProviderError::Program { program: name.into(), why: why.to_owned() };
    if name.contains('/') {
        let program = PathBuf::from(name);
        if !program.is_absolute() {
            return Err(no("its path is neither absolute nor a bare name"));
        }
        return if is_executable(&program) { Ok(program) } else { Err(no("there is no such program")) };
    }
    let folders = std::env::split_paths(path.unwrap_or_default());
    let found =
        folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|path| is_executable(path));
    found.ok_or_else(|| no("there is no such program on the PATH"))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Returns the path of this program, to be started as a supervisor.
pub(super) fn own_program() -> Result<PathBuf, ProviderError> {
    let link = Path::new("/proc/self/exe");
    std::env::current_exe().map_err(|error| failed("find", link, &error))
}
