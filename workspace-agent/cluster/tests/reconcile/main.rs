//! A gateway's side of the conversation, an agent, and an API server between which there is trouble.
//!
//! The server is one in memory, and with the feature `real-server` once more a real one, whose kubeconfig the variable
//! `AGENT_CLUSTER_TEST_KUBECONFIG` names. The suite `tests/real/suites/cluster-scenarios.sh` runs them there.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on has failed")]

mod apply;
mod crash;
mod environments;
mod errors;
mod fake;
mod leader;
mod log;
mod observe;
mod orphans;
mod peer;
mod pull_secrets;
mod rest;
mod scale;
mod terminate;
mod trouble;
mod watches;
mod world;

/// Makes tests of scenarios: in memory, where time is made to pass, and on a real server.
macro_rules! scenarios {
    ($($name:ident)* $(; in unique namespaces alone: $($alone:ident)*)?) => {
        mod in_memory {
            use crate::world::{MODES, World};
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                for mode in MODES {
                    super::$name(&World::fake(mode).await).await;
                }
            })*
            $($(#[tokio::test(start_paused = true)]
            async fn $alone() {
                super::$alone(&World::fake(crate::world::Mode::Unique).await).await;
            })*)?
        }

        #[cfg(feature = "real-server")]
        mod on_a_real_server {
            use crate::world::{Mode, World};
            $(mod $name {
                use super::*;

                #[tokio::test]
                async fn in_unique_namespaces() {
                    super::super::$name(&World::real(Mode::Unique).await).await;
                }

                #[tokio::test]
                async fn in_a_shared_namespace() {
                    super::super::$name(&World::real(Mode::Shared).await).await;
                }
            })*
            $($(#[tokio::test]
            async fn $alone() {
                super::$alone(&World::real(Mode::Unique).await).await;
            })*)?
        }
    };
}
use scenarios;
