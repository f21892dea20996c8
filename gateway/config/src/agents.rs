//! `auth.agents`: credentials of agents besides tokens of this gateway.
//!
//! The sections are in [`read`]; their meaning is in [`crate::AgentAuth`] and its parts.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::keys::{Keys, keys, last, section};
use super::reader::Reader;
use super::value::{ANY_TEXT, DURATION, ENDPOINT, FILE_PATH, LONG_TEXT, ValueKind, YES_OR_NO};
use gateway_types::{Endpoint, PublicUrl, UserTemplate, WorkspaceTemplate, Zone};

/// Longest interval between two checks that the pod of a live session still exists.
const RECHECK_MAX: Duration = Duration::from_mins(1);

/// Bounds of the time that a job's session may last.
const SESSION_TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(30 * 24);

/// Placeholders of a Kubernetes rule.
const POD_PLACEHOLDERS: [&str; 3] = ["namespace", "pod", "service_account"];

/// Credentials that agents may use besides tokens of this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAuth {
    /// Prefix of the URI in a client certificate (`auth.agents.mtls.uri_prefix`).
    pub uri_prefix: Box<str>,
    /// Clusters whose service-account tokens count (`auth.agents.kubernetes`).
    pub kubernetes: Vec<KubernetesIssuer>,
    /// CI systems whose job tokens count (`auth.agents.ci`).
    pub ci: Vec<CiIssuer>,
}

keys! {
    MTLS: MtlsKeys below "auth.agents.mtls." {
        /// Refuses agents without a client certificate in the handshake.
        required: bool = YES_OR_NO, or false;
        /// Beginning of the one URI in an agent's certificate; the rest is its workspace. By default
        /// `spiffe://ZONE/workspace/`.
        uri_prefix: Box<str> = URI_PREFIX, follows;
    }
}

section! {
    /// A cluster whose projected service-account tokens count. At least one of `jwks_url` and `api_server` is there.
    pub struct KubernetesIssuer, KUBERNETES: KubernetesKeys below "auth.agents.kubernetes[]." {
        /// `iss` of the tokens, character by character.
        issuer: Box<str> = LONG_TEXT, required;
        /// `aud` of the tokens; `public_url` unless set.
        audience: Box<str> = LONG_TEXT, follows;
        /// URL of the cluster's published keys, with which signatures are checked. One of this and `api_server` is
        /// needed.
        jwks_url: Endpoint = ENDPOINT, optional;
        /// API server that checks whether a token counts and its pod exists (TokenReview).
        api_server: Endpoint = ENDPOINT, optional;
        /// Authority of the cluster's servers, instead of the system's.
        ca_file: PathBuf = FILE_PATH, optional;
        /// File with the token of the gateway's own requests; read again for each.
        token_file: PathBuf = FILE_PATH, optional;
        /// Interval between two checks of a live session.
        recheck: Duration = DURATION, or RECHECK_MAX, in Duration::from_secs(1)..=RECHECK_MAX;
    } also {
        /// Rules from pods to workspaces; the first that fits counts.
        rules: Vec<KubernetesRule>,
    }
}

section! {
    /// Pods of a cluster that are agents, and their workspace.
    pub struct KubernetesRule, KUBERNETES_RULE: KubernetesRuleKeys below "auth.agents.kubernetes[].rules[]." {
        /// Namespace of the pods, or the beginning of some and a star.
        namespace: NamespacePattern = NAMESPACE, required;
        /// Service account of the pods, exactly.
        service_account: Box<str> = LONG_TEXT, required;
        /// Workspace of a pod, made of `{namespace}`, `{pod}` and `{service_account}`.
        workspace: WorkspaceTemplate = WORKSPACE_TEMPLATE, required;
    } also {}
}

section! {
    /// A CI system whose job tokens count.
    pub struct CiIssuer, CI_ISSUER: CiIssuerKeys below "auth.agents.ci[]." {
        /// `iss` of the tokens, character by character.
        issuer: Endpoint = ENDPOINT, required;
        /// `aud` of the tokens; `public_url` unless set.
        audience: Box<str> = LONG_TEXT, follows;
        /// URL of the issuer's published keys, if not the one that the issuer names itself.
        jwks_url: Endpoint = ENDPOINT, optional;
        /// Authority of the issuer's servers, instead of the system's.
        ca_file: PathBuf = FILE_PATH, optional;
        /// Longest time after the first use of a job's token in which its session may last, and resume after its link
        /// broke.
        session_max: Duration = DURATION, or Duration::from_hours(24), in SESSION_TIMES;
        /// Claims that together name the thing that may be used once; `jti`, or the job, unless set.
        once_per: Vec<Box<str>> = CLAIM_NAMES, open;
    } also {
        /// Rules from jobs to workspaces; the first that fits counts.
        rules: Vec<CiRule>,
    }
}

section! {
    /// Jobs of a CI system that are agents, and their workspace.
    pub struct CiRule, CI_RULE: CiRuleKeys below "auth.agents.ci[].rules[]." {
        /// Workspace of a job, made of claims.
        workspace: WorkspaceTemplate = WORKSPACE_TEMPLATE, required;
        /// Owner that the workspace must have, or gets when it is made.
        owner: UserTemplate = USER_TEMPLATE, required;
        /// Makes the workspace if there is none.
        create: bool = YES_OR_NO, or false;
    } also {
        /// Claims that the token must have, with exactly these values; never empty.
        claims: Vec<(Box<str>, Box<str>)>,
    }
}

keys! {
    CLAIMS: ClaimKeys below "auth.agents.ci[].rules[].claims." {
        /// Value that the claim `NAME` must have, exactly. At least one claim is needed.
        each as "NAME": String = ANY_TEXT, optional;
    }
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

const URI_PREFIX: ValueKind<Box<str>> = ValueKind::new(
    "the beginning of a URI that ends in a slash such as `spiffe://example.com/workspace/`",
    |text| {
        let has_scheme = text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && rest.len() > 1);
        let is_text = text.len() <= 512 && text.bytes().all(|byte| byte.is_ascii_graphic());
        match text.ends_with('/') && has_scheme && is_text {
            true => Ok(text.into()),
            false => Err("not the beginning of a URI".to_owned()),
        }
    },
    |text| text.to_string(),
);

const NAMESPACE: ValueKind<NamespacePattern> = ValueKind::new(
    "the name of a namespace, or the beginning of some and a star such as `ws-*`",
    |text| {
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
    |pattern| match pattern {
        NamespacePattern::Exactly(name) => name.to_string(),
        NamespacePattern::StartingWith(beginning) => format!("{beginning}*"),
    },
);

const WORKSPACE_TEMPLATE: ValueKind<WorkspaceTemplate> =
    ValueKind::of_text("a name with placeholders such as `{pod}` or `ci-{project_path}--{job_id}`");

const USER_TEMPLATE: ValueKind<UserTemplate> =
    ValueKind::of_text("the name of a user, or one with a placeholder such as `{user_login}`");

const CLAIM_NAMES: ValueKind<Vec<Box<str>>> = ValueKind::new(
    "names of claims with spaces between them such as `project_id job_id`",
    |text| {
        let names: Vec<Box<str>> = text.split_ascii_whitespace().map(Into::into).collect();
        if names.is_empty() { Err("there is no name in it".to_owned()) } else { Ok(names) }
    },
    |names| names.join(" "),
);

/// Reads `auth.agents`, except whether certificates are required: that belongs to the listener.
pub(super) fn read(reader: &mut Reader, zone: &Zone, public_url: &PublicUrl) -> AgentAuth {
    let clusters = KUBERNETES.issuer.collection();
    let systems = CI_ISSUER.issuer.collection();
    let auth = AgentAuth {
        uri_prefix: reader.take_or(&MTLS.uri_prefix, format!("spiffe://{zone}/workspace/").into()),
        kubernetes: reader.tables(clusters, |reader, entry| read_kubernetes(reader, entry, public_url)),
        ci: reader.tables(systems, |reader, entry| read_ci(reader, entry, public_url)),
    };
    issuers_are_distinct(&auth, reader);
    auth
}

fn read_kubernetes(reader: &mut Reader, entry: &str, public_url: &PublicUrl) -> Option<KubernetesIssuer> {
    let keys = KUBERNETES.at(entry);
    let issuer = reader.take(&keys.issuer);
    let audience = reader.take_or(&keys.audience, public_url.to_string().into());
    let jwks_url = reader.take(&keys.jwks_url);
    let api_server = reader.take(&keys.api_server);
    let ca_file = reader.take(&keys.ca_file);
    let token_file = reader.take(&keys.token_file);
    let recheck = reader.take(&keys.recheck);
    if reader.is_sound(&[&keys.jwks_url.name, &keys.api_server.name, &keys.token_file.name]) {
        match (&jwks_url, &api_server, &token_file) {
            (None, None, _) => {
                let [keys, server] = [&keys.jwks_url, &keys.api_server].map(|key| last(&key.name));
                reader.object(entry.to_owned(), format!("needs {keys}, {server} or both"));
            }
            (_, Some(_), None) => {
                let wrong = format!("needs {} beside it: who asks has to say who", last(&keys.token_file.name));
                reader.object(&keys.api_server, wrong);
            }
            (Some(_), None, _) | (_, Some(_), Some(_)) => {}
        }
    }
    let list = KUBERNETES_RULE.workspace.collection_at(entry);
    let rules = reader.tables(list.clone(), read_pod_rule);
    needs_rules(reader, entry, &list, rules.is_empty());
    Some(KubernetesIssuer { issuer: issuer?, audience, jwks_url, api_server, ca_file, token_file, recheck, rules })
}

fn read_pod_rule(reader: &mut Reader, entry: &str) -> Option<KubernetesRule> {
    let keys = KUBERNETES_RULE.at(entry);
    let namespace = reader.take(&keys.namespace);
    let service_account = reader.take(&keys.service_account);
    let workspace = reader.take(&keys.workspace);
    let unknown = workspace
        .as_ref()
        .and_then(|template| template.placeholders().find(|name| !POD_PLACEHOLDERS.contains(name)).map(str::to_owned));
    if let Some(unknown) = unknown {
        let known = POD_PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ");
        reader.object(&keys.workspace, format!("{{{unknown}}} is no placeholder; there are {known}"));
    }
    Some(KubernetesRule { namespace: namespace?, service_account: service_account?, workspace: workspace? })
}

fn read_ci(reader: &mut Reader, entry: &str, public_url: &PublicUrl) -> Option<CiIssuer> {
    let keys = CI_ISSUER.at(entry);
    let issuer = reader.take(&keys.issuer);
    let audience = reader.take_or(&keys.audience, public_url.to_string().into());
    let jwks_url = reader.take(&keys.jwks_url);
    let ca_file = reader.take(&keys.ca_file);
    let session_max = reader.take(&keys.session_max);
    let once_per = reader.take(&keys.once_per).unwrap_or_default();
    let list = CI_RULE.workspace.collection_at(entry);
    let rules = reader.tables(list.clone(), read_job_rule);
    needs_rules(reader, entry, &list, rules.is_empty());
    Some(CiIssuer { issuer: issuer?, audience, jwks_url, ca_file, session_max, once_per, rules })
}

fn read_job_rule(reader: &mut Reader, entry: &str) -> Option<CiRule> {
    let keys = CI_RULE.at(entry);
    let workspace = reader.take(&keys.workspace);
    let owner = reader.take(&keys.owner);
    let create = reader.take(&keys.create);
    let claims = reader.table(&CLAIMS.each, entry);
    if claims.is_empty() {
        // Any user with an account there could run a job.
        reader.object(entry.to_owned(), "needs claims: without any, every job of the issuer would fit");
    }
    let claims = claims.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Some(CiRule { claims, workspace: workspace?, owner: owner?, create })
}

fn needs_rules(reader: &mut Reader, entry: &str, list: &str, are_none: bool) {
    if are_none && reader.is_empty_list(list) {
        let (of, rules) = (last(entry).split('[').next().unwrap_or_default(), last(list));
        let wrong = format!("needs {rules}: without any ([[…{of}.{rules}]]), no token would fit");
        reader.object(entry.to_owned(), wrong);
    }
}

/// Checks that no issuer has two sections: the rules that count must not depend on the order of sections.
fn issuers_are_distinct(auth: &AgentAuth, reader: &mut Reader) {
    let kubernetes = auth.kubernetes.iter().map(|one| &*one.issuer);
    let issuers: Vec<&str> = kubernetes.chain(auth.ci.iter().map(|one| one.issuer.as_str())).collect();
    for (index, issuer) in issuers.iter().enumerate() {
        if issuers.iter().take(index).any(|earlier| earlier == issuer) {
            let is_of_cluster = index < auth.kubernetes.len();
            let list = if is_of_cluster { KUBERNETES.issuer.collection() } else { CI_ISSUER.issuer.collection() };
            reader.object(list, format!("the issuer {issuer:?} has two sections"));
        }
    }
}
