//! The cluster: whether its API server answers, and the rights of a cluster agent there.

use std::path::PathBuf;

use ::doctor::{Check, Finding, FindingId, Outcome};
use agent_cluster::kube::Client;
use agent_cluster::rights::{self, RightsFound, RightsPlaces};
use tunnel_link::causes;

use crate::cluster::cluster_config;

const CLUSTER: &str = "cluster";
const RIGHTS: &str = "cluster: rights";

/// Rights that a finding names; a person reads no more.
const NAMED_MAX: usize = 6;

/// A cluster, as its agent reaches it.
#[derive(Clone, Debug)]
pub struct ClusterPlace {
    /// Kubeconfig; `None` for the cluster that this program runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease; `None` for the default one.
    pub namespace: Option<String>,
    /// Namespace of all workspaces; `None` where each has one of its own.
    pub shared: Option<String>,
}

/// Asks the API server.
pub(super) async fn look(place: ClusterPlace) -> Vec<Check> {
    match asked(&place).await {
        Ok((server, found)) => {
            vec![Check::new(CLUSTER, Outcome::Passed(format!("{server} answers"))), Check::new(RIGHTS, judged(&found))]
        }
        Err(why) => vec![
            Check::new(CLUSTER, Finding::new(FindingId::ClusterUnreachable, why)),
            Check::skipped(RIGHTS, "the API server cannot be asked"),
        ],
    }
}

async fn asked(place: &ClusterPlace) -> Result<(String, RightsFound), String> {
    // The Kubernetes client uses the process's default crypto provider; one that is there already is as good.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let config = cluster_config(place.kubeconfig.as_deref()).await.map_err(|error| causes::one_line(&error))?;
    let own = place.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| causes::one_line(&error))?;
    let found = rights::ask(client, &RightsPlaces { own, shared: place.shared.clone() }).await?;
    Ok((server, found))
}

fn judged(found: &RightsFound) -> Outcome {
    let RightsFound { needed, missing } = found;
    if missing.is_empty() {
        return Outcome::Passed(format!("all {needed} that are needed"));
    }
    let named: Vec<_> = missing.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = missing.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let what = format!("{} of {needed} are missing: {}{more}", missing.len(), named.join(", "));
    Finding::new(FindingId::ClusterRightsMissing, what).into()
}
