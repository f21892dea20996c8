//! Large request bodies.

use crate::outcome::Outcome;
use crate::profile::Context;

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<Outcome> {
    let name = context.profile.as_str();
    anyhow::bail!("{name}: not written yet")
}
