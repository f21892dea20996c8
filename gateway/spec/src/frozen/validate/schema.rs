//! Accepted fields of each kind: those that this version and earlier ones write, and no others (Kubernetes
//! documentation, API reference). A field may be added here, never taken away: stored configs stay readable.

#![expect(dead_code, reason = "a schema: that a field is there and of its type is all that some have to be")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Texts by name.
pub(super) type Texts = BTreeMap<String, String>;

/// Fields with which every object begins.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) metadata: Metadata,
}

impl Head {
    /// Names the object for people.
    pub(super) fn place(&self) -> String {
        format!("{} {}", self.kind, self.metadata.name)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: Texts,
    #[serde(default)]
    pub(super) annotations: Texts,
}

/// An inventory, or the scripts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConfigMap {
    api_version: IgnoredAny,
    kind: IgnoredAny,
    metadata: IgnoredAny,
    pub(super) data: Option<Texts>,
    pub(super) immutable: Option<bool>,
}

/// A Secret has no field for data: it is filled in when sending.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Secret {
    api_version: IgnoredAny,
    kind: IgnoredAny,
    metadata: IgnoredAny,
    pub(super) r#type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServiceAccount {
    api_version: IgnoredAny,
    kind: IgnoredAny,
    metadata: IgnoredAny,
    pub(super) automount_service_account_token: bool,
    pub(super) image_pull_secrets: Option<Vec<Named>>,
}

/// An object with a `spec` of some kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Specified<T> {
    api_version: IgnoredAny,
    kind: IgnoredAny,
    metadata: IgnoredAny,
    pub(super) spec: T,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaSpec {
    pub(super) hard: Texts,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimSpec {
    pub(super) access_modes: Vec<String>,
    pub(super) resources: ClaimResources,
    pub(super) storage_class_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimResources {
    pub(super) requests: Storage,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Storage {
    pub(super) storage: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceSpec {
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<String>,
    pub(super) selector: Texts,
    pub(super) ports: Option<Vec<ServicePort>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServicePort {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) target_port: u16,
    pub(super) protocol: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PolicySpec {
    pub(super) pod_selector: Selector,
    pub(super) policy_types: Vec<String>,
    pub(super) egress: Vec<EgressRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Selector {
    pub(super) match_labels: Texts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EgressRule {
    pub(super) to: Vec<Peer>,
    pub(super) ports: Option<Vec<PolicyPort>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyPort {
    pub(super) port: u16,
    pub(super) protocol: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Peer {
    pub(super) ip_block: Option<IpBlock>,
    pub(super) namespace_selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IpBlock {
    pub(super) cidr: String,
    #[serde(default)]
    pub(super) except: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeploymentSpec {
    pub(super) replicas: u32,
    progress_deadline_seconds: Option<u32>,
    pub(super) selector: Selector,
    pub(super) strategy: Strategy,
    pub(super) template: Template,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Strategy {
    pub(super) r#type: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    pub(super) metadata: TemplateMetadata,
    pub(super) spec: PodSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateMetadata {
    pub(super) labels: Texts,
    #[serde(default)]
    pub(super) annotations: Texts,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodSpec {
    pub(super) service_account_name: String,
    pub(super) automount_service_account_token: bool,
    enable_service_links: Option<bool>,
    pub(super) host_users: Option<bool>,
    pub(super) runtime_class_name: Option<String>,
    pub(super) security_context: PodSecurity,
    #[serde(default)]
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) volumes: Vec<PodVolume>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodSecurity {
    pub(super) run_as_non_root: bool,
    pub(super) run_as_user: u32,
    run_as_group: Option<u32>,
    fs_group: Option<u32>,
    fs_group_change_policy: Option<String>,
    seccomp_profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    r#type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ContainerSecurity {
    pub(super) allow_privilege_escalation: bool,
    pub(super) privileged: bool,
    pub(super) run_as_non_root: bool,
    pub(super) run_as_user: u32,
    capabilities: Option<Capabilities>,
}

/// There is no field for capabilities that are added.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capabilities {
    drop: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) image_pull_policy: Option<String>,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    #[serde(default)]
    pub(super) env: Vec<Variable>,
    #[serde(default)]
    pub(super) env_from: Vec<VariablesFrom>,
    #[serde(default)]
    pub(super) ports: Vec<ContainerPort>,
    #[serde(default)]
    pub(super) resources: ContainerResources,
    #[serde(default)]
    pub(super) volume_mounts: Vec<Mount>,
    lifecycle: Option<Lifecycle>,
    pub(super) startup_probe: Option<Probe>,
    pub(super) termination_message_policy: Option<String>,
    pub(super) security_context: ContainerSecurity,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    pub(super) name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VariablesFrom {
    pub(super) secret_ref: Named,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ContainerPort {
    pub(super) name: String,
    pub(super) container_port: u16,
    pub(super) protocol: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContainerResources {
    #[serde(default)]
    pub(super) requests: Texts,
    #[serde(default)]
    pub(super) limits: Texts,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Mount {
    pub(super) name: String,
    pub(super) mount_path: String,
    pub(super) sub_path: Option<String>,
    read_only: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Probe {
    pub(super) exec: Exec,
    pub(super) period_seconds: u32,
    timeout_seconds: u32,
    pub(super) failure_threshold: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Lifecycle {
    post_start: Hook,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hook {
    exec: Exec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    pub(super) command: Vec<String>,
}

/// Accepted kinds of volumes; folders of the node are not among them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodVolume {
    pub(super) name: String,
    pub(super) persistent_volume_claim: Option<ClaimRef>,
    pub(super) empty_dir: Option<EmptyDir>,
    pub(super) config_map: Option<ConfigMapRef>,
    pub(super) secret: Option<SecretRef>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimRef {
    pub(super) claim_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EmptyDir {
    pub(super) size_limit: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConfigMapRef {
    pub(super) name: String,
    pub(super) default_mode: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SecretRef {
    pub(super) secret_name: String,
    pub(super) default_mode: u32,
}
