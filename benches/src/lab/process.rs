//! Program that the lab runs: started, measured, killed, started again; gone when its owner is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use parking_lot::Mutex;

use super::usage::{self, ProcessMemory};

/// Lines of a program's log that an error message shows.
const TAIL_LINES: usize = 12;

/// Prefixes of variables that would configure the lab's programs unnoticed.
const FOREIGN_VARIABLES: [&str; 2] = ["GATEWAY_", "WORKSPACE_AGENT_"];

/// Command line of a program.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: BTreeMap<String, String>,
    /// Working folder, which also holds its log.
    pub(super) folder: PathBuf,
}

/// A program of the lab; dropping it kills it.
#[derive(Debug)]
pub struct LabProcess {
    recipe: Recipe,
    child: Mutex<Child>,
}

impl LabProcess {
    /// Starts the program with its output going to `NAME.log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(recipe: Recipe) -> anyhow::Result<Self> {
        let child = recipe.spawn()?;
        Ok(Self { recipe, child: Mutex::new(child) })
    }

    /// Returns the process id; another one after each restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.lock().id()
    }

    /// Returns the processor seconds since the last start.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cpu(&self) -> io::Result<f64> {
        usage::cpu_seconds(self.pid())
    }

    /// Returns the memory, with shares and the peak.
    ///
    /// # Errors
    /// The process is gone.
    pub fn memory(&self) -> io::Result<ProcessMemory> {
        usage::memory(self.pid())
    }

    /// Returns the resident memory in bytes.
    ///
    /// # Errors
    /// The process is gone.
    pub fn rss(&self) -> io::Result<u64> {
        usage::rss(self.pid())
    }

    /// Tells whether the process has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.child.lock().try_wait(), Ok(None))
    }

    /// Kills the process (SIGKILL) and waits until its sockets are closed.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&self) -> io::Result<()> {
        let mut child = self.child.lock();
        child.kill()?;
        child.wait().map(drop)
    }

    /// Kills the process if it runs, and starts it again in the same way.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.kill()?;
        *self.child.lock() = self.recipe.spawn()?;
        Ok(())
    }

    /// Returns the last lines of the program's output.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.recipe.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::debug!(%error, program = self.recipe.name, "a program could not be ended");
        }
    }
}

impl Recipe {
    fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn open_log(&self) -> io::Result<File> {
        // A restart goes on where the one before stopped.
        OpenOptions::new().create(true).append(true).open(self.log())
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = self.open_log().with_context(|| format!("opening the log of {}", self.name))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        for (name, _) in std::env::vars_os() {
            if FOREIGN_VARIABLES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.envs(&self.environment);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: ctrl-c reaches the lab alone, which then ends what it started.
        command.process_group(0);
        command.spawn().with_context(|| format!("starting {}", self.program.display()))
    }
}

/// Finds a program: the path that `variable` gives, else beside this program, else on `PATH`.
///
/// # Errors
/// It is nowhere; the message names the searched places.
pub(super) fn find(name: &str, variable: &str) -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os(variable) {
        let path = PathBuf::from(given);
        anyhow::ensure!(path.is_file(), "{variable}={} is not a program", path.display());
        return path.canonicalize().with_context(|| path.display().to_string());
    }
    let here = std::env::current_exe().unwrap_or_default();
    // Test programs are one folder further down.
    let beside = here.parent().into_iter().flat_map(|folder| [Some(folder), folder.parent()]).flatten();
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.map(Path::to_path_buf).chain(std::env::split_paths(&on_path));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("the program {name} is neither beside this one nor on PATH; {variable} can name it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Recipe {
        Recipe {
            name: "shell",
            program: find("sh", "LOADLAB_NO_SUCH_VARIABLE").unwrap(),
            arguments: vec!["-c".into(), script.into()],
            environment: BTreeMap::from([("WORD".to_owned(), "given".to_owned())]),
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn restarted_program_is_another_process_with_the_same_log() {
        let folder = tempfile::tempdir().unwrap();
        let process = LabProcess::start(shell("echo $WORD; exec cat /dev/zero >/dev/null", folder.path())).unwrap();
        let words = |count| {
            while process.last_words().lines().count() < count {
                std::thread::yield_now();
            }
            process.last_words()
        };
        assert_eq!(words(1), "given");
        let first = process.pid();
        assert!(process.is_running() && process.rss().unwrap() > 0);
        process.restart().unwrap();
        assert_ne!(process.pid(), first);
        assert_eq!(words(2), "given\ngiven");
        process.kill().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn dropped_program_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let process = LabProcess::start(shell("exec cat /dev/zero >/dev/null", folder.path())).unwrap();
        let pid = process.pid();
        drop(process);
        assert!(usage::rss(pid).is_err());
    }

    #[test]
    fn program_that_is_nowhere_is_named_with_its_variable() {
        let error = find("no-such-program", "LOADLAB_NO_SUCH_VARIABLE").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("LOADLAB_NO_SUCH_VARIABLE"), "{error}");
    }
}
