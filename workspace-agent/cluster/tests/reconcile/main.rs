//! A gateway's side of the conversation, an agent, and an API server between which there is trouble.
//!
//! The server is one in memory, and once more a real one where `AGENT_CLUSTER_TEST_KUBECONFIG` names its kubeconfig.

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
mod peer;
mod pull_secrets;
mod scale;
mod terminate;
mod trouble;
mod watches;
mod world;

/// Runs scenarios in memory, where time is made to pass, and on a real server if there is one.
macro_rules! scenarios {
    ($($name:ident)*) => {
        mod in_memory {
            use crate::world::{MODES, World};
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                for mode in MODES {
                    super::$name(&World::fake(mode).await).await;
                }
            })*
        }

        mod on_a_real_server {
            use crate::world::{MODES, World};
            $(#[tokio::test]
            async fn $name() {
                for mode in MODES {
                    if let Some(world) = World::real(mode).await {
                        super::$name(&world).await;
                    }
                }
            })*
        }
    };
}
use scenarios;
