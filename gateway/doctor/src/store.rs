//! The database: whether it is there, its schema, its clock, how quickly it answers, and the replicas in it.

use std::sync::Arc;

use doctor::judge::{self, ClockReading};
use doctor::{Check, Finding, FindingId, Outcome};

use crate::{Installation, places};
use gateway_config::StoreUrl;
use gateway_store::{DatabaseClock, StoreFacts, inspect};

const STORE: &str = "database";
const SCHEMA: &str = "database: schema";
const CLOCK: &str = "database: clock";
const REPLICAS: &str = "database: versions of replicas";

/// Looks at the database, and changes nothing there.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    let config = &it.config.store;
    if let StoreUrl::SqliteFile(path) = &config.url {
        if !path.exists() && it.config.stray_database().is_none() {
            return left_out(&format!("{} is not there yet: gateway serve makes it", path.display()));
        }
        if places::of_store(&it.config).iter().any(Check::has_error) {
            return left_out("its disk has a finding of its own");
        }
    }
    match inspect(config).await {
        Err(error) => {
            let mut checks = left_out("the database cannot be opened");
            if let Some(first) = checks.first_mut() {
                *first = Check::new(STORE, Finding::new(FindingId::StoreUnreachable, error.to_string()));
            }
            checks
        }
        Ok(facts) => of(&facts),
    }
}

fn left_out(why: &str) -> Vec<Check> {
    [STORE, SCHEMA, CLOCK, REPLICAS].into_iter().map(|name| Check::skipped(name, why)).collect()
}

fn of(facts: &StoreFacts) -> Vec<Check> {
    let StoreFacts { schema, known, missing, latency, clock, replicas } = facts;
    let slow = judge::latency(*latency).into_iter().collect();
    vec![
        Check::new(STORE, Outcome::of(slow, format!("it answers within {:.1} ms", latency.as_secs_f64() * 1e3))),
        Check::new(SCHEMA, self::schema(*schema, *known, *missing)),
        match clock {
            None => Check::skipped(CLOCK, "SQLite has the clock of this machine"),
            Some(DatabaseClock { before, after, server }) => {
                let ahead = ClockReading { before: *before, after: *after, other: *server }.ahead(0);
                let found = judge::clock(ahead, "the database").into_iter().collect();
                Check::new(CLOCK, Outcome::of(found, "it agrees with this machine's"))
            }
        },
        if replicas.is_empty() {
            Check::skipped(REPLICAS, "no replica lives; gateways without `directory = \"store\"` are not listed")
        } else {
            let named = replicas.iter().map(|one| (format!("replica {}", one.id), one.version.as_str()));
            let found = judge::versions(env!("CARGO_PKG_VERSION"), named);
            Check::new(REPLICAS, Outcome::of(found, format!("{} of this version", replicas.len())))
        },
    ]
}

fn schema(found: Option<i64>, known: i64, missing: usize) -> Outcome {
    match found {
        None => Outcome::Skipped("the database is empty: gateway serve fills it".to_owned()),
        Some(found) if found > known => {
            let what = format!("its schema is {found}, this program knows up to {known}");
            Finding::new(FindingId::StoreSchemaNewer, what).into()
        }
        Some(found) if missing > 0 => {
            let what = format!("its schema is {found}; missing of those up to {known}: {missing}");
            Finding::new(FindingId::StoreSchemaOlder, what).into()
        }
        Some(found) => Outcome::Passed(format!("{found}, the one of this program")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gateway_store::ReplicaVersion;

    fn facts() -> StoreFacts {
        StoreFacts {
            schema: Some(25),
            known: 25,
            missing: 0,
            latency: Duration::from_millis(1),
            clock: Some(DatabaseClock { before: 1_000_000, after: 1_000_010, server: 1_000_005 }),
            replicas: vec![ReplicaVersion { id: 1, version: env!("CARGO_PKG_VERSION").to_owned() }],
        }
    }

    fn ids(facts: &StoreFacts) -> Vec<FindingId> {
        let found = of(facts).into_iter().filter_map(|check| match check.outcome {
            Outcome::Found(found) => Some(found),
            Outcome::Passed(_) | Outcome::Skipped(_) => None,
        });
        found.flatten().map(|found| found.id).collect()
    }

    #[test]
    fn facts_are_judged_each_by_itself() {
        assert_eq!(ids(&facts()), []);
        assert_eq!(ids(&StoreFacts { schema: Some(26), ..facts() }), [FindingId::StoreSchemaNewer]);
        assert_eq!(ids(&StoreFacts { schema: Some(24), missing: 1, ..facts() }), [FindingId::StoreSchemaOlder]);
        assert_eq!(ids(&StoreFacts { schema: None, missing: 24, ..facts() }), []);
        assert_eq!(ids(&StoreFacts { latency: Duration::from_millis(80), ..facts() }), [FindingId::StoreSlow]);
        let clock = Some(DatabaseClock { before: 1_000_000, after: 1_000_010, server: 400_000 });
        assert_eq!(ids(&StoreFacts { clock, ..facts() }), [FindingId::ClockOff]);
        let replicas = vec![ReplicaVersion { id: 7, version: "0.0.1".to_owned() }];
        assert_eq!(ids(&StoreFacts { replicas, ..facts() }), [FindingId::VersionDiffers]);
    }
}
