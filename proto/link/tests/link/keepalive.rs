//! Links that die without a word, on a clock that does not wait.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tunnel_link::channel_io::ChannelError;
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;

use crate::pair::{Pair, Plan};
use crate::wire::Wire;

const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(3);

async fn pair() -> Pair {
    let settings = |side| Settings { keepalive_interval: INTERVAL, keepalive_timeout: TIMEOUT, ..Settings::new(side) };
    let plan = Plan { gateway: settings(Side::Gateway), agent: settings(Side::Agent), ..Plan::new(Wire::Memory) };
    Pair::planned(Plan { serves: false, ..plan }).await
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_missed_within_interval_and_timeout() {
    let mut pair = pair().await;
    let (mut channel, _accepted) = pair.gateway.open(3000).expect("opened");
    // Long enough for every first exchange.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!pair.gateway.is_ended() && !pair.agent.is_ended());
    pair.switch.stop();
    let stopped = Instant::now();
    let ends = async { tokio::join!(&mut pair.gateway_end, &mut pair.agent_end) };
    let (gateway_end, agent_end) = tokio::time::timeout(2 * (INTERVAL + TIMEOUT), ends).await.expect("noticed");
    assert_eq!(gateway_end, Ok(SessionError::KeepaliveTimedOut));
    assert_eq!(agent_end, Ok(SessionError::KeepaliveTimedOut));
    assert!(stopped.elapsed() <= INTERVAL + TIMEOUT + Duration::from_millis(10), "{:?}", stopped.elapsed());
    let error = channel.read(&mut [0; 1]).await.expect_err("reset");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::SessionLost)));
    drop(channel);
    // What HTTP/2 still holds goes with the wire.
    pair.switch.cut();
    pair.finish().await;
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_missed_while_somebody_writes() {
    let mut pair = pair().await;
    let (mut channel, _accepted) = pair.gateway.open(3000).expect("opened");
    tokio::time::sleep(Duration::from_secs(30)).await;
    pair.switch.stop();
    let stopped = Instant::now();
    let writing = async { while channel.write_all(&[0; 10_000]).await.is_ok() {} };
    let ends = async { tokio::join!(&mut pair.gateway_end, writing).0 };
    let end = tokio::time::timeout(2 * (INTERVAL + TIMEOUT), ends).await.expect("noticed");
    assert_eq!(end, Ok(SessionError::KeepaliveTimedOut));
    assert!(stopped.elapsed() <= INTERVAL + TIMEOUT + Duration::from_millis(10), "{:?}", stopped.elapsed());
    drop(channel);
    pair.switch.cut();
    pair.finish().await;
}

#[tokio::test(start_paused = true)]
async fn idle_link_stays_up_for_hours_with_little_said() {
    let pair = pair().await;
    let hours = Duration::from_secs(4 * 60 * 60);
    let spent = tokio::runtime::Handle::current().metrics();
    tokio::time::sleep(hours).await;
    assert_eq!((pair.gateway.end(), pair.agent.end()), (None, None));
    assert!(pair.gateway.stats().round_trip.is_some() && pair.agent.stats().round_trip.is_some());
    assert_eq!(pair.gateway.stats().frames, (0, 0, 0), "pings and pongs are not numbered");
    assert!(spent.num_alive_tasks() > 0);
    pair.finish().await;
}
