//! The keyed work queue below four controllers, in the words of Kubernetes' controllers: a *key* names an object, to
//! *reconcile* it brings what is there closer to what is wanted, and the *queue* says which key is next.
//!
//! [`WorkQueue`] is pure: instants and chance are arguments. It holds each key once, at the earliest instant for which
//! it was added, hands a key out only while no reconcile of it is in flight, and counts failures in a row, from which
//! [`RetryDelays`] makes back-off. [`Runner`] is the shell: a tokio task for each key in flight.
//!
//! A controller owns a runner and its loop. What is to be done for a key, and when next, is the policy of its `plan`:
//! the loop settles each completed reconcile, panics included, by [`WorkQueue::finish`] or [`WorkQueue::retry`].
//!
//! ```text
//!            add            start             finish(At), retry
//!   (none) ──────► waiting ───────► in flight ─────────────────► waiting
//!                     ▲                │  │ finish(AwaitAdd)
//!                     └── added again ─┘  └────────────────────► (none)
//! ```

mod queue;
mod retry;
mod runner;

pub use queue::{Requeue, WorkQueue};
pub use retry::RetryDelays;
pub use runner::{Completion, Runner, until};
