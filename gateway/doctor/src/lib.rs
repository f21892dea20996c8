//! `gateway doctor`: looks at an installation from the machine that it runs on, and reports what is wrong.
//!
//! * `configuration`: the mistakes that `serve` would refuse, and those that it would warn of.
//! * `names`: DNS of the public host, the zone and `paths_url`.
//! * `certificates`: files of the configuration. What is served is looked at in the next two.
//! * `users`, `agents`: the way through the front to each listener: addresses, TLS, HTTP/2, trailers, upgrades, silence. `way` dials.
//! * `store`: the database, its schema, its clock, other replicas. `places`: disks.
//! * `issuer`: the identity provider, its clock, and this gateway's secret there.
//! * `process`: limits of the system, and the gateway that runs here, with its agents.
//!
//! Groups of checks run at the same time (`doctor::run`); judgements are in `doctor::judge`.

mod agents;
mod certificates;
mod configuration;
mod issuer;
mod names;
mod places;
mod process;
mod store;
mod users;
mod way;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use doctor::run::{Group, all};
use doctor::{Check, Report};

use gateway_auth::oidc::provider::Provider;
use gateway_cli::{Cli, Console, DoctorArgs, Exit, Output};
use gateway_config::Config;
use gateway_net::chain::{ClientTrust, NoTrust};
use gateway_store::wall_clock_ms;

/// Longest time of a group of checks.
const GROUP_TIME: Duration = Duration::from_secs(13);

/// Silence that a front has to bear, with `--slow`: above the half minute that some allow.
const SILENCE: Duration = Duration::from_secs(35);

/// Makes the identity provider of a configuration; the text says why it cannot.
pub type MakeProvider = fn(&Config) -> Result<Option<Provider>, String>;

/// An installation as it is looked at.
struct Installation {
    config: Config,
    args: DoctorArgs,
    env: BTreeMap<String, String>,
}

/// Runs `gateway doctor`.
pub async fn run_doctor(
    cli: &Cli,
    args: &DoctorArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    provider: MakeProvider,
) -> Exit {
    if let Some(file) = &args.ca_file
        && let Err(NoTrust::File(wrong)) = ClientTrust::new(Some(file))
    {
        console.complain_of(&wrong);
        return Exit::Usage;
    }
    let longest = GROUP_TIME + if args.slow { SILENCE } else { Duration::ZERO };
    console.hint(format_args!("This takes up to {} s.", longest.as_secs()));
    let report = match cli.load_config(env) {
        Ok(config) => look(Installation { config, args: args.clone(), env: env.clone() }, provider).await,
        Err(bad) => Report {
            checks: vec![
                configuration::unread(&bad),
                Check::skipped("all else", "the configuration says where to look, and cannot be read"),
            ],
        },
    };
    let written = match args.output {
        Output::Text => console.finish_with(report.text()),
        Output::Json => console.finish_with(format_args!("{:#}", report.json())),
    };
    if written != Exit::Success || report.is_good(args.strict) { written } else { Exit::Failed }
}

async fn look(installation: Installation, provider: MakeProvider) -> Report {
    let configured = configuration::look(&installation.config);
    let provider = provider(&installation.config);
    let slow = if installation.args.slow { SILENCE } else { Duration::ZERO };
    let shared = Arc::new(installation);
    let it = || shared.clone();
    let groups = vec![
        Group::new("names", GROUP_TIME, names::look(it())),
        Group::new("certificates", GROUP_TIME, certificates::look(it())),
        Group::new("public URL", GROUP_TIME + slow, users::look(it())),
        Group::new("URL for agents", GROUP_TIME, agents::look(it())),
        Group::new("database", GROUP_TIME, store::look(it())),
        Group::new("disks", GROUP_TIME, places::look(it())),
        Group::new("identity provider", GROUP_TIME, issuer::look(it(), provider)),
        Group::new("process", GROUP_TIME, process::look(it())),
    ];
    let mut report = all(groups).await;
    report.checks.insert(0, configured);
    report
}

/// Reads this machine's clock, in milliseconds since 1970.
fn now_ms() -> i64 {
    i64::try_from(wall_clock_ms()).unwrap_or(i64::MAX)
}
