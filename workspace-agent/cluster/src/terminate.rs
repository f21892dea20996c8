//! Termination of a workspace, as a machine without a memory: what was found in the cluster decides the next step, so
//! that it goes on from wherever it was left (`docs/decisions/2026-11-21-the-clusters-inventories-are-the-state.md`).
//!
//! ```text
//!  the gateway has Terminated ───────────────────────────► Forget
//!  unique: no namespace   shared: no inventories ────────► Done (Terminated)
//!  inventories track objects ────────────────────────────► Prune (Terminating)
//!  they are empty ──── unique ──► DeleteNamespace, shared ──► DeleteInventories (Terminating)
//! ```

use tunnel_proto::reconcile::NamespaceMode;
use tunnel_proto::state::ActualState;

/// State that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    pub(crate) namespace: Namespace,
    /// The inventories that are there.
    pub(crate) inventories: Vec<Inventory>,
}

/// Namespace, as far as it was looked at: in shared mode it has another owner and is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// There is none.
    Absent,
    /// The agent made it for this workspace.
    Ours,
    /// The same, and it is being deleted.
    Leaving,
    /// It has another owner, or was made for another workspace.
    Foreign,
    /// Shared mode.
    Shared,
}

/// An inventory that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) name: String,
    /// Number of objects that it tracks.
    pub(crate) tracked: usize,
}

/// Next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TerminateStep {
    /// The gateway knows that the workspace is over: nothing is kept of it here.
    Forget,
    /// Nothing is left in the cluster.
    Done,
    /// Delete the objects that these inventories track.
    Prune(Vec<String>),
    /// Delete the inventories, which are empty.
    DeleteInventories(Vec<String>),
    /// Delete the namespace, and with it what is left.
    DeleteNamespace,
    /// The namespace is on its way out.
    Wait,
    /// Objects of ours are in a namespace that is not ours: a person has to look.
    Refuse,
}

/// Decides the next step for a workspace that is to be terminated.
pub(crate) fn decide(actual: ActualState, found: &Remaining) -> TerminateStep {
    if actual == ActualState::Terminated {
        return TerminateStep::Forget;
    }
    let all = || found.inventories.iter();
    let tracking: Vec<_> =
        all().filter(|inventory| inventory.tracked > 0).map(|inventory| inventory.name.clone()).collect();
    match found.namespace {
        Namespace::Absent => TerminateStep::Done,
        // Everything in it goes with it, and nothing new can be made there.
        Namespace::Leaving => TerminateStep::Wait,
        Namespace::Foreign if found.inventories.is_empty() => TerminateStep::Done,
        Namespace::Foreign => TerminateStep::Refuse,
        Namespace::Ours | Namespace::Shared if !tracking.is_empty() => TerminateStep::Prune(tracking),
        Namespace::Ours => TerminateStep::DeleteNamespace,
        Namespace::Shared if found.inventories.is_empty() => TerminateStep::Done,
        Namespace::Shared => TerminateStep::DeleteInventories(all().map(|inventory| inventory.name.clone()).collect()),
    }
}

/// Returns whether a namespace is one that no workspace can have: those of Kubernetes itself.
pub(crate) fn is_reserved(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

/// Checks that an intent's namespace is one that these terms allow.
///
/// # Errors
/// A text that names both.
pub(crate) fn check_namespace(mode: &NamespaceMode, namespace: &str) -> Result<(), String> {
    match mode {
        NamespaceMode::Shared(shared) if shared == namespace => Ok(()),
        NamespaceMode::Shared(shared) => {
            Err(format!("the namespace {namespace} is not {shared}, in which all workspaces of this cluster are"))
        }
        NamespaceMode::Unique if is_reserved(namespace) => {
            Err(format!("the namespace {namespace} belongs to Kubernetes and is no workspace's"))
        }
        NamespaceMode::Unique => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(namespace: Namespace, tracked: &[usize]) -> Remaining {
        let inventory = |(index, tracked): (usize, &usize)| Inventory { name: format!("i{index}"), tracked: *tracked };
        Remaining { namespace, inventories: tracked.iter().enumerate().map(inventory).collect() }
    }

    #[track_caller]
    fn check(namespace: Namespace, tracked: &[usize], expected: TerminateStep) {
        assert_eq!(decide(ActualState::Terminating, &found(namespace, tracked)), expected);
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn workspace_that_the_gateway_knows_to_be_over_is_forgotten_whatever_is_there() {
        for namespace in [Namespace::Absent, Namespace::Ours, Namespace::Shared, Namespace::Foreign] {
            assert_eq!(decide(ActualState::Terminated, &found(namespace, &[3])), TerminateStep::Forget);
        }
    }

    #[test]
    fn shared_mode_prunes_then_deletes_the_inventories_then_is_done() {
        check(Namespace::Shared, &[3, 2], TerminateStep::Prune(names(&["i0", "i1"])));
        check(Namespace::Shared, &[0, 2], TerminateStep::Prune(names(&["i1"])));
        check(Namespace::Shared, &[0, 0], TerminateStep::DeleteInventories(names(&["i0", "i1"])));
        check(Namespace::Shared, &[0], TerminateStep::DeleteInventories(names(&["i0"])));
        check(Namespace::Shared, &[], TerminateStep::Done);
    }

    #[test]
    fn unique_mode_prunes_then_deletes_the_namespace_and_waits_until_it_is_gone() {
        check(Namespace::Ours, &[3, 2], TerminateStep::Prune(names(&["i0", "i1"])));
        check(Namespace::Ours, &[0, 0], TerminateStep::DeleteNamespace);
        check(Namespace::Ours, &[], TerminateStep::DeleteNamespace);
        check(Namespace::Leaving, &[3], TerminateStep::Wait);
        check(Namespace::Leaving, &[], TerminateStep::Wait);
        check(Namespace::Absent, &[], TerminateStep::Done);
    }

    #[test]
    fn namespace_of_somebody_else_is_never_deleted() {
        check(Namespace::Foreign, &[], TerminateStep::Done);
        check(Namespace::Foreign, &[0], TerminateStep::Refuse);
        check(Namespace::Foreign, &[2], TerminateStep::Refuse);
    }

    #[test]
    fn namespaces_of_kubernetes_and_other_namespaces_than_the_shared_one_are_refused() {
        let shared = NamespaceMode::Shared("team".into());
        assert_eq!(check_namespace(&shared, "team"), Ok(()));
        assert!(
            check_namespace(&shared, "other").is_err_and(|error| error.contains("other") && error.contains("team"))
        );
        assert_eq!(check_namespace(&NamespaceMode::Unique, "ws-a"), Ok(()));
        for namespace in ["default", "kube-system", "kube-public", "kube-"] {
            assert!(check_namespace(&NamespaceMode::Unique, namespace).is_err(), "{namespace}");
        }
    }

    fn namespaces() -> impl Strategy<Value = Namespace> {
        prop_oneof![
            Just(Namespace::Absent),
            Just(Namespace::Ours),
            Just(Namespace::Leaving),
            Just(Namespace::Foreign),
            Just(Namespace::Shared),
        ]
    }

    proptest! {
        #[test]
        fn no_step_deletes_what_still_tracks_objects_or_is_not_ours(
            namespace in namespaces(), tracked in proptest::collection::vec(0..3_usize, 0..3),
        ) {
            let step = decide(ActualState::Running, &found(namespace, &tracked));
            let is_empty = tracked.iter().all(|count| *count == 0);
            match step {
                TerminateStep::DeleteNamespace => prop_assert!(namespace == Namespace::Ours && is_empty),
                TerminateStep::DeleteInventories(_) => prop_assert!(namespace == Namespace::Shared && is_empty),
                TerminateStep::Done => prop_assert!(tracked.is_empty() || namespace == Namespace::Absent),
                TerminateStep::Prune(inventories) => prop_assert!(!inventories.is_empty() && !is_empty),
                TerminateStep::Forget => prop_assert!(false, "the gateway does not know it yet"),
                TerminateStep::Wait | TerminateStep::Refuse => {}
            }
        }

        /// A model of a cluster in which each step does what it says, sooner or later, and an agent that is killed in
        /// between: it ends, and in the right state.
        #[test]
        fn machine_ends_from_wherever_it_is_found(
            is_shared in any::<bool>(),
            mut tracked in proptest::collection::vec(0..4_usize, 0..3),
            progress in proptest::collection::vec(any::<bool>(), 64),
        ) {
            let mut namespace = if is_shared { Namespace::Shared } else { Namespace::Ours };
            let mut is_done = false;
            for goes_on in progress.into_iter().chain([true; 16]) {
                let step = decide(ActualState::Terminating, &found(namespace, &tracked));
                // Killed before the step did anything.
                if !goes_on {
                    continue;
                }
                match step {
                    TerminateStep::Prune(_) => {
                        let first = tracked.iter_mut().find(|count| **count > 0).expect("something is tracked");
                        *first -= 1;
                    }
                    TerminateStep::DeleteInventories(_) => drop(tracked.pop()),
                    TerminateStep::DeleteNamespace => namespace = Namespace::Leaving,
                    TerminateStep::Wait => {
                        tracked.clear();
                        namespace = Namespace::Absent;
                    }
                    TerminateStep::Done => {
                        is_done = true;
                        break;
                    }
                    TerminateStep::Forget | TerminateStep::Refuse => prop_assert!(false, "{step:?}"),
                }
            }
            prop_assert!(is_done);
            prop_assert!(tracked.is_empty());
            prop_assert_eq!(namespace, if is_shared { Namespace::Shared } else { Namespace::Absent });
        }
    }
}
