//! Idle stop: when a workspace without use is stopped, decided from what its users did last. Pure.
//!
//! What counts as use is decided where it is seen; here is what follows from it. A stop is due once the time limit has passed since
//! the latest of: the last activity, the request to run, the end of a start that took its time, and the end of a "keep".

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use super::{ActualState, DesiredState, Lifecycle, UnixSeconds, UserName};

/// Time before a stop from which it is announced, and from which it is announced as near.
const WARNINGS: [Duration; 2] = [Duration::from_mins(10), Duration::from_mins(2)];

/// Longest start that counts as use: a workspace whose image takes long to come is not stopped before anyone has seen it, and one
/// that comes and goes is not kept awake by that.
const START_TIME_MAX: Duration = Duration::from_mins(15);

/// Longest time limit that a workspace can have: its age is bounded below that.
pub const IDLE_TIME_MAX: Duration = Duration::from_hours(8760);

/// Shortest time limit that can be asked for.
pub const IDLE_TIME_MIN: Duration = Duration::from_secs(5);

/// Longest time that a workspace is kept awake at once.
pub const KEEP_TIME_MAX: Duration = Duration::from_hours(24);

/// Time that a workspace is kept awake if none is said.
pub const KEEP_TIME: Duration = Duration::from_hours(1);

/// Kind of what counted as use of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivityKind {
    /// Input of a terminal.
    Terminal,
    /// Data that a browser sent over a WebSocket.
    WebSocket,
    /// A page opened in a browser.
    Visit,
    /// A request that changes something.
    Change,
    /// Bytes of a request's body.
    Upload,
    /// Bytes over SSH or a forwarded port.
    Stream,
    /// A command that asked to be waited for.
    Busy,
}

/// The text is no kind of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no such kind of activity")]
pub struct BadActivityKind;

impl ActivityKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Terminal, Self::WebSocket, Self::Visit, Self::Change, Self::Upload, Self::Stream, Self::Busy];

    /// Returns its name, as the store and the API have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::WebSocket => "websocket",
            Self::Visit => "visit",
            Self::Change => "change",
            Self::Upload => "upload",
            Self::Stream => "stream",
            Self::Busy => "busy",
        }
    }

    /// Returns its name for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Terminal => "terminal input",
            Self::WebSocket => "WebSocket data",
            Self::Visit => "a page visit",
            Self::Change => "a changing request",
            Self::Upload => "an upload",
            Self::Stream => "SSH or TCP data",
            Self::Busy => "a busy command",
        }
    }
}

impl FromStr for ActivityKind {
    type Err = BadActivityKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(BadActivityKind)
    }
}

/// Something that counted as use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its time.
    pub at: UnixSeconds,
    /// Its kind.
    pub kind: ActivityKind,
    /// The user who caused it; `None` for a busy command.
    pub user: Option<UserName>,
}

impl fmt::Display for Activity {
    /// Writes what and who, without the time.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.words())?;
        match &self.user {
            Some(user) => write!(formatter, " by {user}"),
            None => Ok(()),
        }
    }
}

/// Time limit that a workspace's owner wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleLimit {
    /// As its cluster or CI system says.
    #[default]
    Inherited,
    /// None.
    Off,
    /// This.
    After(Duration),
}

/// The text or number is no time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("has to be a number of minutes, 0 for no idle stop")]
pub struct BadIdleLimit;

impl IdleLimit {
    /// Reads a number of minutes; 0 is [`IdleLimit::Off`].
    ///
    /// # Errors
    /// [`BadIdleLimit`] if it is negative, below [`IDLE_TIME_MIN`] or above [`IDLE_TIME_MAX`].
    pub fn of_minutes(minutes: f64) -> Result<Self, BadIdleLimit> {
        let exact = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| BadIdleLimit)?;
        if exact.is_zero() {
            return Ok(Self::Off);
        }
        let time = Duration::from_secs(exact.as_secs() + u64::from(exact.subsec_millis() >= 500));
        if (IDLE_TIME_MIN..=IDLE_TIME_MAX).contains(&time) { Ok(Self::After(time)) } else { Err(BadIdleLimit) }
    }
}

impl fmt::Display for IdleLimit {
    /// Writes a number of seconds, `off` or `default`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inherited => formatter.write_str("default"),
            Self::Off => formatter.write_str("off"),
            Self::After(limit) => write!(formatter, "{}", limit.as_secs()),
        }
    }
}

impl FromStr for IdleLimit {
    type Err = BadIdleLimit;

    /// Reads minutes, `off`, or `default`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "default" => Ok(Self::Inherited),
            "off" => Ok(Self::Off),
            number => Self::of_minutes(number.parse().map_err(|_| BadIdleLimit)?),
        }
    }
}

/// Rules of an operator for the time limits of workspaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleRules {
    /// Limit of workspaces whose owner says none.
    pub default: Option<Duration>,
    /// Largest limit; with one, no workspace is without a limit.
    pub max: Option<Duration>,
}

impl IdleRules {
    /// Makes the rules of numbers of minutes, of which 0 is none.
    #[must_use]
    pub fn of_minutes(default: u32, max: u32) -> Self {
        let time = |minutes: u32| (minutes > 0).then(|| Duration::from_secs(u64::from(minutes) * 60));
        Self { default: time(default), max: time(max) }
    }

    /// Returns the limit of a workspace; `None` for no idle stop.
    #[must_use]
    pub fn limit(&self, wanted: IdleLimit) -> Option<Duration> {
        let wanted = match wanted {
            IdleLimit::Inherited => self.default,
            IdleLimit::Off => None,
            IdleLimit::After(limit) => Some(limit),
        };
        match (wanted, self.max) {
            (Some(wanted), Some(max)) => Some(wanted.min(max)),
            (wanted, max) => wanted.or(max),
        }
    }
}

/// What is known of a workspace's use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleRecord {
    /// Limit that its owner wants.
    pub wanted: IdleLimit,
    /// Limit in force, by its owner and its operator; `None` for no idle stop.
    pub limit: Option<Duration>,
    /// What counted last.
    pub last: Option<Activity>,
    /// Time until which it was asked to be kept.
    pub kept_until: Option<UnixSeconds>,
    /// Generation of the stop for idleness, if it was stopped so.
    pub stopped_generation: Option<u64>,
    /// Counts the writes of everything above.
    pub revision: i64,
}

/// Nearness of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdleStage {
    /// There is no idle stop, or nothing to stop.
    Off,
    /// The stop is not near.
    Awake,
    /// It is announced.
    Announced,
    /// It is near.
    Near,
    /// It is due.
    Due,
}

impl IdleStage {
    /// Returns its name, as the API has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Awake => "awake",
            Self::Announced => "announced",
            Self::Near => "near",
            Self::Due => "due",
        }
    }
}

impl IdleRecord {
    /// Adds an activity; the newest counts.
    #[must_use]
    pub fn with(mut self, activity: Activity) -> Self {
        if self.last.as_ref().is_none_or(|last| last.at < activity.at) {
            self.last = Some(activity);
        }
        self
    }

    /// Returns the time since which the workspace is idle, by what its users did.
    #[must_use]
    pub fn idle_since(&self, life: &Lifecycle) -> UnixSeconds {
        let came_up = life.actual_at.min(life.desired_at.later(START_TIME_MAX));
        let began = life.desired_at.max(came_up);
        self.last.as_ref().map_or(began, |last| last.at.max(began))
    }

    /// Returns the time of its stop; `None` without one.
    #[must_use]
    pub fn stops_at(&self, life: &Lifecycle) -> Option<UnixSeconds> {
        if !can_be_idle(life) {
            return None;
        }
        let due = self.idle_since(life).later(self.limit?);
        Some(self.kept_until.map_or(due, |kept| kept.max(due)))
    }

    /// Returns how near its stop is.
    #[must_use]
    pub fn stage(&self, life: &Lifecycle, now: UnixSeconds) -> IdleStage {
        let (Some(at), Some(limit)) = (self.stops_at(life), self.limit) else { return IdleStage::Off };
        let left = Duration::from_secs(u64::try_from(at.get().saturating_sub(now.get())).unwrap_or_default());
        let [announced, near] = warnings(limit);
        match left {
            Duration::ZERO => IdleStage::Due,
            left if left <= near => IdleStage::Near,
            left if left <= announced => IdleStage::Announced,
            _ => IdleStage::Awake,
        }
    }

    /// Returns the time until which it is kept, if that is to come.
    #[must_use]
    pub fn is_kept_until(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        self.kept_until.filter(|until| *until > now)
    }

    /// Writes when it stops and what counted last, for a reader; `None` if neither is known.
    #[must_use]
    pub fn told(&self, life: &Lifecycle, reader: &UserName) -> Option<String> {
        let stops = self.stops_at(life).map(|at| format!("stops {at}"));
        let last = self.last.as_ref().map(|last| {
            let by = match &last.user {
                Some(user) if user == reader => " by you".to_owned(),
                Some(user) => format!(" by {user}"),
                None => String::new(),
            };
            format!("last activity {}: {}{by}", last.at, last.kind.words())
        });
        let parts: Vec<String> = stops.into_iter().chain(last).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Returns the reason of its stop, for people, if it is stopped for idleness.
    #[must_use]
    pub fn stop_reason(&self, life: &Lifecycle) -> Option<String> {
        let is_its = life.desired == DesiredState::Stopped && self.stopped_generation == Some(life.generation);
        if !is_its {
            return None;
        }
        Some(match &self.last {
            Some(last) => format!("stopped: idle since {} ({last})", last.at),
            None => "stopped: idle since its start".to_owned(),
        })
    }
}

/// Returns the times before a stop at which it is announced: less with a short limit, or a workspace would be under notice for ever.
fn warnings(limit: Duration) -> [Duration; 2] {
    let [announced, near] = WARNINGS;
    [announced.min(limit / 2), near.min(limit / 5)]
}

/// Returns whether a workspace is up, or failed at it: one that is still on its way is not idle.
fn can_be_idle(life: &Lifecycle) -> bool {
    life.desired == DesiredState::Running
        && match life.actual {
            ActualState::Running | ActualState::Failed | ActualState::Error | ActualState::Unknown => true,
            ActualState::CreationRequested
            | ActualState::Starting
            | ActualState::Stopping
            | ActualState::Stopped
            | ActualState::Terminating
            | ActualState::Terminated => false,
        }
}

#[cfg(test)]
mod tests;
