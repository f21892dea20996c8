//! Sign-ins in the store, as replicas share them.

use gateway_auth::attempts::WINDOW;
use gateway_auth::shared::{PROOF_BYTES, SharedAnswer, SharedFailure, SharedSignIns};
use gateway_store::{Store, StoreError, wall_clock};
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{
    DeviceChange, DeviceKey, EndedSession, KeptAnswer, KeptDevice, KeptSession, NewStep, SessionsOf, StepKind,
};
use gateway_types::{UnixSeconds, UserName};

/// The store, and the identity provider whose sessions count.
#[derive(Clone, Debug)]
pub(super) struct StoredSignIns {
    store: Store,
    issuer: Option<String>,
}

impl StoredSignIns {
    /// Shares the sign-ins of one provider, or those of dev mode.
    pub(super) fn new(store: Store, issuer: Option<String>) -> Self {
        Self { store, issuer }
    }
}

/// Makes an answer of a question to the store.
fn answer<'a, T>(question: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> SharedAnswer<'a, T> {
    Box::pin(async move { question.await.map_err(|error| SharedFailure(error.to_string())) })
}

impl SharedSignIns for StoredSignIns {
    fn session(&self, id: Digest) -> SharedAnswer<'_, Vec<KeptSession>> {
        answer(async move { self.store.browser_session(self.issuer.as_deref(), &id).await })
    }

    fn sessions_of<'a>(&'a self, user: &'a UserName) -> SharedAnswer<'a, Vec<KeptSession>> {
        answer(self.store.browser_sessions_of(self.issuer.as_deref(), user.as_str()))
    }

    fn end_sessions(&self, of: SessionsOf) -> SharedAnswer<'_, Vec<EndedSession>> {
        answer(async move { self.store.end_browser_sessions(self.issuer.as_deref(), &of).await })
    }

    fn device(&self, key: DeviceKey) -> SharedAnswer<'_, Option<KeptDevice>> {
        answer(self.store.device_sign_in(key))
    }

    fn decide_device(&self, device: Digest, decision: KeptAnswer) -> SharedAnswer<'_, bool> {
        answer(async move { self.store.decide_device_sign_in(&device, &decision).await })
    }

    fn take_device(&self, device: Digest) -> SharedAnswer<'_, bool> {
        answer(async move { self.store.take_device_sign_in(&device).await })
    }

    fn put_device(&self, device: KeptDevice) -> SharedAnswer<'_, ()> {
        answer(async move { self.store.keep_device_sign_ins(&[DeviceChange::Is(Box::new(device))]).await })
    }

    fn add_steps(&self, steps: Vec<NewStep>) -> SharedAnswer<'_, bool> {
        answer(async move { self.store.add_sign_in_steps(&steps).await })
    }

    fn take_step(&self, kind: StepKind, id: Digest) -> SharedAnswer<'_, Option<Vec<u8>>> {
        answer(async move { self.store.take_sign_in_step(kind, &id).await })
    }

    fn count_guesses<'a>(&'a self, keys: &'a [String]) -> SharedAnswer<'a, Vec<u32>> {
        answer(self.store.count_guesses(keys, WINDOW))
    }

    fn uncount_guesses<'a>(&'a self, keys: &'a [String]) -> SharedAnswer<'a, ()> {
        answer(self.store.uncount_guesses(keys))
    }

    fn prove(&self, text: &[u8]) -> [u8; PROOF_BYTES] {
        self.store.prove_sign_in(text)
    }

    fn proves(&self, text: &[u8], proof: &[u8]) -> bool {
        self.store.proves_sign_in(text, proof)
    }

    fn now(&self) -> UnixSeconds {
        wall_clock()
    }
}
