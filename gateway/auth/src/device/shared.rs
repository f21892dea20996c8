//! Sign-ins of programs that replicas share: a program asks at one, its user confirms at another, and it polls at a third.
//!
//! A request lives in the store, and each step is one statement there: it is decided once, and taken once. The table of each
//! replica has the requests that were made at it, for its bounds; pace of polls is judged by each replica for itself.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    DEVICE_AGE_MAX, DEVICES_MAX, DevicePollAnswer, Devices, MachineName, POLL_INTERVAL, Pace, RequestingMachine,
    UserCode,
};
use crate::cache::Unavailable;
use crate::expiring::Expiring;
use crate::shared::{QuestionRate, READS_PER_SECOND_MAX, Shared, SharedFailure};
use gateway_types::UserName;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{DeviceKey, KeptAnswer, KeptDevice};

/// Requests of all replicas.
#[derive(Debug)]
pub(super) struct SharedDevices {
    store: Shared,
    rate: QuestionRate,
    paces: Mutex<Expiring<Digest, Pace>>,
    /// Confirmed requests that were taken out of the store, until [`Devices::conclude`].
    taken: Mutex<Expiring<Digest, KeptDevice>>,
}

impl Devices {
    /// Creates an empty table that shares its requests with other replicas.
    #[must_use]
    pub fn shared(store: Shared) -> Self {
        let (rate, taken) =
            (QuestionRate::new(READS_PER_SECOND_MAX), Mutex::new(Expiring::new(DEVICE_AGE_MAX, DEVICES_MAX)));
        let paces = Mutex::new(Expiring::new(DEVICE_AGE_MAX, DEVICES_MAX));
        Self { shared: Some(SharedDevices { store, rate, paces, taken }), ..Self::default() }
    }

    /// Returns the machine behind a user code and the age of its request, whichever replica it asked; `None` as with
    /// [`Devices::asking`].
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer, or was asked too often.
    pub async fn find(
        &self,
        code: UserCode,
        now: Instant,
    ) -> Result<Option<(RequestingMachine, Duration)>, Unavailable> {
        let Some(shared) = &self.shared else { return Ok(self.asking(code, now)) };
        let found = shared.read(DeviceKey::Code(code.digest()), now).await?;
        let waiting = found.filter(|(row, _)| row.answer == KeptAnswer::None);
        Ok(waiting.map(|(row, age)| (machine(&row), age)))
    }

    /// Takes a user's decision, once at all replicas, and returns when it is written; `None` as with [`Devices::asking`].
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer, or was asked too often.
    pub async fn answer(
        &self,
        code: UserCode,
        user: &UserName,
        is_yes: bool,
        now: Instant,
    ) -> Result<Option<RequestingMachine>, Unavailable> {
        let Some(shared) = &self.shared else {
            let asking = self.decide(code, user, is_yes, now);
            self.journal.written().await;
            return Ok(asking);
        };
        let Some((row, _)) = shared.read(DeviceKey::Code(code.digest()), now).await? else { return Ok(None) };
        let answer = if is_yes { KeptAnswer::Yes(user.clone()) } else { KeptAnswer::No };
        let is_taken = shared.store.decide_device(row.device, answer).await.map_err(unavailable)?;
        Ok(is_taken.then(|| machine(&row)))
    }

    /// Answers a poll, whichever replica was asked. After a yes, [`Devices::conclude`] has to follow; meanwhile, no other poll at
    /// any replica is told.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer, or was asked too often.
    pub async fn fetch(&self, device: &Digest, now: Instant) -> Result<DevicePollAnswer, Unavailable> {
        let Some(shared) = &self.shared else { return Ok(self.poll(device, now)) };
        let Some((row, _)) = shared.read(DeviceKey::Device(*device), now).await? else {
            return Ok(DevicePollAnswer::Expired);
        };
        if let Some(interval) = shared.pace(device, now) {
            return Ok(DevicePollAnswer::SlowDown(interval));
        }
        if row.answer == KeptAnswer::None {
            return Ok(DevicePollAnswer::Pending);
        }
        if !shared.store.take_device(*device).await.map_err(unavailable)? {
            return Ok(DevicePollAnswer::Expired);
        }
        Ok(match row.answer.clone() {
            KeptAnswer::Yes(user) => {
                let asking = machine(&row);
                shared.taken.lock().insert(*device, row, now);
                DevicePollAnswer::Approved { user, asking }
            }
            KeptAnswer::No | KeptAnswer::None => DevicePollAnswer::Denied,
        })
    }

    /// Ends a request whose yes was told and acted on (`is_followed`), or lets the yes be told again.
    pub async fn conclude(&self, device: &Digest, is_followed: bool, now: Instant) {
        let Some(shared) = &self.shared else { return self.settle(device, is_followed, now) };
        let taken = shared.taken.lock().remove(device, now);
        if let Some(row) = taken.filter(|_| !is_followed)
            && let Err(error) = shared.store.put_device(row).await
        {
            tracing::warn!(%error, "a program that was confirmed has to ask again");
        }
    }

    /// Counts a guess of a user code for each key, at all replicas together, and returns whether there were at most `max`.
    /// Without other replicas there is nothing to count together.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer.
    pub async fn count_guess(&self, keys: &[String], max: u32) -> Result<bool, Unavailable> {
        let Some(shared) = &self.shared else { return Ok(true) };
        let counts = shared.store.count_guesses(keys).await.map_err(unavailable)?;
        Ok(counts.iter().all(|count| *count <= max))
    }

    /// Takes back a guess that was right.
    pub async fn uncount_guess(&self, keys: &[String]) {
        if let Some(shared) = &self.shared
            && let Err(error) = shared.store.uncount_guesses(keys).await
        {
            tracing::debug!(%error, "a right code counts as a wrong one");
        }
    }
}

impl SharedDevices {
    /// Reads a request that is not too old, and returns its age.
    async fn read(&self, key: DeviceKey, now: Instant) -> Result<Option<(KeptDevice, Duration)>, Unavailable> {
        if !self.rate.take(now) {
            return Err(Unavailable);
        }
        let row = self.store.device(key).await.map_err(unavailable)?;
        let wall = self.store.now();
        Ok(row.and_then(|row| {
            // A date in the future is of a replica whose clock is ahead.
            let age = u64::try_from(wall.get().saturating_sub(row.asked_at.get()).max(0)).unwrap_or(u64::MAX);
            let age = Duration::from_secs(age);
            (age < DEVICE_AGE_MAX).then_some((row, age))
        }))
    }

    /// Returns the interval that a program has to keep, if it did not.
    fn pace(&self, device: &Digest, now: Instant) -> Option<Duration> {
        let mut paces = self.paces.lock();
        let mut pace = paces.remove(device, now).unwrap_or(Pace { interval: POLL_INTERVAL, polled: None });
        let is_kept = pace.keep(now);
        let interval = pace.interval;
        paces.insert(*device, pace, now);
        (!is_kept).then_some(interval)
    }
}

fn machine(row: &KeptDevice) -> RequestingMachine {
    RequestingMachine { machine: MachineName::of(&row.machine), peer: row.peer }
}

fn unavailable(error: SharedFailure) -> Unavailable {
    tracing::warn!(%error, "the store did not answer about a program's sign-in");
    Unavailable
}

#[cfg(test)]
mod tests;
