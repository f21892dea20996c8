use proptest::prelude::*;

use super::*;
use crate::limit::{WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX};

fn instant() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
    Instant::now()
}

#[test]
fn send_credit_refuses_to_overflow_and_never_goes_below_zero() {
    let mut credit = SendCredit::new(u32::MAX - 1);
    assert_eq!(credit.add(2), Err(Overflow));
    assert_eq!(credit.available(), u32::MAX - 1);
    assert_eq!(credit.add(1), Ok(()));
    let mut credit = SendCredit::new(10);
    assert_eq!(credit.take(4), 4);
    assert_eq!(credit.take(100), 6);
    assert_eq!(credit.take(1), 0);
}

#[test]
fn overrun_is_refused_and_changes_nothing() {
    let mut credit = RecvCredit::new(100, 100, instant());
    assert_eq!(credit.receive(60), Ok(()));
    assert_eq!(credit.receive(41), Err(Overrun));
    assert_eq!(credit.buffered(), 60);
    assert_eq!(credit.receive(40), Ok(()));
    assert!(credit.is_conserved());
}

#[test]
fn grant_waits_for_half_of_the_window() {
    let mut budget = Budget::new(1 << 30, None);
    let now = instant();
    let mut credit = RecvCredit::new(100, 100, now);
    assert_eq!(credit.receive(100), Ok(()));
    credit.consume(49);
    assert_eq!(credit.grant(now, None, &mut budget), 0);
    credit.consume(1);
    assert_eq!(credit.grant(now, None, &mut budget), 50);
}

#[test]
fn window_doubles_while_it_is_the_limit_and_stops_at_its_ceiling() {
    let mut budget = Budget::new(1 << 30, None);
    let round_trip = Duration::from_millis(80);
    let mut now = instant();
    let mut credit = RecvCredit::new(WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX, now);
    for _ in 0..10 {
        let bytes = credit.window() as usize;
        assert_eq!(credit.receive(bytes), Ok(()));
        credit.consume(bytes);
        now += round_trip;
        assert!(credit.grant(now, Some(round_trip), &mut budget) > 0);
    }
    assert_eq!(credit.window(), WINDOW_BYTES_MAX);
}

#[test]
fn window_stays_when_the_destination_is_the_limit() {
    let mut budget = Budget::new(1 << 30, None);
    let round_trip = Duration::from_millis(10);
    let start = instant();
    let mut credit = RecvCredit::new(WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX, start);
    let bytes = WINDOW_BYTES_INITIAL as usize / 2;
    assert_eq!(credit.receive(bytes), Ok(()));
    credit.consume(bytes);
    assert!(credit.grant(start + 3 * round_trip, Some(round_trip), &mut budget) > 0);
    assert_eq!(credit.window(), WINDOW_BYTES_INITIAL);
}

#[test]
fn window_shrinks_near_the_budget_and_keeps_its_guarantee() {
    let mut budget = Budget::new(u64::from(WINDOW_BYTES_INITIAL), None);
    assert!(budget.reserve(u64::from(WINDOW_BYTES_INITIAL)));
    let now = instant();
    let mut credit = RecvCredit::new(WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX, now);
    for _ in 0..20 {
        let bytes = credit.window() as usize;
        assert_eq!(credit.receive(bytes), Ok(()));
        credit.consume(bytes);
        assert!(credit.grant(now, Some(Duration::from_millis(1)), &mut budget) > 0, "a channel is never strangled");
        assert!(credit.is_conserved());
    }
    assert!(credit.window() >= WINDOW_BYTES_MIN);
    assert!(credit.window() < WINDOW_BYTES_INITIAL);
    assert_eq!(budget.reserved(), u64::from(credit.window()));
}

proptest! {
    #[test]
    fn credit_is_conserved_whatever_happens(
        steps in proptest::collection::vec((0_u8..3, 0_usize..400_000, 0_u64..200), 1..200),
        limit in u64::from(WINDOW_BYTES_INITIAL)..4_000_000,
    ) {
        let mut budget = Budget::new(limit, None);
        let mut now = instant();
        prop_assert!(budget.reserve(u64::from(WINDOW_BYTES_INITIAL)));
        let mut credit = RecvCredit::new(WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX, now);
        let mut peer = u64::from(WINDOW_BYTES_INITIAL);
        for (step, bytes, milliseconds) in steps {
            now += Duration::from_millis(milliseconds);
            match step {
                0 => if credit.receive(bytes).is_ok() { peer -= bytes as u64 },
                1 => credit.consume(bytes),
                _ => peer += u64::from(credit.grant(now, Some(Duration::from_millis(20)), &mut budget)),
            }
            prop_assert!(credit.is_conserved());
            prop_assert_eq!(u64::from(credit.outstanding), peer, "the peer's books and ours agree");
            prop_assert_eq!(budget.reserved(), u64::from(credit.window()));
            prop_assert!(budget.reserved() <= limit);
            prop_assert!(credit.window() >= WINDOW_BYTES_MIN);
        }
    }
}
