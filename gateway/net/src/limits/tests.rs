use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use gateway_config::Config;

#[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
fn start() -> Instant {
    Instant::now()
}

fn usage_limits(change: impl FnOnce(&mut Limits)) -> (Arc<UsageLimits>, Instant) {
    let mut limits = Config::default().limits;
    change(&mut limits);
    let now = start();
    (UsageLimits::new(&limits, now), now)
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn arrive(limits: &Arc<UsageLimits>, from: IpAddr, now: Instant) -> Result<Guest, Limit> {
    limits.arrive(from, Arc::new(limits.idle().enter()), now).map(|(guest, _)| guest)
}

#[test]
fn every_limit_that_has_a_key_is_named_after_it() {
    let config = Config::default();
    let keys: Vec<_> = config.effective().iter().map(|row| row.key.to_string()).collect();
    for limit in [
        Limit::Connections,
        Limit::ConnectionsPerAddress,
        Limit::ConnectionsPerSecondPerAddress,
        Limit::AgentConnectionsPerAddress,
        Limit::AgentConnectionsPerSecondPerAddress,
        Limit::HandshakesPerAddress,
        Limit::RequestsPerAddress,
        Limit::RequestsPerSecondPerAddress,
        Limit::RequestsPerUser,
        Limit::RequestsPerSecondPerUser,
        Limit::RequestsPerPort,
        Limit::RequestsPerWorkspace,
        Limit::FailedSignIns,
        Limit::Http2Resets,
    ] {
        assert!(keys.iter().any(|key| key == limit.name()), "{}", limit.name());
    }
}

#[test]
fn memory_stays_bounded_whatever_addresses_come_and_is_given_back() {
    let (limits, now) = usage_limits(|_| {});
    let holder = arrive(&limits, address(1), now).expect("room");
    for number in 0..200_000_u32 {
        drop(arrive(&limits, Ipv6Addr::from(u128::from(number) << 64).into(), now));
        if let Ok(guest) = arrive(&limits, address(number), now) {
            guest.ask(now).expect("the first");
            guest.fail(now).expect("the first");
        }
    }
    assert!(limits.addresses() <= ENTRIES_MAX, "{}", limits.addresses());
    limits.sweep(now + Duration::from_secs(600));
    assert_eq!(limits.addresses(), 1, "what is held stays");
    drop(holder);
    limits.sweep(now + Duration::from_secs(600));
    assert_eq!(limits.addresses(), 0);
}

#[test]
fn network_of_64_bits_is_one_address() {
    let (limits, now) = usage_limits(|config| config.connections_per_address = 1);
    let from = |last: u128| IpAddr::from(Ipv6Addr::from((0x2001_0db8 << 96) | last));
    let _held = arrive(&limits, from(1), now).expect("room");
    assert_eq!(arrive(&limits, from(2), now).err(), Some(Limit::ConnectionsPerAddress));
    assert!(arrive(&limits, from(1 << 64), now).is_ok());
}

#[test]
fn agents_of_an_address_and_its_users_do_not_count_for_each_other() {
    let (limits, now) = usage_limits(|config| {
        config.connections_per_address = 2;
        config.connections_per_second_per_address = 1;
        config.agent_connections_per_address = 3;
        config.agent_connections_per_second_per_address = 1_000;
    });
    let dialed: Vec<_> = (0..3).map(|_| limits.arrive_agent(address(1), now).expect("room").0).collect();
    let is_sent_away = |guest: &Guest| futures_util::FutureExt::now_or_never(guest.sent_away()).is_some();
    assert!(!dialed.iter().any(is_sent_away));
    let newest = limits.arrive_agent(address(1), now).expect("the oldest goes").0;
    assert!(is_sent_away(&dialed[0]) && !is_sent_away(&dialed[1]) && !is_sent_away(&newest));
    assert!(limits.arrive_agent(address(2), now).is_ok(), "another address has its own");
    let _users = [arrive(&limits, address(1), now).expect("room"), arrive(&limits, address(1), now).expect("room")];
    assert_eq!(arrive(&limits, address(1), now).err(), Some(Limit::ConnectionsPerAddress));
    // An agent that is in makes room, and is never sent away.
    dialed[1].prove();
    let _more: Vec<_> = (0..9).map(|_| limits.arrive_agent(address(1), now).expect("a turn").0).collect();
    assert!(!is_sent_away(&dialed[1]) && is_sent_away(&newest));
}

#[test]
fn agents_of_one_address_that_dial_all_at_once_get_their_turns() {
    let (limits, now) = usage_limits(|_| {});
    let mut waits: Vec<Duration> = Vec::new();
    for _ in 0..4_000 {
        let (guest, wait) = limits.arrive_agent(address(1), now).expect("room");
        guest.prove();
        waits.push(wait);
    }
    assert!(waits.iter().all(Duration::is_zero), "a few thousand come in at once");
    let (_, wait) = limits.arrive_agent(address(1), now).expect("a turn");
    assert!(!wait.is_zero());
    let (_user, wait) = limits.arrive(address(1), Arc::new(limits.idle().enter()), now).expect("room");
    assert!(wait.is_zero(), "a user there notices nothing: {wait:?}");
}

#[test]
fn handshakes_of_one_address_leave_turns_to_others() {
    let (limits, now) = usage_limits(|config| config.handshakes_per_address = 2);
    let guests: Vec<_> = (0..3).map(|_| arrive(&limits, address(1), now).expect("room")).collect();
    let shaking: Vec<_> = guests.iter().map(Guest::handshake_permit).collect();
    assert!(shaking[0].is_ok() && shaking[1].is_ok());
    assert_eq!(guests[2].handshake_permit().err(), Some(Limit::HandshakesPerAddress));
    assert!(arrive(&limits, address(2), now).expect("room").handshake_permit().is_ok());
    drop(shaking);
    assert!(guests[2].handshake_permit().is_ok());
}

#[test]
fn whoever_has_signed_in_counts_no_longer_as_a_stranger() {
    let (limits, now) = usage_limits(|config| {
        config.connections_per_address = 1;
        config.requests_per_second_per_address = 1;
    });
    let user = arrive(&limits, address(1), now).expect("room");
    user.prove();
    let stranger = arrive(&limits, address(1), now).expect("the user left the count");
    for _ in 0..STRANGERS_BURST_SECONDS {
        stranger.ask(now).expect("within the burst");
    }
    for _ in 0..STRANGERS_REFUSED_MAX {
        assert_eq!(stranger.ask(now), Err(Limit::RequestsPerSecondPerAddress));
        assert_eq!(stranger.is_beyond(), None);
    }
    assert!(stranger.ask(now).is_err() && stranger.is_beyond().is_some(), "it is not answered for ever");
    assert_eq!(user.ask(now), Ok(()));
    assert_eq!(stranger.ask(now + Duration::from_secs(1)), Ok(()));
}

#[test]
fn users_and_ports_count_over_all_connections() {
    let (limits, now) = usage_limits(|config| {
        config.requests_per_user = 2;
        config.requests_per_port = 3;
    });
    let counters = |from: u32, user: Option<&str>, port: u16| {
        let guest = Arc::new(arrive(&limits, address(from), now).expect("room"));
        let user = user.map(|user| user.parse().expect("a name"));
        let port = WorkspacePort { workspace: "one".parse().expect("a name"), port: Port::new(port).expect("a port") };
        limits.counters(&guest, user.as_ref(), &port, now)
    };
    let (here, there) = (counters(1, Some("ada"), 80), counters(2, Some("ada"), 81));
    let held = [here.take(now).expect("room"), there.take(now).expect("room")];
    assert_eq!(here.take(now).err(), Some(Limit::RequestsPerUser));
    let others = [counters(3, Some("bob"), 80), counters(4, None, 80)];
    let more: Vec<_> = others.iter().map(|counters| counters.take(now).expect("room")).collect();
    assert_eq!(counters(5, Some("cleo"), 80).take(now).err(), Some(Limit::RequestsPerPort));
    assert!(counters(5, Some("cleo"), 81).take(now).is_ok());
    drop((held, more));
    assert!(here.take(now).is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { from: u32 },
    Prove { which: usize },
    Leave { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_u32).prop_map(|from| Step::Arrive { from }),
        1 => (0..16_usize).prop_map(|which| Step::Prove { which }),
        2 => (0..16_usize).prop_map(|which| Step::Leave { which }),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn strangers_of_an_address_are_counted_exactly(steps in steps(), bound in 1..5_u32) {
        let (limits, now) = usage_limits(|config| {
            config.connections_per_address = bound;
            config.connections_per_second_per_address = 1_000_000;
        });
        let mut guests: Vec<(u32, bool, Guest)> = Vec::new();
        for step in steps {
            match step {
                Step::Arrive { from } => {
                    let strangers = guests.iter().filter(|(of, proven, _)| *of == from && !proven).count();
                    let is_full = strangers >= usize::try_from(bound).expect("fits");
                    match arrive(&limits, address(from), now) {
                        Ok(guest) => {
                            prop_assert!(!is_full);
                            guests.push((from, false, guest));
                        }
                        Err(limit) => prop_assert!(is_full && limit == Limit::ConnectionsPerAddress),
                    }
                }
                Step::Prove { which } => {
                    if let Some((_, proven, guest)) = guests.get_mut(which) {
                        guest.prove();
                        *proven = true;
                    }
                }
                Step::Leave { which } if which < guests.len() => drop(guests.swap_remove(which)),
                Step::Leave { .. } => {}
            }
        }
        let held: BTreeMap<u32, usize> = guests.iter().fold(BTreeMap::new(), |mut held, (from, ..)| {
            *held.entry(*from).or_default() += 1;
            held
        });
        limits.sweep(now + Duration::from_secs(600));
        prop_assert_eq!(limits.addresses(), held.len());
    }
}

#[tokio::test(start_paused = true)]
async fn lookups_of_one_address_leave_turns_to_others_and_are_refused_after_a_while() {
    let (limits, now) = usage_limits(|_| {});
    let (greedy, modest) =
        (arrive(&limits, address(1), now).expect("room"), arrive(&limits, address(2), now).expect("room"));
    let mut turns = Vec::new();
    for _ in 0..LOOKUPS_PER_ADDRESS {
        turns.push(greedy.look_up().await.expect("a turn"));
    }
    assert_eq!(greedy.look_up().await.err(), Some(Limit::Lookups));
    let turn = modest.look_up().await.expect("a turn");
    turns.pop();
    turns.push(greedy.look_up().await.expect("a turn again"));
    drop((turns, turn));
    let guests: Vec<_> = (0..100).map(|number| arrive(&limits, address(number), now).expect("room")).collect();
    let mut turns = Vec::new();
    for guest in guests.iter().take(LOOKUPS_MAX) {
        turns.push(guest.look_up().await.expect("a turn"));
    }
    assert_eq!(guests[LOOKUPS_MAX].look_up().await.err(), Some(Limit::Lookups), "of all addresses together");
}

#[test]
fn failures_of_strangers_have_few_lines_and_the_rest_is_counted() {
    let (limits, now) = usage_limits(|_| {});
    let stranger = arrive(&limits, address(1), now).expect("room");
    let told = (0..1000).filter(|_| stranger.may_be_told_of(now)).count();
    assert_eq!(told, usize::try_from(TOLD_PER_SECOND * BURST_SECONDS).expect("fits"));
    assert_eq!(limits.take_untold(), 1000 - u64::try_from(told).expect("fits"));
    assert_eq!(limits.take_untold(), 0, "it is said once");
    // Whoever has signed in is always told of.
    stranger.prove();
    assert!((0..1000).all(|_| stranger.may_be_told_of(now)));
}
