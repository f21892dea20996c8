//! Finds the pod of a service-account token, and the workspace of the pod.

use serde_json::Value;

use super::refusal::CredentialRefusal;
use crate::registry::Credential;
use gateway_config::KubernetesRule;
use gateway_types::WorkspaceName;

/// Common prefix of the subjects of service accounts (Kubernetes, "Service accounts").
const SUBJECT: &str = "system:serviceaccount:";

/// Longest name of anything in Kubernetes, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// A pod, and the service account that it runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) service_account: String,
    pub(super) name: String,
    /// Tells it from earlier pods of that name.
    pub(super) uid: String,
}

impl Pod {
    /// Reads a token's own claims: its subject and its binding.
    ///
    /// # Errors
    /// [`CredentialRefusal::NotOfPod`] for a token that is not bound to a pod, or says two different things.
    pub(super) fn of_claims(subject: Option<&str>, bound: Option<&Value>) -> Result<Self, CredentialRefusal> {
        let text = |path: &str| bound?.pointer(path)?.as_str();
        let (namespace, account) = subject.and_then(account_of).ok_or(CredentialRefusal::NotOfPod)?;
        if text("/namespace") != Some(namespace) || text("/serviceaccount/name") != Some(account) {
            return Err(CredentialRefusal::NotOfPod);
        }
        Self::new(namespace, account, text("/pod/name"), text("/pod/uid"))
    }

    /// Reads the answer to a `TokenReview` (`authentication.k8s.io/v1`): the pod to which the cluster gave the token.
    ///
    /// # Errors
    /// [`CredentialRefusal::NotVouched`] for a no; [`CredentialRefusal::NotOfPod`] for a yes to a token that is not bound to a pod.
    pub(super) fn of_review(answer: &Value, audience: &str) -> Result<Self, CredentialRefusal> {
        let status = answer.get("status").ok_or(CredentialRefusal::NotVouched)?;
        // Only `true` is a yes. A server that knows no audiences answers without, and has not checked them.
        let audiences = status.get("audiences").and_then(Value::as_array);
        let is_ours = audiences.is_some_and(|audiences| audiences.iter().any(|one| one == audience));
        if status.get("authenticated") != Some(&Value::Bool(true)) || !is_ours {
            return Err(CredentialRefusal::NotVouched);
        }
        let user = status.pointer("/user/username").and_then(Value::as_str);
        let (namespace, account) = user.and_then(account_of).ok_or(CredentialRefusal::NotOfPod)?;
        let extra = |name: &str| match status.pointer("/user/extra")?.get(name)?.as_array()?.as_slice() {
            [Value::String(only)] => Some(only.as_str()),
            _ => None,
        };
        let (pod, uid) =
            (extra("authentication.kubernetes.io/pod-name"), extra("authentication.kubernetes.io/pod-uid"));
        Self::new(namespace, account, pod, uid)
    }

    fn new(namespace: &str, account: &str, name: Option<&str>, uid: Option<&str>) -> Result<Self, CredentialRefusal> {
        let is_name = |text: &&str| {
            (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let read = |text: Option<&str>| text.filter(is_name).map(str::to_owned).ok_or(CredentialRefusal::NotOfPod);
        Ok(Self {
            namespace: read(Some(namespace))?,
            service_account: read(Some(account))?,
            name: read(name)?,
            uid: read(uid)?,
        })
    }

    /// Returns the workspace whose agent the pod is, by the first rule that fits.
    ///
    /// # Errors
    /// [`CredentialRefusal::Rule`] when none fits, [`CredentialRefusal::Name`] when it makes no name.
    pub(super) fn workspace(&self, rules: &[KubernetesRule]) -> Result<WorkspaceName, CredentialRefusal> {
        let fits = |rule: &&KubernetesRule| {
            rule.namespace.matches(&self.namespace) && *rule.service_account == *self.service_account
        };
        let rule = rules.iter().find(fits).ok_or(CredentialRefusal::Rule)?;
        let value = |name: &str| match name {
            "namespace" => Some(self.namespace.clone()),
            "pod" => Some(self.name.clone()),
            "service_account" => Some(self.service_account.clone()),
            _ => None,
        };
        rule.workspace.name(value).map_err(CredentialRefusal::Name)
    }

    /// Returns its name in logs and audit records.
    pub(super) fn credential(&self) -> Credential {
        Credential::Pod {
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
            uid: self.uid.as_str().into(),
        }
    }
}

/// Splits the name under which a cluster knows a service account.
fn account_of(subject: &str) -> Option<(&str, &str)> {
    subject.strip_prefix(SUBJECT)?.split_once(':').filter(|(_, account)| !account.contains(':'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gateway_config::NamespacePattern;

    const AUDIENCE: &str = "https://gateway.test";

    fn bound() -> Value {
        json!({
            "namespace": "ws", "node": {"name": "n", "uid": "1"},
            "pod": {"name": "app", "uid": "u-1"}, "serviceaccount": {"name": "agent", "uid": "u-2"}
        })
    }

    fn review() -> Value {
        json!({"kind": "TokenReview", "status": {
            "authenticated": true, "audiences": [AUDIENCE],
            "user": {"username": "system:serviceaccount:ws:agent", "uid": "u-2", "groups": [], "extra": {
                "authentication.kubernetes.io/pod-name": ["app"], "authentication.kubernetes.io/pod-uid": ["u-1"],
            }},
        }})
    }

    fn pod() -> Pod {
        let text = str::to_owned;
        Pod { namespace: text("ws"), service_account: text("agent"), name: text("app"), uid: text("u-1") }
    }

    #[test]
    fn claims_and_review_say_the_same_of_a_pod() {
        assert_eq!(Pod::of_claims(Some("system:serviceaccount:ws:agent"), Some(&bound())), Ok(pod()));
        assert_eq!(Pod::of_review(&review(), AUDIENCE), Ok(pod()));
        assert_eq!(pod().credential().to_string(), "pod ws/app u-1");
    }

    #[test]
    fn token_that_is_not_bound_to_a_pod_is_refused() {
        let subject = Some("system:serviceaccount:ws:agent");
        for (path, value) in [
            ("/pod", Value::Null),
            ("/pod/name", json!("")),
            ("/pod/name", json!(1)),
            ("/pod/uid", Value::Null),
            ("/namespace", json!("other")),
            ("/serviceaccount/name", json!("other")),
            ("/pod/name", json!("a b")),
        ] {
            let mut claims = bound();
            *claims.pointer_mut(path).unwrap() = value.clone();
            assert_eq!(Pod::of_claims(subject, Some(&claims)), Err(CredentialRefusal::NotOfPod), "{path} {value}");
        }
        assert_eq!(Pod::of_claims(subject, None), Err(CredentialRefusal::NotOfPod));
        for subject in ["", "alice", "system:serviceaccount:ws", "system:serviceaccount:ws:agent:x", "ws:agent"] {
            assert_eq!(Pod::of_claims(Some(subject), Some(&bound())), Err(CredentialRefusal::NotOfPod), "{subject}");
        }
    }

    #[test]
    fn only_a_plain_yes_for_this_audience_is_one() {
        for (path, value) in [
            ("/status/authenticated", json!(false)),
            ("/status/authenticated", json!("true")),
            ("/status/authenticated", Value::Null),
            ("/status/audiences", json!([])),
            ("/status/audiences", Value::Null),
            ("/status/audiences", json!(AUDIENCE)),
            ("/status/audiences", json!(["https://kubernetes.default.svc"])),
            ("/status", Value::Null),
        ] {
            let mut answer = review();
            *answer.pointer_mut(path).unwrap() = value.clone();
            assert_eq!(Pod::of_review(&answer, AUDIENCE), Err(CredentialRefusal::NotVouched), "{path} {value}");
        }
        for (path, value) in [
            ("/status/user/username", json!("alice")),
            ("/status/user/username", json!("system:serviceaccount:ws:a:b")),
            ("/status/user/extra", Value::Null),
            ("/status/user/extra/authentication.kubernetes.io~1pod-uid", json!([])),
            ("/status/user/extra/authentication.kubernetes.io~1pod-name", json!(["app", "other"])),
            ("/status/user/extra/authentication.kubernetes.io~1pod-name", json!("app")),
        ] {
            let mut answer = review();
            *answer.pointer_mut(path).unwrap() = value.clone();
            assert_eq!(Pod::of_review(&answer, AUDIENCE), Err(CredentialRefusal::NotOfPod), "{path} {value}");
        }
    }

    fn rule(namespace: NamespacePattern, workspace: &str) -> KubernetesRule {
        KubernetesRule { namespace, service_account: "agent".into(), workspace: workspace.parse().unwrap() }
    }

    #[test]
    fn first_rule_that_fits_names_the_workspace() {
        let exactly = |name: &str| NamespacePattern::Exactly(name.into());
        let rules = [
            rule(exactly("other"), "other"),
            rule(exactly("ws"), "{namespace}--{pod}"),
            rule(NamespacePattern::StartingWith("w".into()), "late"),
        ];
        assert_eq!(pod().workspace(&rules).map(|name| name.to_string()), Ok("ws--app".to_owned()));
        let later = Pod { namespace: "w2".to_owned(), ..pod() };
        assert_eq!(later.workspace(&rules).map(|name| name.to_string()), Ok("late".to_owned()));
        let account = Pod { service_account: "default".to_owned(), ..pod() };
        assert_eq!(account.workspace(&rules), Err(CredentialRefusal::Rule));
        let named = Pod { name: "app.1".to_owned(), ..pod() };
        assert!(matches!(named.workspace(&rules), Err(CredentialRefusal::Name(_))));
    }
}
