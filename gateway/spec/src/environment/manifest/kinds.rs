//! The kinds of objects that templates may make.

use serde_json::Value;

use super::{ManifestCheck, RefusedCode, shape};
use crate::document::show;

const RBAC: &str = "rbac.authorization.k8s.io";
const SOURCE: &str = "source.toolkit.fluxcd.io";
const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io";
const HELM: &str = "helm.toolkit.fluxcd.io";
const NOTIFICATION: &str = "notification.toolkit.fluxcd.io";

/// A kind that a template may make (GitLab documentation, "GitLab-managed Kubernetes resources", supported resources).
///
/// The order is that in which objects are applied: what others stand in or refer to comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ManifestKind {
    Namespace,
    ServiceAccount,
    RoleBinding,
    GitRepository,
    HelmRepository,
    Bucket,
    OciRepository,
    HelmChart,
    Kustomization,
    HelmRelease,
    Provider,
    Alert,
    Receiver,
}

const ALL: [ManifestKind; 13] = [
    ManifestKind::Namespace,
    ManifestKind::ServiceAccount,
    ManifestKind::RoleBinding,
    ManifestKind::GitRepository,
    ManifestKind::HelmRepository,
    ManifestKind::Bucket,
    ManifestKind::OciRepository,
    ManifestKind::HelmChart,
    ManifestKind::Kustomization,
    ManifestKind::HelmRelease,
    ManifestKind::Provider,
    ManifestKind::Alert,
    ManifestKind::Receiver,
];

impl ManifestKind {
    /// Returns its name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::ServiceAccount => "ServiceAccount",
            Self::RoleBinding => "RoleBinding",
            Self::GitRepository => "GitRepository",
            Self::HelmRepository => "HelmRepository",
            Self::Bucket => "Bucket",
            Self::OciRepository => "OCIRepository",
            Self::HelmChart => "HelmChart",
            Self::Kustomization => "Kustomization",
            Self::HelmRelease => "HelmRelease",
            Self::Provider => "Provider",
            Self::Alert => "Alert",
            Self::Receiver => "Receiver",
        }
    }

    /// Returns its group; empty for Kubernetes' own.
    fn group(self) -> &'static str {
        match self {
            Self::Namespace | Self::ServiceAccount => "",
            Self::RoleBinding => RBAC,
            Self::GitRepository | Self::HelmRepository | Self::Bucket | Self::OciRepository | Self::HelmChart => SOURCE,
            Self::Kustomization => KUSTOMIZE,
            Self::HelmRelease => HELM,
            Self::Provider | Self::Alert | Self::Receiver => NOTIFICATION,
        }
    }

    /// Returns its position in that order.
    pub(super) fn order(self) -> usize {
        ALL.iter().position(|kind| *kind == self).unwrap_or(ALL.len())
    }

    /// Returns whether a version can be one of this kind. Kubernetes' own kinds have one; for the others, the cluster
    /// decides.
    fn has_version(self, version: &str) -> bool {
        if matches!(self.group(), "" | RBAC) { version == "v1" } else { is_version(version) }
    }
}

/// Returns the kind of an object, unless it may not be applied.
pub(super) fn of(look: &mut ManifestCheck<'_>, shown: &str, object: &Value) -> Option<ManifestKind> {
    let Some(name) = shape::text(object, "kind") else {
        look.refuse(RefusedCode::ObjectInvalid, shown, "has no kind that is text");
        return None;
    };
    let Some(kind) = ALL.into_iter().find(|kind| kind.as_str() == name) else {
        let allowed = ALL.map(ManifestKind::as_str).join(", ");
        let message = format!("the kind {} is not allowed; allowed are {allowed}", show(name));
        look.refuse(RefusedCode::KindNotAllowed, shown, message);
        return None;
    };
    let Some(api_version) = shape::text(object, "apiVersion") else {
        look.refuse(RefusedCode::ObjectInvalid, shown, "has no apiVersion that is text");
        return None;
    };
    let (group, version) = split(api_version);
    if group != kind.group() || !kind.has_version(version) {
        let slash = if kind.group().is_empty() { "" } else { "/" };
        let message = format!(
            "the apiVersion {} is not allowed for the kind {name}, which is of {}{slash}v1 or the like",
            show(api_version),
            kind.group()
        );
        look.refuse(RefusedCode::ApiVersionNotAllowed, shown, message);
        return None;
    }
    Some(kind)
}

/// Splits an `apiVersion` into group and version.
pub(super) fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns whether a text is a version: `v1`, `v2beta1` (Kubernetes documentation, "API versioning").
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| {
        (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0')
    };
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => is_number(major) && is_number(minor),
        None => is_number(rest),
    }
}
