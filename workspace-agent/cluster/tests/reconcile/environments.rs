//! Calls for environments, and what they leave in a cluster.

mod desk;
mod life;
mod look_alikes;
mod namespaces;
mod removal;
mod trouble;
mod unserved;

/// Makes tests of scenarios: in memory, where time is made to pass, and on a real server but for those whose server is played otherwise.
macro_rules! scenarios {
    ($($name:ident)* $(; in memory alone: $($alone:ident)*)?) => {
        mod in_memory {
            use crate::environments::desk::Desk;
            use crate::world::{Mode, World};
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(&Desk::new(World::fake(Mode::Unique).await).await).await;
            })*
            $($(#[tokio::test(start_paused = true)]
            async fn $alone() {
                super::$alone(&Desk::new(World::fake(Mode::Unique).await).await).await;
            })*)?
        }

        #[cfg(feature = "real-server")]
        mod on_a_real_server {
            use crate::environments::desk::Desk;
            use crate::world::{Mode, World};
            $(#[tokio::test]
            async fn $name() {
                super::$name(&Desk::new(World::real(Mode::Unique).await).await).await;
            })*
        }
    };
}
use scenarios;
