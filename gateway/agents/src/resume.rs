//! Decides which session an agent may resume, or add a lane to. Pure.

use std::sync::Arc;

use bytes::Bytes;
use tunnel_link::session::{LinkHold, Session};
use tunnel_proto::hello::{Join, Resume};
use tunnel_proto::id::SessionId;
use tunnel_proto::mux::SessionError;

use super::lanes::{Lane, LaneMemory};
use super::registry::LiveSession;
use gateway_auth::keys::ResumeKeys;
use gateway_types::token::NoRandomness;

/// Role of a link in its session: the first, or a lane.
#[derive(Clone, Debug)]
pub enum LinkRole {
    /// The link that every session has.
    First,
    /// One more.
    Lane(Arc<Lane>),
}

impl LinkRole {
    /// Returns the tunnel of a link with this role.
    #[must_use]
    pub fn tunnel<'a>(&'a self, session: &'a LiveSession) -> &'a Session {
        match self {
            Self::First => &session.tunnel,
            Self::Lane(lane) => &lane.tunnel,
        }
    }

    /// Lets an agent that shows a good secret resume over another link. `None` when the secret is not the session's.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn go_on(&self, session: &LiveSession, resume: &Resume) -> Result<Option<GoesOn>, NoRandomness> {
        let tunnel = self.tunnel(session);
        let link = || tunnel.resume(resume.received);
        let traded = self.keys(session).trade(&resume.secret, || tunnel.was_heard(), link)?;
        Ok(traded.map(|(secret, link)| link.map(|(link, received)| (link, received, secret))))
    }

    /// Returns its name in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::First => "session",
            Self::Lane(_) => "lane",
        }
    }

    fn keys<'a>(&'a self, session: &'a LiveSession) -> &'a ResumeKeys {
        match self {
            Self::First => &session.keys,
            Self::Lane(lane) => &lane.keys,
        }
    }
}

/// The next link, the highest frame number received here, and the secret of the welcome; or the reason the session is
/// over.
pub type GoesOn = Result<(LinkHold, u64, Bytes), SessionError>;

/// Answer to an agent that asks to resume.
#[derive(Debug)]
pub enum ResumeVerdict {
    /// Its session, if it shows the secret.
    Resume(Arc<LiveSession>, LinkRole),
    /// A new session: the one that it names is over.
    New,
    /// Nothing: another agent with the same token came after it, and the newest wins.
    Displaced,
}

/// Finds the role of the link that an id names: of the session itself, or of one of its lanes.
#[must_use]
pub fn role(current: &LiveSession, id: SessionId) -> Option<LinkRole> {
    if current.id == id { Some(LinkRole::First) } else { current.lanes.get(id).map(LinkRole::Lane) }
}

/// Decides for an agent that names a session or a lane, when `current` is the session of its subject.
#[must_use]
pub fn judge(current: Option<&Arc<LiveSession>>, instance: u64, resume: &Resume) -> ResumeVerdict {
    let Some(current) = current else { return ResumeVerdict::New };
    if let Some(role) = role(current, resume.session) {
        let is_ended = role.tunnel(current).is_ended();
        return if is_ended { ResumeVerdict::New } else { ResumeVerdict::Resume(current.clone(), role) };
    }
    // The same process may have had a session whose welcome was lost on the way.
    if current.rank >= resume.session && current.instance != instance {
        ResumeVerdict::Displaced
    } else {
        ResumeVerdict::New
    }
}

/// Decides for an agent that wants one more lane. Returns the session, and the bounds that its lanes share.
#[must_use]
pub fn judge_join(
    current: Option<&Arc<LiveSession>>,
    instance: u64,
    join: &Join,
) -> Option<(Arc<LiveSession>, LaneMemory)> {
    let current = current.filter(|current| current.id == join.session && current.instance == instance)?;
    let memory = current.lanes.admit(&join.secret).filter(|_| !current.tunnel.is_ended())?;
    Some((current.clone(), memory))
}
