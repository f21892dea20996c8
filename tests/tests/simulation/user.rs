//! What users do: open channels, move bytes, check them.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tunnel_link::channel_io::ChannelError;
use tunnel_link::session::Session;

use crate::apps::{self, check_pattern, write_pattern};
use crate::net::Rolls;

/// How a user's work ended: bytes moved and the time it took, or the channel's fault.
pub(crate) type Moved = Result<(usize, Duration), ChannelError>;

fn fault(error: &io::Error) -> ChannelError {
    ChannelError::find(error).unwrap_or_else(|| panic!("not a channel's fault: {error:?}"))
}

async fn timed(work: impl Future<Output = io::Result<usize>>) -> Moved {
    let start = Instant::now();
    let bytes = work.await.map_err(|error| fault(&error))?;
    Ok((bytes, start.elapsed()))
}

/// Sends bytes to the echo app and gets them back, both at once.
pub(crate) async fn echo(session: Session, total: usize) -> Moved {
    timed(async {
        let (channel, _accepted) = session.channel(apps::ECHO);
        let (mut reader, mut writer) = tokio::io::split(channel);
        let writing = async {
            write_pattern(&mut writer, total).await?;
            writer.shutdown().await
        };
        let (read, ()) = tokio::try_join!(check_pattern(&mut reader), writing)?;
        Ok(read)
    })
    .await
}

/// Sends some bytes every few milliseconds and gets them back, until the channel is at fault.
pub(crate) async fn chatter(session: Session) -> ChannelError {
    let (channel, _accepted) = session.channel(apps::ECHO);
    let (mut reader, mut writer) = tokio::io::split(channel);
    let ended = tokio::try_join!(say(&mut writer, Duration::MAX), check_pattern(&mut reader));
    fault(&ended.expect_err("it does not end by itself"))
}

/// Writes some bytes every few milliseconds for so long, then finishes; returns how many.
async fn say(writer: &mut (impl AsyncWriteExt + Unpin), time: Duration) -> io::Result<usize> {
    let start = Instant::now();
    let mut position = 0;
    while start.elapsed() < time {
        let piece = apps::piece(position, 16 * 1024);
        writer.write_all(piece).await?;
        position += piece.len();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    writer.shutdown().await?;
    Ok(position)
}

/// Sends some bytes every few milliseconds for a while, finishes, and gets all of them back.
pub(crate) async fn slowly(session: Session, time: Duration) -> Moved {
    timed(async {
        let (channel, _accepted) = session.channel(apps::ECHO);
        let (mut reader, mut writer) = tokio::io::split(channel);
        let (written, read) = tokio::try_join!(say(&mut writer, time), check_pattern(&mut reader))?;
        assert_eq!(read, written);
        Ok(read)
    })
    .await
}

/// Sends a few bytes now and then for a while, finishes, and gets all of them back.
pub(crate) async fn trickle(session: Session, time: Duration) -> Moved {
    timed(async {
        let (channel, _accepted) = session.channel(apps::ECHO);
        let (mut reader, mut writer) = tokio::io::split(channel);
        let writing = async {
            let (start, mut position) = (Instant::now(), 0);
            while start.elapsed() < time {
                let piece = apps::piece(position, 3_000);
                writer.write_all(piece).await?;
                position += piece.len();
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
            writer.shutdown().await?;
            Ok(position)
        };
        let (written, read) = tokio::try_join!(writing, check_pattern(&mut reader))?;
        assert_eq!(read, written);
        Ok(read)
    })
    .await
}

/// Sends bytes, finishes, and then hears how many arrived.
pub(crate) async fn upload(session: Session, total: usize) -> Moved {
    timed(async {
        let (mut channel, _accepted) = session.channel(apps::SINK);
        write_pattern(&mut channel, total).await?;
        channel.shutdown().await?;
        let count = channel.read_u64().await?;
        assert_eq!(channel.read(&mut [0]).await?, 0, "nothing after the count");
        Ok(usize::try_from(count).expect("64 bits"))
    })
    .await
}

/// Asks for bytes and reads them to the end; then sends some in the half that is still open.
pub(crate) async fn download(session: Session, total: usize, after: usize) -> Moved {
    timed(async {
        let (mut channel, _accepted) = session.channel(apps::SOURCE);
        channel.write_u64(total as u64).await?;
        let read = check_pattern(&mut channel).await?;
        write_pattern(&mut channel, after).await?;
        channel.shutdown().await?;
        Ok(read)
    })
    .await
}

/// Sends to the slow app for as long as `time`, then gives up. Returns how much the channel took.
pub(crate) async fn pour(session: Session, time: Duration) -> usize {
    let (mut channel, _accepted) = session.channel(apps::SLOW);
    let mut position = 0;
    let pouring = async {
        loop {
            position += channel.write(apps::piece(position, usize::MAX)).await.expect("the channel lives");
        }
    };
    let ended: Result<(), _> = tokio::time::timeout(time, pouring).await;
    assert!(ended.is_err());
    position
}

/// Opens a channel to a port on which nothing listens.
pub(crate) async fn knock(session: Session) -> Result<(), tunnel_proto::reason::Reason> {
    let (channel, accepted) = session.open(apps::CLOSED).expect("an open session");
    let answer = accepted.await.expect("an answer");
    drop(channel);
    answer
}

/// Uploads, downloads and echoes, one after the other, until the time is over. Returns how many bytes that were.
pub(crate) async fn busy(session: Session, mut rolls: Rolls, time: Duration) -> Moved {
    timed(async {
        let start = Instant::now();
        let mut total = 0;
        while start.elapsed() < time {
            let bytes = usize::try_from(rolls.next() % 400_000).expect("small");
            let moved = match rolls.next() % 3 {
                0 => echo(session.clone(), bytes).await,
                1 => upload(session.clone(), bytes).await,
                _ => download(session.clone(), bytes, bytes / 2).await,
            };
            let (moved, _) = moved?;
            assert_eq!(moved, bytes);
            total += bytes;
            tokio::time::sleep(rolls.millis(0, 50)).await;
        }
        Ok(total)
    })
    .await
}

/// Waits until no link carries the session.
pub(crate) async fn detached(session: &Session) {
    while !session.is_detached() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends bytes, finishes only when no link carries the session, and then hears how many arrived.
pub(crate) async fn upload_ending_detached(session: Session, total: usize) -> Moved {
    timed(async {
        let (mut channel, _accepted) = session.channel(apps::SINK);
        write_pattern(&mut channel, total).await?;
        detached(&session).await;
        channel.shutdown().await?;
        let count = channel.read_u64().await?;
        assert_eq!(channel.read(&mut [0]).await?, 0, "nothing after the count");
        Ok(usize::try_from(count).expect("64 bits"))
    })
    .await
}

/// Chats with an app that goes away after a while; returns how that looks.
pub(crate) async fn fickle(session: Session, wait: Duration) -> ChannelError {
    let (mut channel, _accepted) = session.channel(apps::FICKLE);
    let chatting = async {
        channel.write_u64(u64::try_from(wait.as_millis()).expect("short")).await?;
        channel.write_all(apps::piece(0, 10_000)).await?;
        channel.read_u8().await
    };
    fault(&chatting.await.expect_err("it says nothing"))
}
