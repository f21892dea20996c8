//! Values of labels that say how something ended, or which way it went.

/// End of a raw TCP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEnd {
    /// Both directions finished.
    Finished,
    /// The app's connection was reset.
    App,
    /// The user's connection broke, or the user's program reset it.
    User,
    /// The session or its channel is gone.
    Lost,
    /// This replica is shutting down.
    Draining,
    /// Access ended.
    Access,
}

impl TcpEnd {
    pub(super) const ALL: [Self; 6] = [Self::Finished, Self::App, Self::User, Self::Lost, Self::Draining, Self::Access];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::App => "app",
            Self::User => "user",
            Self::Lost => "lost",
            Self::Draining => "draining",
            Self::Access => "access",
        }
    }
}

/// End of the preparation of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Everything is there.
    Completed,
    /// It failed for good.
    Failed,
}

/// Outcome of a cluster agent's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportEnd {
    /// The report is stored.
    Stored,
    /// The report equals the stored one.
    Unchanged,
    /// The report is about nothing of that cluster.
    Ignored,
}

impl ReportEnd {
    pub(super) const ALL: [Self; 3] = [Self::Stored, Self::Unchanged, Self::Ignored];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Unchanged => "unchanged",
            Self::Ignored => "ignored",
        }
    }
}

/// End of a CI job that is a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The job was to end.
    Done,
    /// The job was to end, and was cut before its files were saved.
    Unsaved,
    /// The job was to go on, or did not get that far.
    Failed,
    /// There was no job: the CI system was not asked for it in the end, or did not create it.
    NotMade,
}

impl RunEnd {
    pub(super) const ALL: [Self; 4] = [Self::Done, Self::Unsaved, Self::Failed, Self::NotMade];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unsaved => "unsaved",
            Self::Failed => "failed",
            Self::NotMade => "not_made",
        }
    }
}

/// Way of a change between replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeWay {
    /// Sent to another replica, once for each.
    Sent,
    /// Not sent: the replica did not take it. It finds it in the store.
    Unsent,
    /// Received from another replica.
    Received,
    /// Found in the store.
    Found,
    /// Too many to name were sent, received or found: "everything" instead, once each.
    Everything,
}

impl ChangeWay {
    pub(super) const ALL: [Self; 5] = [Self::Sent, Self::Unsent, Self::Received, Self::Found, Self::Everything];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Unsent => "unsent",
            Self::Received => "received",
            Self::Found => "found",
            Self::Everything => "everything",
        }
    }
}
