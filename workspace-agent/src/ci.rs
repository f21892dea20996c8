//! Runs a command of a CI job as it would run without a wrapper; when it fails, holds the job open for its owner.
//!
//! The gateway has no say in how a job ends, apart from the one choice that a person makes through it. It is dialed
//! when it is needed, after the command, so a job that passes costs nothing; earlier only if the token would expire
//! before.

mod attach;
mod command;
mod decide;
mod end;
mod expiry;
mod held;
mod length;
mod limit;
pub mod signal_probe;
mod signals;
mod tree;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::Instant;

pub use self::command::CommandLine;
pub use self::decide::HoldCondition;
pub use self::end::CommandEnd;
pub use self::length::Length;
pub(crate) use self::limit::ends_at;

use self::attach::Attachment;
use self::command::Ran;
use self::held::{Chosen, HeldJob};
use self::limit::Hold;
use self::signal_probe::SignalProbe;
use self::signals::{Signals, asks_to_end};
use crate::terminal::job::Choice;
use crate::{Options, TerminalOptions, Terminals, TokenSource};

/// Longest time to tell the gateway that the job ends.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest wait of a held job for a lost gateway: without it, no user can choose.
const ALONE_MAX: Length = Length::seconds(5 * 60);

/// Longest time for the answer to reach the user who made the choice.
const LAST_WORD: Duration = Duration::from_millis(300);

/// Options of a wrapped command.
#[derive(Clone, Debug)]
pub struct CiOptions {
    /// Command to run.
    pub command: CommandLine,
    /// Outcomes of the command after which the job is held.
    pub on: HoldCondition,
    /// Longest time that the job is held.
    pub hold: Length,
    /// Time at which the CI system ends the job, held or not, if it tells. Units: seconds since the Unix epoch.
    pub ends_at: Option<u64>,
    /// Longest time for the gateway to make a held job reachable, before the job ends as if there were no gateway.
    pub patience: Length,
    /// Options of the agent that makes the job reachable.
    pub agent: Options,
    /// File that is created before its token is shown to a gateway: a token that is good for one process is used up
    /// then.
    pub spent_file: Option<PathBuf>,
    /// Path of this program, of which a second process tells signals to the whole group from those to this process
    /// alone, and ends the command when this process is killed. Without it, all signals are handed on.
    pub witness: Option<PathBuf>,
}

/// Writes a line into the job's log, for people. A log that takes none is waited for half a second, once.
pub fn say(text: &str) {
    program_log::stderr().say(format_args!("workspace-agent: {text}"));
}

/// Runs a command, and holds the job when that is due; returns how the job ends.
///
/// # Errors
/// The system's, and then the command was not started.
pub async fn run(options: CiOptions, say: impl Fn(&str)) -> io::Result<CommandEnd> {
    let CiOptions { command, on, hold, ends_at, patience, agent, spent_file, witness } = options;
    let mut signals = Signals::take()?;
    let job = Arc::new(HeldJob::new(command.shown()));
    let dial_at =
        decide::dial_after(expiry_of(&agent.token), wall_clock()).and_then(|after| Instant::now().checked_add(after));
    let terminals = Terminals::new(TerminalOptions {
        without: command.hidden_variable.clone().into_iter().collect(),
        job: Some(job.clone()),
        ..TerminalOptions::default()
    });
    let mut attachment = Attachment::planned(Options { terminal: Some(terminals), ..agent }, spent_file);
    let witness = witness.as_deref().and_then(SignalProbe::start);
    let ran = command.run(&mut signals, witness, &mut attachment, dial_at, &say).await;
    if !decide::holds(on, ran.end, ran.asked_to_end) {
        attachment.end(GOODBYE_TIMEOUT).await;
        return Ok(ran.end);
    }
    let mut held = EndedJob { job, attachment, signals, hold, ends_at };
    let chosen = held.wait(ran, patience, &say).await;
    tokio::time::sleep(LAST_WORD).await;
    held.attachment.end(GOODBYE_TIMEOUT).await;
    Ok(decide::end_of(ran.end, chosen.map(|chosen| chosen.choice)))
}

/// A job whose command has ended.
struct EndedJob {
    job: Arc<HeldJob>,
    attachment: Attachment,
    signals: Signals,
    hold: Length,
    ends_at: Option<u64>,
}

impl EndedJob {
    /// Makes the job reachable and waits for a choice; `None` if no user made one.
    async fn wait(&mut self, ran: Ran, patience: Length, say: impl Fn(&str)) -> Option<Chosen> {
        let (hold, cut) = match limit::hold(self.hold, self.ends_at, wall_clock()) {
            Hold::Asked(hold) => (hold, ""),
            Hold::Cut(hold) => (hold, ", because its own time ends then,"),
            Hold::NoTime => {
                say("this job is not held open: its own time is nearly over");
                return None;
            }
        };
        let deadline = Instant::now() + patience.0;
        let link = tokio::select! {
            link = self.attachment.up_by(deadline) => link,
            () = asked_to_end(&mut self.signals) => return None,
        };
        let link = match link {
            Ok(link) => link,
            Err(why) => {
                say(&format!("this job is not held open: {why}"));
                return None;
            }
        };
        self.job.hold(ran.end, wall_clock().saturating_add(hold.0.as_secs()));
        say(&format!(
            "the command ended with status {}; the job waits {hold} at most{cut} for a person to look at it, and to press \
             Continue or Fail now:",
            ran.end.in_shell()
        ));
        say(&link);
        let why = tokio::select! {
            _chosen = self.job.choice() => String::new(),
            () = tokio::time::sleep(hold.0) => format!("no choice was made within {hold}"),
            why = self.attachment.over() => format!("the job cannot be reached any more: {why}"),
            () = self.attachment.alone(ALONE_MAX.0) => {
                format!("the job cannot be reached any more: the gateway has been away for {ALONE_MAX}")
            }
            () = asked_to_end(&mut self.signals) => "the job was asked to end".to_owned(),
        };
        // A user may have chosen at the last moment, and was told that the choice counts.
        let chosen = self.job.end();
        say(&chosen.as_ref().map_or(why, told));
        chosen
    }
}

/// Describes the choice for the log.
fn told(chosen: &Chosen) -> String {
    let by = chosen.who.as_ref().map(|who| format!(" by {who}")).unwrap_or_default();
    match chosen.choice {
        Choice::Continue => format!("continued{by}: the step counts as passed"),
        Choice::Fail => format!("failed{by}"),
    }
}

/// Waits for a signal that asks the job to end.
async fn asked_to_end(signals: &mut Signals) {
    while !asks_to_end(signals.next().await) {}
}

/// Returns the expiry of the credential, if it has one. An unreadable file is reported by the code that needs the
/// token.
fn expiry_of(token: &TokenSource) -> Option<u64> {
    match token {
        TokenSource::Value(token) => expiry::expires_at(token),
        // Anything but a regular file may be readable only once.
        TokenSource::File(path) if path.is_file() => expiry::expires_at(&std::fs::read_to_string(path).ok()?),
        TokenSource::File(_) => None,
        TokenSource::None => None,
    }
}

/// Reads the system's clock. Units: seconds since the Unix epoch.
fn wall_clock() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the border where wall-clock time enters")]
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
