use proptest::prelude::*;

use super::*;
use crate::fair::network;

const MOMENT: Duration = Duration::from_millis(1);

fn asking(peer: [u8; 4]) -> RequestingMachine {
    RequestingMachine { machine: MachineName::of("laptop"), peer: peer.into() }
}

fn ann() -> UserName {
    "ann".parse().unwrap()
}

struct Fixture {
    devices: Devices,
    codes: DeviceCodes,
    now: Instant,
}

fn fixture() -> Fixture {
    let (devices, now) = (Devices::default(), Instant::now());
    let codes = devices.ask(asking([192, 0, 2, 1]), now).unwrap();
    Fixture { devices, codes, now }
}

impl Fixture {
    fn poll(&self, seconds: u64) -> DevicePollAnswer {
        self.devices.poll(&self.codes.device.digest(), self.now + Duration::from_secs(seconds))
    }
}

#[test]
fn yes_is_told_once_and_only_to_who_has_the_device_code() {
    let it = fixture();
    assert_eq!(it.poll(0), DevicePollAnswer::Pending);
    let (shown, _) = it.devices.asking(it.codes.user, it.now).unwrap();
    assert_eq!(shown, asking([192, 0, 2, 1]));
    assert!(it.devices.decide(it.codes.user, &ann(), true, it.now).is_some());
    let other = Opaque::random().unwrap();
    assert_eq!(it.devices.poll(&other.digest(), it.now), DevicePollAnswer::Expired);
    let yes = DevicePollAnswer::Approved { user: ann(), asking: asking([192, 0, 2, 1]) };
    assert_eq!(it.poll(5), yes);
    assert_eq!(it.poll(10), DevicePollAnswer::Pending, "it is being told");
    it.devices.settle(&it.codes.device.digest(), false, it.now);
    assert_eq!(it.poll(15), yes, "no token could be made");
    it.devices.settle(&it.codes.device.digest(), true, it.now);
    assert_eq!(it.poll(20), DevicePollAnswer::Expired);
    it.devices.settle(&it.codes.device.digest(), false, it.now);
    assert_eq!(it.poll(25), DevicePollAnswer::Expired);
}

#[test]
fn decision_is_taken_once() {
    let it = fixture();
    assert!(it.devices.decide(it.codes.user, &ann(), false, it.now).is_some());
    assert!(it.devices.decide(it.codes.user, &"eve".parse().unwrap(), true, it.now).is_none());
    assert!(it.devices.asking(it.codes.user, it.now).is_none());
    assert_eq!(it.poll(0), DevicePollAnswer::Denied);
    assert_eq!(it.poll(5), DevicePollAnswer::Expired);
}

#[test]
fn polls_that_come_too_soon_make_the_interval_longer_each_time() {
    let it = fixture();
    assert_eq!(it.poll(0), DevicePollAnswer::Pending);
    assert_eq!(it.poll(1), DevicePollAnswer::SlowDown(Duration::from_secs(10)));
    assert_eq!(it.poll(10), DevicePollAnswer::SlowDown(Duration::from_secs(15)), "nine seconds are not ten");
    assert!(it.devices.decide(it.codes.user, &ann(), true, it.now).is_some());
    assert_eq!(it.poll(11), DevicePollAnswer::SlowDown(Duration::from_secs(20)), "not even for a yes");
    assert!(matches!(it.poll(31), DevicePollAnswer::Approved { .. }));
}

#[test]
fn request_ends_exactly_at_its_bound() {
    let it = fixture();
    let last = it.now + DEVICE_AGE_MAX - MOMENT;
    assert!(it.devices.asking(it.codes.user, last).is_some());
    assert!(it.devices.asking(it.codes.user, it.now + DEVICE_AGE_MAX).is_none());
    assert!(it.devices.decide(it.codes.user, &ann(), true, it.now + DEVICE_AGE_MAX).is_none());
    assert!(it.devices.decide(it.codes.user, &ann(), true, last).is_some());
    assert_eq!(it.poll(600), DevicePollAnswer::Expired);
    assert!(it.devices.state.lock().by_device_code.is_empty());
}

#[test]
fn one_address_cannot_take_all_places() {
    let it = fixture();
    for _ in 1..DEVICES_PER_ADDRESS_MAX {
        it.devices.ask(asking([192, 0, 2, 1]), it.now).unwrap();
    }
    assert_eq!(it.devices.ask(asking([192, 0, 2, 1]), it.now).unwrap_err(), NoDevice::AddressFull);
    assert!(it.devices.ask(asking([192, 0, 2, 2]), it.now).is_ok());
    assert_eq!(it.poll(0), DevicePollAnswer::Pending);
    assert!(it.devices.ask(asking([192, 0, 2, 1]), it.now + DEVICE_AGE_MAX).is_ok(), "they end by themselves");
    assert_eq!(it.devices.state.lock().by_device_code.len(), 1);
}

#[test]
fn flood_of_one_organisation_keeps_nobody_else_from_signing_in() {
    let it = fixture();
    // A /48 has 65,536 networks; each may have ten.
    for number in 0..=u128::try_from(DEVICES_MAX).unwrap() {
        let peer =
            std::net::Ipv6Addr::from((0x2001_0db8_0001_u128 << 80) | ((number / 10) << 64) | (number % 10)).into();
        it.devices.ask(RequestingMachine { machine: MachineName::of("x"), peer }, it.now).unwrap();
    }
    let another = it.devices.ask(asking([203, 0, 113, 1]), it.now).unwrap();
    assert!(it.devices.asking(another.user, it.now).is_some());
    assert_eq!(it.poll(0), DevicePollAnswer::Pending, "the one that waited before them goes on");
    assert!(it.devices.state.lock().by_device_code.len() <= DEVICES_MAX);
}

#[test]
fn network_of_an_ipv6_customer_is_one_address() {
    let network = |text: &str| network(text.parse().unwrap());
    assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::9"));
    assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
}

#[test]
fn user_code_reads_as_people_type_it() {
    let code = UserCode(*b"BCDFGHJK");
    assert_eq!(code.to_string(), "BCDF-GHJK");
    for text in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk", "B-C-D-F-G-H-J-K"] {
        assert_eq!(text.parse(), Ok(code), "{text}");
    }
    for text in ["", "BCDF-GHJ", "BCDF-GHJKL", "ACDF-GHJK", "BCDF_GHJK", "BCDF-GHJ\u{0}", &"-".repeat(100)] {
        assert_eq!(text.parse::<UserCode>(), Err(BadUserCode), "{text}");
    }
}

#[test]
fn machine_is_cut_to_harmless_characters() {
    assert_eq!(MachineName::of("ann@laptop.local (Linux)").to_string(), "ann@laptop.local (Linux)");
    assert_eq!(MachineName::of("<b>\u{202e}\n\u{1b}[2Jx</b>").to_string(), "b2Jx/b");
    assert_eq!(MachineName::of(&"x".repeat(1000)).to_string().len(), MACHINE_CHARS_MAX);
    assert_eq!(MachineName::of("\u{0}ä").to_string(), "unnamed machine");
}

proptest! {
    #[test]
    fn every_code_reads_back(_round in 0..50_u8) {
        let code = UserCode::random().unwrap();
        prop_assert_eq!(code.to_string().parse(), Ok(code));
    }

    #[test]
    fn any_text_is_answered(text in ".{0,40}") {
        if let Ok(code) = text.parse::<UserCode>() {
            prop_assert_eq!(code.to_string().len(), 9);
        }
    }
}
