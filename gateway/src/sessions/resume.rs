//! Which session an agent may go on with: one pure decision.

use std::sync::Arc;

use tunnel_proto::hello::Resume;

use super::registry::LiveSession;

/// What an agent that asks to resume gets.
#[derive(Debug)]
pub enum Verdict {
    /// Its session.
    Resume(Arc<LiveSession>),
    /// A new session: the one that it names is over.
    New,
    /// Nothing: the secret is not the session's.
    Foreign,
    /// Nothing: another agent with the same token came after it, and the newest wins.
    Displaced,
}

/// Decides for an agent that names a session, when `current` is the one of its workspace.
#[must_use]
pub fn judge(current: Option<&Arc<LiveSession>>, instance: u64, resume: &Resume) -> Verdict {
    let Some(current) = current else { return Verdict::New };
    if current.id == resume.session {
        let heard = current.tunnel.was_heard();
        return if !current.keys.accepts(&resume.secret, heard) {
            Verdict::Foreign
        } else if current.tunnel.is_ended() {
            Verdict::New
        } else {
            Verdict::Resume(current.clone())
        };
    }
    // The same process may have got a session whose welcome was lost on the way.
    if current.id > resume.session && current.instance != instance { Verdict::Displaced } else { Verdict::New }
}
