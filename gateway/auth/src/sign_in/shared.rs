//! Sign-ins whose requests arrive at different replicas.
//!
//! What a page needs of the steps before is read from the store before the page is made ([`SignIn::prepare_public`],
//! [`SignIn::prepare_workspace`]), and what it leaves for the steps after is written before its answer is sent
//! ([`SignIn::finish`]); the pages themselves are the same as for one gateway. A step is taken out of the store by the statement
//! that reads it, so it counts once at all replicas.
//!
//! A visit of a stranger to a workspace host writes nothing: nonce and redirect prove by a code (HMAC) that a replica made them.
//! The redirect is spent in the store when the public host vouches for its browser.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::dev::LINK_AGE_MAX;
use super::nonces::BEGUN_AGE_MAX;
use super::page::{SignInPage, redirect};
use super::path::ReturnPath;
use super::transfer::{TRANSFER_AGE_MAX, Transfer};
use super::{CALLBACK_PATH, PageVisit, SIGN_IN_PATH, SignIn, SignInMethod, is_everywhere, parameter, require_visit};
use crate::cookie::{self, CookieLookup};
use crate::oidc;
use crate::oidc::answer::RedirectParameters;
use crate::oidc::pending::{Destination, PENDING_AGE_MAX, Pending};
use crate::shared::{PROOF_BYTES, QuestionRate, Shared, SharedFailure, SharedSignIns, WRITES_PER_SECOND_MAX};
use crate::sign_in::event::SignInEvent;
use gateway_types::opaque::{Digest, HALF_BYTES, Opaque};
use gateway_types::sign_in_rows::{NewStep, StepKind};
use gateway_types::token::NoRandomness;

/// Difference between the clocks of two replicas that spoils no sign-in.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(5 * 60);

/// Length of what a ticket says, in front of its proof: a time and a random number.
const HEAD_BYTES: usize = 2 * size_of::<u64>();

const _: () = assert!(HEAD_BYTES + PROOF_BYTES == gateway_types::opaque::SECRET_BYTES && HALF_BYTES == PROOF_BYTES);

/// Steps of sign-ins in the store.
#[derive(Debug)]
pub(super) struct SharedSteps {
    store: Shared,
    taken: QuestionRate,
    added: QuestionRate,
    /// Links that were made and are not in the store yet. Dev mode makes one each minute at most.
    links: parking_lot::Mutex<Vec<NewStep>>,
}

/// What an answer leaves for the store, in its extensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Leavings {
    steps: Vec<NewStep>,
    /// Address at which the browser begins anew if a step was spent before.
    anew: Option<String>,
    /// Any client can cause it.
    is_strangers: bool,
}

/// Proof that a replica sent a browser to the public host: from that host, with that nonce, at that time. Good once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(Digest);

impl Ticket {
    /// Makes one for a browser with the nonce of hash `pre` at a workspace host.
    pub(super) fn new(store: &dyn SharedSignIns, host: &str, pre: &Digest) -> Result<Self, NoRandomness> {
        let (random, _) = Opaque::random()?.halves();
        let mut ticket = [0; gateway_types::opaque::SECRET_BYTES];
        let (head, proof) = ticket.split_at_mut(HEAD_BYTES);
        let said = store.now().get().to_be_bytes().into_iter().chain(random);
        head.iter_mut().zip(said).for_each(|(to, from)| *to = from);
        proof.copy_from_slice(&store.prove(&ticket_text(host, pre, head)));
        Ok(Self(Digest::from_bytes(ticket)))
    }

    /// Reads the text form.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Digest::parse(text).map(Self)
    }

    pub(super) fn encoded(&self) -> String {
        self.0.encoded()
    }

    /// Returns whether it is for this browser and host, and young enough.
    pub(super) fn is_good(&self, store: &dyn SharedSignIns, host: &str, pre: &Digest) -> bool {
        let (head, proof) = self.0.as_bytes().split_at(HEAD_BYTES);
        let Some(at) = head.first_chunk().copied().map(i64::from_be_bytes) else { return false };
        let age = store.now().get().saturating_sub(at);
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let is_young = (-seconds(CLOCKS_DIFFER_MAX)..seconds(BEGUN_AGE_MAX)).contains(&age);
        is_young && store.proves(&ticket_text(host, pre, head), proof)
    }

    /// Makes the mark that it was used.
    fn spent(&self) -> NewStep {
        let age_max = BEGUN_AGE_MAX.saturating_add(CLOCKS_DIFFER_MAX);
        NewStep { kind: StepKind::Spent, id: Digest::of(self.0.as_bytes()), contents: Vec::new(), age_max }
    }
}

fn ticket_text(host: &str, pre: &Digest, head: &[u8]) -> Vec<u8> {
    [b"ticket\0".as_slice(), head, pre.as_bytes(), host.as_bytes()].concat()
}

fn nonce_text(host: &str, random: &[u8]) -> Vec<u8> {
    [b"nonce\0".as_slice(), random, host.as_bytes()].concat()
}

/// Draws a nonce that proves to be a replica's own, for one host.
pub(super) fn nonce(store: &dyn SharedSignIns, host: &str) -> Result<Opaque, NoRandomness> {
    let (random, _) = Opaque::random()?.halves();
    Ok(Opaque::of_halves(random, store.prove(&nonce_text(host, &random))))
}

/// Returns whether a replica made this nonce for this host.
pub(super) fn is_own_nonce(store: &dyn SharedSignIns, host: &str, nonce: &Opaque) -> bool {
    let (random, proof) = nonce.halves();
    store.proves(&nonce_text(host, &random), &proof)
}

/// A step's contents, as they are stored.
#[derive(Serialize, Deserialize)]
struct StoredTransfer {
    host: String,
    pre: String,
    parent: String,
    path: String,
}

#[derive(Serialize, Deserialize)]
struct StoredPending {
    pre: String,
    nonce: String,
    verifier: String,
    path: String,
    /// A workspace host.
    host: Option<String>,
    /// The nonce's hash of a workspace host that waits to be vouched for.
    begun: Option<String>,
    ticket: Option<String>,
}

fn write_transfer(transfer: &Transfer) -> Vec<u8> {
    let stored = StoredTransfer {
        host: transfer.host.to_string(),
        pre: transfer.pre.encoded(),
        parent: transfer.parent.encoded(),
        path: transfer.return_to.as_str().to_owned(),
    };
    serde_json::to_vec(&stored).unwrap_or_default()
}

fn read_transfer(bytes: &[u8]) -> Option<Transfer> {
    let StoredTransfer { host, pre, parent, path } = serde_json::from_slice(bytes).ok()?;
    let (pre, parent) = (Digest::parse(&pre)?, Digest::parse(&parent)?);
    Some(Transfer { host: host.into(), pre, parent, return_to: ReturnPath::parse(&path)? })
}

fn write_pending(pending: &Pending) -> Vec<u8> {
    let (path, host, begun, ticket) = match &pending.destination {
        Destination::Public(path) => (path, None, None, None),
        Destination::Workspace { host, path } => (path, Some(host.to_string()), None, None),
        Destination::Authorize { host, pre, return_to, ticket } => {
            (return_to, Some(host.to_string()), Some(pre.encoded()), ticket.map(|ticket| ticket.encoded()))
        }
    };
    let stored = StoredPending {
        pre: pending.pre.encoded(),
        nonce: pending.nonce.reveal(),
        verifier: pending.verifier.reveal(),
        path: path.as_str().to_owned(),
        host,
        begun,
        ticket,
    };
    serde_json::to_vec(&stored).unwrap_or_default()
}

fn read_pending(bytes: &[u8]) -> Option<Pending> {
    let StoredPending { pre, nonce, verifier, path, host, begun, ticket } = serde_json::from_slice(bytes).ok()?;
    let path = ReturnPath::parse(&path)?;
    let destination = match (host, begun) {
        (None, _) => Destination::Public(path),
        (Some(host), None) => Destination::Workspace { host: host.into(), path },
        (Some(host), Some(begun)) => {
            let (pre, ticket) = (Digest::parse(&begun)?, ticket.as_deref().and_then(Ticket::parse));
            Destination::Authorize { host: host.into(), pre, return_to: path, ticket }
        }
    };
    let (nonce, verifier) = (Opaque::parse(&nonce)?, Opaque::parse(&verifier)?);
    Some(Pending { pre: Digest::parse(&pre)?, nonce, verifier, destination })
}

impl Leavings {
    /// A one-time code, and the ticket that it was given for.
    pub(super) fn transfer(code: &Opaque, transfer: &Transfer, ticket: Option<Ticket>, anew: String) -> Self {
        let (kind, id, contents) = (StepKind::Transfer, code.digest(), write_transfer(transfer));
        let step = NewStep { kind, id, contents, age_max: TRANSFER_AGE_MAX };
        let steps = ticket.map(|ticket| ticket.spent()).into_iter().chain([step]).collect();
        Self { steps, anew: Some(anew), ..Self::default() }
    }

    /// A sign-in that is pending at the provider.
    pub(super) fn pending(state: &Opaque, pending: &Pending) -> Self {
        let (kind, id, contents) = (StepKind::Provider, state.digest(), write_pending(pending));
        let steps = vec![NewStep { kind, id, contents, age_max: PENDING_AGE_MAX }];
        Self { steps, is_strangers: true, ..Self::default() }
    }
}

impl SharedSteps {
    fn new(store: Shared) -> Self {
        let [taken, added] = [(); 2].map(|()| QuestionRate::new(WRITES_PER_SECOND_MAX));
        Self { store, taken, added, links: parking_lot::Mutex::default() }
    }

    pub(super) fn store(&self) -> &dyn SharedSignIns {
        &*self.store
    }

    /// Has a fresh link written by the next [`SignIn::finish`] or [`SignIn::share_links`].
    pub(super) fn link(&self, code: &Opaque) {
        let (kind, id) = (StepKind::Link, code.digest());
        self.links.lock().push(NewStep { kind, id, contents: Vec::new(), age_max: LINK_AGE_MAX });
    }

    async fn take(&self, kind: StepKind, code: &Opaque, now: Instant) -> Result<Option<Vec<u8>>, SignInPage> {
        if !self.taken.take(now) {
            return Err(SignInPage::Unable);
        }
        self.store.take_step(kind, code.digest()).await.map_err(unable)
    }

    async fn write_links(&self) {
        let links = std::mem::take(&mut *self.links.lock());
        if !links.is_empty()
            && let Err(error) = self.store.add_steps(links).await
        {
            tracing::warn!(%error, "a sign-in link is not in the store, and so not good");
        }
    }
}

fn unable(error: SharedFailure) -> SignInPage {
    tracing::warn!(%error, "the store did not answer a sign-in");
    SignInPage::Unable
}

impl SignIn {
    /// Shares steps of sign-ins with other replicas.
    #[must_use]
    pub fn sharing(self, store: Option<Shared>) -> Self {
        Self { shared: store.map(SharedSteps::new), ..self }
    }

    /// Writes the links that were made since. Call it after [`SignIn::issue_link`].
    ///
    /// Cancel safety: dropped, the links may be lost.
    pub async fn share_links(&self) {
        if let Some(shared) = &self.shared {
            shared.write_links().await;
        }
    }

    /// Reads from the store what a sign-in page of the public host needs of other replicas. Call it before
    /// [`SignIn::answer_public`]. Returns the answer if the store does not answer.
    ///
    /// # Cancel safety
    /// Dropped, it may have used a step up.
    pub async fn prepare_public(&self, visit: PageVisit<'_>, now: Instant) -> Option<Response<Bytes>> {
        let shared = self.shared.as_ref()?;
        let gathered = Box::pin(self.gather_public(shared, visit, now)).await;
        gathered.err().map(|page| page.response(visit.headers))
    }

    async fn gather_public(&self, shared: &SharedSteps, visit: PageVisit<'_>, now: Instant) -> Result<(), SignInPage> {
        let names = self.site.cookies();
        let cookie = match cookie::find(visit.headers, names.session) {
            CookieLookup::One(id) => Some(id.digest()),
            CookieLookup::Nothing | CookieLookup::Unusable => None,
        };
        if let Some(id) = &cookie {
            self.sessions.find(id, now).await.map_err(|_| SignInPage::Unable)?;
        }
        // What is not a visit uses nothing up.
        if require_visit(visit).is_err() {
            return Ok(());
        }
        match (&self.way, visit.uri.path()) {
            (SignInMethod::Dev { dev, .. }, SIGN_IN_PATH) => {
                if cookie.is_some_and(|id| self.sessions.public(&id, now).is_some()) {
                    return Ok(());
                }
                let Some(code) = parameter(visit.uri, "code").and_then(|text| Opaque::parse(&text)) else {
                    return Ok(());
                };
                if shared.take(StepKind::Link, &code, now).await?.is_some() {
                    dev.taken(&code, now);
                }
            }
            (SignInMethod::Provider(at), oidc::CALLBACK_PATH) => {
                let answer = RedirectParameters::parse(visit.uri.query().unwrap_or_default());
                // Without its nonce a browser cannot have begun this: it stays open for the one that did.
                let (Ok(answer), CookieLookup::One(_)) = (answer, cookie::find(visit.headers, names.pre)) else {
                    return Ok(());
                };
                let taken = shared.take(StepKind::Provider, &answer.state, now).await?;
                if let Some(pending) = taken.and_then(|contents| read_pending(&contents)) {
                    at.resume(&answer.state, pending, visit.peer, now);
                }
            }
            (SignInMethod::Dev { .. } | SignInMethod::Provider(_), _) => {}
        }
        Ok(())
    }

    /// Reads from the store what the sign-in page of a workspace host needs of other replicas. Call it before
    /// [`SignIn::answer_workspace`]. Returns the answer if the store does not answer.
    ///
    /// # Cancel safety
    /// Dropped, it may have used a step up.
    pub async fn prepare_workspace(&self, visit: PageVisit<'_>, now: Instant) -> Option<Response<Bytes>> {
        let shared = self.shared.as_ref()?;
        if visit.uri.path() != CALLBACK_PATH || require_visit(visit).is_err() {
            return None;
        }
        let gathered = Box::pin(self.gather_transfer(shared, visit, now)).await;
        gathered.err().map(|page| page.response(visit.headers))
    }

    async fn gather_transfer(
        &self,
        shared: &SharedSteps,
        visit: PageVisit<'_>,
        now: Instant,
    ) -> Result<(), SignInPage> {
        let Some(code) = parameter(visit.uri, "code").and_then(|text| Opaque::parse(&text)) else { return Ok(()) };
        let taken = shared.take(StepKind::Transfer, &code, now).await?;
        let Some(transfer) = taken.and_then(|contents| read_transfer(&contents)) else { return Ok(()) };
        self.sessions.find(&transfer.parent, now).await.map_err(|_| SignInPage::Unable)?;
        self.transfers.issue(&code, transfer, now);
        Ok(())
    }

    /// Writes what an answer leaves for the next steps, and waits until the store has the changes of all sign-ins and sign-outs
    /// so far, or is known to be away: a browser that is told that it is signed in, or out, stays so over a restart and at
    /// every replica. Returns the answer, or another one if that was not possible.
    ///
    /// # Cancel safety
    /// Dropped, the next steps of the sign-in may fail.
    pub async fn finish(&self, visit: PageVisit<'_>, mut answer: Response<Bytes>) -> Response<Bytes> {
        if let Some(shared) = &self.shared {
            answer = Box::pin(self.leave(shared, visit, answer)).await;
        }
        self.sessions.journal().written().await;
        answer
    }

    async fn leave(&self, shared: &SharedSteps, visit: PageVisit<'_>, mut answer: Response<Bytes>) -> Response<Bytes> {
        shared.write_links().await;
        // Only a sign-out makes such an event, and with this query it is one everywhere.
        if let Some(SignInEvent::SignedOut { user, sessions }) = answer.extensions_mut().get_mut()
            && is_everywhere(visit)
        {
            match self.sessions.end_every(user, Instant::now()).await {
                Ok(names) => {
                    let others: Vec<_> = names.into_iter().filter(|name| !sessions.contains(name)).collect();
                    sessions.extend(others);
                }
                Err(_) => {
                    // Those that this replica knew have ended, and the audit log says so.
                    let event = SignInEvent::SignedOut { user: user.clone(), sessions: sessions.clone() };
                    let mut page = SignInPage::Unable.response(visit.headers);
                    page.extensions_mut().insert(event);
                    return page;
                }
            }
        }
        let Some(Leavings { steps, anew, is_strangers }) = answer.extensions_mut().remove() else { return answer };
        if is_strangers && !shared.added.take(Instant::now()) {
            return SignInPage::Unable.response(visit.headers);
        }
        match (shared.store.add_steps(steps).await, anew) {
            (Ok(true), _) => answer,
            (Ok(false), Some(anew)) => {
                redirect(StatusCode::SEE_OTHER, &anew, None).unwrap_or_else(|page| page.response(visit.headers))
            }
            (Ok(false), None) => SignInPage::TransferFailed.response(visit.headers),
            (Err(error), _) => unable(error).response(visit.headers),
        }
    }
}

#[cfg(test)]
mod tests;
