//! Follows the events of an environment to their end: a line for each, on a terminal in one line that changes, and for
//! programs as JSON, one object to a line.

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::patience::{AGAIN_INTERVAL, Patience};
use crate::client::{ClientError, ClusterObject, EventSource, GatewayClient, ObjectError, shown};
use crate::{Console, Exit, Output};

/// Request that is followed. Sending it again changes nothing.
pub(super) struct FollowSource<'a> {
    pub(super) client: &'a GatewayClient,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

/// A request to follow, and how to report its outcome.
pub(super) struct Follow<'a> {
    pub(super) source: FollowSource<'a>,
    /// Name of the environment, for people.
    pub(super) name: &'a str,
    /// Words for its final state.
    pub(super) done: &'static str,
    /// The same, if objects were left in the cluster; these are listed after it.
    pub(super) done_but: &'static str,
    pub(super) timeout: Duration,
    pub(super) output: Output,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EnvironmentWait {
    why: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FollowProgress {
    object: ClusterObject,
    step: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Retrying {
    code: String,
    message: String,
    at: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FollowOutcome {
    outcome: String,
    code: Option<String>,
    message: Option<String>,
    errors: Vec<ObjectError>,
    left: Vec<Left>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Left {
    pub(super) object: String,
    finalizers: Vec<String>,
    pub(super) message: String,
}

impl Follow<'_> {
    /// Follows the request, and reports its outcome.
    pub(super) async fn run(&self, console: &mut Console) -> Exit {
        let began = Instant::now();
        let by = began + self.timeout;
        let mut patience = Patience::default();
        loop {
            let opened = tokio::time::timeout_at(by, self.open()).await;
            match opened {
                Err(_elapsed) => return self.too_late(console),
                Ok(Ok(mut events)) => {
                    patience.reached();
                    match tokio::time::timeout_at(by, self.listen(&mut events, began, console)).await {
                        Err(_elapsed) => return self.too_late(console),
                        Ok(Some(exit)) => return exit,
                        // A gateway that shuts down sends no outcome.
                        Ok(None) => self.tell(console, "the gateway broke off: asking again"),
                    }
                }
                Ok(Err(error)) if patience.lasts(&error, Instant::now()) => {
                    self.tell(console, &format!("{error}: trying again"));
                }
                Ok(Err(error)) => return self.refused(&error, console),
            }
            if tokio::time::timeout_at(by, tokio::time::sleep(AGAIN_INTERVAL)).await.is_err() {
                return self.too_late(console);
            }
        }
    }

    async fn open(&self) -> Result<EventSource, ClientError> {
        let FollowSource { client, method, path, body } = &self.source;
        client.listen(method.clone(), path, body.as_ref()).await
    }

    /// Reports events until the last one; `None` if that does not come.
    async fn listen(&self, events: &mut EventSource, began: Instant, console: &mut Console) -> Option<Exit> {
        loop {
            let event = events.next().await?;
            if self.output == Output::Json {
                let mut line = json!({"event": event.kind, "elapsed_seconds": began.elapsed().as_secs()});
                if let (Some(line), Ok(Value::Object(data))) = (line.as_object_mut(), serde_json::from_str(&event.data))
                {
                    line.extend(data);
                }
                // A reader that is gone ends nothing: the request has been made.
                console.data(line).unwrap_or_default();
            }
            let line = match event.kind.as_str() {
                "waiting" => format!("waiting: {}", shown(&read::<EnvironmentWait>(&event.data).why)),
                "object" => read::<FollowProgress>(&event.data).told(),
                "retrying" => read::<Retrying>(&event.data).told(),
                "done" => return Some(self.ended(&read(&event.data), began, console)),
                // An event of another version.
                _ => continue,
            };
            self.tell(console, &line);
        }
    }

    fn tell(&self, console: &mut Console, line: &str) {
        match self.output {
            Output::Text if console.is_attended() => console.status(format_args!("{}: {line}", self.name)),
            Output::Text => console.complain(format_args!("{}: {line}", self.name)),
            Output::Json => {}
        }
    }

    fn ended(&self, outcome: &FollowOutcome, began: Instant, console: &mut Console) -> Exit {
        let is_done = outcome.outcome == "completed";
        if self.output == Output::Text {
            let seconds = began.elapsed().as_secs();
            if is_done && outcome.left.is_empty() {
                console.complain(format_args!("{} {}, after {seconds} s", self.name, self.done));
            } else if is_done {
                let left: String = outcome.left.iter().map(|left| format!("\n  {}", left.told())).collect();
                console.complain(format_args!("{} {}, after {seconds} s:{left}", self.name, self.done_but));
            } else {
                console.complain(format_args!("{}: {}", self.name, outcome.why()));
            }
        }
        if is_done { Exit::Success } else { Exit::Failed }
    }

    fn refused(&self, error: &ClientError, console: &mut Console) -> Exit {
        if self.output == Output::Json {
            let line = json!({"event": "refused", "code": error.code(), "message": error.to_string()});
            console.data(line).unwrap_or_default();
        }
        console.complain_of(error);
        Exit::Failed
    }

    fn too_late(&self, console: &mut Console) -> Exit {
        if self.output == Output::Json {
            console.data(json!({"event": "timeout"})).unwrap_or_default();
        }
        console.complain(format_args!("{}: not within {:?}; the gateway goes on with it", self.name, self.timeout));
        Exit::Failed
    }
}

/// Reads the data of an event; from another version, the parts that are there.
fn read<T: DeserializeOwned + Default>(data: &str) -> T {
    serde_json::from_str(data).unwrap_or_default()
}

impl FollowProgress {
    fn told(&self) -> String {
        let more = if self.message.is_empty() { String::new() } else { format!(": {}", shown(&self.message)) };
        format!("{} {}{more}", self.object, shown(&self.step))
    }
}

impl Retrying {
    fn told(&self) -> String {
        format!("{} ({}); trying again at {}", shown(&self.message), shown(&self.code), shown(&self.at))
    }
}

impl Left {
    /// Writes the object, and the message about it.
    pub(super) fn told(&self) -> String {
        let more = if self.message.is_empty() { String::new() } else { format!(": {}", shown(&self.message)) };
        format!("{}{more}", shown(&self.object))
    }
}

impl FollowOutcome {
    /// Writes the reasons of the failure, each on a line.
    fn why(&self) -> String {
        let words = self.message.as_deref().unwrap_or("it failed");
        let mut why = format!("{} ({})", shown(words), shown(self.code.as_deref().unwrap_or("failed")));
        for error in &self.errors {
            why.push_str(&format!("\n  {error}"));
        }
        for Left { object, finalizers, message } in &self.left {
            why.push_str(&format!("\n  {} is still there", shown(object)));
            if !finalizers.is_empty() {
                why.push_str(&format!(", held by {}", shown(&finalizers.join(", "))));
            }
            if !message.is_empty() {
                why.push_str(&format!(": {}", shown(message)));
            }
        }
        why
    }
}
