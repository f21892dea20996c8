//! Persistence of device sign-ins: rows for the store, and their restoration at the next start.

use std::time::Duration;

use super::{Devices, MachineName, POLL_INTERVAL, Pace, PollAnswer, Request, RequestingMachine};
use crate::browser::persistence::Both;
use crate::journal::{Journal, NotedKey};
use gateway_types::UnixSeconds;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{DeviceChange, KeptAnswer, KeptDevice};

impl Devices {
    /// Returns the journal of requests that the store has yet to get.
    #[must_use]
    pub fn journal(&self) -> &Journal<Digest> {
        &self.journal
    }

    /// Returns the changes for the store of a batch of the journal.
    #[must_use]
    pub fn changes(&self, batch: &[NotedKey<Digest>], at: Both) -> Vec<DeviceChange> {
        let state = self.state.lock();
        let row = |device: &Digest| {
            let code = state.by_device_code.get(device)?;
            let request = state.by_user_code.get(code, at.now)?;
            let ago = i64::try_from(at.now.saturating_duration_since(request.asked).as_secs()).unwrap_or(i64::MAX);
            Some(KeptDevice {
                device: *device,
                code: *code,
                machine: request.asking.machine.to_string(),
                peer: request.asking.peer,
                asked_at: UnixSeconds::new(at.wall.get().saturating_sub(ago)),
                answer: match &request.answer {
                    PollAnswer::None => KeptAnswer::None,
                    PollAnswer::Yes(user) | PollAnswer::Told(user) => KeptAnswer::Yes(user.clone()),
                    PollAnswer::No => KeptAnswer::No,
                },
            })
        };
        let change = |noted: &NotedKey<Digest>| match row(&noted.key) {
            Some(row) => DeviceChange::Is(Box::new(row)),
            None => DeviceChange::Ended(noted.key),
        };
        batch.iter().map(change).collect()
    }

    /// Restores the requests that an earlier process left in the store. Those too old by now are left to the journal to
    /// be deleted.
    pub fn restore(&self, mut rows: Vec<KeptDevice>, at: Both) {
        let mut state = self.state.lock();
        rows.sort_by_key(|row| row.asked_at.get());
        for KeptDevice { device, code, machine, peer, asked_at, answer } in rows {
            self.journal.restored(device);
            let ago = u64::try_from(at.wall.get().saturating_sub(asked_at.get())).unwrap_or_default();
            let asked = at.now.checked_sub(Duration::from_secs(ago)).unwrap_or(at.now);
            let answer = match answer {
                KeptAnswer::None => PollAnswer::None,
                KeptAnswer::Yes(user) => PollAnswer::Yes(user),
                KeptAnswer::No => PollAnswer::No,
            };
            let asking = RequestingMachine { machine: MachineName::of(&machine), peer };
            let pace = Pace { interval: POLL_INTERVAL, polled: None };
            let request = Request { device, asking, asked, answer, pace };
            state.by_device_code.insert(device, code);
            state.by_user_code.insert(code, request, peer, asked);
        }
        let gone = state.by_user_code.make_room(at.now);
        state.forget_all(gone).for_each(|device| self.journal.removed(device));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::device::{DEVICE_AGE_MAX, DeviceCodes, DevicePollAnswer};
    use gateway_types::UserName;

    const WALL: i64 = 1_800_000_000;

    fn both(now: Instant, seconds: u64) -> Both {
        let wall = UnixSeconds::new(WALL + i64::try_from(seconds).unwrap());
        Both { now: now + Duration::from_secs(seconds), wall }
    }

    fn write(devices: &Devices, at: Both) -> Vec<DeviceChange> {
        let changes = devices.changes(&devices.journal().begin(100), at);
        let gone = |change: &DeviceChange| match change {
            DeviceChange::Ended(device) => Some(*device),
            DeviceChange::Is(_) => None,
        };
        let gone: Vec<Digest> = changes.iter().filter_map(gone).collect();
        devices.journal().end(Some(&gone));
        changes
    }

    fn again(changes: &[DeviceChange], at: Both) -> Devices {
        let devices = Devices::default();
        let rows = changes.iter().filter_map(|change| match change {
            DeviceChange::Is(row) => Some((**row).clone()),
            DeviceChange::Ended(_) => None,
        });
        devices.restore(rows.collect(), at);
        devices
    }

    fn asked(now: Instant) -> (Devices, DeviceCodes) {
        let devices = Devices::default();
        let asking = RequestingMachine { machine: MachineName::of("laptop"), peer: [192, 0, 2, 1].into() };
        let codes = devices.ask(asking, now).unwrap();
        (devices, codes)
    }

    #[test]
    fn request_and_its_answer_outlive_the_process() {
        let (start, ann) = (Instant::now(), "ann".parse::<UserName>().unwrap());
        let (devices, codes) = asked(start);
        let rows = write(&devices, both(start, 0));
        assert!(!format!("{rows:?}").contains(&codes.device.reveal()));
        let devices = again(&rows, both(start, 60));
        let at = both(start, 60).now;
        assert_eq!(devices.poll(&codes.device.digest(), at), DevicePollAnswer::Pending);
        assert!(devices.decide(codes.user, &ann, true, at).is_some());
        let rows = write(&devices, both(start, 60));
        let (devices, at) = (again(&rows, both(start, 120)), both(start, 120));
        assert!(
            matches!(devices.poll(&codes.device.digest(), at.now), DevicePollAnswer::Approved { user, .. } if user == ann)
        );
        devices.settle(&codes.device.digest(), true, at.now);
        assert_eq!(write(&devices, at), [DeviceChange::Ended(codes.device.digest())]);
    }

    #[test]
    fn request_that_is_too_old_by_then_is_over() {
        let start = Instant::now();
        let (devices, codes) = asked(start);
        let rows = write(&devices, both(start, 0));
        let late = both(start, DEVICE_AGE_MAX.as_secs());
        let devices = again(&rows, late);
        assert_eq!(devices.poll(&codes.device.digest(), late.now), DevicePollAnswer::Expired);
        assert_eq!(write(&devices, late), [DeviceChange::Ended(codes.device.digest())]);
    }
}
