//! Agent beside a command: dials when it is told to, and reports its progress.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tunnel_proto::hello::Welcome;
use tunnel_proto::terminal::TERMINAL_PORT;

use crate::dial::with_sources;
use crate::{AgentEvent, Options, Terminals};

/// Progress of an agent.
#[derive(Clone, Debug)]
enum AttachProgress {
    /// Not connected.
    Absent {
        /// Reason, if it is known.
        why: Option<Arc<str>>,
        /// Time of the next dial, if the agent waits for one.
        again_at: Option<Instant>,
    },
    /// A session is up; its job is reached at this place.
    Up(Arc<str>),
    /// Only a person can help.
    Over(Arc<str>),
}

/// Progress before anything is known.
const ABSENT: AttachProgress = AttachProgress::Absent { why: None, again_at: None };

/// Agent that runs or is planned.
pub(super) struct Attachment {
    options: Option<Options>,
    spent_file: Option<PathBuf>,
    terminals: Option<Terminals>,
    progress: watch::Sender<AttachProgress>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Attachment {
    pub(super) fn planned(options: Options, spent_file: Option<PathBuf>) -> Self {
        Self {
            terminals: options.terminal.clone(),
            options: Some(options),
            spent_file,
            progress: watch::Sender::new(ABSENT),
            stop: CancellationToken::new(),
            task: JoinSet::new(),
        }
    }

    /// Returns whether the agent has not been started yet.
    pub(super) fn is_planned(&self) -> bool {
        self.options.is_some()
    }

    /// Dials, unless that was done before.
    pub(super) fn begin(&mut self) {
        let Some(options) = self.options.take() else { return };
        if let Some(path) = self.spent_file.take() {
            // Without the file, the next command of the job finds out by itself that its token was used.
            drop(File::create(path));
        }
        let mut agent = options.agent();
        let (progress, told) = (self.progress.clone(), self.progress.clone());
        agent.observer = Box::new(move |event| {
            if let Some(now) = progress_of(&event, Instant::now()) {
                told.send_replace(now);
            }
        });
        let stop = self.stop.clone();
        self.task.spawn(async move {
            // An agent that was asked to stop ends without an error, and nothing listens any more.
            if let Err(ended) = agent.run(stop).await {
                progress.send_replace(AttachProgress::Over(with_sources(&ended).into()));
            }
        });
    }

    /// Waits until the job can be reached, and returns its place.
    ///
    /// # Errors
    /// The reason: a person has to act, or the time is up.
    ///
    /// Cancel safety: safe.
    pub(super) async fn up_by(&mut self, deadline: Instant) -> Result<Arc<str>, Arc<str>> {
        self.begin();
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|progress| match progress {
            // Do not wait for an agent that dials again only after the deadline.
            AttachProgress::Absent { again_at, .. } => again_at.is_some_and(|again_at| again_at > deadline),
            AttachProgress::Up(_) | AttachProgress::Over(_) => true,
        });
        drop(tokio::time::timeout_at(deadline, settled).await);
        let now = self.progress.borrow().clone();
        match now {
            AttachProgress::Up(link) => Ok(link),
            AttachProgress::Over(why) | AttachProgress::Absent { why: Some(why), .. } => Err(why),
            AttachProgress::Absent { why: None, .. } => Err("the gateway did not answer in time".into()),
        }
    }

    /// Waits until the agent has given up for good, and returns the reason.
    ///
    /// Cancel safety: safe.
    pub(super) async fn over(&self) -> Arc<str> {
        let mut progress = self.progress.subscribe();
        loop {
            if let AttachProgress::Over(why) = &*progress.borrow_and_update() {
                return why.clone();
            }
            if progress.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the job has been unreachable for this long without a break.
    ///
    /// Cancel safety: safe, and the time begins anew.
    pub(super) async fn alone(&self, time: Duration) {
        alone(self.progress.subscribe(), time).await;
    }

    /// Closes the terminals and says goodbye, all `within` this time.
    pub(super) async fn end(mut self, within: Duration) {
        let parting = async {
            if let Some(terminals) = &self.terminals {
                // First, so that their pages hear it from them.
                drop(tokio::time::timeout(within / 2, terminals.close()).await);
            }
            self.stop.cancel();
            self.task.join_next().await
        };
        // Tasks that still run then are aborted with the set.
        drop(tokio::time::timeout(within, parting).await);
    }
}

async fn alone(mut progress: watch::Receiver<AttachProgress>, time: Duration) {
    loop {
        let gone = progress.wait_for(|progress| !matches!(progress, AttachProgress::Up(_))).await.is_ok();
        let back = progress.wait_for(|progress| matches!(progress, AttachProgress::Up(_)));
        if !gone || tokio::time::timeout(time, back).await.is_err() {
            return;
        }
    }
}

/// Returns the progress that an event stands for, if any.
fn progress_of(event: &AgentEvent<'_>, now: Instant) -> Option<AttachProgress> {
    match event {
        AgentEvent::Connected { welcome, .. } => Some(AttachProgress::Up(place(welcome).into())),
        AgentEvent::Redialing { after, cause } => {
            Some(AttachProgress::Absent { why: Some((*cause).into()), again_at: Some(now + *after) })
        }
        AgentEvent::SessionEnded { .. } => Some(ABSENT),
        AgentEvent::Dialing => None,
    }
}

/// Returns the place at which people reach a job's terminal.
fn place(welcome: &Welcome) -> String {
    match welcome.workspace_url.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{TERMINAL_PORT}-{rest}"),
        // A gateway older than this program sends no URL.
        None => format!("port {TERMINAL_PORT} of the workspace {}", welcome.workspace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn job_is_alone_once_its_gateway_was_away_for_the_whole_time_and_tries_to_come_back_do_not_count() {
        let progress = watch::Sender::new(AttachProgress::Up("here".into()));
        let mut waits = JoinSet::new();
        waits.spawn(alone(progress.subscribe(), 5 * MINUTE));
        let minutes = async |number: u32| {
            for _ in 0..number {
                tokio::time::sleep(MINUTE).await;
            }
        };
        minutes(60).await;
        assert!(waits.try_join_next().is_none(), "it is reached");
        progress.send_replace(ABSENT);
        minutes(4).await;
        progress.send_replace(AttachProgress::Up("here".into()));
        minutes(1).await;
        progress.send_replace(ABSENT);
        for _ in 0..4 {
            minutes(1).await;
            progress.send_replace(AttachProgress::Absent { why: Some("refused".into()), again_at: None });
            assert!(waits.try_join_next().is_none());
        }
        minutes(2).await;
        assert!(waits.try_join_next().is_some(), "five minutes without a break");
    }
}
