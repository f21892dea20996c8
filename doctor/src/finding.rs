//! Everything that can be found to be wrong, with the words for it. Pure.

use std::fmt;

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something works worse than it could, or will end to work.
    Warning,
}

impl Severity {
    /// Returns the severity as one lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Declares the findings: word, severity, what it is, why it matters, how to mend it.
macro_rules! findings {
    ($($variant:ident = $word:literal $severity:ident $what:literal why $why:literal mend $mend:literal)*) => {
        /// Kind of a finding. The words are stable: programs may rely on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingId {
            $(#[doc = $what] $variant,)*
        }

        impl FindingId {
            /// Every kind, in the order of the guide.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the word that names it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// Returns the usual severity.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity),* }
            }

            /// Returns in general what is wrong.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self { $(Self::$variant => $what),* }
            }

            /// Returns why it matters.
            #[must_use]
            pub fn why(self) -> &'static str {
                match self { $(Self::$variant => $why),* }
            }

            /// Returns how to mend it.
            #[must_use]
            pub fn mend(self) -> &'static str {
                match self { $(Self::$variant => $mend),* }
            }
        }
    };
}

findings! {
    ConfigInvalid = "config_invalid" Error
        "The configuration has a mistake."
        why "The program does not start with it."
        mend "Correct the key at the place that is named; `gateway config check` reads the configuration again."
    ConfigAdvice = "config_advice" Warning
        "The configuration works, and could be better."
        why "It is likely not what was meant."
        mend "Change the key, or leave it if it was meant so."
    DnsHostMissing = "dns_host_missing" Error
        "A host has no address."
        why "Neither users nor agents find the gateway by its name."
        mend "Add an A or AAAA record for the host, or correct its name."
    DnsWildcardMissing = "dns_wildcard_missing" Error
        "The zone has no wildcard record."
        why "Each port of a workspace has a host of its own below the zone, and browsers find none of them."
        mend "Add a wildcard record for the zone (*.ZONE) that leads where the public host leads."
    DnsWildcardElsewhere = "dns_wildcard_elsewhere" Error
        "Hosts below the zone lead to other addresses than the public host."
        why "Requests to workspaces arrive at another machine, which does not know them."
        mend "Let the wildcard record lead to the addresses of the public host, for example as a CNAME of it."
    CertificateExpired = "certificate_expired" Error
        "A certificate is not valid now."
        why "Browsers and agents refuse the connection."
        mend "Renew the certificate; the gateway reads changed files by itself. If it was just made, check the clock of this machine."
    CertificateExpiresSoon = "certificate_expires_soon" Warning
        "A certificate ends to be valid in less than 14 days."
        why "From then on browsers and agents refuse the connection, and a renewal should have come by now."
        mend "Renew the certificate, and find out why its renewal did not."
    CertificateWrongName = "certificate_wrong_name" Error
        "A certificate is not for the name that clients ask for."
        why "Browsers and agents refuse the connection."
        mend "Get a certificate for the public host and for *.ZONE (two names, or two certificates with tls.public.certs_dir), and for the host that agents dial."
    CertificateUntrusted = "certificate_untrusted" Error
        "No chain leads from a certificate to a trusted authority."
        why "Clients without the missing certificate refuse the connection."
        mend "Put the certificates of the intermediate authorities behind the first one into the same file. For an authority of your own, name it with --ca-file, here and at each agent."
    TlsFailed = "tls_failed" Error
        "The TLS handshake fails."
        why "No client gets a connection."
        mend "Read the reason beside it; the log of the front or of the gateway has the other side's view."
    TlsToPlainPort = "tls_to_plain_port" Error
        "An https URL leads to a port that does not speak TLS."
        why "Each handshake fails."
        mend "Begin the URL with http://, name the port that has TLS, or configure a certificate for this listener."
    PlainToTlsPort = "plain_to_tls_port" Error
        "An http URL leads to a port that speaks TLS."
        why "Each request fails."
        mend "Begin the URL with https://, or name the port without TLS."
    PublicUnreachable = "public_unreachable" Error
        "The gateway cannot be reached at its public URL."
        why "No user gets in."
        mend "Start the gateway or the front before it, open its port in the firewall, or correct public_url."
    PublicNotGateway = "public_not_gateway" Error
        "The public URL is answered by something else than the gateway."
        why "Users see that, and not their workspaces."
        mend "Let the front pass all requests for the public host and for *.ZONE on to listen.public, with the Host that the user asked for."
    AgentsUnreachable = "agents_unreachable" Error
        "The gateway cannot be reached at the URL for agents."
        why "No agent connects, so that no workspace can be reached."
        mend "Start the gateway or the front before it, open its port, or correct the URL (--gateway of agents, ci.agents_url, gateway_url of a cluster)."
    AgentsWrongListener = "agents_wrong_listener" Error
        "The URL for agents leads to the listener for users."
        why "Agents are refused there."
        mend "Name the port of listen.agents in the URL, or let the front pass it on to that port."
    AgentsNotGateway = "agents_not_gateway" Error
        "The URL for agents is answered by something else than a gateway for agents."
        why "Agents are not let in there."
        mend "Correct the URL, or let the front pass it on to listen.agents."
    FrontWithoutHttp2 = "front_without_http2" Error
        "HTTP/2 does not pass to the gateway's listener for agents."
        why "Agents speak gRPC, which needs HTTP/2 on the whole way. They fall back to a WebSocket if one passes, which is slower."
        mend "Let the front speak HTTP/2 on both sides: grpc_pass in nginx, `proto h2` at bind and server in HAProxy, protocol version gRPC or HTTP/2 at a cloud's balancer."
    FrontWithoutTrailers = "front_without_trailers" Error
        "The trailers of gRPC do not pass through the front."
        why "gRPC says in them how a call ended: without them calls of agents and of CI jobs count as broken."
        mend "Let the front treat this as gRPC (grpc_pass in nginx, protocol version gRPC at a cloud's balancer), or pass TCP on as it is."
    FrontWithoutWebsocket = "front_without_websocket" Error
        "Upgrades to a WebSocket do not pass through the front."
        why "Editors, notebooks, dev servers and the terminal in workspaces do not work."
        mend "Let the front pass Upgrade and Connection on: proxy_http_version 1.1 with both proxy_set_header in nginx, WebSocket support at a cloud's balancer."
    FrontCutsIdle = "front_cuts_idle" Error
        "The front cuts connections that are silent for a while."
        why "WebSockets and streams in which nothing happens for half a minute break: terminals, editors, events."
        mend "Raise the front's idle time to an hour: proxy_read_timeout and proxy_send_timeout in nginx, timeout client, server and tunnel in HAProxy, the idle timeout of a cloud's balancer."
    ClockOff = "clock_off" Error
        "The clock of this machine differs from another one."
        why "Tokens, certificates, leases of replicas and one-time codes are judged by time: sign-ins fail above a minute."
        mend "Let chrony or systemd-timesyncd set the clock, on both machines."
    StoreUnreachable = "store_unreachable" Error
        "The database cannot be opened."
        why "The gateway does not start without it, and changes nothing while it is away."
        mend "Start the database, open the way to it, or correct store.url and store.password_file."
    StoreSchemaOlder = "store_schema_older" Warning
        "The database lacks migrations of this version."
        why "The gateway that runs, if one does, is of an older version. This version brings the database up to date at its start."
        mend "Start this version with `gateway serve`; back the database up before."
    StoreSchemaNewer = "store_schema_newer" Error
        "The database was changed by a newer version."
        why "This version does not start on it."
        mend "Run the newer version, or restore a backup of the database from before."
    StoreSlow = "store_slow" Warning
        "The database answers slowly."
        why "Each sign-in, and each workspace that is opened first, waits for it several times."
        mend "Put the database into the same region as the gateway, and look at its load."
    DiskReadOnly = "disk_read_only" Error
        "A file system that the gateway writes to is read-only."
        why "Changes fail, and audit records are lost."
        mend "Mount it for writing (in a pod: a volume, since the root may be read-only), or name another place in the configuration. After a fault of the disk the system log has the reason."
    DiskFull = "disk_full" Error
        "A file system that the gateway writes to is full, or almost."
        why "Changes fail, and audit records are lost."
        mend "Free room, or give it a larger volume."
    DiskNotWritable = "disk_not_writable" Error
        "A place that the gateway writes to cannot be written."
        why "Changes fail, or the gateway does not start."
        mend "Make the folder, and let the gateway's user write there; run this command as that user."
    IssuerUnreachable = "issuer_unreachable" Error
        "The identity provider's description cannot be read."
        why "No user can sign in."
        mend "Start the provider, open the way to it, name its authority in auth.oidc.ca_file, or correct auth.oidc.issuer."
    IssuerSecretWrong = "issuer_secret_wrong" Error
        "The identity provider does not accept this gateway's client id and secret."
        why "Users sign in there and come back to a failure."
        mend "Copy the client's secret from the provider into auth.oidc.client_secret_file, and check auth.oidc.client_id."
    ProxyWantsPassword = "proxy_wants_password" Error
        "A proxy asks for a user and a password (407)."
        why "Nothing gets out through it."
        mend "Put USER:PASSWORD@ before the host in the variable that names the proxy, special characters as %XX, or exempt the host in NO_PROXY."
    ProxyFailed = "proxy_failed" Error
        "A proxy of the environment does not lead to its target."
        why "Nothing gets out through it."
        mend "Correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, exempt the host in NO_PROXY, or have the proxy's operator allow host and port."
    FilesLimitLow = "files_limit_low" Warning
        "Fewer open files are allowed than the configured limits may need."
        why "Each connection takes one. Above the limit connections wait in vain, though no limit of the gateway is reached."
        mend "Raise the hard limit (LimitNOFILE= of the unit, ulimit -Hn), or lower limits.connections and limits.sessions."
    SomaxconnLow = "somaxconn_low" Warning
        "The kernel queues few new connections."
        why "When many users or agents come at once, after a restart for example, connections are dropped and tried again seconds later."
        mend "Set net.core.somaxconn to 4096 or more with sysctl."
    VersionDiffers = "version_differs" Warning
        "Programs of different versions run."
        why "One version apart they work together; what is new works only where both sides know it."
        mend "Bring all to one version: restart the gateway after an upgrade, and the replicas one after the other."
    AgentsOld = "agents_old" Warning
        "Agents of another version are connected."
        why "A gateway serves agents of the version before its own; older ones may be refused after the next upgrade."
        mend "Restart the workspaces and cluster agents that are named with the agent of this version."
    TokenUnusable = "token_unusable" Error
        "The agent's credential cannot be used as it is."
        why "The agent has nothing to prove itself with."
        mend "Put one line with the token into the file (gateway token create --out FILE), readable for the agent's user."
    CredentialRefused = "credential_refused" Error
        "The gateway does not accept the agent's credential."
        why "The agent is not let in."
        mend "Make a new token for this workspace (gateway token create --workspace NAME), or correct the rule of auth.agents for it."
    PortNotListening = "port_not_listening" Warning
        "Nothing listens on a port that the agent exposes."
        why "Users who open it see port_closed."
        mend "Start the app, bind it to 127.0.0.1, [::1] or all addresses, or take the port out of --port."
    ClusterUnreachable = "cluster_unreachable" Error
        "The cluster's API server cannot be asked."
        why "The cluster agent can make nothing there."
        mend "Correct --kubeconfig, or run this as a pod of the cluster with its service account."
    ClusterRightsMissing = "cluster_rights_missing" Error
        "The cluster agent lacks rights in the cluster."
        why "Workspaces there do not start, or are not cleaned away."
        mend "Apply deploy/rbac/unique.yaml, or deploy/rbac/shared.yaml where all workspaces share one namespace, for the agent's service account."
    CheckUnfinished = "check_unfinished" Warning
        "A check did not end in its time."
        why "It is not known whether what it looks at is well."
        mend "Run the command again; if it stays so, a firewall that drops packets without an answer is likely."
}

impl fmt::Display for FindingId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Something that is wrong here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub id: FindingId,
    /// Its weight here.
    pub severity: Severity,
    /// What exactly is wrong, in one line without secrets.
    pub what: String,
}

impl Finding {
    /// Makes a finding of the usual severity. Control characters of `what` become spaces: parts of it may be a server's words.
    #[must_use]
    pub fn new(id: FindingId, what: impl Into<String>) -> Self {
        let what: String = what.into();
        let what = what.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        Self { id, severity: id.severity(), what }
    }

    /// Makes a warning of it.
    #[must_use]
    pub fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn words_are_stable_and_each_is_used_once() {
        let words: BTreeSet<_> = FindingId::ALL.iter().map(|id| id.as_str()).collect();
        assert_eq!(words.len(), FindingId::ALL.len());
        for id in FindingId::ALL {
            let word = id.as_str();
            assert!(word.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'2')), "{word}");
            for text in [id.what(), id.why(), id.mend()] {
                assert!(text.ends_with('.') && !text.contains(['\n', '|']), "{word}: {text}");
            }
        }
    }

    #[test]
    fn finding_is_one_line_whatever_a_server_says() {
        let found = Finding::new(FindingId::TlsFailed, "a\r\nb\x1b[31m");
        assert_eq!(found.what, "a  b [31m");
    }

    /// `UPDATE_REFERENCE=1 cargo test -p doctor` writes the table anew.
    #[test]
    fn table_of_the_guide_has_every_finding() {
        const MARKS: [&str; 2] = ["<!-- findings -->\n", "<!-- end of findings -->"];
        let mut table = "\n| id | severity | what is wrong | how to mend it |\n| --- | --- | --- | --- |\n".to_owned();
        for id in FindingId::ALL {
            writeln!(table, "| `{id}` | {} | {} | {} |", id.severity(), id.what(), id.mend().replace('*', "\\*"))
                .unwrap();
        }
        table.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/doctor.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(MARKS[0]).expect("a mark");
        let (present, after) = rest.split_once(MARKS[1]).expect("a mark");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(path, [before, MARKS[0], &table, MARKS[1], after].concat()).unwrap();
            return;
        }
        assert!(present == table, "docs/guide/doctor.md is not current: UPDATE_REFERENCE=1 writes it anew");
    }
}
