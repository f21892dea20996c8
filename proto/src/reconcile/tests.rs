use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::state::{ActualState, DesiredState};

fn intent(config: Vec<u8>) -> Intent {
    Intent {
        workspace: "app".into(),
        namespace: "ws-app".into(),
        generation: 7,
        desired: DesiredState::Stopped,
        actual: ActualState::Running,
        round: 3,
        config: config.into(),
        pull_secrets: vec![SecretRef { name: "registry".into(), namespace: "images".into() }],
    }
}

fn report() -> WorkspaceReport {
    let blocker = Blocker { object: "Pod a".into(), finalizers: vec!["x/y".into()], since: 12, message: "held".into() };
    WorkspaceReport {
        number: 9,
        workspace: "app".into(),
        namespace: "ws-app".into(),
        applied: 7,
        deployment: Some(Deployment {
            resource_version: "123".into(),
            generation: 2,
            observed_generation: 1,
            replicas_wanted: 1,
            replicas: 1,
            updated: 1,
            available: 0,
            unavailable: 1,
            conditions: vec![Condition {
                kind: "Progressing".into(),
                status: "True".into(),
                reason: "ReplicaSetUpdated".into(),
                message: "it goes on".into(),
            }],
        }),
        details: vec![ObjectDetail { object: "Pod a".into(), reason: "ImagePullBackOff".into(), message: "no".into() }],
        termination: Some(Termination { is_done: false, blockers: vec![blocker] }),
        failure: Some(ReconcileFailure { kind: FailureKind::Kubernetes, generation: 7, message: "forbidden".into() }),
        start: Some(StartProgress { steps: vec![StartStep::Node, StartStep::Agent], done: 1 }),
    }
}

fn all_down() -> Vec<ToCluster> {
    let terms = |namespaces| ToCluster::Terms(Terms { cluster: "prod".into(), namespaces });
    vec![
        terms(NamespaceMode::Unique),
        terms(NamespaceMode::Shared("dev".into())),
        ToCluster::Intent(intent(vec![1; 300])),
        ToCluster::Intent(Intent { config: Bytes::new(), pull_secrets: Vec::new(), round: 0, ..intent(Vec::new()) }),
        ToCluster::RoundEnd { round: 3, workspaces: 2 },
        ToCluster::Noted { number: u64::MAX },
    ]
}

fn all_up() -> Vec<FromCluster> {
    let begin = Begin { agent_version: "0.1.0".into(), kubernetes_version: "v1.34.2".into() };
    let short =
        WorkspaceReport { number: 1, workspace: "a".into(), namespace: "b".into(), ..WorkspaceReport::default() };
    vec![
        FromCluster::Begin(begin),
        FromCluster::Report(Box::new(report())),
        FromCluster::Report(Box::new(short)),
        FromCluster::FullRequest,
    ]
}

/// Feeds bytes in pieces of the given sizes, again and again, and returns what comes out.
fn read<M: Message>(bytes: &[u8], sizes: &[usize]) -> Result<Vec<M>, MessageError> {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        decoder.push(piece);
        while let Some(message) = decoder.next_message()? {
            messages.push(message);
        }
        rest = after;
        if rest.is_empty() {
            return Ok(messages);
        }
    }
    Ok(messages)
}

proptest! {
    #[test]
    fn messages_survive_any_cut(sizes in proptest::collection::vec(1_usize..400, 1..20)) {
        let down: Vec<u8> = all_down().iter().flat_map(|message| message.encode().to_vec()).collect();
        prop_assert_eq!(read::<ToCluster>(&down, &sizes), Ok(all_down()));
        let up: Vec<u8> = all_up().iter().flat_map(|message| message.encode().to_vec()).collect();
        prop_assert_eq!(read::<FromCluster>(&up, &sizes), Ok(all_up()));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        drop(read::<ToCluster>(&bytes, &[7]));
        drop(read::<FromCluster>(&bytes, &[7]));
    }

    #[test]
    fn damaged_messages_never_become_an_intent_of_another_workspace_name(at in 0_usize..60, bit in 0_u8..8) {
        let mut bytes = ToCluster::Intent(intent(vec![1; 20])).encode().to_vec();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(messages) = read::<ToCluster>(&bytes, &[1000]) {
            for message in messages {
                if let ToCluster::Intent(intent) = message {
                    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
                    prop_assert!(intent.workspace.bytes().all(plain));
                }
            }
        }
    }
}

#[test]
fn length_that_only_promises_costs_nothing_and_ends_the_conversation() {
    let mut decoder = Decoder::<ToCluster>::default();
    let mut promise = Vec::new();
    prost::encoding::encode_varint(1 << 40, &mut promise);
    decoder.push(&promise);
    let error = MessageError::TooLong { bytes: 1 << 40 };
    assert_eq!(decoder.next_message(), Err(error));
    decoder.push(&ToCluster::Noted { number: 1 }.encode());
    assert_eq!(decoder.next_message(), Err(error), "what follows cannot be trusted");
}

#[test]
fn endless_length_and_unknown_body_are_refused() {
    let mut decoder = Decoder::<ToCluster>::default();
    decoder.push(&[0xff; 10]);
    assert_eq!(decoder.next_message(), Err(MessageError::Malformed));
    let mut decoder = Decoder::<FromCluster>::default();
    decoder.push(&[0]);
    assert_eq!(decoder.next_message(), Err(MessageError::UnknownBody));
}

#[test]
fn fields_that_no_peer_sends_are_named() {
    let refused = |message: ToCluster, field| {
        assert_eq!(read::<ToCluster>(&message.encode(), &[1000]), Err(MessageError::Field { field }));
    };
    for bad in ["", "A", "a/b", "a\n", "é", &"a".repeat(NAME_BYTES_MAX + 1)] {
        refused(ToCluster::Intent(Intent { workspace: bad.into(), ..intent(Vec::new()) }), "workspace");
    }
    let many = vec![SecretRef { name: "a".into(), namespace: "b".into() }; PULL_SECRETS_MAX + 1];
    refused(ToCluster::Intent(Intent { pull_secrets: many, ..intent(Vec::new()) }), "pull_secrets");
    refused(
        ToCluster::Terms(Terms { cluster: "c".into(), namespaces: NamespaceMode::Shared(String::new()) }),
        "shared_namespace",
    );
    let nameless = FromCluster::Report(Box::new(WorkspaceReport { number: 0, ..report() }));
    assert_eq!(read::<FromCluster>(&nameless.encode(), &[1000]), Err(MessageError::Field { field: "number" }));
    // An intent whose desired state is not known here must not be guessed.
    let strange = wire_intent(99);
    assert_eq!(read::<ToCluster>(&strange, &[1000]), Err(MessageError::Field { field: "desired" }));
}

fn wire_intent(desired: i32) -> Bytes {
    let intent = crate::wire::Intent { workspace: "a".into(), namespace: "b".into(), desired, ..Default::default() };
    delimited(&crate::wire::ToCluster { body: Some(crate::wire::to_cluster::Body::Intent(intent)) })
}

#[test]
fn texts_of_clusters_are_one_line_and_lists_are_bounded() {
    let detail = ObjectDetail { object: "Pod\u{1b}[2J a".into(), reason: "x\ny".into(), message: "é".repeat(1_000) };
    let wordy = WorkspaceReport { details: vec![detail; ENTRIES_MAX + 5], ..report() };
    let read = read::<FromCluster>(&FromCluster::Report(Box::new(wordy)).encode(), &[1000]).expect("good");
    let [FromCluster::Report(report)] = read.as_slice() else { panic!("one report") };
    assert_eq!(report.details.len(), ENTRIES_MAX);
    let first = &report.details[0];
    assert_eq!((first.object.as_str(), first.reason.as_str()), ("Pod [2J a", "x y"));
    assert_eq!(first.message.len(), DETAIL_BYTES_MAX);
}
