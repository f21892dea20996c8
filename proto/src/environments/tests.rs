use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn object(name: &str) -> ObjectRef {
    ObjectRef {
        group: "rbac.authorization.k8s.io".into(),
        version: "v1".into(),
        kind: "RoleBinding".into(),
        namespace: "env-1".into(),
        name: name.into(),
        uid: "0f9b4f3e-5d0f-4a51-8b79-2f8d6f8a0c11".into(),
    }
}

fn scope() -> Scope {
    let identity = CallIdentity {
        user: "gitlab:ci_job:7".into(),
        groups: vec!["gitlab:ci_job".into(), "gitlab:project:3".into()],
        extra: vec![("agent.gitlab.com/username".into(), vec!["jo".into()])],
    };
    Scope {
        cluster: "prod".into(),
        environment: "review-3-1".into(),
        inventory: "environment-review-3-1-0a1b2c3d".into(),
        identity: Some(identity),
        kept_namespaces: vec!["shop".into()],
    }
}

fn calls() -> Vec<Call> {
    let itself = Scope { identity: None, kept_namespaces: Vec::new(), ..scope() };
    let unknown = ObjectRef { uid: String::new(), version: String::new(), group: String::new(), ..object("a:b") };
    vec![
        Call::Apply(Apply {
            scope: scope(),
            objects: Bytes::from_static(b"[{}]"),
            tracked: vec![object("a"), unknown],
        }),
        Call::Remove(Remove { scope: itself, tracked: Vec::new() }),
    ]
}

fn answers() -> Vec<CallAnswer> {
    let steps = [
        ObjectStep::Applied,
        ObjectStep::Unchanged,
        ObjectStep::Deleting,
        ObjectStep::Gone,
        ObjectStep::Kept,
        ObjectStep::Failed,
        ObjectStep::Waiting,
    ];
    let codes = [
        ObjectErrorCode::NotOwned,
        ObjectErrorCode::Forbidden,
        ObjectErrorCode::Invalid,
        ObjectErrorCode::UnknownKind,
        ObjectErrorCode::NamespaceMissing,
        ObjectErrorCode::Conflict,
        ObjectErrorCode::Unavailable,
        ObjectErrorCode::Identity,
        ObjectErrorCode::Superseded,
    ];
    let error = |code| ObjectError { object: Some(object("a")), code, message: "why".into() };
    let mut errors = codes.map(error).to_vec();
    errors.push(ObjectError { object: None, ..error(ObjectErrorCode::Unavailable) });
    let left =
        Blocker { object: "Namespace n".into(), finalizers: vec!["x/y".into()], since: 12, message: "held".into() };
    let done = Done { objects: vec![object("a"), object("b")], errors, left: vec![left] };
    let progress = |step| CallAnswer::Progress(CallProgress { object: object("a"), step, message: "so".into() });
    steps.map(progress).into_iter().chain([CallAnswer::Done(done), CallAnswer::Done(Done::default())]).collect()
}

fn read<M: Message>(bytes: &[u8], sizes: &[usize]) -> Result<Vec<M>, MessageError> {
    let mut decoder = Decoder::default();
    let (mut messages, mut rest) = (Vec::new(), bytes);
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        decoder.push(piece);
        while let Some(message) = decoder.next_message()? {
            messages.push(message);
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Ok(messages)
}

proptest! {
    #[test]
    fn calls_and_answers_survive_any_cut(sizes in proptest::collection::vec(1_usize..400, 1..20)) {
        let down: Vec<u8> = calls().iter().flat_map(|call| call.encode().to_vec()).collect();
        prop_assert_eq!(read::<Call>(&down, &sizes), Ok(calls()));
        let up: Vec<u8> = answers().iter().flat_map(|answer| answer.encode().to_vec()).collect();
        prop_assert_eq!(read::<CallAnswer>(&up, &sizes), Ok(answers()));
    }

    #[test]
    fn any_bytes_are_a_call_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        drop(read::<Call>(&bytes, &[7]));
        drop(read::<CallAnswer>(&bytes, &[7]));
    }

    #[test]
    fn damaged_calls_never_name_an_object_that_leads_elsewhere(at in 0_usize..400, bit in 0_u8..8) {
        let mut bytes = calls()[0].encode().to_vec();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        for call in read::<Call>(&bytes, &[1000]).into_iter().flatten() {
            prop_assert!(call.scope().inventory.starts_with(INVENTORY_PREFIX));
            if let Call::Apply(apply) = call {
                prop_assert!(apply.tracked.iter().all(|object| !object.name.contains('/')));
            }
        }
    }
}

#[track_caller]
fn refused(call: &Call, field: &'static str) {
    assert_eq!(read::<Call>(&call.encode(), &[1000]), Err(MessageError::Field { field }), "{call:?}");
}

#[test]
fn calls_that_no_gateway_makes_are_refused_by_field() {
    let remove = |scope, tracked| Call::Remove(Remove { scope, tracked });
    for inventory in ["w-workspace-inventory", "", "environment-A", "environment-a/b"] {
        refused(&remove(Scope { inventory: inventory.into(), ..scope() }, Vec::new()), "inventory");
    }
    refused(&remove(Scope { environment: "a b".into(), ..scope() }, Vec::new()), "environment");
    refused(&remove(Scope { cluster: String::new(), ..scope() }, Vec::new()), "cluster");
    refused(&remove(scope(), vec![object("a"); TRACKED_MAX + 1]), "tracked");
    for name in ["", ".", "..", "a/b", "a?b", "a%2fb", "a b", "a\nb", "é", &"a".repeat(254)] {
        refused(&remove(scope(), vec![object(name)]), "object");
    }
    for (namespace, group, kind) in
        [("a/b", "", "A"), ("..", "", "A"), ("a", "b/v1", "A"), ("a", "", ""), ("a", "", "A/b")]
    {
        let object = ObjectRef { namespace: namespace.into(), group: group.into(), kind: kind.into(), ..object("a") };
        refused(&remove(scope(), vec![object]), "object");
    }
    let kept = |kept_namespaces| remove(Scope { kept_namespaces, ..scope() }, Vec::new());
    refused(&kept(vec!["a".into(); KEPT_NAMESPACES_MAX + 1]), "kept_namespaces");
    for name in ["", "..", "a/b", &"a".repeat(64)] {
        refused(&kept(vec!["shop".into(), name.into()]), "kept_namespaces");
    }
    let objects = Bytes::from(vec![b' '; OBJECTS_BYTES_MAX + 1]);
    refused(&Call::Apply(Apply { scope: scope(), objects, tracked: Vec::new() }), "objects");
    let scopeless = crate::wire::EnvironmentCall {
        body: Some(crate::wire::environment_call::Body::Remove(crate::wire::EnvironmentRemove::default())),
    };
    let error = MessageError::Field { field: "scope" };
    assert_eq!(read::<Call>(&crate::reconcile::delimited(&scopeless), &[100]), Err(error));
}

#[test]
fn identities_that_could_not_stand_in_a_header_are_refused() {
    let identity = || scope().identity.expect("an identity");
    let bad = [
        CallIdentity { user: String::new(), ..identity() },
        CallIdentity { user: "gitlab:ci_job:7\r\nImpersonate-Group: system:masters".into(), ..identity() },
        CallIdentity { groups: vec![" gitlab:ci_job".into()], ..identity() },
        CallIdentity { groups: vec!["g".into(); IDENTITY_ENTRIES_MAX + 1], ..identity() },
        CallIdentity { extra: vec![(String::new(), Vec::new())], ..identity() },
        CallIdentity { extra: vec![("k".into(), vec!["v".repeat(IDENTITY_TEXT_BYTES_MAX + 1)])], ..identity() },
        CallIdentity { extra: vec![("k".into(), Vec::new()); IDENTITY_ENTRIES_MAX + 1], ..identity() },
    ];
    for identity in bad {
        refused(
            &Call::Remove(Remove { scope: Scope { identity: Some(identity), ..scope() }, tracked: Vec::new() }),
            "identity",
        );
    }
}

#[test]
fn answers_of_newer_agents_are_read_and_decide_nothing() {
    let progress =
        crate::wire::EnvironmentProgress { object: Some(object("a").to_wire()), step: 99, message: String::new() };
    let error = crate::wire::ObjectError { object: None, code: 99, message: "new\nthing".into() };
    let done = crate::wire::EnvironmentDone { errors: vec![error], ..Default::default() };
    let body = |body| crate::reconcile::delimited(&crate::wire::EnvironmentAnswer { body: Some(body) });
    let bytes = [
        body(crate::wire::environment_answer::Body::Progress(progress)),
        body(crate::wire::environment_answer::Body::Done(done)),
    ];
    let answers = read::<CallAnswer>(&bytes.concat(), &[1000]).expect("good");
    let [CallAnswer::Progress(progress), CallAnswer::Done(done)] = answers.as_slice() else { panic!("two answers") };
    assert_eq!(progress.step, ObjectStep::Waiting);
    assert_eq!((done.errors[0].code, done.errors[0].message.as_str()), (ObjectErrorCode::Invalid, "new thing"));
}

#[test]
fn longest_answer_fits_into_a_message() {
    let text = "é".repeat(1_000);
    let long = ObjectRef { name: "a".repeat(253), group: "b".repeat(253), ..object("a") };
    let error = ObjectError { object: Some(long.clone()), code: ObjectErrorCode::Invalid, message: text.clone() };
    let left = Blocker { object: text.clone(), finalizers: vec![text.clone(); 40], since: i64::MAX, message: text };
    let done = Done { objects: vec![long; TRACKED_MAX], errors: vec![error; ERRORS_MAX + 9], left: vec![left; 40] };
    let answers = read::<CallAnswer>(&CallAnswer::Done(done).encode(), &[100_000]).expect("it fits");
    let [CallAnswer::Done(done)] = answers.as_slice() else { panic!("one answer") };
    assert_eq!((done.objects.len(), done.errors.len(), done.left.len()), (TRACKED_MAX, ERRORS_MAX, ENTRIES_MAX));
}
