use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::browser::persistence::Both;
use crate::device::DeviceCodes;
use crate::shared::SharedSignIns;
use crate::shared::memory::MemoryStore;
use gateway_types::sign_in_rows::DeviceChange;

const WALL: i64 = 1_800_000_000;

/// Three replicas with one store, and a program that asked the first.
struct Fixture {
    now: Instant,
    store: Arc<MemoryStore>,
    replicas: [Devices; 3],
    codes: DeviceCodes,
}

fn fixture() -> Fixture {
    let (now, store) = (Instant::now(), Arc::new(MemoryStore { wall: AtomicI64::new(WALL), ..MemoryStore::default() }));
    let replicas = [(); 3].map(|()| Devices::shared(store.clone()));
    let asking = RequestingMachine { machine: MachineName::of("laptop"), peer: [192, 0, 2, 1].into() };
    let codes = replicas[0].ask(asking, now).unwrap();
    let batch = replicas[0].journal().begin(10);
    for change in replicas[0].changes(&batch, Both { now, wall: store.now() }) {
        if let DeviceChange::Is(row) = change {
            store.devices.lock().insert(row.device, *row);
        }
    }
    replicas[0].journal().end(Some(&[]));
    Fixture { now, store, replicas, codes }
}

#[tokio::test]
async fn program_asks_at_one_is_confirmed_at_another_and_polls_at_a_third() {
    let Fixture { now, replicas: [a, b, c], codes, .. } = fixture();
    let (device, ann) = (codes.device.digest(), "ann".parse().unwrap());
    assert_eq!(c.fetch(&device, now).await, Ok(DevicePollAnswer::Pending));
    let (asking, _) = b.find(codes.user, now).await.unwrap().expect("it waits");
    assert_eq!(asking.machine.to_string(), "laptop");
    assert!(b.answer(codes.user, &ann, true, now).await.unwrap().is_some());
    assert_eq!(a.answer(codes.user, &ann, false, now).await, Ok(None), "it is decided");
    assert_eq!(a.find(codes.user, now).await, Ok(None));
    let later = now + POLL_INTERVAL;
    assert!(matches!(c.fetch(&device, later).await, Ok(DevicePollAnswer::Approved { user, .. }) if user == ann));
    for other in [&a, &b] {
        assert_eq!(other.fetch(&device, later).await, Ok(DevicePollAnswer::Expired), "told once");
    }
    // The token could not be made: the program may come again, anywhere.
    c.conclude(&device, false, later).await;
    let again = later + POLL_INTERVAL;
    assert!(matches!(b.fetch(&device, again).await, Ok(DevicePollAnswer::Approved { .. })));
    b.conclude(&device, true, again).await;
    assert_eq!(c.fetch(&device, again + POLL_INTERVAL).await, Ok(DevicePollAnswer::Expired));
}

#[tokio::test]
async fn program_that_polls_too_often_or_too_late_gets_nothing() {
    let Fixture { now, store, replicas: [a, b, _], codes } = fixture();
    let device = codes.device.digest();
    assert_eq!(a.fetch(&device, now).await, Ok(DevicePollAnswer::Pending));
    assert!(matches!(a.fetch(&device, now).await, Ok(DevicePollAnswer::SlowDown(_))));
    assert_eq!(b.fetch(&Digest::of(b"other"), now).await, Ok(DevicePollAnswer::Expired));
    store.wall.store(WALL + i64::try_from(DEVICE_AGE_MAX.as_secs()).unwrap(), Ordering::Relaxed);
    assert_eq!(b.fetch(&device, now).await, Ok(DevicePollAnswer::Expired));
    assert_eq!(b.find(codes.user, now).await, Ok(None));
    store.is_away.store(true, Ordering::Relaxed);
    assert_eq!(b.find(codes.user, now).await, Err(Unavailable));
}

#[tokio::test]
async fn guesser_has_no_more_attempts_at_more_replicas() {
    let Fixture { replicas, .. } = fixture();
    let keys = ["user ann".to_owned()];
    let mut allowed = 0;
    for round in 0..12 {
        allowed += u32::from(replicas[round % 3].count_guess(&keys, 10).await.unwrap());
    }
    assert_eq!(allowed, 10);
    replicas[0].uncount_guess(&keys).await;
    assert_eq!(Devices::default().count_guess(&keys, 0).await, Ok(true), "one gateway alone counts by itself");
}
