//! A store in memory, for tests of this crate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use futures_util::FutureExt;

use super::*;
use gateway_types::sign_in_rows::SessionChange;

/// Rows as a database would have them. Times do not pass by themselves.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    pub(crate) sessions: Mutex<HashMap<Digest, KeptSession>>,
    pub(crate) devices: Mutex<HashMap<Digest, KeptDevice>>,
    pub(crate) steps: Mutex<HashMap<Digest, (StepKind, Vec<u8>)>>,
    pub(crate) guesses: Mutex<HashMap<String, u32>>,
    pub(crate) wall: AtomicI64,
    pub(crate) is_away: AtomicBool,
    /// Questions about sessions.
    pub(crate) asked: AtomicUsize,
}

impl MemoryStore {
    fn answer<'a, T: Send + 'a>(&'a self, of: impl FnOnce(&Self) -> T + Send) -> SharedAnswer<'a, T> {
        let is_away = self.is_away.load(Ordering::Relaxed);
        let answer = if is_away { Err(SharedFailure("away".to_owned())) } else { Ok(of(self)) };
        async move { answer }.boxed()
    }

    /// Writes what a replica has noted, as its writer would.
    pub(crate) fn keep(&self, changes: Vec<SessionChange>) {
        let mut sessions = self.sessions.lock();
        for change in changes {
            match change {
                SessionChange::Begun(row) => drop(sessions.insert(row.id, *row)),
                SessionChange::Used(id, at) => {
                    sessions.entry(id).and_modify(|row| row.used_at = row.used_at.max(at));
                }
                SessionChange::Ended(id) => drop(sessions.remove(&id)),
            }
        }
    }
}

impl SharedSignIns for MemoryStore {
    fn session(&self, id: Digest) -> SharedAnswer<'_, Vec<KeptSession>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.answer(|it| {
            let sessions = it.sessions.lock();
            let own = sessions.get(&id).cloned();
            let parent = own.as_ref().and_then(|own| sessions.get(&own.of.as_ref()?.parent).cloned());
            own.into_iter().chain(parent).collect()
        })
    }

    fn sessions_of<'a>(&'a self, user: &'a UserName) -> SharedAnswer<'a, Vec<KeptSession>> {
        self.answer(|it| it.sessions.lock().values().filter(|row| row.user == *user).cloned().collect())
    }

    fn end_sessions(&self, of: SessionsOf) -> SharedAnswer<'_, Vec<EndedSession>> {
        self.answer(move |it| {
            let mut ended = Vec::new();
            it.sessions.lock().retain(|_, row| {
                let is_over = match &of {
                    SessionsOf::User(user) => row.user == *user,
                    SessionsOf::Provider { session, .. } => {
                        row.provider.as_ref().is_some_and(|(_, own)| own.as_deref() == session.as_deref())
                    }
                };
                if is_over && row.of.is_none() {
                    ended.push(EndedSession { id: row.id, user: row.user.clone() });
                }
                !is_over
            });
            ended
        })
    }

    fn device(&self, key: DeviceKey) -> SharedAnswer<'_, Option<KeptDevice>> {
        self.answer(|it| {
            let is_it = |row: &&KeptDevice| match key {
                DeviceKey::Device(device) => row.device == device,
                DeviceKey::Code(code) => row.code == code,
            };
            it.devices.lock().values().find(is_it).cloned()
        })
    }

    fn decide_device(&self, device: Digest, answer: KeptAnswer) -> SharedAnswer<'_, bool> {
        self.answer(|it| match it.devices.lock().get_mut(&device) {
            Some(row) if row.answer == KeptAnswer::None => {
                row.answer = answer;
                true
            }
            Some(_) | None => false,
        })
    }

    fn take_device(&self, device: Digest) -> SharedAnswer<'_, bool> {
        self.answer(|it| it.devices.lock().remove(&device).is_some())
    }

    fn put_device(&self, device: KeptDevice) -> SharedAnswer<'_, ()> {
        self.answer(|it| drop(it.devices.lock().insert(device.device, device)))
    }

    fn add_steps(&self, steps: Vec<NewStep>) -> SharedAnswer<'_, bool> {
        self.answer(|it| {
            let mut kept = it.steps.lock();
            if steps.iter().any(|step| kept.contains_key(&step.id)) {
                return false;
            }
            kept.extend(steps.into_iter().map(|step| (step.id, (step.kind, step.contents))));
            true
        })
    }

    fn take_step(&self, kind: StepKind, id: Digest) -> SharedAnswer<'_, Option<Vec<u8>>> {
        self.answer(|it| {
            let mut steps = it.steps.lock();
            let is_it = steps.get(&id).is_some_and(|(of, _)| *of == kind);
            is_it.then(|| steps.remove(&id)).flatten().map(|(_, contents)| contents)
        })
    }

    fn count_guesses<'a>(&'a self, keys: &'a [String]) -> SharedAnswer<'a, Vec<u32>> {
        self.answer(|it| {
            let mut guesses = it.guesses.lock();
            let count = |key: &String| {
                let count = guesses.entry(key.clone()).or_default();
                *count += 1;
                *count
            };
            keys.iter().map(count).collect()
        })
    }

    fn uncount_guesses<'a>(&'a self, keys: &'a [String]) -> SharedAnswer<'a, ()> {
        self.answer(|it| {
            let mut guesses = it.guesses.lock();
            keys.iter().for_each(|key| drop(guesses.entry(key.clone()).and_modify(|count| *count -= 1)));
        })
    }

    fn prove(&self, text: &[u8]) -> [u8; PROOF_BYTES] {
        let mut proof = [0; PROOF_BYTES];
        let digest = Digest::of(&[b"key".as_slice(), text].concat());
        proof.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
        proof
    }

    fn proves(&self, text: &[u8], proof: &[u8]) -> bool {
        self.prove(text) == proof
    }

    fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.wall.load(Ordering::Relaxed))
    }
}
