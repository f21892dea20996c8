//! Answers calls of a gateway for environments of CI jobs: objects are applied and removed as the environment's own,
//! which the mark of its inventory says on each of them. Objects with no such mark, or another one, are never touched
//! (`docs/decisions/2026-11-21-an-object-belongs-to-one-environment.md`).
//!
//! Pure parts decide: `request` reads a call, `decide` judges what was found, `book` knows what is there. `run` carries
//! it out, one call for an inventory after the other (`lanes`). Objects are recorded in an inventory in the agent's own
//! namespace before they are made, so that an agent which is killed at any moment leaves nothing that the next call
//! does not find.

mod book;
mod decide;
mod lanes;
mod request;
mod run;
mod say;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_proto::environments::{Call, Done, ObjectError, ObjectErrorCode};

use self::lanes::Lanes;
use self::run::CallRun;
use self::say::{Say, speak};
use crate::Options;
use crate::api::CancelableApi;
use crate::call::{CallEnd, CallPermit, LAST_REQUEST, read_call, until_the_end};
use crate::resources::Resources;

/// Calls at a time: as many as an API server serves without making its other clients wait.
pub const CALLS_MAX: usize = 8;

/// Most bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// State that all calls share.
#[derive(Clone)]
pub struct Environments(Arc<Shared>);

struct Shared {
    api: CancelableApi,
    /// Namespace of the inventories.
    namespace: String,
    resources: Resources,
    lanes: Lanes,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for Environments {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Environments").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

impl Environments {
    /// Makes the server of calls. Inventories are in `namespace`, which is the agent's own.
    #[must_use]
    pub fn new(options: Options, namespace: String) -> Self {
        Self(Arc::new(Shared {
            api: CancelableApi::new(options.client, &options.field_manager),
            namespace,
            resources: Resources::default(),
            lanes: Lanes::default(),
            permits: Arc::new(Semaphore::new(CALLS_MAX)),
        }))
    }

    /// Takes the permit for one call; `None` while [`CALLS_MAX`] are being answered.
    #[must_use]
    pub fn permit(&self) -> Option<CallPermit> {
        CallPermit::of(&self.0.permits)
    }

    /// Answers the call in a channel. Ends early, between two requests, with the channel or with `stop`.
    ///
    /// Cancel safety: dropping it ends the work at once; a request that was sent may still be carried out by the API server.
    pub async fn answer<C>(&self, permit: CallPermit, channel: C, stop: CancellationToken) -> CallEnd
    where
        C: AsyncRead + AsyncWrite + Send,
    {
        let _permit = permit;
        let (mut read, write) = tokio::io::split(channel);
        let call: Call = match read_call(&mut read, READ_BYTES, &stop).await {
            Ok(call) => call,
            Err(end) => return end,
        };
        let end = stop.child_token();
        let (say, heard) = Say::new();
        let working = async {
            let done = self.0.carry_out(&call, &say, &end).await;
            let scope = call.scope();
            let (errors, left) = (done.errors.len(), done.left.len());
            info!(environment = scope.environment, objects = done.objects.len(), errors, left, "a call is answered");
            say.last(done).await;
        };
        let first = request::first(&call, &self.0.namespace);
        let mut both = std::pin::pin!(async { tokio::join!(working, speak(heard, write, first)).1 });
        tokio::select! {
            spoken = both.as_mut() => return if spoken.is_ok() { CallEnd::Answered } else { CallEnd::CalledOff },
            () = until_the_end(&mut read) => {}
            () = stop.cancelled() => {}
        }
        end.cancel();
        if tokio::time::timeout(LAST_REQUEST, both).await.is_err() {
            debug!("a request to the Kubernetes API took too long and was given up");
        }
        CallEnd::CalledOff
    }
}

impl Shared {
    async fn carry_out(&self, call: &Call, say: &Say, end: &CancellationToken) -> Done {
        let place = self.lanes.enter(&call.scope().inventory, end);
        let unchanged =
            |error| Done { objects: request::tracked(call).to_vec(), errors: vec![error], left: Vec::new() };
        let Some(_turn) = place.turn().await else {
            return unchanged(superseded());
        };
        let own = self.api.until(place.ended().clone());
        let acting = match call.scope().identity.as_ref().map(request::impersonation).transpose() {
            Ok(None) => own.clone(),
            Ok(Some(headers)) => own.acting_as(headers),
            Err(message) => return unchanged(whole(ObjectErrorCode::Identity, message)),
        };
        let run = CallRun::new(own, acting, &self.resources, &self.namespace, call.scope(), say);
        match call {
            Call::Apply(apply) => run.apply(apply).await,
            Call::Remove(remove) => run.remove(remove).await,
        }
    }
}

/// Makes an error about the whole call.
fn whole(code: ObjectErrorCode, message: String) -> ObjectError {
    ObjectError { object: None, code, message }
}

fn superseded() -> ObjectError {
    whole(
        ObjectErrorCode::Superseded,
        "a newer call for this environment came, or the caller of this one has gone".to_owned(),
    )
}
