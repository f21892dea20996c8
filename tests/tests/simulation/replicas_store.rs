//! The database's host: SQLite behind simulated TCP, with a clock of its own. Replicas reach it with the product's store,
//! statement by statement. What they write about sessions is checked as it is written.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_store::remote::{
    RemoteAnswer, RemoteConnection, RemoteDatabase, RemoteFuture, RemoteServer, RemoteSession, RemoteWork,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turmoil::net::TcpStream;

use crate::replicas_host::{EPOCH_MS, Fleet};
use crate::shared::{now, serve_each};

/// The database's host.
pub(crate) const STORE: &str = "store";

const PORT: u16 = 5432;

/// Longest pause of a client in a transaction, as a server is told to allow: its locks stop the others.
const IDLE_IN_TRANSACTION: Duration = Duration::from_millis(500);

/// Time for which the places of a replica are kept after its lease has ended.
const KEPT_MS: i64 = 3_600_000;

/// A place of sessions, as a row has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlaceRow {
    generation: i64,
    owner: Option<i64>,
    instance: i64,
}

type PlaceRows = BTreeMap<(i64, i64), PlaceRow>;

/// The database, and what is on its way to and from it.
pub(crate) struct Database {
    pub(crate) server: RemoteServer,
    mail: Mutex<Mail>,
    /// Held by the one client that works. A transaction has it until its end.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The places, as they were committed last.
    rows: Mutex<PlaceRows>,
    /// Look-ups of places, by host.
    lookups: Mutex<BTreeMap<String, u64>>,
    /// Time that each statement takes.
    pub(crate) pause: Mutex<Duration>,
    /// What its clock is ahead.
    pub(crate) ahead: Mutex<Duration>,
}

/// Messages by their numbers; only the numbers travel.
#[derive(Default)]
struct Mail {
    next: u64,
    works: HashMap<u64, RemoteWork>,
    answers: HashMap<u64, RemoteAnswer>,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self {
            server: RemoteServer::new(),
            mail: Mutex::default(),
            turn: Arc::default(),
            rows: Mutex::default(),
            lookups: Mutex::default(),
            pause: Mutex::default(),
            ahead: Mutex::default(),
        }
    }

    /// Returns how many look-ups of places a host has made.
    pub(crate) fn lookups(&self, host: &str) -> u64 {
        self.lookups.lock().unwrap().get(host).copied().unwrap_or_default()
    }

    /// Takes what the database has now for what it had before: a backup was restored.
    pub(crate) fn forget_rows(&self) {
        *self.rows.lock().unwrap() = self.places();
    }

    fn places(&self) -> PlaceRows {
        let text = "SELECT kind, subject, generation, owner, instance FROM sessions";
        let rows = self.server.numbers(&RemoteSession::default(), text).expect("the database");
        let read = |row: Vec<Option<i64>>| {
            let number = |column: usize| row[column].expect("a number");
            ((number(0), number(1)), PlaceRow { generation: number(2), owner: row[3], instance: number(4) })
        };
        rows.into_iter().map(read).collect()
    }

    /// Returns the generation and the owner of a place.
    pub(crate) fn place(&self, subject: i64) -> Option<(i64, Option<i64>)> {
        self.rows.lock().unwrap().get(&(1, subject)).map(|row| (row.generation, row.owner))
    }

    /// Returns how many places have an owner.
    pub(crate) fn owned(&self) -> usize {
        self.rows.lock().unwrap().values().filter(|row| row.owner.is_some()).count()
    }

    fn floor(&self) -> i64 {
        let rows = self.server.numbers(&RemoteSession::default(), "SELECT generation FROM session_floor");
        rows.expect("the database")[0][0].expect("a number")
    }

    /// Returns the end of a replica's lease; 0 if that was given up.
    fn lease_until(&self, replica: i64) -> Option<i64> {
        let rows = self.server.numbers(&RemoteSession::default(), "SELECT id, expires_at FROM replicas");
        rows.expect("the database").iter().find(|row| row[0] == Some(replica)).and_then(|row| row[1])
    }

    fn now_ms(&self) -> i64 {
        let ahead = self.ahead.lock().unwrap().as_millis();
        i64::try_from(u128::from(EPOCH_MS) + now().as_millis() + ahead).expect("64 bits")
    }

    /// Checks what a host has written about sessions: their generations only grow, a place is given back by its owner alone
    /// and only once the session has ended, and a claim is for the claimant.
    fn check(&self, fleet: &Fleet, host: &str) {
        let (mut rows, after) = (self.rows.lock().unwrap(), self.places());
        let by = fleet.incarnation_of(host);
        for (key, before) in rows.iter() {
            let Some(now) = after.get(key) else {
                assert!(self.floor() >= before.generation, "{host} removes {key:?} {before:?}: the floor is below");
                let lease = before.owner.map(|owner| self.lease_until(owner).unwrap_or_default());
                let is_free = lease.is_none_or(|until| until == 0 || until + KEPT_MS <= self.now_ms());
                assert!(is_free, "{host} removes {key:?} {before:?} of a replica that may be there");
                continue;
            };
            if now == before {
                continue;
            }
            match now.owner {
                None => {
                    assert_eq!(before.owner, by, "{host} gives up {key:?} of another: {before:?}");
                    assert_eq!(now.generation, before.generation, "{host} gives up {key:?}");
                    let is_live = fleet.has_live(host, key.1, before.generation);
                    assert!(!is_live, "{host} gives up {key:?} {before:?}, whose session lives");
                }
                Some(_) => {
                    assert!(now.generation > before.generation, "{host} claims {key:?}: {before:?} {now:?}");
                    assert_eq!(now.owner, by, "{host} claims {key:?} for another");
                }
            }
        }
        for (key, now) in after.iter().filter(|(key, _)| !rows.contains_key(key)) {
            assert!(now.owner == by && now.generation > self.floor(), "{host} claims {key:?}: {now:?}");
        }
        *rows = after;
    }
}

/// The process: takes clients.
pub(crate) async fn run(fleet: Arc<Fleet>) -> turmoil::Result {
    serve_each(PORT, |stream, peer| {
        let host = turmoil::reverse_lookup(peer.ip()).expect("a host");
        serve(fleet.clone(), host, stream)
    })
    .await
}

/// One client's connection, whose transaction ends with it.
struct ServedSession(Arc<Fleet>, RemoteSession);

impl Drop for ServedSession {
    fn drop(&mut self) {
        self.0.database.server.end(&self.1).expect("a rollback");
    }
}

async fn serve(fleet: Arc<Fleet>, host: String, mut stream: TcpStream) {
    let database = &fleet.database;
    let mut turn = None;
    let session = ServedSession(fleet.clone(), RemoteSession::default());
    loop {
        let number = match &turn {
            None => stream.read_u64().await,
            Some(_) => match tokio::time::timeout(IDLE_IN_TRANSACTION, stream.read_u64()).await {
                Ok(number) => number,
                Err(_elapsed) => return,
            },
        };
        let Ok(number) = number else { return };
        let work = database.mail.lock().unwrap().works.remove(&number).expect("it was sent");
        let held = match turn.take() {
            Some(held) => held,
            None => database.turn.clone().lock_owned().await,
        };
        let pause = *database.pause.lock().unwrap();
        tokio::time::sleep(pause).await;
        let (goes_on, writes) = match &work {
            RemoteWork::Begin => (true, false),
            RemoteWork::Commit => (false, true),
            RemoteWork::Execute(statement) | RemoteWork::Fetch(statement) => {
                let text = statement.text();
                if text.contains("JOIN sessions ON") {
                    *database.lookups.lock().unwrap().entry(host.clone()).or_default() += 1;
                }
                (false, !text.starts_with("SELECT") && text.contains("sessions"))
            }
        };
        let goes_on = goes_on || (session.1.is_in_transaction() && !matches!(work, RemoteWork::Commit));
        let answer = database.server.run(&session.1, work, database.now_ms());
        if goes_on {
            turn = Some(held);
        } else if writes {
            database.check(&fleet, &host);
        }
        database.mail.lock().unwrap().answers.insert(number, answer);
        if stream.write_u64(number).await.is_err() {
            return;
        }
    }
}

/// A host's way to the database.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) Arc<Fleet>);

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

struct ClientConnection {
    fleet: Arc<Fleet>,
    stream: TcpStream,
}

impl RemoteDatabase for Client {
    fn connect(&self) -> RemoteFuture<'_, Box<dyn RemoteConnection>> {
        Box::pin(async {
            let stream = TcpStream::connect((STORE, PORT)).await?;
            Ok(Box::new(ClientConnection { fleet: self.0.clone(), stream }) as Box<dyn RemoteConnection>)
        })
    }
}

impl RemoteConnection for ClientConnection {
    fn run(&mut self, work: RemoteWork) -> RemoteFuture<'_, RemoteAnswer> {
        Box::pin(async {
            let mail = &self.fleet.database.mail;
            let number = {
                let mut mail = mail.lock().unwrap();
                mail.next += 1;
                let number = mail.next;
                mail.works.insert(number, work);
                number
            };
            self.stream.write_u64(number).await?;
            let answered = self.stream.read_u64().await?;
            assert_eq!(answered, number);
            mail.lock().unwrap().answers.remove(&number).ok_or_else(|| io::ErrorKind::InvalidData.into())
        })
    }
}
