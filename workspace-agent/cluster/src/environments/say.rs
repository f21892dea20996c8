//! Answers that are sent while a call is carried out. A reader that does not listen does not hold the work up: progress
//! that finds no room is left out, the last answer waits for room.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::mpsc;
use tunnel_proto::environments::{CallAnswer, CallProgress, Done, ObjectRef, ObjectStep};

/// Answers that wait to be written.
const ANSWERS_MAX: usize = 256;

/// Longest silence before a message shows that the call is still being carried out: some of these fit into the silence
/// that a gateway bears.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Sender of answers.
pub(super) struct Say {
    sender: mpsc::Sender<CallAnswer>,
}

impl Say {
    pub(super) fn new() -> (Self, mpsc::Receiver<CallAnswer>) {
        let (sender, heard) = mpsc::channel(ANSWERS_MAX);
        (Self { sender }, heard)
    }

    /// Sends a step of an object.
    pub(super) fn step(&self, object: ObjectRef, step: ObjectStep, message: impl Into<String>) {
        // Full: the reader follows slowly, and hears the end.
        drop(self.sender.try_send(CallAnswer::Progress(CallProgress { object, step, message: message.into() })));
    }

    /// Sends the last answer.
    pub(super) async fn last(self, done: Done) {
        // An error means that the reader is gone.
        drop(self.sender.send(CallAnswer::Done(done)).await);
    }
}

/// Writes answers up to the last one. As long as nothing is said, the call is about `first`.
///
/// # Errors
/// The channel's error when it is broken.
pub(super) async fn speak<C: AsyncWrite>(
    mut heard: mpsc::Receiver<CallAnswer>,
    mut write: WriteHalf<C>,
    first: ObjectRef,
) -> io::Result<()> {
    let mut about = first;
    loop {
        let answer = match tokio::time::timeout(SILENCE_MAX, heard.recv()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return write.shutdown().await,
            Err(_elapsed) => CallAnswer::Progress(CallProgress {
                object: about.clone(),
                step: ObjectStep::Waiting,
                message: "the Kubernetes API takes its time".to_owned(),
            }),
        };
        if let CallAnswer::Progress(progress) = &answer {
            about = progress.object.clone();
        }
        write.write_all(&answer.encode()).await?;
        write.flush().await?;
    }
}
