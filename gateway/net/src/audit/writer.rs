//! The one task that writes records.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use super::event::{Credential, Text};
use super::file::{LogFile, NotAppended};
use super::line::{line, words};
use super::stored::RecordQueue;
use super::{AuditRecord, Losses, Lost, Timed, TokenIds};
use gateway_config::AuditLog;

/// Records that are written at once.
const BATCH: usize = 256;

/// Cached ids of tokens; further ones are looked up again.
const TOKEN_IDS_MAX: usize = 4096;

/// Turns records into lines, in the order in which they were handed in.
pub struct Writer {
    waiting: Receiver<Timed>,
    losses: Arc<Losses>,
    token_ids: TokenIds,
    known_ids: HashMap<[u8; 32], Text>,
    /// `None` writes to the program's log.
    file: Option<LogFile>,
    /// The last write to the file failed.
    is_failing: bool,
    /// Records in the program's log are words for people, not JSON.
    is_in_words: bool,
    /// Leads to the database; `None` if no record is kept there.
    stored: Option<RecordQueue>,
    clock_ms: fn() -> u64,
}

impl fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Writer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn open(
        config: &AuditLog,
        waiting: Receiver<Timed>,
        losses: Arc<Losses>,
        token_ids: TokenIds,
        clock_ms: fn() -> u64,
    ) -> io::Result<Self> {
        let file = config.path.as_deref().map(|path| LogFile::open(path, config)).transpose()?;
        Ok(Self {
            waiting,
            losses,
            token_ids,
            known_ids: HashMap::new(),
            file,
            is_failing: false,
            is_in_words: false,
            stored: None,
            clock_ms,
        })
    }

    /// Writes records in the program's log as words, and not as JSON, for a log that is not JSON either.
    #[must_use]
    pub fn in_words(self) -> Self {
        Self { is_in_words: true, ..self }
    }

    /// Hands records to the database's queue too.
    pub(super) fn storing(self, queue: RecordQueue) -> Self {
        Self { stored: Some(queue), ..self }
    }

    /// Writes until `stop`, and then the records still waiting. Reopens the file on SIGHUP.
    pub async fn run(mut self, stop: CancellationToken) {
        // Without the signal, a renamed file is noticed all the same.
        let mut hangup = signal(SignalKind::hangup()).ok().filter(|_| self.file.is_some());
        let mut batch = Vec::with_capacity(BATCH);
        let mut is_stopping = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    self.waiting.close();
                }
                () = hung_up(&mut hangup) => self.reopen(),
                count = self.waiting.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.write(&mut batch).await;
                }
            }
        }
    }

    fn reopen(&mut self) {
        let Some(file) = &mut self.file else { return };
        match file.reopen() {
            Ok(()) => info!("the audit log was opened anew"),
            Err(error) => error!(%error, "the audit log cannot be opened anew; the old file stays in use"),
        }
    }

    async fn write(&mut self, batch: &mut Vec<Timed>) {
        let lost = self.losses.take();
        let lost_record = lost.is_some().then(|| Timed::new((self.clock_ms)(), AuditRecord::new(lost.event())));
        let mut lines = String::new();
        for Timed { at_ms, record, more } in batch.drain(..).chain(lost_record) {
            for mut record in std::iter::once(record).chain(more) {
                self.name_token(&mut record).await;
                let is_in_words = self.is_in_words && self.file.is_none();
                let line = if is_in_words { words(&record) } else { line(at_ms, &record) };
                if let Some(queue) = &mut self.stored {
                    queue.put(at_ms, &record, (!is_in_words).then_some(&line));
                }
                if self.file.is_some() {
                    lines.push_str(&line);
                    lines.push('\n');
                } else if record.event.is_access() {
                    debug!(target: "audit", "{line}");
                } else {
                    info!(target: "audit", "{line}");
                }
            }
        }
        let Some(mut file) = self.file.take() else { return };
        // A disk may take its time; the runtime's threads may not.
        let appended = tokio::task::spawn_blocking(move || {
            let result = file.append(&lines);
            (file, result)
        });
        match appended.await {
            Ok((file, result)) => {
                self.file = Some(file);
                self.note(result, lost);
            }
            Err(error) => error!(%error, "the audit log's writer failed; records go to the log from here on"),
        }
    }

    /// Counts records that could not be written. A failure is logged once when it begins, and once when it is over.
    fn note(&mut self, result: Result<(), NotAppended>, lost: Lost) {
        match result {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                info!(missing = lost.unwritten, "the audit log is written again");
            }
            Ok(()) => {}
            Err(error) => {
                // The record of earlier losses is the last line, so it is one of the missing ones.
                let records = error.lines.saturating_sub(u64::from(lost.is_some()));
                self.losses.put_back(lost);
                self.losses.add(&self.losses.unwritten, records);
                if !self.is_failing {
                    error!(%error, records, "the audit log cannot be written; records are counted until it can");
                }
                self.is_failing = true;
            }
        }
    }

    /// Puts the id of a token in the place of its hash.
    async fn name_token(&mut self, record: &mut AuditRecord) {
        let Some(Credential::TokenHash(hash)) = record.credential else { return };
        let id = match self.known_ids.get(&hash) {
            Some(id) => Some(id.clone()),
            None => (self.token_ids)(hash).await.map(|id| Text::new(&id)),
        };
        if let Some(id) = &id {
            if self.known_ids.len() >= TOKEN_IDS_MAX {
                self.known_ids.clear();
            }
            self.known_ids.insert(hash, id.clone());
        }
        record.credential = Some(Credential::Token { id });
    }
}

/// Waits for a signal that may not be there.
async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}
