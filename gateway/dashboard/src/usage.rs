//! Amounts that a user's workspaces take in each cluster that bounds them: lines of the list of workspaces.

use std::collections::BTreeMap;

use gateway_store::ManagedWorkspace;
use gateway_types::UserName;
use gateway_types::quota::QuotaItem;
use gateway_workspaces::service::{QuotaReport, Workspaces};

/// Most clusters that are shown: each is a question to the store.
const CLUSTERS_MAX: usize = 4;

/// Returns a line for each cluster of these workspaces that bounds what a user takes. What cannot be read is left out: the list does
/// not depend on it.
pub(super) async fn lines(
    workspaces: &Workspaces,
    managed: impl Iterator<Item = &ManagedWorkspace>,
    user: &UserName,
) -> Vec<String> {
    let clusters = managed.filter_map(|managed| managed.kubernetes());
    let clusters: BTreeMap<_, _> = clusters.map(|state| (&state.cluster_name, state.cluster)).collect();
    let mut lines = Vec::new();
    for (name, cluster) in clusters.into_iter().take(CLUSTERS_MAX) {
        if let Ok(report) = workspaces.quota_report(cluster, user).await
            && let Some(line) = line(&report)
        {
            lines.push(format!("Yours in {name}: {line}"));
        }
    }
    lines
}

fn line(report: &QuotaReport) -> Option<String> {
    let (used, quota) = (&report.usage.user, &report.quotas.user);
    let bounded = QuotaItem::ALL.into_iter().filter_map(|item| Some((item, quota.of(item)?)));
    let parts: Vec<String> = bounded
        .map(|(item, allowed)| {
            // The word for the item is said once, behind the limit.
            let told = item.told(used.of(item));
            format!("{} of {}", told.split(' ').next().unwrap_or_default(), item.told(allowed))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use gateway_store::ClusterUsage;
    use gateway_types::quota::{Quota, Quotas, Usage};

    use super::*;

    #[test]
    fn line_has_what_is_bounded_and_nothing_else() {
        let user = Usage { workspaces: 4, running: 2, cpu_millis: 1500, ..Usage::default() };
        let usage = ClusterUsage { cluster: user, user };
        assert_eq!(line(&QuotaReport { quotas: Quotas::default(), usage }), None);
        let quota = Quota { running: Some(3), cpu_millis: Some(4000), ..Quota::default() };
        let report = QuotaReport { quotas: Quotas { user: quota, ..Quotas::default() }, usage };
        assert_eq!(line(&report).as_deref(), Some("2 of 3 running workspaces, 1.5 of 4 CPU"));
    }
}
