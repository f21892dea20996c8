//! Calls for environments, and what they leave in a cluster.

mod desk;
mod life;
mod look_alikes;
mod namespaces;
mod removal;
mod trouble;
mod unserved;

/// Runs scenarios in memory, where time is made to pass, and on a real server if there is one.
macro_rules! scenarios {
    ($($name:ident)*) => {
        mod in_memory {
            use crate::environments::desk::Desk;
            use crate::world::{Mode, World};
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(&Desk::new(World::fake(Mode::Unique).await).await).await;
            })*
        }

        mod on_a_real_server {
            use crate::environments::desk::Desk;
            use crate::world::{Mode, World};
            $(#[tokio::test]
            async fn $name() {
                if let Some(world) = World::real(Mode::Unique).await {
                    super::$name(&Desk::new(world).await).await;
                }
            })*
        }
    };
}
use scenarios;
