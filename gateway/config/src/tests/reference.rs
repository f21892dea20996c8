//! `docs/reference/configuration.md`, made of the keys: a key without a line there fails a test.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;

/// Where it is, from this crate's folder.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");

/// Set to write the file anew.
const UPDATE: &str = "UPDATE_REFERENCE";

/// A configuration with an entry in every list, whose keys have no other place.
const LISTS: &str = "\
[[auth.agents.kubernetes]]
issuer = 'https://a.example'
jwks_url = 'https://a.example/keys'
[[auth.agents.kubernetes.rules]]
namespace = 'n'
service_account = 's'
workspace = '{pod}'
[[auth.agents.ci]]
issuer = 'https://b.example'
[[auth.agents.ci.rules]]
workspace = 'w'
owner = 'o'
claims.NAME = 'x'
[ci.providers.gitlab]
kind = 'gitlab'
url = 'https://c.example'
project = 'p'
token_file = '/t'
[ci.providers.command]
kind = 'command'
program = 'p'
dir = '/d'
";

/// What each key means, in the order of the sections.
const MEANINGS: &[(&str, &str)] = &[
    (
        "zone",
        "The domain under which workspaces are: `PORT-NAME.ZONE`. In production one that is in the Public Suffix List or has nothing else under it.",
    ),
    (
        "public_url",
        "Where users reach the home page, sign-in and the API; better on another registrable domain than `zone`. Follows `listen.public` and `tls.public` unless it is set.",
    ),
    ("listen.public", "Users: browsers, and programs that use the API."),
    ("listen.agents", "Agents: what `workspace-agent run --gateway` dials."),
    ("listen.admin", "Health, readiness, metrics and live sessions, without a sign-in: keep it private."),
    (
        "listen.admin_hosts",
        "Names by which `listen.admin` is asked, beside addresses and `localhost`; commas between them. Requests for other names are answered 421: they may come from a page whose name was made to lead here.",
    ),
    (
        "listen.trusted_proxies",
        "Balancers in front of users and agents that say with the PROXY protocol for whom they connect. From these every connection has to.",
    ),
    ("listen.websocket_http2", "Lets WebSockets be opened on streams of HTTP/2 (RFC 8441)."),
    (
        "tls.public.cert",
        "Certificate of `listen.public`, leaf first, for the host of `public_url` and `*.ZONE`. Read again when it changes.",
    ),
    ("tls.public.key", "Its private key."),
    (
        "tls.public.certs_dir",
        "A folder with more: each `NAME.crt` or `NAME.pem` with its `NAME.key`, chosen by the name that is asked for.",
    ),
    ("tls.agents.cert", "Certificate of `listen.agents`. Read again when it changes."),
    ("tls.agents.key", "Its private key."),
    ("tls.agents.certs_dir", "A folder with more, as for `tls.public.certs_dir`."),
    ("tls.agents.client_ca", "Authorities whose client certificates prove who an agent is."),
    (
        "tls.acme.directory",
        "Has the gateway get its own certificates from this authority (RFC 8555), with the challenge `dns-01`.",
    ),
    ("tls.acme.email", "Whom the authority writes to."),
    ("tls.acme.names", "Names of the certificate; the host of `public_url` and `*.ZONE` unless set."),
    (
        "tls.acme.dns_hook",
        "A program that is called with `present` or `cleanup`, a name and a value, and sets or removes that TXT record.",
    ),
    ("tls.acme.folder", "Where account and certificate are kept."),
    ("tls.acme.ca_file", "Authority of the authority's own server, beside the system's."),
    ("tls.acme.accept_terms", "Says that the authority's terms of service were read and accepted."),
    (
        "store.url",
        "The database: one file with SQLite, or PostgreSQL 11 or newer (`sslmode`, `sslrootcert`, `sslcert`, `sslkey` and others behind `?`).",
    ),
    ("store.password_file", "Holds the password of PostgreSQL, if the URL does not."),
    (
        "store.key_file",
        "Holds the key that secrets in the database are sealed with; made at the first start. `gateway.key` beside the database's file, or beside this configuration for PostgreSQL, unless set. Back it up, and not with the database.",
    ),
    (
        "store.outage_max",
        "For how long the database may be away before users, tokens and agents that were known before are refused too; what was never looked up is refused at once.",
    ),
    (
        "store.name_hold",
        "How long the name of a workspace that is no more is held back for its owner: browsers keep what its pages stored.",
    ),
    (
        "auth.mode",
        "How users sign in: `dev` prints a link that works once, for one developer; `oidc` asks an OpenID Connect provider.",
    ),
    ("auth.session_idle", "A browser session without use ends after this."),
    (
        "auth.session_max",
        "A browser session ends after this, used or not; groups count as long after the sign-in that brought them.",
    ),
    (
        "auth.neighbour_ports",
        "Other listening ports of a workspace at which the first sign-in at one of them signs the browser in too, so that their \
         pages can talk to each other; each takes three redirects, and `0` turns it off, as where not every host has a name.",
    ),
    ("auth.agents.mtls.required", "Turns agents without a client certificate away in the handshake."),
    (
        "auth.agents.mtls.uri_prefix",
        "What the one URI of an agent's certificate begins with; the rest is its workspace. By default `spiffe://ZONE/workspace/`.",
    ),
    ("auth.oidc.issuer", "The provider, as its tokens spell it."),
    ("auth.oidc.client_id", "How the provider knows this gateway."),
    ("auth.oidc.client_secret", "What proves that; set it by its variable, never in this file."),
    ("auth.oidc.client_secret_file", "A file with that, one line. Neither for a public client."),
    (
        "auth.oidc.scopes",
        "What is asked for. Many providers tell groups only where a scope such as `groups` is asked for too.",
    ),
    ("auth.oidc.username_claim", "The claim with the user's name; one that people cannot change themselves."),
    ("auth.oidc.groups_claim", "The claim with the user's groups, a list; for shares with `group:NAME`."),
    ("auth.oidc.required_group", "Only its members may sign in."),
    (
        "auth.oidc.ca_file",
        "Authorities that vouch for the provider's server, beside the system's: for one with a certificate of your own authority.",
    ),
    ("log.level", "The least important lines that are written; `GATEWAY_LOG` says it more finely."),
    ("log.format", "The shape of a line."),
    ("audit.path", "The file of the audit log; without one its records are in the log, with the target `audit`."),
    ("audit.rotate_bytes", "A file that would grow beyond this is put aside first."),
    ("audit.keep", "Files put aside that are kept."),
    (
        "agents_dir",
        "The folder with the configurations of cluster agents: `NAME/config.yaml` and `NAME/environment_templates/`.",
    ),
    ("ci.enabled", "Lets workspaces be made in jobs of CI systems."),
    ("ci.agent_files", "Programs of the agent that jobs download from the gateway, one for each architecture."),
    ("ci.agents_url", "What agents in jobs dial, where that is not the public host on the port of `listen.agents`."),
    ("ci.ca_file", "Authorities that jobs are to trust to reach this gateway."),
    ("environments.issuer", "Whose jobs' `id_token`s count; without it, only operators may ask for environments."),
    ("environments.audience", "For whom those tokens are made."),
    ("environments.jwks_url", "Where the issuer publishes its keys, if not where it says itself."),
    ("environments.ca_file", "Authority of the issuer's server, beside the system's."),
    ("environments.operators", "Users who may do with every environment what they want."),
    ("environments.hook_token_file", "Holds what GitLab's system hook shows to tell of deleted projects."),
    ("environments.complete_max", "For so long it is tried to prepare an environment."),
    (
        "timeouts.tls_handshake",
        "For each of the two waits of a TLS handshake: for the client's hello, and for the rest.",
    ),
    ("timeouts.request_header", "From the first wait for a request's head to its last byte."),
    ("timeouts.request_body_idle", "A request's body without a byte, while its app has not answered."),
    ("timeouts.reader_stalled", "Sent bytes that a user's connection leaves unread."),
    ("timeouts.channel_open", "From opening a channel to the agent's answer; then `open_timeout`."),
    (
        "timeouts.response_header",
        "From the request to the head of the app's answer; then `response_timeout`. Raise it for apps that think for long before they answer.",
    ),
    ("timeouts.stream_idle", "A WebSocket or TCP stream without a byte either way."),
    ("timeouts.upstream_idle", "A kept connection to an app without a request."),
    ("timeouts.drain", "From the stop signal to closing what is still open."),
    ("timeouts.agent_hello", "From an agent's connection to its first message."),
    ("limits.connections", "Connections of users at a time. Near it, idle ones are closed for new ones."),
    (
        "limits.agent_connections_per_address",
        "Connections to `listen.agents` at once from one address that have no session yet.",
    ),
    (
        "limits.agent_connections_per_second_per_address",
        "New connections a second to `listen.agents` from one address; the rest wait for their turn.",
    ),
    ("limits.connections_per_address", "Those of one address on which nobody has signed in."),
    (
        "limits.connections_per_second_per_address",
        "New connections of one address in a second; faster ones wait, and are then refused.",
    ),
    ("limits.handshakes", "TLS handshakes at a time."),
    ("limits.handshakes_per_address", "Those of one address."),
    ("limits.failed_sign_ins_per_minute", "Tokens, cookies and codes of one address in a minute that are not good."),
    ("limits.header_bytes", "The head of a request."),
    ("limits.headers", "Fields of a request."),
    ("limits.requests_per_workspace", "Requests and streams in flight to one workspace."),
    ("limits.requests_per_port", "Those to one port of a workspace."),
    ("limits.requests_per_user", "Those of one user."),
    ("limits.requests_per_second_per_user", "Requests of one user in a second, and four times as many at once."),
    ("limits.requests_per_address", "Requests and streams in flight of one address without a user: at public ports."),
    ("limits.requests_per_second_per_address", "Requests of one address in a second without a user."),
    ("limits.http2_streams", "HTTP/2 streams of one connection of a user."),
    ("limits.http2_resets_per_second", "Those that may end with a reset in a second."),
    ("limits.external_workspaces_per_user", "External workspaces that one user may have made without the operator."),
    ("limits.sessions", "Sessions of agents at a time."),
    (
        "limits.sessions_per_second",
        "New ones in a second; faster ones wait, and beyond some seconds are told when to come back.",
    ),
    ("tunnel.window_initial", "A new channel's window."),
    ("tunnel.window_max", "The widest window that a channel can grow to."),
    ("tunnel.session_budget", "Sum of the windows of one session."),
    ("tunnel.owner_budget", "Sum of those of all workspaces of one owner."),
    ("tunnel.replica_budget", "Sum of those of the process: what its memory for traffic is bounded by."),
    ("tunnel.channels_per_session", "Channels of one session at a time."),
    ("tunnel.keepalive_interval", "Silence after which the other side is asked for a sign of life."),
    ("tunnel.keepalive_timeout", "How long that sign may take."),
    (
        "tunnel.resume_grace",
        "How long a session whose link broke is kept, with all its streams; `0s` ends it with its link.",
    ),
    ("tunnel.lanes_max", "Links that one session may have at once (`workspace-agent run --lanes`)."),
    ("auth.agents.kubernetes[].issuer", "`iss` of the tokens, character by character."),
    ("auth.agents.kubernetes[].audience", "`aud` of the tokens; `public_url` unless set."),
    (
        "auth.agents.kubernetes[].jwks_url",
        "Where the cluster publishes its keys: signatures are checked here. One of this and `api_server` is needed.",
    ),
    ("auth.agents.kubernetes[].api_server", "Where to ask whether a token counts and its pod is there (TokenReview)."),
    ("auth.agents.kubernetes[].ca_file", "Authority of the cluster's servers, instead of the system's."),
    (
        "auth.agents.kubernetes[].token_file",
        "Holds the token with which the gateway asks; read again for each question.",
    ),
    ("auth.agents.kubernetes[].recheck", "How often a live session is asked about."),
    ("auth.agents.kubernetes[].rules[].namespace", "A namespace, or the beginning of some and a star."),
    ("auth.agents.kubernetes[].rules[].service_account", "The service account."),
    ("auth.agents.kubernetes[].rules[].workspace", "The workspace, of `{namespace}`, `{pod}` and `{service_account}`."),
    ("auth.agents.ci[].issuer", "`iss` of the tokens."),
    ("auth.agents.ci[].audience", "`aud` of the tokens; `public_url` unless set."),
    ("auth.agents.ci[].jwks_url", "Where the issuer publishes its keys, if not where it says itself."),
    ("auth.agents.ci[].ca_file", "Authority of its servers, instead of the system's."),
    ("auth.agents.ci[].session_max", "How long after its first use a job's session may last."),
    ("auth.agents.ci[].once_per", "Claims that together name what may be used once; `jti`, or the job, unless set."),
    ("auth.agents.ci[].rules[].claims.NAME", "What the claim `NAME` has to be, exactly. At least one."),
    ("auth.agents.ci[].rules[].workspace", "The workspace, of claims."),
    ("auth.agents.ci[].rules[].owner", "Whose it has to be, or becomes."),
    ("auth.agents.ci[].rules[].create", "Makes the workspace if there is none."),
    ("ci.providers.NAME.kind", "Which system it is."),
    ("ci.providers.NAME.tags", "Runners of workspaces that name none."),
    ("ci.providers.NAME.allowed_tags", "Runners that workspaces may name."),
    ("ci.providers.NAME.job_timeout", "After how long the system ends a job."),
    ("ci.providers.NAME.save_max", "How long a job may take to save its files."),
    ("ci.providers.NAME.inherit_variables", "Variables of the system that stay in a workspace's environment."),
    ("ci.providers.NAME.editor", "Where the editor comes from."),
    ("ci.providers.NAME.editor_archive_url", "With `archive`: from there."),
    ("ci.providers.NAME.editor_archive_sha256", "With `archive`: what it has to be."),
    ("ci.providers.NAME.quota", "Workspaces that there may be."),
    ("ci.providers.NAME.quota_per_user", "Those of one owner."),
    (
        "ci.providers.NAME.active_max",
        "How long a workspace runs after its owner last asked for it; then it is stopped.",
    ),
    ("ci.providers.NAME.stopped_max", "How long one is kept after it was asked to stop; then it is terminated."),
    ("ci.providers.NAME.age_max", "How old one becomes; then it is terminated."),
    ("ci.providers.NAME.url", "`gitlab`: its address, without `/api/v4`."),
    ("ci.providers.NAME.project", "`gitlab`: the project whose pipelines workspaces are, its number or path."),
    ("ci.providers.NAME.ref", "`gitlab`: the branch or tag that pipelines are made for."),
    (
        "ci.providers.NAME.token_file",
        "`gitlab`: holds the token with which it is asked, with the scope `api`; read for each question.",
    ),
    ("ci.providers.NAME.token", "`gitlab`: which kind of token that is."),
    ("ci.providers.NAME.ca_file", "`gitlab`: authority of its servers, beside the system's."),
    ("ci.providers.NAME.issuer", "`gitlab`: `iss` of its jobs' tokens; its address unless set."),
    ("ci.providers.NAME.audience", "`gitlab`: `aud` of its jobs' tokens; `public_url` unless set."),
    ("ci.providers.NAME.jwks_url", "`gitlab`: where it publishes its keys, if not where the issuer says."),
    ("ci.providers.NAME.program", "`command`: the program and what it is called with."),
    ("ci.providers.NAME.dir", "`command`: where each workspace gets a folder."),
    ("ci.providers.NAME.environment", "`command`: variables of the gateway that the program gets by name."),
    (
        "ci.providers.NAME.isolates_jobs",
        "`command`: says that the program keeps jobs away from the gateway's files and account, and from each other. Needed with `auth.mode = \"oidc\"`.",
    ),
];

/// One key.
struct Known {
    default: Option<String>,
    accepted: &'static str,
}

/// Returns the key as the reference has it: numbers of entries and names of providers stand for any.
fn general(key: &str) -> String {
    let key = key.replace("[0]", "[]");
    key.replace("ci.providers.gitlab.", "ci.providers.NAME.").replace("ci.providers.command.", "ci.providers.NAME.")
}

fn known() -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    let lists = load(LISTS, &[]).unwrap();
    for row in Config::default().effective().iter().chain(lists.effective()) {
        // What the sample had to say is no default.
        let default = row.value.clone().filter(|_| row.origin == Origin::Default);
        known.entry(general(&row.key)).or_insert(Known { default, accepted: row.accepted });
    }
    known
}

fn reference() -> String {
    let known = known();
    let mut text = "# Configuration\n\n\
        All keys of `gateway.toml`. This page is made of the keys themselves (`UPDATE_REFERENCE=1 cargo test -p gateway-config --lib \
        reference`).\n\n\
        Values come from defaults, the file, `GATEWAY_…` variables and flags; the later wins. The variable of `listen.public` is \
        `GATEWAY_LISTEN__PUBLIC`; lists (`[[…]]`) are set in the file only. Values that are not numbers or `true` and `false` \
        are TOML strings. Relative paths in the file start at the file's folder, and so do defaults where there is a file; those \
        of variables and flags start at the working directory. `gateway config show` prints every key with its value and where \
        that comes from, `gateway config check` opens what is named and tells all that is wrong at once.\n"
        .to_owned();
    let mut section = None;
    for (key, meaning) in MEANINGS {
        let (of, name) = key.rsplit_once('.').unwrap_or(("", key));
        let Some(Known { default, accepted }) = known.get(*key) else { continue };
        if section != Some(of) {
            let title = match of {
                "" => "Top level".to_owned(),
                of if of.ends_with("[]") => format!("`[[{}]]`", of.replace("[]", "")),
                of => format!("`[{}]`", of.replace("[]", "")),
            };
            write!(text, "\n## {title}\n\n| key | default | accepted | |\n| --- | --- | --- | --- |\n").unwrap();
            section = Some(of);
        }
        let default = default.as_deref().map(|value| format!("`{value}`")).unwrap_or_default();
        let default = if default == "``" { "none".to_owned() } else { default };
        let cell = |text: &str| text.replace('|', "\\|");
        writeln!(text, "| `{name}` | {default} | {} | {} |", cell(accepted), cell(meaning)).unwrap();
    }
    text
}

#[test]
fn each_key_has_its_meaning_in_the_reference_and_nothing_else_has() {
    let known: BTreeSet<String> = known().into_keys().collect();
    let told: BTreeSet<String> = MEANINGS.iter().map(|(key, _)| (*key).to_owned()).collect();
    assert_eq!(told.len(), MEANINGS.len(), "a key is there twice");
    let missing: Vec<_> = known.difference(&told).collect();
    assert!(missing.is_empty(), "say in MEANINGS what these mean: {missing:?}");
    let gone: Vec<_> = told.difference(&known).collect();
    assert!(gone.is_empty(), "there are no such keys any more: {gone:?}");
}

#[test]
fn reference_of_the_configuration_is_current() {
    let expected = reference();
    if std::env::var_os(UPDATE).is_some() {
        fs::write(PATH, &expected).unwrap();
    }
    let present = fs::read_to_string(PATH).unwrap_or_default();
    assert!(present == expected, "docs/reference/configuration.md is not current: {UPDATE}=1 writes it anew");
}
