use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;
use crate::each::{each, warm};
use crate::{NewReplica, Renewal, ReplicaState, Terms};
use gateway_types::UnixSeconds;

const LEASE: Duration = Duration::from_secs(60);

async fn replica(store: &Store) -> Incarnation {
    let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease: LEASE };
    store.add_replica(&new).await.unwrap().unwrap()
}

async fn dies(store: &Store, replica: Incarnation) {
    store.end_replica(replica).await.unwrap();
}

/// Ends a lease, but not the replica.
async fn lapses(store: &Store, replica: Incarnation) {
    store.renew_replica(replica, ReplicaState::Serving, Duration::ZERO).await.unwrap();
}

fn key(number: i64) -> SessionKey {
    if number % 2 == 0 { SessionKey::Workspace(WorkspaceId(number)) } else { SessionKey::Cluster(ClusterId(number)) }
}

fn claim(number: i64, instance: u64) -> SessionClaim {
    SessionClaim { key: key(number), instance, known: None, is_late: false }
}

async fn claims(store: &Store, owner: Incarnation, claim: SessionClaim) -> Option<ClaimResult> {
    store.claim_sessions(owner, &[claim]).await.unwrap().map(|results| results[0])
}

/// Reads the owner of a place, if it lives, with the generation and the agent's process.
async fn owner_of(store: &Store, key: SessionKey) -> Option<(Incarnation, u64, u64)> {
    let (kind, subject) = key.columns();
    let statement = clocked!(
        "SELECT owner, generation, instance FROM sessions WHERE kind = $1 AND subject = $2 \
         AND owner IN (SELECT id FROM replicas WHERE expires_at > ",
        ")"
    );
    let row = statement.bind(kind).bind(subject).fetch_optional(&store.readers).await.unwrap()?;
    let number = |name| row.get::<i64>(name).unwrap();
    Some((Incarnation(number("owner")), unsigned(number("generation")), number("instance").cast_unsigned()))
}

#[tokio::test]
async fn newest_claim_wins_and_its_owner_is_found_while_it_lives() {
    each(async |store| {
        let (first, second) = (replica(store).await, replica(store).await);
        let owned = |generation, previous| Some(ClaimResult::Owned { generation, previous });
        assert_eq!(claims(store, first, claim(2, u64::MAX)).await, owned(1, None));
        assert_eq!(claims(store, second, claim(2, 8)).await, owned(2, Some((first, 1))));
        assert_eq!(owner_of(store, key(2)).await, Some((second, 2, 8)));
        // A release of what another has by now changes nothing.
        assert_eq!(store.release_sessions(first, &[(key(2), 1)]).await.unwrap(), 0);
        assert_eq!(store.release_sessions(second, &[(key(2), 1)]).await.unwrap(), 0);
        assert!(owner_of(store, key(2)).await.is_some());
        dies(store, second).await;
        assert_eq!(owner_of(store, key(2)).await, None);
        assert_eq!(claims(store, second, claim(2, 9)).await, None, "its lease is over");
        assert_eq!(claims(store, first, claim(2, 9)).await, owned(3, None));
        assert_eq!(store.release_sessions(first, &[(key(2), 3)]).await.unwrap(), 1);
        assert_eq!(owner_of(store, key(2)).await, None);
        assert_eq!(claims(store, first, claim(2, 9)).await, owned(4, None));
    })
    .await;
}

#[tokio::test]
async fn agent_that_had_an_older_session_is_displaced_by_a_newer_process() {
    each(async |store| {
        let (first, second) = (replica(store).await, replica(store).await);
        claims(store, first, claim(2, 7)).await;
        claims(store, first, claim(2, 8)).await;
        let older = SessionClaim { known: Some(1), ..claim(2, 7) };
        assert_eq!(claims(store, second, older).await, Some(ClaimResult::Displaced { instance: 8 }));
        assert_eq!(claims(store, first, older).await, Some(ClaimResult::Displaced { instance: 8 }));
        assert_eq!(owner_of(store, key(2)).await, Some((first, 2, 8)), "a refusal changes nothing");
        // The newer process itself, and any once that one's replica is gone.
        let itself = SessionClaim { known: Some(1), ..claim(2, 8) };
        assert!(matches!(claims(store, second, itself).await, Some(ClaimResult::Owned { generation: 3, .. })));
        dies(store, second).await;
        assert!(matches!(claims(store, first, older).await, Some(ClaimResult::Owned { generation: 4, .. })));
        // The database is older than what the agent knows.
        let ahead = SessionClaim { known: Some(90), ..claim(2, 7) };
        assert!(matches!(claims(store, first, ahead).await, Some(ClaimResult::Owned { generation: 91, .. })));
    })
    .await;
}

/// Sessions that came up while the store was away are claimed when it is back.
#[tokio::test]
async fn late_claim_takes_what_is_older_and_leaves_what_was_claimed_since() {
    each(async |store| {
        let (first, second) = (replica(store).await, replica(store).await);
        let late = |instance, known| SessionClaim { known: Some(known), is_late: true, ..claim(2, instance) };
        let owned = |generation, previous| Some(ClaimResult::Owned { generation, previous });
        claims(store, first, claim(2, 7)).await;
        // The process 7 came to the second with the seal of generation 1, and so had generation 2 there.
        assert_eq!(claims(store, second, late(7, 2)).await, owned(3, Some((first, 1))));
        assert_eq!(claims(store, second, late(7, 3)).await, owned(3, None), "it is its own already");
        assert_eq!(
            claims(store, first, late(7, 2)).await,
            Some(ClaimResult::Displaced { instance: 7 }),
            "also the same process"
        );
        assert_eq!(owner_of(store, key(2)).await, Some((second, 3, 7)));
        // Of two processes, each with a session of generation 4, the one that is claimed later wins.
        assert_eq!(claims(store, first, late(8, 4)).await, owned(5, Some((second, 3))));
        assert_eq!(claims(store, second, late(9, 5)).await, owned(6, Some((first, 5))));
        // After a lease that was over, everything is claimed again: what the others have not taken is as it was.
        lapses(store, second).await;
        assert_eq!(claims(store, second, late(9, 6)).await, None, "not without a lease");
        assert_eq!(store.renew_replica(second, ReplicaState::Serving, LEASE).await.unwrap(), Renewal::Revived);
        assert_eq!(claims(store, second, late(9, 6)).await, owned(6, None));
        lapses(store, second).await;
        assert_eq!(claims(store, first, claim(2, 9)).await, owned(7, None));
        assert_eq!(store.renew_replica(second, ReplicaState::Serving, LEASE).await.unwrap(), Renewal::Revived);
        assert_eq!(claims(store, second, late(9, 6)).await, Some(ClaimResult::Displaced { instance: 9 }));
        assert_eq!(store.release_sessions(second, &[(key(2), 6)]).await.unwrap(), 0);
        assert_eq!(owner_of(store, key(2)).await, Some((first, 7, 9)));
    })
    .await;
}

#[tokio::test]
async fn batch_has_its_results_in_order_and_the_later_claim_of_a_place_wins() {
    each(async |store| {
        let owner = replica(store).await;
        let batch: Vec<_> = (0..500).rev().map(|number| claim(number, 1)).chain([claim(3, 5)]).collect();
        let results = store.claim_sessions(owner, &batch).await.unwrap().unwrap();
        assert_eq!(results.len(), batch.len());
        assert!(results[..500].iter().all(|result| matches!(result, ClaimResult::Owned { generation: 1, .. })));
        assert_eq!(results[500], ClaimResult::Owned { generation: 2, previous: Some((owner, 1)) });
        assert_eq!(owner_of(store, key(3)).await.map(|(.., instance)| instance), Some(5));
        assert_eq!(store.claim_sessions(owner, &[]).await.unwrap(), Some(Vec::new()));
    })
    .await;
}

#[tokio::test]
async fn rows_that_are_removed_leave_their_generations_behind() {
    each(async |store| {
        let (owner, other) = (replica(store).await, replica(store).await);
        for _ in 0..5 {
            claims(store, owner, claim(2, 1)).await;
        }
        claims(store, owner, claim(4, 1)).await;
        claims(store, other, claim(6, 1)).await;
        assert_eq!(store.reap_sessions(10).await.unwrap(), 0);
        store.release_sessions(owner, &[(key(2), 5)]).await.unwrap();
        assert_eq!(store.reap_sessions(10).await.unwrap(), 1);
        assert!(matches!(claims(store, owner, claim(2, 1)).await, Some(ClaimResult::Owned { generation: 6, .. })));
        assert!(matches!(claims(store, owner, claim(8, 1)).await, Some(ClaimResult::Owned { generation: 6, .. })));
        lapses(store, owner).await;
        assert_eq!(store.reap_sessions(10).await.unwrap(), 0, "its lease may come back, with the store");
        store.end_replica(owner).await.unwrap();
        assert_eq!(store.reap_sessions(2).await.unwrap(), 2);
        assert_eq!(store.reap_sessions(10).await.unwrap(), 1);
        assert!(owner_of(store, key(6)).await.is_some());
    })
    .await;
}

#[tokio::test]
async fn session_of_a_workspace_or_cluster_is_found_by_its_name_in_one_look_up() {
    each(async |store| {
        let (name, cluster) = ("one".parse().unwrap(), "one".parse().unwrap());
        let (ann, now) = ("ann".parse().unwrap(), UnixSeconds::new(1));
        let owners = async || {
            let of_cluster = store.cluster_session(&cluster).await.unwrap();
            [store.workspace_session(&name).await.unwrap(), of_cluster]
        };
        assert_eq!(owners().await, [None, None], "there is neither");
        store.create_agent_token(&name, &ann, now).await.unwrap();
        store.create_cluster_token_with(&cluster, &Terms::default(), now).await.unwrap();
        assert_eq!(owners().await, [None, None], "they have no session");
        let (_, workspace) = store.workspace_ids(&[&name]).await.unwrap().remove(0);
        let keys =
            [SessionKey::Workspace(workspace), SessionKey::Cluster(store.cluster(&cluster).await.unwrap().unwrap().id)];
        let incarnation = replica(store).await;
        let owner = |key, instance, is_live| {
            let peer_url = "https://a:1".to_owned();
            Some(SessionOwner { key, incarnation, peer_url, generation: 1, instance, is_live })
        };
        let claim = |key, instance| SessionClaim { key, instance, known: None, is_late: false };
        claims(store, incarnation, claim(keys[0], u64::MAX)).await;
        assert_eq!(owners().await, [owner(keys[0], u64::MAX, true), None], "a name of both is of two");
        claims(store, incarnation, claim(keys[1], 7)).await;
        assert_eq!(owners().await, [owner(keys[0], u64::MAX, true), owner(keys[1], 7, true)]);
        lapses(store, incarnation).await;
        assert_eq!(store.reap_sessions(10).await.unwrap(), 0, "their replica may be there");
        assert_eq!(owners().await, [owner(keys[0], u64::MAX, false), owner(keys[1], 7, false)]);
        dies(store, incarnation).await;
        assert_eq!(owners().await, [None, None], "their replica is gone");
    })
    .await;
}

/// Of claims that come at once for a place without a row, none is there to be locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_claims_of_a_place_have_one_generation_although_they_come_at_once() {
    each(async |store| {
        let mut owners = Vec::new();
        for _ in 0..4 {
            owners.push(replica(store).await);
        }
        warm(store).await;
        for round in 0..5 {
            let mut claiming = JoinSet::new();
            for (owner, instance) in owners.iter().flat_map(|owner| [(*owner, 1), (*owner, 2)]) {
                let store = store.clone();
                claiming.spawn(async move { claims(&store, owner, claim(round, instance)).await });
            }
            let mut generations = Vec::new();
            for result in claiming.join_all().await {
                let Some(ClaimResult::Owned { generation, .. }) = result else { panic!("its lease lives: {result:?}") };
                generations.push(generation);
            }
            let last = owner_of(store, key(round)).await.map(|(_, generation, _)| generation);
            generations.sort_unstable();
            assert_eq!(generations.last().copied(), last);
            generations.dedup();
            assert_eq!(generations.len(), 2 * owners.len());
        }
    })
    .await;
}

/// Claims, releases, ends of leases and removals by chance, beside a model: generations of a place only grow, and a place is
/// the last claimant's for as long as that lives.
#[tokio::test]
async fn places_follow_a_model_over_any_order_of_events() {
    each(async |store| {
        let mut owners = [replica(store).await, replica(store).await, replica(store).await];
        let (mut highest, mut held) = (BTreeMap::<i64, u64>::new(), BTreeMap::<i64, (Incarnation, u64)>::new());
        let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..300 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, which) = (dice >> 60, usize::try_from(dice >> 33).unwrap() % 3);
            let (owner, place) = (owners[which], i64::try_from(dice >> 40 & 7).unwrap());
            match what {
                0 => {
                    dies(store, owner).await;
                    held.retain(|_, (of, _)| *of != owner);
                    assert_eq!(claims(store, owner, claim(place, 1)).await, None);
                    owners[which] = replica(store).await;
                }
                1 => drop(store.reap_sessions(3).await.unwrap()),
                2..=5 => {
                    let known = held.get(&place).copied();
                    let generation = known.map_or(1, |(_, generation)| generation);
                    let is_its = known.is_some_and(|(of, _)| of == owner);
                    let released = store.release_sessions(owner, &[(key(place), generation)]).await.unwrap();
                    assert_eq!(released, u64::from(is_its));
                    if is_its {
                        held.remove(&place);
                    }
                }
                _ => {
                    let Some(ClaimResult::Owned { generation, previous }) = claims(store, owner, claim(place, 1)).await
                    else {
                        panic!("its lease lives");
                    };
                    assert!(generation > highest.get(&place).copied().unwrap_or(0), "generations grow");
                    assert_eq!(previous, held.insert(place, (owner, generation)));
                    highest.insert(place, generation);
                }
            }
            for place in 0..8 {
                let found = owner_of(store, key(place)).await;
                assert_eq!(found.map(|(owner, generation, _)| (owner, generation)), held.get(&place).copied());
            }
        }
    })
    .await;
}

#[tokio::test]
async fn places_that_are_not_as_their_replica_knows_them_are_found() {
    each(async |store| {
        let (first, second) = (replica(store).await, replica(store).await);
        for place in [2, 3, 4, 5] {
            claims(store, first, claim(place, 7)).await;
        }
        let known = [(key(2), 1), (key(3), 1), (key(4), 1)];
        assert_eq!(store.differing_places(first, &known).await.unwrap(), []);
        assert_eq!(store.differing_places(first, &[]).await.unwrap(), []);
        // Two have a newer session, one was given back, one has a generation that the store has forgotten, and one no row.
        claims(store, second, claim(2, 8)).await;
        claims(store, second, claim(3, u64::MAX)).await;
        store.release_sessions(first, &[(key(4), 1)]).await.unwrap();
        let known = [known.as_slice(), &[(key(5), 9), (key(6), 1)]].concat();
        let mut found = store.differing_places(first, &known).await.unwrap();
        found.sort_by_key(|found| found.key.columns());
        let newer =
            |place, instance| DifferingPlace { key: key(place), newer: Some(NewerSession { generation: 2, instance }) };
        let unknown = |place| DifferingPlace { key: key(place), newer: None };
        assert_eq!(found, [newer(2, 8), unknown(4), unknown(6), newer(3, u64::MAX), unknown(5)]);
        assert_eq!(store.differing_places(second, &[(key(2), 2)]).await.unwrap(), []);
    })
    .await;
}

/// A claim by chance, and who makes it.
fn any_claim() -> impl Strategy<Value = (i64, SessionClaim)> {
    let known = prop_oneof![Just(None), (0..12_u64).prop_map(Some)];
    (1..4_i64, 0..2_i64, 1..4_u64, known, any::<bool>()).prop_map(|(owner, place, instance, known, is_late)| {
        // A session that is claimed late has a generation.
        (owner, SessionClaim { known, is_late: is_late && known.is_some(), ..claim(place, instance) })
    })
}

proptest! {
    /// Decisions on any claims, one after the other, some of them by replicas that have died meanwhile.
    #[test]
    fn decisions_raise_generations_and_take_nothing_from_newer_sessions(
        claims in proptest::collection::vec((any_claim(), 0..6_i64), 1..40), floor in 0..5_i64,
    ) {
        let mut rows = SessionRows::new();
        for ((owner, claim), dies) in claims {
            rows.values_mut().for_each(|row| row.owner = row.owner.filter(|owner| *owner != dies));
            let (key, known) = (claim.key.columns(), claim.known.map(signed));
            let before = rows.get(&key).copied();
            let result = decide(&mut rows, &claim, Incarnation(owner), floor);
            let after = rows.get(&key).copied();
            let held = before.filter(|row| row.owner.is_some());
            let is_same = held.is_some_and(|row| row.instance == claim.instance.cast_signed());
            match result {
                ClaimResult::Displaced { instance } => {
                    let held = held.expect("of a live owner");
                    prop_assert_eq!(held.instance.cast_unsigned(), instance);
                    prop_assert!(held.generation > known.expect("of one that knows its generation"));
                    prop_assert!(claim.is_late || !is_same, "a process displaces its own earlier claims");
                    prop_assert_eq!(after.map(|row| (row.generation, row.owner)), Some((held.generation, held.owner)));
                }
                ClaimResult::Owned { generation, previous } => {
                    let row = after.expect("it was written, or is there");
                    prop_assert_eq!((row.owner, unsigned(row.generation)), (Some(owner), generation));
                    let is_kept = claim.is_late && is_same && held.is_some_and(|row| {
                        (row.owner, Some(row.generation)) == (Some(owner), known)
                    });
                    if is_kept {
                        prop_assert_eq!((row.generation, previous), (known.unwrap_or_default(), None));
                    } else {
                        let highest = before.map_or(0, |row| row.generation).max(known.unwrap_or_default()).max(floor);
                        prop_assert!(row.generation > highest);
                        let had = held.map(|row| (row.owner, unsigned(row.generation)));
                        prop_assert_eq!(previous.map(|(of, generation)| (Some(of.0), generation)), had);
                        prop_assert!(held.is_none_or(|row| known.is_none_or(|known| {
                            row.generation <= known || (is_same && !claim.is_late)
                        })), "a newer session stays");
                    }
                }
            }
        }
    }
}
