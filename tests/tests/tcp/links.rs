//! Links that break under streams: no byte is lost, repeated or moved, and neither end notices.

use std::time::Duration;

use e2e::relay::CUTS;
use e2e::until;
use gateway_config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::streams::echo;
use super::support::{User, World, soon};

impl World {
    fn links(&self) -> u64 {
        self.session().tunnel.stats().links
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_goes_on_over_the_next_link_with_no_byte_lost() {
    let notice_stalls = |config: &mut Config| {
        config.tunnel.keepalive_interval = Duration::from_millis(250);
        config.tunnel.keepalive_timeout = Duration::from_millis(500);
    };
    let world = World::configured(notice_stalls, Vec::new()).await;
    let app = echo().await;
    let mut quiet = world.open(app.port).await;
    for how in CUTS {
        let mut busy = world.open(app.port).await;
        let said: Vec<u8> = (0..3_000_000_u32).map(|position| (position ^ (position >> 9)).to_le_bytes()[0]).collect();
        let before = world.links();
        {
            let (mut reader, mut writer) = tokio::io::split(&mut busy.stream);
            let saying = async {
                for (number, piece) in said.chunks(100_000).enumerate() {
                    if number == 5 || number == 15 {
                        world.relay.cut(how);
                    }
                    writer.write_all(piece).await.expect("the stream lives");
                }
                writer.shutdown().await.expect("it is open");
            };
            let mut heard = Vec::new();
            let (read, ()) = soon(async { tokio::join!(reader.read_to_end(&mut heard), saying) }).await;
            read.expect("an end");
            assert!(heard == said, "{how:?}: {} of {}", heard.len(), said.len());
        }
        busy.ended().await.expect("a good end");
        until("it was another link", || world.links() > before).await;
        quiet.say(format!("{how:?}")).await;
        assert_eq!(quiet.hear(format!("{how:?}").len()).await, format!("{how:?}").into_bytes());
    }
    quiet.finish().await;
    quiet.ended().await.expect("a good end");
    world.gateway.assert_empty().await;
}

/// Says something, hears it again, and ends well.
async fn there_and_back(mut user: User) {
    user.say("x").await;
    assert_eq!(user.hear(1).await, b"x");
    user.finish().await;
    user.ended().await.expect("a good end");
}

#[tokio::test]
async fn stream_is_opened_as_soon_as_there_is_a_link_again() {
    let world = World::start().await;
    let app = echo().await;
    // Before the link goes, the agent has to know of its session: it would come back with another one.
    there_and_back(world.open(app.port).await).await;
    world.relay.down();
    world.relay.cut(e2e::relay::Cut::Reset);
    let session = world.session();
    until("the link is missed", || session.tunnel.is_detached()).await;
    let (user, ()) = tokio::join!(world.open(app.port), async { world.relay.up() });
    there_and_back(user).await;
}
