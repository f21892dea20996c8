//! Checks at the same time, each with a time limit.

use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::finding::{Finding, FindingId};
use crate::report::{Check, Report};

/// Checks that belong together and run one after the other.
pub struct Group {
    /// Name, for the finding that it did not end in time.
    pub name: &'static str,
    /// Longest time.
    pub limit: Duration,
    /// The checks.
    pub checks: Pin<Box<dyn Future<Output = Vec<Check>> + Send>>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Group").field("name", &self.name).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Group {
    /// Makes a group.
    pub fn new(name: &'static str, limit: Duration, checks: impl Future<Output = Vec<Check>> + Send + 'static) -> Self {
        Self { name, limit, checks: Box::pin(checks) }
    }
}

/// Runs all groups, and returns their checks in the order of the groups.
///
/// Cancel safety: safe; unfinished checks end with it.
pub async fn all(groups: Vec<Group>) -> Report {
    let mut running = JoinSet::new();
    let names: Vec<_> = groups.iter().map(|group| group.name).collect();
    for (place, Group { limit, checks, .. }) in groups.into_iter().enumerate() {
        running.spawn(async move { (place, timeout(limit, checks).await.map_err(|_elapsed| limit)) });
    }
    let mut done: Vec<Option<Vec<Check>>> = names.iter().map(|_| None).collect();
    let mut unfinished: Vec<Option<Duration>> = names.iter().map(|_| None).collect();
    while let Some(ended) = running.join_next().await {
        // One that broke off stays without a result, which is a finding below.
        let Ok((place, checks)) = ended else { continue };
        match checks {
            Ok(checks) => done.get_mut(place).map(|slot| slot.replace(checks)).map_or((), drop),
            Err(limit) => unfinished.get_mut(place).map(|slot| slot.replace(limit)).map_or((), drop),
        }
    }
    let late = |name: &str, limit: Option<Duration>| {
        let what = match limit {
            Some(limit) => format!("it took longer than {} s", limit.as_secs()),
            None => "it broke off".to_owned(),
        };
        vec![Check::new(name, Finding::new(FindingId::CheckUnfinished, what))]
    };
    let checks = names.iter().zip(done).zip(unfinished);
    Report { checks: checks.flat_map(|((name, done), limit)| done.unwrap_or_else(|| late(name, limit))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Outcome;

    #[tokio::test(start_paused = true)]
    async fn order_is_that_of_the_groups_and_what_hangs_is_found() {
        let ok = |name: &'static str| vec![Check::new(name, Outcome::Passed("well".to_owned()))];
        let limit = Duration::from_secs(5);
        let report = all(vec![
            Group::new("slow", limit, async move {
                tokio::time::sleep(Duration::from_secs(4)).await;
                ok("slow")
            }),
            Group::new("hangs", limit, std::future::pending()),
            Group::new("quick", limit, async move { ok("quick") }),
        ])
        .await;
        let names: Vec<_> = report.checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names, ["slow", "hangs", "quick"]);
        let Outcome::Found(found) = &report.checks[1].outcome else { panic!("it hangs: {report:?}") };
        assert_eq!((found[0].id, found[0].what.as_str()), (FindingId::CheckUnfinished, "it took longer than 5 s"));
    }
}
