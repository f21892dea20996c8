//! Credit over a network with delay: a slow app, and halves that end on their own.

use std::time::Duration;

use tunnel_proto::limit::{SEND_QUEUE_BYTES_MAX, WINDOW_BYTES_INITIAL};
use tunnel_proto::mux::Side;

use crate::net::{Net, SOON, Shape, for_seeds};
use crate::user;

/// A world in which milliseconds count.
fn fine() -> Shape {
    let latency = (Duration::from_millis(1), Duration::from_millis(10));
    Shape { latency, tick: Duration::from_millis(2), ..Shape::default() }
}

#[test]
fn slow_app_keeps_its_window_small_and_another_channel_quick() {
    for_seeds(0..4, |seed| {
        // The simulated kernel holds only a few segments for the app, so that it is soon the app that is waited for.
        let shape = Shape { tcp_capacity: 8, ..fine() };
        let mut net = Net::shaped(seed, &shape);
        net.agent("agent", &["well"]);
        net.up("well", 0);
        let pouring = net.user("well", |session| user::pour(session, Duration::from_secs(8)));
        net.run(Duration::from_secs(2));
        let bound = |net: &Net| {
            let agent = net.shared.newest("well", Side::Agent).expect("a session").session.stats();
            let gateway = net.shared.newest("well", Side::Gateway).expect("a session").session.stats();
            (agent.window_bytes, gateway.queued_bytes)
        };
        let (window, queued) = bound(&net);
        assert!(window <= 4 * u64::from(WINDOW_BYTES_INITIAL), "{window}");
        assert!(queued <= SEND_QUEUE_BYTES_MAX, "{queued}");
        while !pouring.is_there() {
            let echo = net.user("well", |session| user::echo(session, 1_000));
            let (bytes, took) = net.wait("an echo beside it", SOON, &echo).expect("it lives");
            assert_eq!(bytes, 1_000);
            // A round trip, the simulated loopback's steps, and nothing of what waits for the slow app.
            assert!(took < Duration::from_millis(80), "{took:?}");
            let (later, queued) = bound(&net);
            assert!(later <= window + u64::from(WINDOW_BYTES_INITIAL), "it grew from {window} to {later}");
            assert!(queued <= 2 * SEND_QUEUE_BYTES_MAX, "{queued}");
        }
        let poured = net.wait("pouring ends", SOON, &pouring);
        // Windows, queues and kernels hold less than two megabytes in all, and the app reads 80 kB a second.
        assert!(poured < (3 << 20), "{poured}");
        net.finish();
    });
}

#[test]
fn each_half_ends_on_its_own_through_latency() {
    for_seeds(0..8, |seed| {
        let latency = (Duration::from_millis(40), Duration::from_millis(120));
        let mut net = Net::shaped(seed, &Shape { latency, ..Shape::default() });
        net.agent("agent", &["well"]);
        net.up("well", 0);
        // The user ends first and the app answers after that.
        let upload = net.user("well", |session| user::upload(session, 300_000));
        let moved = net.wait("an upload", SOON, &upload);
        assert_eq!(moved.map(|moved| moved.0), Ok(300_000));
        // The app ends first and reads on.
        let download = net.user("well", |session| user::download(session, 200_000, 123_456));
        let moved = net.wait("a download", SOON, &download);
        assert_eq!(moved.map(|moved| moved.0), Ok(200_000));
        net.until("the app heard the rest", SOON, |shared| {
            *shared.taken.lock().expect("not poisoned") == [300_000, 123_456]
        });
        // Nothing at all after what asks for it.
        let nothing = net.user("well", |session| user::download(session, 0, 0));
        let moved = net.wait("an empty download", SOON, &nothing);
        assert_eq!(moved.map(|moved| moved.0), Ok(0));
        net.finish();
    });
}
