//! Replicas: the process starts of gateways that share a database, each with a lease. Only the database's clock judges
//! leases, because clocks of machines differ.

use std::fmt;
use std::time::Duration;

use super::database::{Row, Statement, sql};
use super::sessions::{signed, unsigned};
use super::{About, Store, StoreError};

/// Writes the time of a database, in milliseconds.
macro_rules! clock {
    (sqlite) => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
    (postgres) => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}
pub(super) use clock;

/// Writes a statement with the database's time between its parts.
macro_rules! clocked {
    ($first:literal $(, $rest:literal)+) => {
        $crate::database::sql_of(
            concat!($first $(, $crate::replicas::clock!(sqlite), $rest)+),
            concat!($first $(, $crate::replicas::clock!(postgres), $rest)+),
        )
    };
}
pub(super) use clocked;

/// Time after the end of a lease in which its replica may still be there: as long, the places of its sessions are kept for it,
/// unless others claim them, and others ask it before they take its agents for absent.
pub(super) const HINT_TIME: Duration = Duration::from_hours(1);

/// Number of one process start of a replica, given out by the database: it grows, and is never used twice. Displays as the
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub(super) i64);

impl Incarnation {
    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// State of a replica that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// It takes users and agents.
    Serving,
    /// It takes nothing new, and is about to end.
    Draining,
}

impl ReplicaState {
    /// Returns the state as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        match text {
            "serving" => Ok(Self::Serving),
            "draining" => Ok(Self::Draining),
            _ => Err(StoreError::Corrupt { table: "replicas", column: "state" }),
        }
    }
}

/// A replica that starts.
#[derive(Clone, Copy, Debug)]
pub struct NewReplica<'a> {
    /// URL at which others reach its port for replicas.
    pub peer_url: &'a str,
    /// Version of the program.
    pub version: &'a str,
    /// Zone of the workspaces' hosts.
    pub zone: &'a str,
    /// URL of the public host.
    pub public_url: &'a str,
    /// Time for which it counts as alive without a renewal.
    pub lease: Duration,
}

/// A replica that lives, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReplica {
    /// Number of its process start.
    pub incarnation: Incarnation,
    /// URL at which others reach it.
    pub peer_url: String,
    /// Version of the program.
    pub version: String,
    /// State that it reported last.
    pub state: ReplicaState,
    /// Rest of its lease; zero if it is over.
    pub lives_for: Duration,
    /// Time since its start.
    pub age: Duration,
    /// What it reported last.
    pub report: ReplicaReport,
    /// The drain that was asked of it.
    pub drain: Option<DrainRequest>,
}

impl StoredReplica {
    /// Returns whether its lease lives. If not, only the replica itself knows whether it is there.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.lives_for.is_zero()
    }
}

/// What a replica reports of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Sessions of agents that dialed it.
    pub agents: u64,
    /// Relay lanes that end there.
    pub lanes_ended: u64,
    /// Relay lanes that pass through.
    pub lanes_carried: u64,
}

/// A drain that the operator asks of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainRequest {
    /// It takes nothing new, and ends once what users have open has ended, or its time limit is over.
    Finish,
    /// It waits for nothing.
    Now,
}

impl DrainRequest {
    fn column(self) -> i64 {
        match self {
            Self::Finish => 1,
            Self::Now => 2,
        }
    }

    fn read(column: i64) -> Option<Self> {
        [Self::Finish, Self::Now].into_iter().find(|request| request.column() == column)
    }
}

/// Result of the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It had not ended.
    Live,
    /// It was over, and counts again.
    Revived,
    /// It was given up, or other replicas now have other settings: that process start must not go on.
    Ended,
}

/// A live replica has another setting in which all have to agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferingReplica {
    /// The replica.
    pub incarnation: Incarnation,
    /// The key of the setting.
    pub what: &'static str,
    /// Its value there.
    pub theirs: String,
}

impl Store {
    /// Registers a process start, unless a live replica has other settings: with two zones or public hosts, neither would
    /// answer for the other's users.
    ///
    /// # Errors
    /// Outer: [`StoreError::Database`]. Inner: the replica that differs.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it registers nothing, or a replica whose lease ends.
    pub async fn add_replica(&self, new: &NewReplica<'_>) -> Result<Result<Incarnation, DifferingReplica>, StoreError> {
        let mut transaction = self.write(About::Replicas).await?;
        let living = clocked!("SELECT id, zone, public_url FROM replicas WHERE expires_at > ", " ORDER BY id");
        for row in living.fetch_all(&mut transaction).await? {
            for (what, ours) in [("zone", new.zone), ("public_url", new.public_url)] {
                let theirs: String = row.get(what)?;
                if theirs != ours {
                    return Ok(Err(DifferingReplica { incarnation: Incarnation(row.get("id")?), what, theirs }));
                }
            }
        }
        let statement = clocked!(
            "INSERT INTO replicas (peer_url, version, zone, public_url, state, since, expires_at) \
             VALUES ($1, $2, $3, $4, 'serving', ",
            ", $5 + ",
            ") RETURNING id"
        );
        let statement = statement.bind(new.peer_url).bind(new.version).bind(new.zone).bind(new.public_url);
        let row = statement.bind(milliseconds(new.lease)).fetch_one(&mut transaction).await?;
        let incarnation = Incarnation(row.get("id")?);
        transaction.commit().await?;
        Ok(Ok(incarnation))
    }

    /// Renews a lease. One that was over is taken up again, unless it was given up: while the store is away for all, all
    /// leases end, and the store cannot tell that from a process that stood still. What others took over meanwhile stays theirs,
    /// because each thing that a replica owns names its owner in a row of its own; the caller finds out what that is.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn renew_replica(
        &self,
        incarnation: Incarnation,
        state: ReplicaState,
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        let live =
            clocked!("UPDATE replicas SET state = $1, expires_at = $2 + ", " WHERE id = $3 AND expires_at > ", "");
        let live = live.bind(state.as_str()).bind(milliseconds(lease)).bind(incarnation.0);
        if live.execute(&self.writer).await? > 0 {
            return Ok(Renewal::Live);
        }
        // Others may have begun meanwhile with settings in which all have to agree.
        let over = clocked!(
            "UPDATE replicas SET state = $1, expires_at = $2 + ",
            " WHERE id = $3 AND expires_at > 0 AND NOT EXISTS (SELECT 1 FROM replicas AS other WHERE other.expires_at > ",
            " AND (other.zone <> replicas.zone OR other.public_url <> replicas.public_url))"
        );
        let over = over.bind(state.as_str()).bind(milliseconds(lease)).bind(incarnation.0);
        Ok(if over.execute(&self.writer).await? > 0 { Renewal::Revived } else { Renewal::Ended })
    }

    /// Returns the replicas that may be there, the oldest first: those that live, and those whose lease ended in the last hour
    /// without being given up. These may have lost the store alone, and serve their agents.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn known_replicas(&self) -> Result<Vec<StoredReplica>, StoreError> {
        let statement = clocked!(
            "SELECT replicas.*, expires_at - ",
            " AS lives_for, ",
            " - since AS age FROM replicas WHERE expires_at > 0 AND expires_at + $1 > ",
            " ORDER BY id"
        );
        statement.bind(milliseconds(HINT_TIME)).fetch_all(&self.readers).await?.iter().map(read).collect()
    }

    /// Returns the replicas that live, the oldest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn replicas(&self) -> Result<Vec<StoredReplica>, StoreError> {
        let statement = clocked!(
            "SELECT replicas.*, expires_at - ",
            " AS lives_for, ",
            " - since AS age FROM replicas WHERE expires_at > ",
            " ORDER BY id"
        );
        statement.fetch_all(&self.readers).await?.iter().map(read).collect()
    }

    /// Stores what a replica reports of itself. Returns the drain that the operator asks of it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn report_replica(
        &self,
        incarnation: Incarnation,
        report: &ReplicaReport,
    ) -> Result<Option<DrainRequest>, StoreError> {
        let statement: Statement<'_> = sql(
            "UPDATE replicas SET agents = $1, lanes_ended = $2, lanes_carried = $3 WHERE id = $4 RETURNING drain_asked",
        );
        let counts = [report.agents, report.lanes_ended, report.lanes_carried].map(signed);
        let statement = counts.into_iter().fold(statement, Statement::bind).bind(incarnation.0);
        let row = statement.fetch_optional(&self.writer).await?;
        Ok(row.map(|row| row.get("drain_asked")).transpose()?.and_then(DrainRequest::read))
    }

    /// Asks a replica to drain; it finds that with its next report. Returns `false` if there is none that lives with
    /// this number. What was asked before is not taken back.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn ask_to_drain(&self, replica: u64, request: DrainRequest) -> Result<bool, StoreError> {
        let statement = clocked!(
            "UPDATE replicas SET drain_asked = CASE WHEN drain_asked < $1 THEN $1 ELSE drain_asked END \
             WHERE id = $2 AND expires_at > ",
            ""
        );
        Ok(statement.bind(request.column()).bind(signed(replica)).execute(&self.writer).await? > 0)
    }

    /// Gives a lease up. Nothing of that process start counts from then on.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn end_replica(&self, incarnation: Incarnation) -> Result<(), StoreError> {
        let statement: Statement<'_> = sql("UPDATE replicas SET expires_at = 0 WHERE id = $1");
        statement.bind(incarnation.0).execute(&self.writer).await?;
        Ok(())
    }
}

fn read(row: &Row) -> Result<StoredReplica, StoreError> {
    let count = |column: &'static str| Ok::<_, StoreError>(unsigned(row.get(column)?));
    Ok(StoredReplica {
        incarnation: Incarnation(row.get("id")?),
        peer_url: row.get("peer_url")?,
        version: row.get("version")?,
        state: ReplicaState::parse(row.get("state")?)?,
        lives_for: Duration::from_millis(count("lives_for")?),
        age: Duration::from_millis(count("age")?),
        report: ReplicaReport {
            agents: count("agents")?,
            lanes_ended: count("lanes_ended")?,
            lanes_carried: count("lanes_carried")?,
        },
        drain: DrainRequest::read(row.get("drain_asked")?),
    })
}

pub(super) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::each::each;

    const LEASE: Duration = Duration::from_secs(15);

    fn new(peer_url: &str) -> NewReplica<'_> {
        NewReplica { peer_url, version: "1", zone: "z.test", public_url: "https://z.test", lease: LEASE }
    }

    #[tokio::test]
    async fn replica_lives_for_as_long_as_its_lease() {
        each(async |store| {
            let first = store.add_replica(&new("https://a:1")).await.unwrap().unwrap();
            let second = store.add_replica(&new("https://b:1")).await.unwrap().unwrap();
            assert!(second > first && first.get() > 0);
            let living = store.replicas().await.unwrap();
            assert_eq!(living.iter().map(|one| one.incarnation).collect::<Vec<_>>(), [first, second]);
            assert!(living.iter().all(|one| one.lives_for <= LEASE && one.lives_for > LEASE / 2), "{living:?}");
            let renewed =
                async |replica, lease| store.renew_replica(replica, ReplicaState::Draining, lease).await.unwrap();
            assert_eq!(renewed(first, LEASE).await, Renewal::Live);
            let living = store.replicas().await.unwrap();
            assert_eq!((living[0].state, &*living[0].peer_url), (ReplicaState::Draining, "https://a:1"));
            assert_eq!(renewed(first, Duration::ZERO).await, Renewal::Live);
            let known = async || {
                let known = store.known_replicas().await.unwrap();
                known.iter().map(|one| (one.incarnation, one.is_live())).collect::<Vec<_>>()
            };
            assert_eq!(known().await, [(first, false), (second, true)], "it may be there");
            assert_eq!(renewed(first, LEASE).await, Renewal::Revived);
            assert_eq!(renewed(first, LEASE).await, Renewal::Live);
            assert_eq!(known().await, [(first, true), (second, true)]);
            store.end_replica(first).await.unwrap();
            assert_eq!(known().await, [(second, true)], "it was given up");
            assert_eq!(renewed(first, LEASE).await, Renewal::Ended);
            store.end_replica(second).await.unwrap();
            assert_eq!(renewed(second, LEASE).await, Renewal::Ended);
            assert_eq!(store.replicas().await.unwrap(), []);
            assert!(store.add_replica(&new("https://a:1")).await.unwrap().unwrap() > second);
        })
        .await;
    }

    #[tokio::test]
    async fn report_is_stored_and_returns_the_drain_that_is_asked() {
        each(async |store| {
            let replica = store.add_replica(&new("https://a:1")).await.unwrap().unwrap();
            let report = ReplicaReport { agents: 3, lanes_ended: 2, lanes_carried: 1 };
            assert_eq!(store.report_replica(replica, &report).await.unwrap(), None);
            assert_eq!(store.replicas().await.unwrap()[0].report, report);
            for (asked, found) in [
                (DrainRequest::Finish, DrainRequest::Finish),
                (DrainRequest::Now, DrainRequest::Now),
                (DrainRequest::Finish, DrainRequest::Now),
            ] {
                assert!(store.ask_to_drain(replica.get(), asked).await.unwrap());
                assert_eq!(store.report_replica(replica, &report).await.unwrap(), Some(found));
                assert_eq!(store.replicas().await.unwrap()[0].drain, Some(found));
            }
            assert!(!store.ask_to_drain(replica.get() + 1, DrainRequest::Now).await.unwrap());
            store.end_replica(replica).await.unwrap();
            assert!(!store.ask_to_drain(replica.get(), DrainRequest::Now).await.unwrap(), "it does not live");
        })
        .await;
    }

    #[tokio::test]
    async fn replica_with_other_settings_is_refused_while_the_others_live() {
        each(async |store| {
            let first = store.add_replica(&new("https://a:1")).await.unwrap().unwrap();
            let other = NewReplica { zone: "other.test", ..new("https://b:1") };
            let differs = DifferingReplica { incarnation: first, what: "zone", theirs: "z.test".into() };
            assert_eq!(store.add_replica(&other).await.unwrap(), Err(differs));
            store.renew_replica(first, ReplicaState::Serving, Duration::ZERO).await.unwrap();
            assert!(store.add_replica(&other).await.unwrap().is_ok());
            let renewed = store.renew_replica(first, ReplicaState::Serving, LEASE).await.unwrap();
            assert_eq!(renewed, Renewal::Ended, "it would differ from one that lives");
        })
        .await;
    }
}
