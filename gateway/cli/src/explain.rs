//! `gateway explain`: what became of a request that failed, by the trace id of its answer.

use std::collections::BTreeMap;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::client::{ClientError, GatewayClient, shown};
use super::credentials::Remote;
use super::place::{complain, connect};
use super::{Console, Exit, Output};

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  gateway explain 2b1c5f0a9d3e4c718be23f4a5d6c7e80
  gateway explain 2b1c5f0a9d3e4c718be23f4a5d6c7e80 -o json

The trace id is on the page of a failure, in the header gateway-trace of each answer that the gateway makes itself, and in its log. \
All replicas are asked; each remembers its last 10,000 failures for 24 hours. A failure is explained to the user who asked, to the \
owner of the workspace, and to operators.";

/// Flags of `gateway explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct ExplainArgs {
    /// Trace id of the answer.
    #[arg(value_name = "TRACE")]
    pub trace: String,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Deserialize)]
struct FailedRequest {
    at: String,
    code: String,
    detail: Option<String>,
    side: String,
    what: String,
    to_do: String,
    status: u16,
    took_milliseconds: u64,
    user: Option<String>,
    workspace: Option<String>,
    port: Option<u16>,
    address: Option<String>,
}

/// Runs `gateway explain`.
pub async fn run_explain(args: &ExplainArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let (client, _) = match connect(&args.remote, env, console) {
        Ok(connected) => connected,
        Err(exit) => return exit,
    };
    explain(&client, args, console).await.unwrap_or_else(|error| complain(&error, console))
}

async fn explain(client: &GatewayClient, args: &ExplainArgs, console: &mut Console) -> Result<Exit, ClientError> {
    // Any other text would be another path.
    let is_trace = !args.trace.is_empty() && args.trace.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_trace {
        console.complain("a trace id has 32 hexadecimal digits, as in the header gateway-trace");
        return Ok(Exit::Usage);
    }
    let path = format!("/failures/{}", args.trace.to_ascii_lowercase());
    let whole: Value = match client.get(&path).await {
        Err(error) if error.code() == Some("not_found") => {
            console.complain(
                "no replica knows a failure of this trace id that you may know of: it may be older than 24 hours, or not be yours",
            );
            return Ok(Exit::Failed);
        }
        whole => whole?,
    };
    let Ok(failed) = FailedRequest::deserialize(&whole) else {
        return Ok(console.finish_with(format_args!("{whole:#}")));
    };
    match args.output {
        Output::Json => Ok(console.finish_with(format_args!("{whole:#}"))),
        Output::Text => {
            let line = |(name, text): (&str, String)| format!("{name:<10} {text}\n");
            Ok(console.finish_with(failed.rows().into_iter().map(line).collect::<String>().trim_end()))
        }
    }
}

impl FailedRequest {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let dash = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), shown);
        let side = match self.side.as_str() {
            "app" => "the app behind the port",
            "agent" => "the workspace or its agent",
            "way" => "the way between gateway and agent",
            "replica" => "the gateway itself",
            "policy" => "a rule on who may do what",
            "limit" => "a limit that is reached",
            "client" => "the client's request",
            other => other,
        };
        let code = match &self.detail {
            Some(detail) => format!("{} ({})", shown(&self.code), shown(detail)),
            None => shown(&self.code),
        };
        let target = match (&self.workspace, self.port) {
            (Some(workspace), Some(port)) => format!("{}, port {port}", shown(workspace)),
            (Some(workspace), None) => shown(workspace),
            (None, _) => "the gateway's own pages or API".to_owned(),
        };
        vec![
            ("what", shown(&self.what)),
            ("side", shown(side)),
            ("to do", shown(&self.to_do)),
            ("code", code),
            ("status", self.status.to_string()),
            ("when", shown(&self.at)),
            ("after", format!("{} ms", self.took_milliseconds)),
            ("asked for", target),
            ("user", dash(&self.user)),
            ("from", dash(&self.address)),
        ]
    }
}
