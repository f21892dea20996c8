//! `auth.agents`: credentials of agents besides tokens of this gateway.
//!
//! The sections are in [`read`]; their meaning is in [`crate::AgentAuth`] and its parts.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::value::{DURATION, ENDPOINT, ValueKind};
use gateway_types::PublicUrl;
use gateway_types::{Endpoint, UserTemplate, WorkspaceTemplate, Zone};

/// Longest interval between two checks that the pod of a live session still exists.
const RECHECK_MAX: Duration = Duration::from_secs(60);

/// Placeholders of a Kubernetes rule.
const POD_PLACEHOLDERS: [&str; 3] = ["namespace", "pod", "service_account"];

/// Credentials that agents may use besides tokens of this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAuth {
    /// Prefix of the URI in a client certificate; the rest is the workspace (`auth.agents.mtls.uri_prefix`).
    pub uri_prefix: Box<str>,
    /// Clusters whose service-account tokens count (`auth.agents.kubernetes`).
    pub kubernetes: Vec<KubernetesIssuer>,
    /// CI systems whose job tokens count (`auth.agents.ci`).
    pub ci: Vec<CiIssuer>,
}

/// A cluster whose projected service-account tokens count. At least one of `jwks_url` and `api_server` is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesIssuer {
    /// `iss` of the tokens, character by character.
    pub issuer: Box<str>,
    /// `aud` of the tokens.
    pub audience: Box<str>,
    /// URL of the cluster's published keys: signatures are checked here.
    pub jwks_url: Option<Endpoint>,
    /// API server that checks whether a token counts and its pod exists (TokenReview).
    pub api_server: Option<Endpoint>,
    /// The authority of the cluster's servers; the system's if there is none.
    pub ca_file: Option<PathBuf>,
    /// File with the token of the gateway's own requests; read again for each.
    pub token_file: Option<PathBuf>,
    /// Interval between two checks of a live session.
    pub recheck: Duration,
    /// Rules from pods to workspaces; the first that fits counts.
    pub rules: Vec<KubernetesRule>,
}

/// Pods of a cluster that are agents, and their workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesRule {
    /// The namespace.
    pub namespace: NamespacePattern,
    /// The service account, exactly.
    pub service_account: Box<str>,
    /// The workspace, from `{namespace}`, `{pod}` and `{service_account}`.
    pub workspace: WorkspaceTemplate,
}

/// A namespace, or the beginning of several: `workspaces`, `ws-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespacePattern {
    /// This one.
    Exactly(Box<str>),
    /// Those that begin so.
    StartingWith(Box<str>),
}

impl NamespacePattern {
    /// Returns whether a namespace is meant.
    #[must_use]
    pub fn matches(&self, namespace: &str) -> bool {
        match self {
            Self::Exactly(name) => **name == *namespace,
            Self::StartingWith(beginning) => namespace.starts_with(&**beginning),
        }
    }
}

/// A CI system whose job tokens count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiIssuer {
    /// `iss` of the tokens, character by character, and where its keys are found if `jwks_url` does not say.
    pub issuer: Endpoint,
    /// `aud` of the tokens.
    pub audience: Box<str>,
    /// URL of its published keys.
    pub jwks_url: Option<Endpoint>,
    /// The authority of its servers; the system's if there is none.
    pub ca_file: Option<PathBuf>,
    /// Longest time after the first use of a job's token in which its session may last, and resume after its link
    /// broke.
    pub session_max: Duration,
    /// Claims that together name what may be used once; empty for `jti`, or the job.
    pub once_per: Vec<Box<str>>,
    /// Rules from jobs to workspaces; the first that fits counts.
    pub rules: Vec<CiRule>,
}

/// Jobs of a CI system that are agents, and their workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiRule {
    /// Claims that the token must have, with exactly these values; never empty.
    pub claims: Vec<(Box<str>, Box<str>)>,
    /// The workspace, from claims.
    pub workspace: WorkspaceTemplate,
    /// Owner that the workspace must have, or gets when it is made.
    pub owner: UserTemplate,
    /// Whether it is made if there is none.
    pub create: bool,
}

pub(super) const YES_OR_NO: ValueKind<bool> = ValueKind {
    accepted: "`true` or `false`",
    parse: |text| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    },
    show: ToString::to_string,
    secret: false,
};

const EXACT_TEXT: ValueKind<Box<str>> = ValueKind {
    accepted: "1 to 512 printable ASCII characters without spaces",
    parse: |text| {
        let is_text = (1..=512).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_text { Ok(text.into()) } else { Err("empty, too long, or with characters that do not count".to_owned()) }
    },
    show: |text| text.to_string(),
    secret: false,
};

const URI_PREFIX: ValueKind<Box<str>> = ValueKind {
    accepted: "the beginning of a URI that ends in a slash such as `spiffe://example.com/workspace/`",
    parse: |text| {
        let has_scheme = text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && rest.len() > 1);
        let is_text = text.len() <= 512 && text.bytes().all(|byte| byte.is_ascii_graphic());
        match text.ends_with('/') && has_scheme && is_text {
            true => Ok(text.into()),
            false => Err("not the beginning of a URI".to_owned()),
        }
    },
    show: |text| text.to_string(),
    secret: false,
};

const NAMESPACE: ValueKind<NamespacePattern> = ValueKind {
    accepted: "the name of a namespace, or the beginning of some and a star such as `ws-*`",
    parse: |text| {
        let (name, is_beginning) = text.strip_suffix('*').map_or((text, false), |beginning| (beginning, true));
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 63 || !name.bytes().all(is_label) {
            return Err("not the name of a namespace".to_owned());
        }
        Ok(if is_beginning {
            NamespacePattern::StartingWith(name.into())
        } else {
            NamespacePattern::Exactly(name.into())
        })
    },
    show: |pattern| match pattern {
        NamespacePattern::Exactly(name) => name.to_string(),
        NamespacePattern::StartingWith(beginning) => format!("{beginning}*"),
    },
    secret: false,
};

const WORKSPACE_TEMPLATE: ValueKind<WorkspaceTemplate> = ValueKind {
    accepted: "a name with placeholders such as `{pod}` or `ci-{project_path}--{job_id}`",
    parse: |text| text.parse().map_err(|error: gateway_types::BadTemplate| error.to_string()),
    show: ToString::to_string,
    secret: false,
};

const USER_TEMPLATE: ValueKind<UserTemplate> = ValueKind {
    accepted: "the name of a user, or one with a placeholder such as `{user_login}`",
    parse: |text| text.parse().map_err(|error: gateway_types::BadTemplate| error.to_string()),
    show: ToString::to_string,
    secret: false,
};

const CLAIM_NAMES: ValueKind<Vec<Box<str>>> = ValueKind {
    accepted: "names of claims with spaces between them such as `project_id job_id`",
    parse: |text| {
        let names: Vec<Box<str>> = text.split_ascii_whitespace().map(Into::into).collect();
        if names.is_empty() { Err("there is no name in it".to_owned()) } else { Ok(names) }
    },
    show: |names| names.join(" "),
    secret: false,
};

/// Reads `auth.agents`, except whether certificates are required: that belongs to the listener.
pub(super) fn read(reader: &mut Reader, zone: &Zone, public_url: &PublicUrl) -> AgentAuth {
    let uri_prefix = format!("spiffe://{zone}/workspace/").into();
    let auth = AgentAuth {
        uri_prefix: reader.take("auth.agents.mtls.uri_prefix", uri_prefix, &URI_PREFIX),
        kubernetes: reader.tables("auth.agents.kubernetes", |reader, key| read_kubernetes(reader, key, public_url)),
        ci: reader.tables("auth.agents.ci", |reader, key| read_ci(reader, key, public_url)),
    };
    issuers_are_distinct(&auth, reader);
    auth
}

fn read_kubernetes(reader: &mut Reader, key: &str, public_url: &PublicUrl) -> Option<KubernetesIssuer> {
    let of = |name: &str| format!("{key}.{name}");
    let issuer = reader.take_required(of("issuer"), &EXACT_TEXT);
    let audience = reader.take(of("audience"), public_url.to_string().into(), &EXACT_TEXT);
    let jwks_url = reader.take_optional(of("jwks_url"), &ENDPOINT);
    let api_server = reader.take_optional(of("api_server"), &ENDPOINT);
    let ca_file = reader.take_path(of("ca_file"));
    let token_file = reader.take_path(of("token_file"));
    let recheck = reader.take_within(of("recheck"), RECHECK_MAX, Duration::from_secs(1)..=RECHECK_MAX, &DURATION);
    if reader.is_sound(&[&of("jwks_url"), &of("api_server"), &of("token_file")]) {
        match (&jwks_url, &api_server, &token_file) {
            (None, None, _) => reader.object(key.to_owned(), "needs jwks_url, api_server or both"),
            (_, Some(_), None) => {
                reader.object(of("api_server"), "needs token_file beside it: who asks has to say who")
            }
            (Some(_), None, _) | (_, Some(_), Some(_)) => {}
        }
    }
    let rules = reader.tables(of("rules"), |reader, key| {
        let of = |name: &str| format!("{key}.{name}");
        let namespace = reader.take_required(of("namespace"), &NAMESPACE);
        let service_account = reader.take_required(of("service_account"), &EXACT_TEXT);
        let workspace = reader.take_required(of("workspace"), &WORKSPACE_TEMPLATE);
        let unknown = workspace.as_ref().and_then(|template| {
            template.placeholders().find(|name| !POD_PLACEHOLDERS.contains(name)).map(str::to_owned)
        });
        if let Some(unknown) = unknown {
            let known = POD_PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ");
            reader.object(of("workspace"), format!("{{{unknown}}} is no placeholder; there are {known}"));
        }
        Some(KubernetesRule { namespace: namespace?, service_account: service_account?, workspace: workspace? })
    });
    needs_rules(reader, key, rules.is_empty());
    let issuer = issuer?;
    Some(KubernetesIssuer { issuer, audience, jwks_url, api_server, ca_file, token_file, recheck, rules })
}

fn read_ci(reader: &mut Reader, key: &str, public_url: &PublicUrl) -> Option<CiIssuer> {
    let of = |name: &str| format!("{key}.{name}");
    let day = Duration::from_secs(24 * 60 * 60);
    let issuer = reader.take_required(of("issuer"), &ENDPOINT);
    let audience = reader.take(of("audience"), public_url.to_string().into(), &EXACT_TEXT);
    let jwks_url = reader.take_optional(of("jwks_url"), &ENDPOINT);
    let ca_file = reader.take_path(of("ca_file"));
    let session_max = reader.take_within(of("session_max"), day, Duration::from_secs(1)..=30 * day, &DURATION);
    let once_per = reader.take_optional(of("once_per"), &CLAIM_NAMES).unwrap_or_default();
    let rules = reader.tables(of("rules"), |reader, key| {
        let of = |name: &str| format!("{key}.{name}");
        let workspace = reader.take_required(of("workspace"), &WORKSPACE_TEMPLATE);
        let owner = reader.take_required(of("owner"), &USER_TEMPLATE);
        let create = reader.take(of("create"), false, &YES_OR_NO);
        let claims = reader.table(&of("claims"));
        if claims.is_empty() {
            // Any user with an account there could run a job.
            reader.object(key.to_owned(), "needs claims: without any, every job of the issuer would fit");
        }
        let claims = claims.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Some(CiRule { claims, workspace: workspace?, owner: owner?, create })
    });
    needs_rules(reader, key, rules.is_empty());
    let issuer = issuer?;
    Some(CiIssuer { issuer, audience, jwks_url, ca_file, session_max, once_per, rules })
}

fn needs_rules(reader: &mut Reader, key: &str, are_none: bool) {
    if are_none && reader.is_empty_list(&format!("{key}.rules")) {
        reader
            .object(key.to_owned(), format!("needs rules: without any ([[…{}.rules]]), no token would fit", last(key)));
    }
}

/// Returns the list's own name: `ci` of `auth.agents.ci[0]`.
fn last(key: &str) -> &str {
    key.rsplit('.').next().and_then(|name| name.split('[').next()).unwrap_or_default()
}

/// Checks that no issuer has two sections: the rules that count must not depend on the order of sections.
fn issuers_are_distinct(auth: &AgentAuth, reader: &mut Reader) {
    let kubernetes = auth.kubernetes.iter().map(|one| &*one.issuer);
    let issuers: Vec<&str> = kubernetes.chain(auth.ci.iter().map(|one| one.issuer.as_str())).collect();
    for (index, issuer) in issuers.iter().enumerate() {
        if issuers.iter().take(index).any(|earlier| earlier == issuer) {
            let list = if index < auth.kubernetes.len() { "kubernetes" } else { "ci" };
            reader.object(format!("auth.agents.{list}"), format!("the issuer {issuer:?} has two sections"));
        }
    }
}
