//! This machine: ports that are exposed, and the limit of open files.

use std::sync::Arc;

use ::doctor::{Check, Finding, FindingId, Outcome};
use rustix::process::{Resource, getrlimit};

use crate::ports::{OwnPorts, Ports, listening};

const PORTS: &str = "exposed ports";
const FILES: &str = "limit of open files";

/// Open files that an agent should be allowed: each channel takes one.
const FILES_MIN: u64 = 1024;

/// Looks at this machine.
pub(super) async fn look(ports: Option<(Arc<Ports>, OwnPorts)>) -> Vec<Check> {
    let ports = match ports {
        None => Check::skipped(PORTS, "the ports cannot be used"),
        Some((ports, own)) => {
            let exposed: Vec<u16> = ports.exposed.iter().map(|port| port.number).collect();
            let read = tokio::task::spawn_blocking(move || listening(&ports, own)).await;
            match read {
                _ if exposed.is_empty() => Check::skipped(PORTS, "none is named: every loopback port is reached"),
                Ok(Ok(found)) => Check::new(PORTS, judged(&exposed, &found)),
                Ok(Err(error)) => Check::skipped(PORTS, format!("the ports that listen cannot be read: {error}")),
                Err(error) => Check::skipped(PORTS, format!("the ports that listen cannot be read: {error}")),
            }
        }
    };
    vec![ports, files(getrlimit(Resource::Nofile).current)]
}

/// Compares the ports that are exposed with those that listen.
fn judged(exposed: &[u16], listening: &[u16]) -> Outcome {
    let silent = exposed.iter().filter(|port| !listening.contains(port));
    let found =
        silent.map(|port| Finding::new(FindingId::PortNotListening, format!("port {port} of the loopback interface")));
    Outcome::of(found.collect(), format!("{} listen", exposed.len()))
}

fn files(allowed: Option<u64>) -> Check {
    match allowed.filter(|allowed| *allowed < FILES_MIN) {
        Some(allowed) => {
            let what = format!("this agent may open {allowed} files, and each stream of a user takes one");
            Check::new(FILES, Finding::new(FindingId::FilesLimitLow, what))
        }
        None => {
            let shown = allowed.map_or_else(|| "any number".to_owned(), |allowed| allowed.to_string());
            Check::new(FILES, Outcome::Passed(format!("this agent may open {shown}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposed_port_without_a_listener_is_a_warning() {
        assert!(matches!(judged(&[80], &[22, 80]), Outcome::Passed(_)));
        let Outcome::Found(found) = judged(&[80, 3000], &[22, 80]) else { panic!("none") };
        assert_eq!(found.len(), 1);
        assert!(found[0].id == FindingId::PortNotListening && found[0].what.contains("3000"), "{found:?}");
    }

    #[test]
    fn few_files_are_a_warning() {
        assert!(matches!(files(Some(FILES_MIN)).outcome, Outcome::Passed(_)));
        assert!(matches!(files(None).outcome, Outcome::Passed(_)));
        assert!(matches!(files(Some(256)).outcome, Outcome::Found(_)));
    }
}
