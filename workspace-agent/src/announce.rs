//! Tells the person who started the agent, on standard output: where the workspace is, which ports listen, what to do next.
//!
//! The log is on standard error and stays as it is. Writing has a thread of its own, which is not waited for: an output that
//! is not read must not hold up the agent.

use std::io::{self, IsTerminal as _, Write as _, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing::warn;
use tunnel_proto::hello::Welcome;

use crate::dial::Observer;
use crate::listening::{AnnouncedPorts, LocalAddress};
use crate::ports::{self, OwnPorts, Ports};
use crate::{AgentEvent, Options};

/// Interval at which new ports are announced at a terminal.
const INTERVAL: Duration = Duration::from_secs(2);

/// Stack of the thread, which holds paths, one table of the kernel and a few lines.
const STACK_BYTES: usize = 256 * 1024;

/// Makes an observer that writes a file once the agent is connected, for probes beside it. A file of a process before this one is
/// removed here: it said nothing about this one. A folder that cannot be written to is worth a warning, and keeps no agent from its work.
#[must_use]
pub fn ready_file(path: PathBuf) -> Observer {
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(path = %path.display(), %error, "the file of an agent before this one cannot be removed");
        }
        Ok(()) | Err(_) => {}
    }
    let mut path = Some(path);
    Box::new(move |event| {
        if matches!(event, AgentEvent::Connected { .. })
            && let Some(path) = path.take()
            && let Err(error) = std::fs::File::create(&path)
        {
            warn!(path = %path.display(), %error, "the file that says that this agent is connected cannot be written");
        }
    })
}

/// Makes an observer that tells a person when the workspace is connected, once. At a terminal it goes on to tell of ports on
/// which something begins to listen, for as long as the agent has it.
#[must_use]
pub fn observer(options: &Options) -> Observer {
    let ports = options.ports.clone();
    let own = OwnPorts {
        terminal: options.terminal.is_some(),
        ssh: options.ssh.is_some(),
        inspector: options.inspector.is_some(),
    };
    let (sender, receiver) = sync_channel::<LocalAddress>(1);
    let writer = std::thread::Builder::new().name("announce".to_owned()).stack_size(STACK_BYTES);
    // Without a thread nothing is announced, and the agent runs all the same.
    drop(writer.spawn(move || announce(&receiver, &ports, own)));
    let mut sender: Option<SyncSender<LocalAddress>> = Some(sender);
    let goes_on = stdout().is_terminal();
    Box::new(move |event| {
        let AgentEvent::Connected { welcome, .. } = event else { return };
        if let Some(sender) = &sender {
            drop(sender.try_send(place(welcome)));
        }
        if !goes_on {
            sender = None;
        }
    })
}

fn place(welcome: &Welcome) -> LocalAddress {
    let url = match welcome.workspace_url.as_str() {
        "" => String::new(),
        url if url.ends_with('/') => url.to_owned(),
        url => format!("{url}/"),
    };
    LocalAddress { workspace: welcome.workspace.clone(), url }
}

fn announce(connected: &Receiver<LocalAddress>, ports: &Arc<Ports>, own: OwnPorts) {
    let Ok(mut place) = connected.recv() else { return };
    let listening = ports::listening(ports, own).ok();
    let mut announced = AnnouncedPorts::default();
    announced.appeared(listening.as_deref().unwrap_or_default());
    let mut text = place.greeting(listening.as_deref());
    loop {
        if !text.is_empty() {
            let mut output = stdout().lock();
            // The output is closed.
            if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
                return;
            }
        }
        match connected.recv_timeout(INTERVAL) {
            // The workspace's address changes with the gateway's.
            Ok(newer) => place = newer,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let appeared = announced.appeared(&ports::listening(ports, own).unwrap_or_default());
        text = place.list(&appeared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_an_agent_before_is_removed_and_a_folder_that_cannot_be_written_to_stops_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.ready");
        std::fs::write(&path, "").expect("written");
        let mut observer = ready_file(path.clone());
        assert!(!path.exists());
        observer(AgentEvent::Dialing);
        assert!(!path.exists(), "only once it is connected");
        // A folder cannot be removed as a file.
        let _observer = ready_file(folder.path().to_owned());
        assert!(folder.path().exists());
    }
}
