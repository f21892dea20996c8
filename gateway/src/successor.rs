//! Starts the process that takes this one's place, when a signal asks for it, and tells a service manager which process serves
//! (sd_notify(3)).

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use sd_notify::NotifyState;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// The flag of a process that takes another's place.
const FLAG: &str = "--replace";

/// Tells a service manager, if one waits for it, that this process serves. It may not be the one that the manager started.
pub(super) fn say_that_this_serves() {
    let states = [NotifyState::Ready, NotifyState::MainPid(std::process::id())];
    if let Err(error) = sd_notify::notify(&states) {
        warn!(%error, "the service manager was not told that this process serves");
    }
}

/// Starts the program anew at each SIGUSR2, to take this process' place: it is the file that has the program's name by then. Never
/// returns but for the system's error.
///
/// # Errors
/// The system's, when signals cannot be waited for.
///
/// # Cancel safety
/// Dropped, processes that were started go on.
pub(super) async fn start_on_signal() -> io::Result<std::convert::Infallible> {
    let mut asked = signal(SignalKind::user_defined2())?;
    let mut started = JoinSet::new();
    loop {
        tokio::select! {
            _ = asked.recv() => match start(std::env::args_os()) {
                Ok(child) => drop(started.spawn(outcome(child))),
                Err(error) => warn!(%error, "the process that is to take this one's place cannot be started"),
            },
            Some(_) = started.join_next() => {}
        }
    }
}

fn start(command_line: impl Iterator<Item = OsString>) -> io::Result<Child> {
    let mut words = command_line;
    let program = words.next().ok_or(io::ErrorKind::NotFound)?;
    let child = Command::new(program).args(arguments(words)).stdin(Stdio::null()).spawn()?;
    info!(process = child.id(), "started the process that is to take this one's place");
    Ok(child)
}

/// Returns the arguments of this process with the flag, once.
fn arguments(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    own.filter(|word| word != FLAG).chain([FLAG.into()]).collect()
}

/// Waits for the end of a process: in most cases this one's end comes first.
async fn outcome(mut child: Child) {
    let process = child.id();
    match child.wait().await {
        Ok(status) => warn!(process, %status, "the process that was to take this one's place has ended"),
        Err(error) => warn!(process, %error, "the process that is to take this one's place cannot be waited for"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_is_given_once() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let with = words("serve --config a.toml --replace");
        assert_eq!(arguments(words("serve --config a.toml").into_iter()), with);
        assert_eq!(arguments(words("serve --replace --config a.toml").into_iter()), with);
    }
}
