//! The conversation with a gateway over one channel: terms, then intents down and reports up, until the channel ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use tunnel_proto::reconcile::{
    Begin, Decoder, FailureKind, FromCluster, Intent, MessageError, SecretRef, Terms, ToCluster,
};
use tunnel_proto::state::{ActualState, DesiredState};
use work_queue::{Completion, until};

use crate::api::CancelableApi;
use crate::books::{Attempted, ConversationBooks};
use crate::config::{self, Scope};
use crate::controller::Controller;
use crate::observe;
use crate::orphans;
use crate::reconcile::ReconcileContext;
use crate::resources::Resources;
use crate::terminate::check_namespace;
use crate::worker::{Mailbox, PassEnd};
use crate::{ClusterConversationEnd, Options};

/// Most bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Interval between two looks for reports that the gateway has not noted.
const REPEAT_PERIOD: Duration = Duration::from_secs(1);

/// Longest time for the API server to say its version, which is only for people.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest time for the last requests of an ended conversation: they must not be carried out after those of the next
/// one.
const LAST_REQUESTS: Duration = Duration::from_secs(12);

/// Changes of pull secrets that wait to be heard; a full queue makes the watches wait.
const CHANGES_MAX: usize = 64;

/// Books of a conversation, and notifications of their changes.
pub(crate) struct ConversationShared {
    books: Mutex<ConversationBooks>,
    news: Notify,
    /// Tells of changes of Deployments and pods.
    movements: watch::Sender<()>,
    started: Instant,
}

impl ConversationShared {
    /// Makes the state of a conversation whose channel carried reports up to a number.
    pub(crate) fn after(last_number: u64) -> Self {
        let books = Mutex::new(ConversationBooks::after(last_number));
        Self { books, news: Notify::new(), movements: watch::Sender::default(), started: Instant::now() }
    }

    /// Reads the books.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&ConversationBooks) -> R) -> R {
        read(&self.books.lock())
    }

    /// Notes that Deployments or pods have changed.
    pub(crate) fn moved(&self) {
        self.movements.send_replace(());
    }

    /// Returns a receiver that is told when Deployments or pods change.
    pub(crate) fn movements(&self) -> watch::Receiver<()> {
        self.movements.subscribe()
    }

    /// Changes the books, and wakes the writer to the gateway.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut ConversationBooks) -> R) -> R {
        let result = change(&mut self.books.lock());
        self.news.notify_one();
        result
    }

    fn next(&self) -> Option<FromCluster> {
        self.books.lock().next(self.started.elapsed())
    }

    fn repeat(&self) -> usize {
        self.books.lock().repeat(self.started.elapsed())
    }
}

/// Incoming half of the channel.
pub(crate) struct Incoming<C> {
    half: ReadHalf<C>,
    decoder: Decoder<ToCluster>,
    buffer: Vec<u8>,
}

impl<C: AsyncRead> Incoming<C> {
    /// Returns the next message; `None` at the end.
    ///
    /// Cancel safety: safe; what was read is kept.
    async fn next(&mut self) -> Result<Option<ToCluster>, ClusterConversationEnd> {
        loop {
            if let Some(message) = self.decoder.next_message().map_err(ClusterConversationEnd::Protocol)? {
                return Ok(Some(message));
            }
            let read = self.half.read(&mut self.buffer).await.map_err(ClusterConversationEnd::Broken)?;
            match self.buffer.get(..read) {
                Some([]) | None => return Ok(None),
                Some(piece) => self.decoder.push(piece),
            }
        }
    }
}

/// Outgoing half of the channel.
struct Sending<C> {
    half: WriteHalf<C>,
    /// Rest of a message that was begun: if a conversation leaves one, the next conversation in the channel sends it
    /// first.
    unsent: Bytes,
}

impl<C: AsyncWrite> Sending<C> {
    /// Sends a message behind the rest of the one before.
    ///
    /// Cancel safety: what is not sent of it is kept, and goes first the next time.
    async fn send(&mut self, message: Bytes) -> std::io::Result<()> {
        self.finish().await?;
        self.unsent = message;
        self.finish().await
    }

    /// Sends the rest of a message that was begun.
    ///
    /// Cancel safety: safe.
    async fn finish(&mut self) -> std::io::Result<()> {
        while !self.unsent.is_empty() {
            let sent = self.half.write(&self.unsent).await?;
            if sent == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.unsent.advance(sent);
        }
        Ok(())
    }
}

/// Holds the conversation over a channel until it ends.
pub(crate) async fn run<C>(options: Options, channel: C, stop: CancellationToken) -> ClusterConversationEnd
where
    C: AsyncRead + AsyncWrite + Send,
{
    let (read, write) = tokio::io::split(channel);
    let mut outgoing = Sending { half: write, unsent: Bytes::new() };
    let mut incoming = Incoming { half: read, decoder: Decoder::default(), buffer: vec![0; READ_BYTES] };
    let first = tokio::select! {
        () = stop.cancelled() => return ClusterConversationEnd::Stopped,
        first = incoming.next() => first,
    };
    let mut terms = match first {
        Ok(Some(ToCluster::Terms(terms))) => terms,
        Ok(Some(ToCluster::Intent(_) | ToCluster::RoundEnd { .. } | ToCluster::Noted { .. })) => {
            return ClusterConversationEnd::Protocol(MessageError::UnknownBody);
        }
        Ok(None) => return ClusterConversationEnd::Closed,
        Err(end) => return end,
    };
    let api = CancelableApi::new(options.client, &options.field_manager);
    let begin = Begin { agent_version: env!("CARGO_PKG_VERSION").to_owned(), kubernetes_version: version(&api).await };
    info!(cluster = terms.cluster, kubernetes = begin.kubernetes_version, ?terms.namespaces, "reconciling workspaces");
    let begin = FromCluster::Begin(begin).encode();
    if let Err(error) = outgoing.send(begin).await {
        return ClusterConversationEnd::Broken(error);
    }
    let mut is_again = false;
    // Numbers are the channel's: the gateway takes one that is not higher than those before for a repetition.
    let mut last_number = 0;
    loop {
        let mut conversation = Conversation::new(api.clone(), terms, is_again, last_number);
        let next = conversation.go(&mut incoming, &mut outgoing, &stop).await;
        last_number = conversation.shared.read(ConversationBooks::last_number);
        conversation.end(matches!(next, AfterConversation::End(ClusterConversationEnd::Stopped))).await;
        match next {
            // Work under other terms is found in the cluster; every report that counts is sent again.
            AfterConversation::Terms(new) => terms = new,
            AfterConversation::End(end) => return end,
        }
        is_again = true;
    }
}

async fn version(api: &CancelableApi) -> String {
    let version = api.get_once("/version", VERSION_TIMEOUT).await;
    let version = version.ok().flatten().unwrap_or_default();
    version.get("gitVersion").and_then(Value::as_str).unwrap_or("unknown").to_owned()
}

/// Continuation after a conversation under some terms.
enum AfterConversation {
    Terms(Terms),
    End(ClusterConversationEnd),
}

/// Extent of the watches on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// Nothing: the gateway has named no workspace. An agent for environments alone may not watch anything.
    Nothing,
    /// Deployments and pods.
    Workspaces,
    /// Warnings too.
    Warnings,
}

/// Conversation under one set of terms.
struct Conversation {
    terms: Terms,
    shared: Arc<ConversationShared>,
    context: Arc<ReconcileContext>,
    controller: Controller,
    watches: JoinSet<()>,
    closing: CancellationToken,
    changes: (mpsc::Sender<SecretRef>, mpsc::Receiver<SecretRef>),
    watched: Watched,
    /// A round has ended: all workspaces have been named.
    is_named: bool,
}

impl Conversation {
    fn new(api: CancelableApi, terms: Terms, is_again: bool, last_number: u64) -> Self {
        let shared = Arc::new(ConversationShared::after(last_number));
        if is_again {
            shared.change(ConversationBooks::want_full);
        }
        let context = Arc::new(ReconcileContext {
            api,
            resources: Resources::default(),
            sources: Arc::default(),
            mode: terms.namespaces.clone(),
        });
        Self {
            terms,
            controller: Controller::new(context.clone(), shared.clone()),
            shared,
            context,
            watches: JoinSet::new(),
            closing: CancellationToken::new(),
            changes: mpsc::channel(CHANGES_MAX),
            watched: Watched::Nothing,
            is_named: false,
        }
    }

    async fn go<C: AsyncRead + AsyncWrite>(
        &mut self,
        incoming: &mut Incoming<C>,
        outgoing: &mut Sending<C>,
        stop: &CancellationToken,
    ) -> AfterConversation {
        let shared = self.shared.clone();
        let mut writing = std::pin::pin!(speak(&shared, outgoing));
        loop {
            self.controller.start();
            let due = self.controller.next_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => return AfterConversation::End(ClusterConversationEnd::Stopped),
                error = &mut writing => return AfterConversation::End(ClusterConversationEnd::Broken(error)),
                Some(completion) = self.controller.runner.next() => self.pass_ended(completion),
                Some(secret) = self.changes.1.recv() => self.controller.secret_changed(&secret),
                Ok(()) = self.controller.movements.changed() => self.controller.moved(),
                () = until(due) => {}
                message = incoming.next() => match message {
                    Ok(Some(ToCluster::Terms(terms))) if terms == self.terms => {}
                    Ok(Some(ToCluster::Terms(terms))) => return AfterConversation::Terms(terms),
                    Ok(Some(ToCluster::Intent(intent))) => self.intend(intent),
                    Ok(Some(ToCluster::RoundEnd { round, workspaces })) => self.round_ended(round, workspaces),
                    Ok(Some(ToCluster::Noted { number })) => self.shared.change(|books| books.noted(number)),
                    Ok(None) => return AfterConversation::End(ClusterConversationEnd::Closed),
                    Err(end) => return AfterConversation::End(end),
                },
            }
        }
    }

    /// Ends all tasks. Requests that were sent are waited for, unless another agent may already be at work.
    async fn end(mut self, is_at_once: bool) {
        self.closing.cancel();
        self.watches.shutdown().await;
        if !is_at_once {
            let last = self.controller.runner.drain();
            if tokio::time::timeout(LAST_REQUESTS, last).await.is_err() {
                warn!("requests to the Kubernetes API took too long and were given up");
            }
        }
        self.controller.runner.abort().await;
    }

    /// Handles the end of a pass. If it panicked, the gateway is asked to send everything again.
    fn pass_ended(&mut self, completion: Completion<String, Option<PassEnd>>) {
        let Err(error) = self.controller.settle(completion) else { return };
        error!(%error, "a pass over a workspace panicked: requesting a full round");
        self.controller.clear();
        self.shared.change(ConversationBooks::want_full);
    }

    fn intend(&mut self, intent: Intent) {
        let name = intent.workspace.clone();
        if intent.desired == DesiredState::Terminated && intent.actual == ActualState::Terminated {
            self.forget(&name);
            return;
        }
        let Intent { generation, round, .. } = intent;
        let counts = self.shared.change(|books| books.intend(&name, &intent.namespace, generation, round));
        self.watch();
        let read = match counts {
            Ok(false) => {
                debug!(workspace = name, generation, "an intent that a newer one has replaced");
                return;
            }
            Err(before) => Err(format!("the workspace is in the namespace {before} and cannot move")),
            Ok(true) => self.read(&intent),
        };
        match read {
            Ok(inventories) => {
                for secret in &intent.pull_secrets {
                    self.follow(secret);
                }
                let (scope, closing) = (self.scope(&name, &intent.namespace), self.closing.child_token());
                self.controller.add(&name, || Mailbox::new(scope, closing)).put(intent, inventories);
            }
            Err(message) => {
                warn!(workspace = name, generation, message, "an intent cannot be carried out");
                if let Some(mailbox) = self.controller.get(&name) {
                    mailbox.put_nothing();
                }
                let failure = Some((FailureKind::Config, message));
                self.shared
                    .change(|books| books.attempted(&name, Attempted { generation, failure, ..Attempted::default() }));
            }
        }
    }

    /// Checks the configuration of an intent; returns its inventories.
    fn read(&self, intent: &Intent) -> Result<std::collections::BTreeSet<String>, String> {
        check_namespace(&self.terms.namespaces, &intent.namespace)?;
        let is_terminated = intent.desired == DesiredState::Terminated;
        let scope = self.scope(&intent.workspace, &intent.namespace);
        let groups = config::parse(&intent.config, &scope, is_terminated).map_err(|error| error.to_string())?;
        Ok(groups.iter().map(|group| group.name().to_owned()).collect())
    }

    fn scope(&self, workspace: &str, namespace: &str) -> Scope {
        let cluster = self.terms.cluster.clone();
        Scope { cluster, workspace: workspace.to_owned(), namespace: namespace.to_owned() }
    }

    fn follow(&mut self, secret: &SecretRef) {
        if self.context.sources.add(secret) {
            let sources = self.context.sources.clone();
            let api = self.context.api.clone();
            self.watches.spawn(sources.follow(api, secret.clone(), self.changes.0.clone()));
        }
    }

    fn forget(&mut self, name: &str) {
        if self.controller.remove(name) {
            info!(workspace = name, "the gateway knows that the workspace is over");
        }
        self.shared.change(|books| books.forget(name));
    }

    /// Notes that all workspaces were named: any others in the cluster are orphans, and reported in the log.
    fn round_ended(&mut self, round: u64, workspaces: u32) {
        let named = self.shared.change(|books| books.named_in(round));
        info!(round, workspaces, "the gateway has named all workspaces");
        // Workspaces that are over are named too, and forgotten at once.
        if u32::try_from(named).unwrap_or(u32::MAX) > workspaces {
            warn!(round, workspaces, named, "the gateway's count of workspaces differs from the named ones");
        }
        self.is_named = true;
        if self.watched != Watched::Nothing {
            self.watch();
        }
        let (api, terms, shared) = (self.context.api.clone(), self.terms.clone(), self.shared.clone());
        self.watches.spawn(async move { orphans::look(&api, &terms, &shared, round).await });
    }

    /// Watches the cluster's objects of workspaces, now that there are workspaces.
    fn watch(&mut self) {
        let with = || (self.context.api.client().clone(), self.terms.clone(), self.shared.clone());
        if self.watched == Watched::Nothing {
            self.watched = Watched::Workspaces;
            let (client, terms, shared) = with();
            self.watches.spawn(observe::deployments(client, terms, shared));
            let (client, terms, shared) = with();
            self.watches.spawn(observe::pods(client, terms, shared));
        }
        // Only once all workspaces were named is it known whose objects the warnings can be about.
        if self.watched == Watched::Workspaces && self.is_named {
            self.watched = Watched::Warnings;
            let (client, terms, shared) = with();
            self.watches.spawn(observe::warnings(client, terms, shared));
        }
    }
}

/// Writes messages as they become due. Ends when it cannot.
async fn speak<C: AsyncRead + AsyncWrite>(shared: &ConversationShared, outgoing: &mut Sending<C>) -> std::io::Error {
    if let Err(error) = outgoing.finish().await {
        return error;
    }
    loop {
        let mut said = 0;
        while let Some(message) = shared.next() {
            said += 1;
            if let Err(error) = outgoing.send(message.encode()).await {
                return error;
            }
        }
        if said > 0
            && let Err(error) = outgoing.half.flush().await
        {
            return error;
        }
        tokio::select! {
            () = shared.news.notified() => {}
            () = tokio::time::sleep(REPEAT_PERIOD) => {
                let repeated = shared.repeat();
                if repeated > 0 {
                    debug!(repeated, "sending reports again that the gateway has not acknowledged");
                }
            }
        }
    }
}
