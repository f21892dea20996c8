//! `gateway environment stop`.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::follow::{Follow, FollowSource};
use super::patience::patiently;
use super::speaker::Speaker;
use super::{Environment, find, no_such};
use crate::args::StopArgs;
use crate::client::{ClientError, shown};
use crate::place::complain;
use crate::{Console, Exit, Output};

pub(super) async fn stop(speaker: &Speaker, args: &StopArgs, console: &mut Console) -> Exit {
    if args.forget && matches!(speaker, Speaker::Job(_)) {
        console.complain("--forget is for operators: a job's environment is stopped, and what was made for it deleted");
        return Exit::Usage;
    }
    // All of these requests may be repeated, and are while the gateway is away.
    let by = Instant::now() + args.timeout;
    let found = patiently(by, tell(args, console), async || find(speaker, &args.which).await).await;
    let (environment, whole) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return nothing_there(speaker, args, console),
        Err(error) => return complain(&error, console),
    };
    if args.forget {
        return forget(speaker, args, by, &environment, whole, console).await;
    }
    let (client, state) = (speaker.client(), if args.begin { "stopping" } else { "stopped" });
    let path = format!("/environments/{}", environment.id);
    let asked = json!({"state": state});
    let changed = patiently(by, tell(args, console), async || client.patch::<Value>(&path, &asked).await).await;
    let changed = match changed {
        Ok(changed) => changed,
        Err(error) => return complain(&error, console),
    };
    let after: Environment = Environment::deserialize(&changed).unwrap_or_default();
    if args.begin || args.no_wait || !after.removal_due {
        let kept = !args.begin && !after.removal_due && !after.objects.is_empty();
        let more = if kept { "; what was made for it is kept, as its template says" } else { "" };
        return match args.output {
            Output::Text => {
                console.complain(format_args!("{} is {}{more}", shown(&after.name), shown(&after.state)));
                Exit::Success
            }
            Output::Json => console.finish_with(json!({"event": "state", "environment": changed})),
        };
    }
    // Follows the removal only: a job may have asked for the environment since, and its outcome is another matter.
    let source = FollowSource { client, method: Method::GET, path: format!("{path}/events?of=removal"), body: None };
    let name = shown(&environment.name);
    Follow {
        source,
        name: &name,
        done: "is stopped, and what was made for it is gone",
        done_but: "is stopped, and this was left in the cluster as not or no longer its own",
        timeout: args.timeout,
        output: args.output,
    }
    .run(console)
    .await
}

/// Has the gateway forget an environment, and reports what may be left of it.
async fn forget(
    speaker: &Speaker,
    args: &StopArgs,
    by: Instant,
    found: &Environment,
    whole: Value,
    console: &mut Console,
) -> Exit {
    let path = format!("/environments/{}?forget=true", found.id);
    let client = speaker.client();
    let forgotten = patiently(by, tell(args, console), async || client.delete_told::<Value>(&path).await).await;
    let whole = match forgotten {
        Ok(forgotten) => forgotten,
        // By this command, whose first answer was lost, or by another user.
        Err(error) if error.code() == Some("no_such_environment") => whole,
        Err(error) => return complain(&error, console),
    };
    if args.output == Output::Json {
        return console.finish_with(json!({"event": "forgotten", "environment": whole}));
    }
    let forgotten = Environment::deserialize(&whole).unwrap_or_default();
    let left: String = forgotten.objects.iter().map(|object| format!("\n  {object}")).collect();
    let more = if left.is_empty() { "" } else { "; in the cluster may be left:" };
    console.complain(format_args!("{} is forgotten{more}{left}", shown(&forgotten.name)));
    Exit::Success
}

/// Tells people that the gateway is asked again.
fn tell(args: &StopArgs, console: &mut Console) -> impl FnMut(&ClientError) {
    let name = args.which.environment.as_deref().unwrap_or("the job's environment");
    move |error| {
        if args.output == Output::Text {
            console.complain(format_args!("{}: {error}: trying again", shown(name)));
        }
    }
}

/// Ends a stop job well if there is nothing to stop; an operator has more likely mistyped a name.
fn nothing_there(speaker: &Speaker, args: &StopArgs, console: &mut Console) -> Exit {
    match (speaker, args.output) {
        (Speaker::Job(_), Output::Text) => {
            console.complain("nothing was ever made for this job's environment there");
            Exit::Success
        }
        (Speaker::Job(_), Output::Json) => console.finish_with(json!({"event": "state", "environment": null})),
        (Speaker::Operator(_), _) => no_such(console),
    }
}
