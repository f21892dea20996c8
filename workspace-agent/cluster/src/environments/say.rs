//! What is said while a call is carried out. Nobody who does not listen holds the work up: progress that finds no room is left out,
//! the last answer waits for room.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::mpsc;
use tunnel_proto::environments::{Answer, Done, ObjectRef, Progress, Step};

/// Answers that wait to be written.
const ANSWERS_MAX: usize = 256;

/// How long nothing is said before something is said to show that the call is still being carried out: some of these fit into
/// the silence that a gateway bears.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Where answers go.
pub(super) struct Say {
    sender: mpsc::Sender<Answer>,
}

impl Say {
    pub(super) fn new() -> (Self, mpsc::Receiver<Answer>) {
        let (sender, heard) = mpsc::channel(ANSWERS_MAX);
        (Self { sender }, heard)
    }

    /// Says what became of an object.
    pub(super) fn step(&self, object: ObjectRef, step: Step, message: impl Into<String>) {
        // Full: whoever follows does so slowly, and hears the end.
        drop(self.sender.try_send(Answer::Progress(Progress { object, step, message: message.into() })));
    }

    /// Says the last word.
    pub(super) async fn last(self, done: Done) {
        // Nobody is there any more.
        drop(self.sender.send(Answer::Done(done)).await);
    }
}

/// Writes what is said, up to the last answer. As long as nothing is said, the call is about `first`.
///
/// # Errors
/// What the channel says when it is broken.
pub(super) async fn speak<C: AsyncWrite>(
    mut heard: mpsc::Receiver<Answer>,
    mut write: WriteHalf<C>,
    first: ObjectRef,
) -> io::Result<()> {
    let mut about = first;
    loop {
        let answer = match tokio::time::timeout(SILENCE_MAX, heard.recv()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return write.shutdown().await,
            Err(_elapsed) => Answer::Progress(Progress {
                object: about.clone(),
                step: Step::Waiting,
                message: "the Kubernetes API takes its time".to_owned(),
            }),
        };
        if let Answer::Progress(progress) = &answer {
            about = progress.object.clone();
        }
        write.write_all(&answer.encode()).await?;
        write.flush().await?;
    }
}
