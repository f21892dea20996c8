use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use gateway_types::GroupName;

const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);

const SOURCES: [RequestSource; 5] = [
    RequestSource::SameOrigin,
    RequestSource::SameWorkspace,
    RequestSource::UserInitiated,
    RequestSource::Foreign,
    RequestSource::Unstated,
];
const PURPOSES: [Purpose; 3] = [Purpose::PageVisit, Purpose::Read, Purpose::Change];

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

fn shapes() -> impl Strategy<Value = RequestShape> {
    (prop::sample::select(PURPOSES.to_vec()), prop::sample::select(SOURCES.to_vec()))
        .prop_map(|(purpose, source)| RequestShape { purpose, source })
}

fn principals() -> impl Strategy<Value = Principal> {
    (prop::sample::select(vec!["ann", "bob"]), prop::sample::select(vec![Via::Browser, Via::ApiToken]))
        .prop_flat_map(|(name, via)| groups().prop_map(move |groups| Principal { user: user(name), via, groups }))
}

fn groups() -> impl Strategy<Value = Arc<[GroupName]>> {
    prop::collection::vec(prop::sample::select(vec!["devs", "ops"]), 0..2)
        .prop_map(|names| names.iter().map(|name| name.parse().unwrap()).collect())
}

/// A workspace as the store might know it: absent, or with an owner, perhaps a port list, and shares.
type Record = Option<(UserName, Option<Vec<Port>>, Vec<Share>)>;

fn ports() -> impl Strategy<Value = Port> {
    (1..5_u16).prop_map(|port| Port::new(port).unwrap())
}

fn shares() -> impl Strategy<Value = Share> {
    let audiences = ["user:ann", "user:bob", "group:devs", "group:ops", "signed-in", "public"];
    let audience = prop::sample::select(audiences.to_vec()).prop_map(|text| text.parse().unwrap());
    let expires_at = prop::option::of((NOW.get() - 1..=NOW.get() + 1).prop_map(UnixSeconds::new));
    (ports(), audience, expires_at).prop_map(|(port, audience, expires_at)| Share { port, audience, expires_at })
}

fn records() -> impl Strategy<Value = Record> {
    let owner = prop::sample::select(vec!["ann", "bob", "eve"]).prop_map(user);
    let exposed = prop::option::of(prop::collection::vec(ports(), 0..3));
    prop::option::of((owner, exposed, prop::collection::vec(shares(), 0..4)))
}

/// Returns whether a share opens the port to this proven principal, in the words of the documentation.
fn is_shared(record: &Record, principal: Option<&Principal>, port: Port) -> bool {
    record.iter().flat_map(|(.., shares)| shares).any(|share| {
        share.port == port
            && share.expires_at.is_none_or(|at| at > NOW)
            && match (&share.audience, principal) {
                (Audience::Public, _) | (Audience::SignedIn, Some(_)) => true,
                (Audience::User(user), Some(principal)) => *user == principal.user,
                (Audience::Group(group), Some(principal)) => principal.groups.iter().any(|own| own == group),
                (_, None) => false,
            }
    })
}

fn ask(principal: Option<&Principal>, record: &Record, port: Port, shape: RequestShape) -> Decision {
    let workspace = "app".parse().unwrap();
    let record = record.as_ref().map(|(owner, ports, shares)| Exposure { owner, ports: ports.as_deref(), shares });
    decide(principal, &Target { workspace: &workspace, port, record }, shape, NOW)
}

fn by(name: &str, via: Via) -> Principal {
    Principal { user: user(name), via, groups: Arc::default() }
}

#[test]
fn cookie_counts_only_where_no_foreign_page_can_be_behind_the_request() {
    let yes: Vec<_> = SOURCES
        .iter()
        .flat_map(|&source| PURPOSES.iter().map(move |&purpose| RequestShape { purpose, source }))
        .filter(|shape| !shape.cookie_counts())
        .map(|shape| (shape.source, shape.purpose))
        .collect();
    let refused = [
        (RequestSource::Foreign, Purpose::Read),
        (RequestSource::Foreign, Purpose::Change),
        (RequestSource::Unstated, Purpose::Change),
    ];
    assert_eq!(yes, refused);
}

#[test]
fn cookie_counts_for_a_change_at_the_terminal_only_from_its_own_page() {
    let (terminal, app) = (Port::new(60_002).unwrap(), Port::new(60_004).unwrap());
    for source in SOURCES {
        for purpose in PURPOSES {
            let shape = RequestShape { purpose, source };
            assert_eq!(shape.cookie_counts_at(app), shape.cookie_counts());
            let expected = shape.cookie_counts() && (purpose != Purpose::Change || source == RequestSource::SameOrigin);
            assert_eq!(shape.cookie_counts_at(terminal), expected, "{shape:?}");
            let record = Some((user("ann"), None, Vec::new()));
            let answer = ask(Some(&by("ann", Via::Browser)), &record, terminal, shape);
            assert_eq!(matches!(answer, Decision::Allow(_)), expected, "{shape:?}");
        }
    }
}

#[test]
fn terminal_is_open_to_nobody_who_is_not_named() {
    let terminal = Port::new(60_002).unwrap();
    let shape = RequestShape { purpose: Purpose::Read, source: RequestSource::SameOrigin };
    let share = |audience: &str| Share { port: terminal, audience: audience.parse().unwrap(), expires_at: None };
    let bob = by("bob", Via::ApiToken);
    let all = Some((user("ann"), None, vec![share("public"), share("signed-in")]));
    assert_eq!(ask(None, &all, terminal, shape), Decision::Unauthorized);
    assert_eq!(ask(Some(&bob), &all, terminal, shape), Decision::NotFound);
    let named = Some((user("ann"), None, vec![share("user:bob")]));
    assert!(matches!(ask(Some(&bob), &named, terminal, shape), Decision::Allow(_)));
}

#[test]
fn cookie_counts_at_the_inspector_from_its_own_page_and_for_a_visit() {
    let inspector = Port::new(60_003).unwrap();
    for source in SOURCES {
        for purpose in PURPOSES {
            let shape = RequestShape { purpose, source };
            let expected = match (purpose, source) {
                (Purpose::PageVisit, _) | (_, RequestSource::SameOrigin) => true,
                (Purpose::Read, RequestSource::UserInitiated | RequestSource::Unstated) => true,
                (_, _) => false,
            };
            assert_eq!(shape.cookie_counts_at(inspector), expected, "{shape:?}");
        }
    }
}

#[test]
fn inspector_is_its_owners_alone_whatever_is_stored() {
    let inspector = Port::new(60_003).unwrap();
    let shape = RequestShape { purpose: Purpose::Read, source: RequestSource::SameOrigin };
    let share = |audience: &str| Share { port: inspector, audience: audience.parse().unwrap(), expires_at: None };
    let record = Some((user("ann"), None, ["public", "signed-in", "user:bob"].map(share).to_vec()));
    assert_eq!(ask(None, &record, inspector, shape), Decision::Unauthorized);
    for via in [Via::ApiToken, Via::Browser] {
        assert!(!matches!(ask(Some(&by("bob", via)), &record, inspector, shape), Decision::Allow(_)));
        assert!(matches!(ask(Some(&by("ann", via)), &record, inspector, shape), Decision::Allow(_)));
    }
}

#[test]
fn ssh_is_its_owners_alone_whatever_is_stored() {
    let ssh = Port::new(60_022).unwrap();
    let shape = RequestShape { purpose: Purpose::Change, source: RequestSource::Unstated };
    let share = |audience: &str| Share { port: ssh, audience: audience.parse().unwrap(), expires_at: None };
    let record = Some((user("ann"), None, ["public", "signed-in", "user:bob"].map(share).to_vec()));
    assert_eq!(ask(None, &record, ssh, shape), Decision::Unauthorized);
    assert_eq!(ask(Some(&by("bob", Via::ApiToken)), &record, ssh, shape), Decision::NotFound);
    assert!(matches!(ask(Some(&by("ann", Via::ApiToken)), &record, ssh, shape), Decision::Allow(_)));
}

#[test]
fn owner_reaches_the_exposed_port_and_no_other() {
    let principal = by("ann", Via::ApiToken);
    let shape = RequestShape { purpose: Purpose::Change, source: RequestSource::Unstated };
    let (open, shut) = (Port::new(8080).unwrap(), Port::new(22).unwrap());
    let record = Some((user("ann"), Some(vec![open]), Vec::new()));
    let Decision::Allow(grant) = ask(Some(&principal), &record, open, shape) else { panic!("not allowed") };
    assert_eq!((grant.user(), grant.workspace().as_str(), grant.port()), (Some(&user("ann")), "app", open));
    assert_eq!(ask(Some(&principal), &record, shut, shape), Decision::PortNotAllowed);
    let any = Some((user("ann"), None, Vec::new()));
    assert!(matches!(ask(Some(&principal), &any, shut, shape), Decision::Allow(_)));
}

#[test]
fn cookie_of_the_owner_is_as_good_as_none_where_it_does_not_count() {
    let ann = |via| by("ann", via);
    let (record, port) = (Some((user("ann"), None, Vec::new())), Port::new(8080).unwrap());
    for source in SOURCES {
        for purpose in PURPOSES {
            let shape = RequestShape { purpose, source };
            let by_cookie = ask(Some(&ann(Via::Browser)), &record, port, shape);
            if shape.cookie_counts() {
                assert!(matches!(by_cookie, Decision::Allow(_)), "{shape:?}");
            } else {
                assert_eq!(by_cookie, ask(None, &record, port, shape), "{shape:?}");
            }
            let by_token = ask(Some(&ann(Via::ApiToken)), &record, port, shape);
            assert!(matches!(by_token, Decision::Allow(_)), "{shape:?}");
        }
    }
}

#[test]
fn share_of_one_port_tells_of_the_workspace_and_opens_no_other() {
    let (shared, other) = (Port::new(80).unwrap(), Port::new(22).unwrap());
    let share = |audience: &str| Share { port: shared, audience: audience.parse().unwrap(), expires_at: None };
    let shape = RequestShape { purpose: Purpose::Read, source: RequestSource::Unstated };
    let bob = by("bob", Via::ApiToken);
    let with_bob = Some((user("ann"), None, vec![share("user:bob")]));
    let Decision::Allow(grant) = ask(Some(&bob), &with_bob, shared, shape) else { panic!("not allowed") };
    assert_eq!(grant.because(), &Because::Shared("user:bob".parse().unwrap()));
    assert_eq!(ask(Some(&bob), &with_bob, other, shape), Decision::PortNotAllowed);
    assert_eq!(ask(Some(&by("eve", Via::ApiToken)), &with_bob, shared, shape), Decision::NotFound);
    // What everybody may open makes nobody's other ports known.
    let public = Some((user("ann"), None, vec![share("public")]));
    assert_eq!(ask(Some(&bob), &public, other, shape), Decision::NotFound);
    let Decision::Allow(grant) = ask(None, &public, shared, shape) else { panic!("not allowed") };
    assert_eq!(grant.user(), None);
}

proptest! {
    #[test]
    fn without_a_principal_the_answer_depends_on_the_shape_and_what_is_public_alone(
        shape in shapes(), record in records(), port in ports()
    ) {
        let answer = ask(None, &record, port, shape);
        let is_exposed =
            record.as_ref().is_some_and(|(_, ports, _)| ports.as_ref().is_none_or(|ports| ports.contains(&port)));
        if is_exposed && is_shared(&record, None, port) {
            prop_assert!(matches!(answer, Decision::Allow(_)));
        } else {
            prop_assert_eq!(answer, ask(None, &None, port, shape));
        }
        let expected = if shape.purpose == Purpose::PageVisit { Decision::SignIn } else { Decision::Unauthorized };
        prop_assert_eq!(ask(None, &None, port, shape), expected);
    }

    #[test]
    fn a_foreign_workspace_looks_like_none(
        principal in principals(), shape in shapes(), record in records(), port in ports()
    ) {
        let known = record.as_ref().is_some_and(|(owner, ..)| {
            *owner == principal.user
                || (1..5).any(|port| is_shared(&record, Some(&principal), Port::new(port).unwrap()))
        });
        if !known {
            prop_assert_eq!(ask(Some(&principal), &record, port, shape), ask(Some(&principal), &None, port, shape));
        }
    }

    #[test]
    fn a_grant_is_only_for_an_exposed_port_and_the_owner_or_a_live_share_by_proof_that_counts(
        principal in prop::option::of(principals()), shape in shapes(), record in records(), port in ports()
    ) {
        let allowed = matches!(ask(principal.as_ref(), &record, port, shape), Decision::Allow(_));
        let counts = |principal: &&Principal| principal.via == Via::ApiToken || shape.cookie_counts();
        let proven = principal.as_ref().filter(counts);
        let expected = record.as_ref().is_some_and(|(owner, ports, _)| {
            ports.as_ref().is_none_or(|ports| ports.contains(&port))
                && (proven.is_some_and(|principal| principal.user == *owner) || is_shared(&record, proven, port))
        });
        prop_assert_eq!(allowed, expected);
    }

    #[test]
    fn a_redirect_answers_page_visits_only(
        principal in prop::option::of(principals()), shape in shapes(), record in records(), port in ports()
    ) {
        let answer = ask(principal.as_ref(), &record, port, shape);
        prop_assert!(answer != Decision::SignIn || shape.purpose == Purpose::PageVisit);
    }

    // The API and the edge agree on who may know of a workspace: nobody learns by one what the other does not tell.
    #[test]
    fn who_may_know_of_a_workspace_is_who_is_told_that_a_port_of_it_is_closed(
        principal in principals(), owner in prop::sample::select(vec!["ann", "bob", "eve"]),
        shares in prop::collection::vec(shares(), 0..4),
    ) {
        let (owner, principal) = (user(owner), Principal { via: Via::ApiToken, ..principal });
        let exposure = Exposure { owner: &owner, ports: None, shares: &shares };
        let seen = sees(&principal, &exposure, NOW);
        let never_shared = Port::new(9).unwrap();
        let shape = RequestShape { purpose: Purpose::Read, source: RequestSource::Unstated };
        let record = Some((owner.clone(), None, shares.clone()));
        let answer = ask(Some(&principal), &record, never_shared, shape);
        prop_assert_eq!(seen.is_some(), answer != Decision::NotFound);
        prop_assert_eq!(seen == Some(Visibility::Owner), owner == principal.user);
        for share in shared_with(&principal, &shares, NOW) {
            let answer = ask(Some(&principal), &record, share.port, shape);
            prop_assert!(matches!(answer, Decision::Allow(_)), "{share:?} {answer:?}");
        }
    }
}
