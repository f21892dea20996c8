//! A GitLab for tests: it writes down what it is asked, checks who asks, answers as the documentation of the REST API says, and
//! fails in every way that a server can when it is told to. No real GitLab: what the documentation does not say, it does not know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use gateway_types::{Endpoint, UnixSeconds};

pub(crate) const TOKEN: &str = "glpat-0123456789abcdefghij";

/// A request that came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

/// What happens to the next request instead of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// This answer.
    Answer(u16, &'static [(&'static str, &'static str)], String),
    /// Nothing, for ever.
    Hang,
    /// Nothing, for ever; and it is done when [`Server::land`] is told that it is time.
    Later(UnixSeconds),
    /// Half of an answer.
    Truncated,
    /// An answer without end.
    Huge,
    /// It is done, and then the connection breaks.
    LostAnswer,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) id: u64,
    pub(crate) status: &'static str,
    pub(crate) created_at: String,
    pub(crate) variables: Value,
    pub(crate) child: Option<u64>,
    pub(crate) jobs: Vec<Value>,
    pub(crate) cancels: u32,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) seen: Vec<Seen>,
    pub(crate) trouble: VecDeque<Trouble>,
    pub(crate) pipelines: Vec<Pipeline>,
    pub(crate) traces: BTreeMap<u64, Vec<u8>>,
    pub(crate) knows_ranges: bool,
    pub(crate) token_header: &'static str,
    /// Its clock, where it is not the machine's.
    pub(crate) now: Option<UnixSeconds>,
    late: Vec<(UnixSeconds, Seen)>,
}

pub(crate) struct Server {
    pub(crate) at: Endpoint,
    pub(crate) state: Arc<Mutex<State>>,
    /// Told when a request hangs.
    pub(crate) hangs: Arc<Notify>,
    _task: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}/gitlab", listener.local_addr().unwrap()).parse().unwrap();
        let state = Arc::new(Mutex::new(State { token_header: "private-token", ..State::default() }));
        let hangs = Arc::new(Notify::new());
        let mut task = JoinSet::new();
        let (shared, told) = (state.clone(), hangs.clone());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, hangs) = (shared.clone(), told.clone());
                connections.spawn(async move { serve(stream, &state, &hangs).await });
            }
        });
        Self { at, state, hangs, _task: task }
    }

    /// Adds a pipeline.
    pub(crate) fn add(&self, id: u64, status: &'static str, created_at: &str, variables: Value) {
        let (created_at, jobs) = (created_at.to_owned(), Vec::new());
        self.state.lock().pipelines.push(Pipeline { id, status, created_at, variables, child: None, jobs, cancels: 0 });
    }

    /// Changes a pipeline.
    pub(crate) fn change(&self, id: u64, change: impl FnOnce(&mut Pipeline)) {
        let mut state = self.state.lock();
        change(state.pipelines.iter_mut().find(|pipeline| pipeline.id == id).unwrap());
    }

    /// Does what came earlier and lands now.
    pub(crate) fn land(&self, now: UnixSeconds) {
        let mut state = self.state.lock();
        let (due, late): (Vec<_>, Vec<_>) = std::mem::take(&mut state.late).into_iter().partition(|(at, _)| *at <= now);
        state.late = late;
        for (_, seen) in due {
            state.answer(&seen);
        }
    }

    /// Waits until everything has been done that was sent before, also by clients that hung up since.
    pub(crate) async fn settled(&self) {
        for _ in 0..2 {
            let mut stream =
                TcpStream::connect((self.at.url().host_str().unwrap(), self.at.url().port().unwrap())).await.unwrap();
            stream.write_all(format!("GET {NOTHING} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        }
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.state.lock().trouble.push_back(trouble);
    }

    /// Returns `METHOD path` of what was asked since the last time, with the path below the project's.
    pub(crate) fn asked(&self) -> Vec<String> {
        let seen = std::mem::take(&mut self.state.lock().seen);
        seen.into_iter().map(|seen| format!("{} {}", seen.method, seen.path.replace(PROJECT, ""))).collect()
    }
}

/// A path that nobody asks for who wants something.
const NOTHING: &str = "/nothing";

pub(crate) const PROJECT: &str = "/gitlab/api/v4/projects/group%2Fproject";

async fn serve(mut stream: TcpStream, state: &Mutex<State>, hangs: &Notify) {
    let Some(seen) = read(&mut stream).await else { return };
    if seen.path == NOTHING {
        return;
    }
    let (trouble, answer) = {
        let mut state = state.lock();
        state.seen.push(seen.clone());
        let trouble = state.trouble.pop_front();
        if let Some(Trouble::Later(at)) = trouble {
            state.late.push((at, seen.clone()));
        }
        let is_done = matches!(trouble, None | Some(Trouble::LostAnswer));
        (trouble, if is_done { state.answer(&seen) } else { (500, Vec::new()) })
    };
    let bytes = match trouble {
        None => with_head(answer.0, &[], &answer.1),
        Some(Trouble::Answer(status, headers, body)) => with_head(status, headers, body.as_bytes()),
        Some(Trouble::Truncated) => b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"id\": 1, \"sta".to_vec(),
        Some(Trouble::Huge) => {
            let mut endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
            endless.resize(endless.len() + (2 << 20), b'[');
            endless
        }
        Some(Trouble::LostAnswer) => Vec::new(),
        Some(Trouble::Hang | Trouble::Later(_)) => {
            hangs.notify_one();
            std::future::pending().await
        }
    };
    // A client that has read enough hangs up.
    drop(stream.write_all(&bytes).await);
    drop(stream.shutdown().await);
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_bytes = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
    };
    let head = String::from_utf8(bytes[..head_bytes].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap().split(' ');
    let (method, path) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
    let headers: BTreeMap<String, String> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_bytes + 4 + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let body = serde_json::from_slice(&bytes[head_bytes + 4..]).unwrap_or(Value::Null);
    Some(Seen { method, path, headers, body })
}

fn with_head(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

impl State {
    /// Answers as the documentation says.
    fn answer(&mut self, seen: &Seen) -> (u16, Vec<u8>) {
        if seen.headers.get(self.token_header).map(String::as_str) != Some(TOKEN) {
            return said(401, &json!({"message": "401 Unauthorized"}));
        }
        let Some(below) = seen.path.strip_prefix(PROJECT) else {
            return said(404, &json!({"message": "404 Project Not Found"}));
        };
        let (path, query) = below.split_once('?').unwrap_or((below, ""));
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (seen.method.as_str(), parts.as_slice()) {
            ("GET", []) => said(200, &json!({"id": 7})),
            ("POST", ["pipeline"]) => self.create(&seen.body),
            ("GET", ["pipelines"]) => self.list(query),
            ("GET", ["jobs", id, "trace"]) => self.trace(id.parse().unwrap(), seen.headers.get("range")),
            (method, ["pipelines", id, rest @ ..]) => self.pipeline(method, id.parse().unwrap(), rest),
            _ => said(404, &json!({"error": "404 Not Found"})),
        }
    }

    fn create(&mut self, body: &Value) -> (u16, Vec<u8>) {
        if body["ref"] != "main" {
            return said(400, &json!({"message": {"base": ["Reference not found"]}}));
        }
        let id = 100 + u64::try_from(self.pipelines.len()).unwrap();
        let created_at = self.now.unwrap_or_else(gateway_store::wall_clock).to_string();
        let (variables, jobs) = (body["variables"].clone(), Vec::new());
        self.pipelines.push(Pipeline { id, status: "created", created_at, variables, child: None, jobs, cancels: 0 });
        said(201, &self.shown(id))
    }

    fn list(&self, query: &str) -> (u16, Vec<u8>) {
        let asked: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!((asked["source"].as_str(), asked["ref"].as_str()), ("api", "main"));
        assert_eq!((asked["order_by"].as_str(), asked["sort"].as_str()), ("id", "desc"));
        assert!(asked["updated_after"].ends_with('Z'), "{asked:?}");
        let (page, size): (usize, usize) = (asked["page"].parse().unwrap(), asked["per_page"].parse().unwrap());
        // Those that other pipelines started have another source.
        let children: BTreeSet<u64> = self.pipelines.iter().filter_map(|one| one.child).collect();
        let mut ids: Vec<u64> = self.pipelines.iter().map(|one| one.id).filter(|id| !children.contains(id)).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        let shown: Vec<Value> = ids.iter().skip((page - 1) * size).take(size).map(|id| self.shown(*id)).collect();
        said(200, &json!(shown))
    }

    fn pipeline(&mut self, method: &str, id: u64, rest: &[&str]) -> (u16, Vec<u8>) {
        let Some(pipeline) = self.pipelines.iter_mut().find(|pipeline| pipeline.id == id) else {
            return said(404, &json!({"message": "404 Not found"}));
        };
        match (method, rest) {
            ("GET", []) => said(200, &self.shown(id)),
            // Somebody else's, which the token may not see.
            ("GET", ["variables"]) if pipeline.variables.is_null() => said(403, &json!({"message": "403 Forbidden"})),
            ("GET", ["variables"]) => said(200, &pipeline.variables.clone()),
            ("GET", ["jobs"]) => said(200, &json!(pipeline.jobs)),
            ("GET", ["bridges"]) => {
                let child = pipeline.child.map(|child| self.shown(child));
                let other = json!({"id": 1, "name": "deploy", "status": "success", "downstream_pipeline": {"id": 666}});
                let bridge = json!({"id": 2, "name": "workspace", "status": "running", "downstream_pipeline": child});
                said(200, &json!([other, bridge]))
            }
            ("POST", ["cancel"]) => {
                pipeline.cancels += 1;
                said(200, &self.shown(id))
            }
            _ => said(404, &json!({"error": "404 Not Found"})),
        }
    }

    fn trace(&self, job: u64, range: Option<&String>) -> (u16, Vec<u8>) {
        let Some(trace) = self.traces.get(&job) else { return said(404, &json!({"message": "404 Not found"})) };
        let last = range.and_then(|range| range.strip_prefix("bytes=-")).map(|last| last.parse::<usize>().unwrap());
        match last {
            Some(last) if self.knows_ranges => (206, trace[trace.len().saturating_sub(last)..].to_vec()),
            _ => (200, trace.clone()),
        }
    }

    fn shown(&self, id: u64) -> Value {
        let pipeline = self.pipelines.iter().find(|pipeline| pipeline.id == id).unwrap();
        json!({
            "id": id, "iid": 1, "project_id": 7, "status": pipeline.status, "source": "api", "ref": "main",
            "created_at": pipeline.created_at, "updated_at": pipeline.created_at,
            "web_url": format!("https://gitlab.test/group/project/-/pipelines/{id}"),
        })
    }
}

fn said(status: u16, body: &Value) -> (u16, Vec<u8>) {
    (status, body.to_string().into_bytes())
}
