//! A gateway at the other end of the channel, and the agent that it speaks to.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_cluster::kube::Client;
use agent_cluster::{ClusterConversationEnd, FIELD_MANAGER, Options, reconcile};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tunnel_proto::reconcile::{Decoder, FromCluster, Intent, NamespaceMode, Terms, ToCluster, WorkspaceReport};

/// Longest wait for anything; on a real server, for the last look at something that is deleted.
const PATIENCE: Duration = Duration::from_secs(90);

/// One agent and the gateway that it reports to.
pub(crate) struct Peer {
    channel: DuplexStream,
    decoder: Decoder<FromCluster>,
    agent: JoinSet<ClusterConversationEnd>,
    stop: CancellationToken,
    /// The newest report of each workspace.
    pub(crate) reports: BTreeMap<String, WorkspaceReport>,
    /// Reports that were received, repetitions included.
    pub(crate) received: usize,
    pub(crate) full_requests: usize,
    last_number: u64,
    /// Reports are noted as they arrive.
    pub(crate) notes: bool,
}

impl Peer {
    /// Starts an agent and agrees with it on terms.
    pub(crate) async fn start(client: Client, cluster: &str, namespaces: NamespaceMode) -> Self {
        let (near, far) = duplex(64 * 1024);
        let stop = CancellationToken::new();
        let options = Options { client, field_manager: FIELD_MANAGER.to_owned() };
        let mut agent = JoinSet::new();
        agent.spawn(reconcile(options, far, stop.clone()));
        let mut peer = Self {
            channel: near,
            decoder: Decoder::default(),
            agent,
            stop,
            reports: BTreeMap::new(),
            received: 0,
            full_requests: 0,
            last_number: 0,
            notes: true,
        };
        peer.send(&ToCluster::Terms(Terms { cluster: cluster.to_owned(), namespaces })).await;
        match peer.next().await.expect("an agent that begins") {
            FromCluster::Begin(begin) => assert!(begin.kubernetes_version.starts_with('v'), "{begin:?}"),
            other @ (FromCluster::Report(_) | FromCluster::FullRequest) => panic!("{other:?} before anything"),
        }
        peer
    }

    pub(crate) async fn send(&mut self, message: &ToCluster) {
        self.raw(&message.encode()).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.channel.write_all(bytes).await.expect("the agent listens");
    }

    pub(crate) async fn intend(&mut self, intent: Intent) {
        self.send(&ToCluster::Intent(intent)).await;
    }

    /// Takes the next message; `None` at the end.
    async fn next(&mut self) -> Option<FromCluster> {
        loop {
            if let Some(message) = self.decoder.next_message().expect("what the agent says") {
                return Some(message);
            }
            let mut piece = vec![0; 16 * 1024];
            match self.channel.read(&mut piece).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.decoder.push(&piece[..read]),
            }
        }
    }

    /// Takes what the agent says, until it has said something of this kind.
    #[track_caller]
    pub(crate) fn until(
        &mut self,
        what: &str,
        is_it: impl FnMut(&WorkspaceReport) -> bool,
    ) -> impl Future<Output = WorkspaceReport> {
        self.until_within(PATIENCE, what, is_it)
    }

    pub(crate) async fn until_within(
        &mut self,
        patience: Duration,
        what: &str,
        mut is_it: impl FnMut(&WorkspaceReport) -> bool,
    ) -> WorkspaceReport {
        let waiting = async {
            loop {
                match self.next().await? {
                    FromCluster::Report(report) => {
                        self.take(&report).await;
                        if is_it(&report) {
                            return Some(*report);
                        }
                    }
                    FromCluster::FullRequest => self.full_requests += 1,
                    FromCluster::Begin(begin) => panic!("{begin:?} a second time"),
                }
            }
        };
        match tokio::time::timeout(patience, waiting).await {
            Ok(Some(report)) => report,
            Ok(None) => panic!("the agent ended before {what}"),
            Err(_) => panic!("no {what}; the last reports: {:#?}", self.reports),
        }
    }

    async fn take(&mut self, report: &WorkspaceReport) {
        self.received += 1;
        // A gateway takes a lower one for a repetition, whatever terms it has said meanwhile.
        assert!(report.number > self.last_number, "{} after {}", report.number, self.last_number);
        self.last_number = report.number;
        if self.notes {
            self.send(&ToCluster::Noted { number: report.number }).await;
        }
        self.reports.insert(report.workspace.clone(), report.clone());
    }

    /// Takes what the agent says for so long.
    pub(crate) async fn listen(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(Some(message)) = tokio::time::timeout_at(end, self.next()).await {
            match message {
                FromCluster::Report(report) => self.take(&report).await,
                FromCluster::FullRequest => self.full_requests += 1,
                FromCluster::Begin(begin) => panic!("{begin:?} a second time"),
            }
        }
    }

    /// Waits until a generation is applied and all is well, if that was not told already.
    pub(crate) async fn applied(&mut self, workspace: &str, generation: u64) -> WorkspaceReport {
        let is_it = |report: &WorkspaceReport| {
            report.workspace == workspace && report.applied >= generation && report.failure.is_none()
        };
        match self.reports.get(workspace).filter(|report| is_it(report)) {
            Some(report) => report.clone(),
            None => self.until(&format!("{workspace} with generation {generation}"), is_it).await,
        }
    }

    /// Waits for a report that shows the Deployment, if the last one did not.
    pub(crate) async fn deployed(&mut self, workspace: &str) -> WorkspaceReport {
        let is_it = |report: &WorkspaceReport| report.workspace == workspace && report.deployment.is_some();
        match self.reports.get(workspace).filter(|report| is_it(report)) {
            Some(report) => report.clone(),
            None => self.until("Deployment", is_it).await,
        }
    }

    pub(crate) async fn failed(&mut self, workspace: &str) -> WorkspaceReport {
        self.until("failure", |report| report.workspace == workspace && report.failure.is_some()).await
    }

    pub(crate) async fn terminated(&mut self, workspace: &str) -> WorkspaceReport {
        let is_done =
            |report: &WorkspaceReport| report.termination.as_ref().is_some_and(|termination| termination.is_done);
        self.until("end of the workspace", |report| report.workspace == workspace && is_done(report)).await
    }

    /// The gateway goes away; the agent ends what it does.
    pub(crate) async fn hang_up(mut self) -> ClusterConversationEnd {
        self.channel.shutdown().await.expect("the agent listens");
        self.end().await
    }

    pub(crate) async fn end(mut self) -> ClusterConversationEnd {
        let ended = tokio::time::timeout(PATIENCE, self.agent.join_next()).await;
        ended.expect("it ends").expect("it was started").expect("no panic")
    }

    pub(crate) async fn stop(self) -> ClusterConversationEnd {
        self.stop.cancel();
        self.end().await
    }

    /// As `kill -9` does.
    pub(crate) async fn kill(mut self) {
        self.agent.shutdown().await;
    }

    /// Waits for `done` while the agent talks; returns whether the talk was over first.
    pub(crate) async fn talk_until(
        &mut self,
        done: impl Future<Output = ()>,
        mut is_over: impl FnMut(&WorkspaceReport) -> bool,
    ) -> bool {
        let mut done = std::pin::pin!(done);
        let talk = async {
            loop {
                match self.next().await {
                    Some(FromCluster::Report(report)) => {
                        self.take(&report).await;
                        if is_over(&report) {
                            return;
                        }
                    }
                    Some(FromCluster::FullRequest | FromCluster::Begin(_)) => {}
                    None => std::future::pending().await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, async {
            tokio::select! {
                biased;
                () = done.as_mut() => false,
                () = talk => true,
            }
        })
        .await
        .expect("it is killed or done")
    }
}
