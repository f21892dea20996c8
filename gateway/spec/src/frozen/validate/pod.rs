//! Checks of the Deployment and its pod, and of the objects to which the pod refers.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::kinds::{labels, ports, quantities, selector};
use super::schema::{Container, DeploymentSpec, Head, PodSpec, PodVolume, Specified};
use super::{Common, FrozenFindings};
use crate::cluster_config::PullPolicy;
use crate::syntax::{Quantity, is_annotation_key, is_dns_label, is_dns_subdomain, is_image, is_variable};

/// Most permissions of a file.
const MODE_MAX: u32 = 0o777;

/// Checks the Deployment.
pub(super) fn deployment(spec: &DeploymentSpec, place: &str, common: &Common, findings: &mut FrozenFindings) {
    findings.require(place, spec.replicas <= 1, "has more than one replica");
    // Two pods would write to one volume, and two agents displace each other.
    findings.require(place, spec.strategy.r#type == "Recreate", "must end the old pod before it makes a new one");
    let metadata = &spec.template.metadata;
    selector(&spec.selector.match_labels, place, common, findings);
    let is_found = spec.selector.match_labels.iter().all(|(key, value)| metadata.labels.get(key) == Some(value));
    findings.require(place, is_found, "does not select its own pods");
    labels(&metadata.labels, place, findings);
    let are_keys = metadata.annotations.keys().all(|key| is_annotation_key(key));
    findings.require(place, are_keys, "an annotation of its pods has no sound key");
    pod(&spec.template.spec, place, findings);
}

fn pod(spec: &PodSpec, place: &str, findings: &mut FrozenFindings) {
    findings.require(place, !spec.automount_service_account_token, "must not give its pod a token of the cluster");
    findings.require(place, spec.host_users != Some(true), "hostUsers can only be false");
    let class = spec.runtime_class_name.as_deref();
    findings.require(place, class.is_none_or(is_dns_subdomain), "names no runtime class");
    let security = &spec.security_context;
    findings.require(place, security.run_as_non_root && security.run_as_user > 0, "must not run as root");
    findings.require(place, !spec.containers.is_empty(), "has no container");
    let mut volumes = BTreeSet::new();
    for volume in &spec.volumes {
        let is_new = is_dns_label(&volume.name) && volumes.insert(volume.name.as_str());
        findings.require(place, is_new, format!("{:?} is no name of a volume, or there twice", volume.name));
        findings.require(
            place,
            is_one_kind(volume),
            format!("volume {:?} must be of one kind, and sound", volume.name),
        );
    }
    let mut names = BTreeSet::new();
    for container in spec.init_containers.iter().chain(&spec.containers) {
        let is_new = is_dns_label(&container.name) && names.insert(container.name.as_str());
        findings.require(place, is_new, format!("{:?} is no name of a container, or there twice", container.name));
        self::container(container, place, &volumes, findings);
    }
    // They share one network.
    let all = spec.containers.iter().flat_map(|container| &container.ports);
    ports(all.map(|port| (port.name.as_str(), port.container_port, port.protocol.as_str())), place, findings);
}

fn container(container: &Container, place: &str, volumes: &BTreeSet<&str>, findings: &mut FrozenFindings) {
    let name = &container.name;
    let mut require =
        |holds: bool, message: String| findings.require(place, holds, format!("container {name}: {message}"));
    require(is_image(&container.image), format!("{:?} is no image", container.image));
    require(
        container.image_pull_policy.as_deref().is_none_or(|name| PullPolicy::named(name).is_some()),
        "imagePullPolicy must be Always, IfNotPresent or Never".to_owned(),
    );
    let security = &container.security_context;
    require(
        !security.privileged && security.run_as_non_root && security.run_as_user > 0,
        "must not be privileged nor run as root".to_owned(),
    );
    let mut seen = BTreeSet::new();
    for variable in &container.env {
        let is_new = is_variable(&variable.name) && seen.insert(variable.name.as_str());
        require(is_new, format!("{:?} is no name of a variable, or there twice", variable.name));
    }
    let mut paths = BTreeSet::new();
    for mount in &container.volume_mounts {
        let path = mount.mount_path.as_str();
        require(volumes.contains(mount.name.as_str()), format!("there is no volume {:?}", mount.name));
        let is_sound = path.starts_with('/') && !path.contains(':') && path.split('/').all(|part| part != "..");
        let is_new = paths.insert(path.trim_end_matches('/'));
        require(is_sound && is_new, format!("{path:?} is no path of a volume, or there twice"));
        let is_inside = |folder: &String| is_inside_volume(folder);
        require(mount.sub_path.as_ref().is_none_or(is_inside), "a subPath leads out of its volume".to_owned());
    }
    if let Some(probe) = &container.startup_probe {
        let is_sound = !probe.exec.command.is_empty() && probe.period_seconds > 0 && probe.failure_threshold > 0;
        require(is_sound, "its startupProbe asks nothing".to_owned());
    }
    require(
        matches!(container.termination_message_policy.as_deref(), None | Some("File" | "FallbackToLogsOnError")),
        "terminationMessagePolicy must be File or FallbackToLogsOnError".to_owned(),
    );
    let resources = &container.resources;
    let known = |name: &String| matches!(name.as_str(), "cpu" | "memory");
    let are_known = resources.requests.keys().chain(resources.limits.keys()).all(known);
    require(are_known, "asks for something else than CPU and memory".to_owned());
    for (what, limit) in &resources.limits {
        let amount = |text: &String| text.parse::<Quantity>().ok();
        let exceeds = resources
            .requests
            .get(what)
            .and_then(amount)
            .zip(amount(limit))
            .is_some_and(|(asked, limit)| asked > limit);
        require(!exceeds, format!("asks for more {what} than its limit"));
    }
    quantities(&resources.requests, place, findings);
    quantities(&resources.limits, place, findings);
}

/// Returns whether a `subPath` is relative, and leads nowhere but into its volume (Kubernetes, "Volumes", subPath).
fn is_inside_volume(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn is_one_kind(volume: &PodVolume) -> bool {
    let PodVolume { name: _, persistent_volume_claim, empty_dir, config_map, secret } = volume;
    let kinds = [persistent_volume_claim.is_some(), empty_dir.is_some(), config_map.is_some(), secret.is_some()];
    let modes = config_map.iter().map(|map| map.default_mode).chain(secret.iter().map(|secret| secret.default_mode));
    let size = empty_dir.as_ref().and_then(|folder| folder.size_limit.as_ref());
    kinds.into_iter().filter(|is| *is).count() == 1
        && modes.into_iter().all(|mode| mode <= MODE_MAX)
        && size.is_none_or(|size| size.parse::<Quantity>().is_ok())
}

/// Checks that everything to which the pod refers is in the config: it would wait for anything else for ever.
pub(super) fn references(values: &[Value], heads: &[Head], findings: &mut FrozenFindings) {
    let there: BTreeSet<_> = heads.iter().map(|head| (head.kind.as_str(), head.metadata.name.as_str())).collect();
    for (value, head) in values.iter().zip(heads).filter(|(_, head)| head.kind == "Deployment") {
        // An object of another shape is already reported.
        let Ok(Specified { spec, .. }) = Specified::<DeploymentSpec>::deserialize(value) else {
            continue;
        };
        let pod = &spec.template.spec;
        let mut wanted = vec![("ServiceAccount", pod.service_account_name.as_str())];
        for volume in &pod.volumes {
            wanted.extend(
                volume.persistent_volume_claim.iter().map(|claim| ("PersistentVolumeClaim", claim.claim_name.as_str())),
            );
            wanted.extend(volume.config_map.iter().map(|map| ("ConfigMap", map.name.as_str())));
            wanted.extend(volume.secret.iter().map(|secret| ("Secret", secret.secret_name.as_str())));
        }
        let containers = pod.init_containers.iter().chain(&pod.containers);
        let env = containers.flat_map(|container| &container.env_from);
        wanted.extend(env.map(|from| ("Secret", from.secret_ref.name.as_str())));
        for (kind, name) in wanted {
            findings.require(
                &head.place(),
                there.contains(&(kind, name)),
                format!("refers to {kind} {name:?}, which is not there"),
            );
        }
    }
}
