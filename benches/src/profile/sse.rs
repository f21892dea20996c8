//! Server-sent events: the delay of each.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::http::get;
use crate::client::LoadClient;
use crate::clock::unix_time;
use crate::failure::ExchangeFailure;
use crate::generator::{self, Post, Work, WorkKind};
use crate::outcome::RunOutcome;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::LoadTarget;

/// Longest event that is waited for.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// Pause before a stream that ended is opened again.
const REOPEN: Duration = Duration::from_millis(200);

/// A stream of events per connection.
struct Streams {
    target: LoadTarget,
    path: String,
    every: Duration,
}

/// Data of an event.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct SseEvent {
    sequence: u64,
    sent_us: u64,
}

/// Cuts a byte stream into events.
#[derive(Debug, Default)]
struct Parser {
    buffer: Vec<u8>,
}

impl Parser {
    /// Takes the next bytes and returns the events that are whole.
    ///
    /// # Errors
    /// This is no stream of the app's events.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, ExchangeFailure> {
        self.buffer.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let data = block.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "));
            let event = data.and_then(|data| serde_json::from_slice(data).ok());
            events.push(event.ok_or(ExchangeFailure::lost("wrong_event"))?);
        }
        if self.buffer.len() > EVENT_BYTES_MAX {
            return Err(ExchangeFailure::lost("wrong_event"));
        }
        Ok(events)
    }
}

impl Streams {
    /// Reads one stream until it ends or the run does.
    async fn read(&self, client: &mut LoadClient, post: &Post) -> Result<(), ExchangeFailure> {
        let answer = client.send(get(&self.target, &self.path)?).await?;
        if !answer.status().is_success() {
            return Err(ExchangeFailure {
                lost: true,
                ..ExchangeFailure::of_answer(answer.status(), answer.headers())
            });
        }
        let (mut body, mut parser, mut next) = (answer.into_body(), Parser::default(), 0);
        while let Some(piece) = client.piece(&mut body).await? {
            let (now, wall) = (Instant::now(), unix_time());
            post.moved(Bytes { down: piece.len() as u64, up: 0 });
            for event in parser.take(&piece)? {
                // An app whose clock is ahead makes no negative delay.
                let delay = wall.saturating_sub(Duration::from_micros(event.sent_us));
                let made = now.checked_sub(delay).unwrap_or(now);
                post.arrived(made);
                for _ in next..event.sequence {
                    post.missed(made, "lost_event");
                }
                if event.sequence < next {
                    post.missed(made, "repeated_event");
                }
                next = event.sequence + 1;
            }
        }
        Err(ExchangeFailure::lost("closed"))
    }
}

impl Work for Streams {
    type Connection = LoadClient;

    const KIND: WorkKind = WorkKind::Stream;

    async fn connect(&self) -> Result<LoadClient, ExchangeFailure> {
        LoadClient::connect(&self.target).await
    }

    async fn serve(&self, client: LoadClient, post: &Post) {
        // Expected events are counted by this clock, so that a stream that stands still is seen.
        let mut expected = interval_at(Instant::now() + self.every, self.every);
        expected.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let count = async {
            loop {
                post.expected(expected.tick().await);
            }
        };
        let read = async {
            let mut kept = Some(client);
            loop {
                let result = match kept.take() {
                    Some(mut client) => self.read(&mut client, post).await,
                    None => match self.connect().await {
                        Ok(mut client) => self.read(&mut client, post).await,
                        Err(failure) => Err(failure),
                    },
                };
                if let Err(failure) = result {
                    post.missed(Instant::now(), failure.why);
                }
                sleep(REOPEN).await;
            }
        };
        tokio::select! {
            () = count => {}
            () = read => {}
            () = post.over() => {}
        }
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let load = &context.load;
    let Some(rate) = load.rate.per_second() else {
        anyhow::bail!("sse needs a --rate: events per second of all streams together");
    };
    let per_stream = rate / crate::clock::float(load.connections.max(1) as u64);
    let every_ms = (1000.0 / per_stream).round().max(1.0);
    let every = Duration::try_from_secs_f64(every_ms / 1e3)?;
    let path = format!("/events?interval_ms={every_ms}&size={}", load.size);
    let mut outcome = generator::run(context, Streams { target: context.target.clone(), path, every }).await?;
    outcome.notes.push(format!(
        "Each of {} streams has an event every {every_ms} ms. Delays are told by the clocks of app and lab: on two machines they \
         are only as good as these agree.",
        load.connections
    ));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_wherever_the_pieces_end() {
        let text =
            b"id: 0\ndata: {\"sequence\":0,\"sent_us\":5}\n\nid: 1\ndata: {\"sequence\":1,\"sent_us\":6}\n: xx\n\n";
        for cut in 0..text.len() {
            let (left, right) = text.split_at(cut);
            let mut parser = Parser::default();
            let mut events = parser.take(left).unwrap();
            events.extend(parser.take(right).unwrap());
            assert_eq!(events, [SseEvent { sequence: 0, sent_us: 5 }, SseEvent { sequence: 1, sent_us: 6 }]);
        }
        assert_eq!(Parser::default().take(b"<html>\n\n"), Err(ExchangeFailure::lost("wrong_event")));
    }
}
