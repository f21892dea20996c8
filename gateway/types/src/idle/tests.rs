use proptest::prelude::*;

use super::*;

const LIMIT: Duration = Duration::from_mins(30);

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

fn running() -> Lifecycle {
    Lifecycle { actual: ActualState::Running, ..Lifecycle::new(at(0)) }
}

fn activity(seconds: i64) -> Activity {
    Activity { at: at(seconds), kind: ActivityKind::Terminal, user: "ann".parse().ok() }
}

fn record(limit: Option<Duration>) -> IdleRecord {
    IdleRecord { limit, ..IdleRecord::default() }
}

#[test]
fn stop_comes_after_the_limit_and_is_announced_before() {
    let (idle, life) = (record(Some(LIMIT)).with(activity(600)), running());
    assert_eq!(idle.stops_at(&life), Some(at(2_400)));
    for (now, expected) in [
        (600, IdleStage::Awake),
        (1_799, IdleStage::Awake),
        (1_800, IdleStage::Announced),
        (2_279, IdleStage::Announced),
        (2_280, IdleStage::Near),
        (2_399, IdleStage::Near),
        (2_400, IdleStage::Due),
        (9_999, IdleStage::Due),
    ] {
        assert_eq!(idle.stage(&life, at(now)), expected, "{now}");
    }
    assert_eq!(idle.with(activity(2_399)).stage(&life, at(2_400)), IdleStage::Awake, "new activity cancels it");
}

#[test]
fn older_activity_of_another_replica_changes_nothing() {
    let idle = record(Some(LIMIT)).with(activity(600)).with(activity(500));
    assert_eq!(idle.last, Some(activity(600)));
}

#[test]
fn nothing_is_stopped_without_a_limit_or_while_it_starts_or_stops() {
    assert_eq!(record(None).stage(&running(), at(1 << 40)), IdleStage::Off);
    for actual in [ActualState::CreationRequested, ActualState::Starting, ActualState::Stopping, ActualState::Stopped] {
        let life = Lifecycle { actual, ..running() };
        assert_eq!(record(Some(LIMIT)).stage(&life, at(1 << 40)), IdleStage::Off, "{actual}");
    }
    let stopped = Lifecycle { desired: DesiredState::Stopped, ..running() };
    assert_eq!(record(Some(LIMIT)).stops_at(&stopped), None);
}

#[test]
fn start_counts_and_a_slow_one_does_too_but_not_for_ever() {
    let slow = Lifecycle { actual_at: at(500), ..running() };
    assert_eq!(record(Some(LIMIT)).stops_at(&slow), Some(at(500 + 1_800)));
    let flapping = Lifecycle { actual_at: at(50_000), ..running() };
    assert_eq!(record(Some(LIMIT)).stops_at(&flapping), Some(at(900 + 1_800)));
    let again = Lifecycle { desired_at: at(9_000), actual_at: at(9_010), ..running() };
    assert_eq!(record(Some(LIMIT)).with(activity(600)).stops_at(&again), Some(at(9_010 + 1_800)));
}

#[test]
fn kept_workspace_is_stopped_at_the_end_of_that_or_later() {
    let kept = IdleRecord { kept_until: Some(at(5_000)), ..record(Some(LIMIT)) };
    assert_eq!(kept.stops_at(&running()), Some(at(5_000)));
    assert_eq!(kept.with(activity(4_999)).stops_at(&running()), Some(at(4_999 + 1_800)));
}

#[test]
fn operator_bounds_what_owners_want() {
    let (ten, hour) = (Duration::from_mins(10), Duration::from_hours(1));
    let of = |default, max, wanted| IdleRules { default, max }.limit(wanted);
    assert_eq!(of(None, None, IdleLimit::Inherited), None, "off by default");
    assert_eq!(of(Some(ten), None, IdleLimit::Inherited), Some(ten));
    assert_eq!(of(Some(ten), None, IdleLimit::Off), None);
    assert_eq!(of(Some(ten), None, IdleLimit::After(hour)), Some(hour));
    assert_eq!(of(Some(hour), Some(ten), IdleLimit::Inherited), Some(ten));
    assert_eq!(of(None, Some(ten), IdleLimit::Off), Some(ten));
    assert_eq!(of(None, Some(ten), IdleLimit::After(hour)), Some(ten));
}

#[test]
fn limit_is_read_in_minutes() {
    assert_eq!("30".parse(), Ok(IdleLimit::After(LIMIT)));
    assert_eq!("0.1".parse(), Ok(IdleLimit::After(Duration::from_secs(6))));
    assert_eq!(("0".parse(), "off".parse()), (Ok(IdleLimit::Off), Ok(IdleLimit::Off)));
    assert_eq!("default".parse(), Ok(IdleLimit::Inherited));
    for wrong in ["-1", "", "nan", "inf", "1e300", "0.01", "600000", "-0.001", "30m"] {
        assert_eq!(wrong.parse::<IdleLimit>(), Err(BadIdleLimit), "{wrong}");
    }
}

#[test]
fn reason_tells_since_when_and_by_what_and_only_of_its_own_stop() {
    let stopped = Lifecycle { desired: DesiredState::Stopped, generation: 2, ..running() };
    let idle = IdleRecord { stopped_generation: Some(2), ..record(Some(LIMIT)) };
    assert_eq!(idle.stop_reason(&stopped).as_deref(), Some("stopped: idle since its start"));
    let used = idle.with(activity(60));
    let told = "stopped: idle since 1970-01-01T00:01:00Z (terminal input by ann)";
    assert_eq!(used.stop_reason(&stopped).as_deref(), Some(told));
    assert_eq!(used.stop_reason(&Lifecycle { generation: 4, ..stopped }), None, "a later stop by its owner");
    assert_eq!(used.stop_reason(&running()), None);
}

#[test]
fn reader_is_told_when_it_stops_and_what_counted_last() {
    let (ann, bob) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    assert_eq!(record(None).told(&running(), &ann), None);
    let idle = record(Some(LIMIT)).with(activity(60));
    let told = |reader| idle.told(&running(), reader).unwrap();
    assert_eq!(told(&ann), "stops 1970-01-01T00:31:00Z; last activity 1970-01-01T00:01:00Z: terminal input by you");
    assert!(told(&bob).ends_with("terminal input by ann"));
    let busy = Activity { at: at(60), kind: ActivityKind::Busy, user: None };
    let told = record(None).with(busy).told(&running(), &ann);
    assert_eq!(told.as_deref(), Some("last activity 1970-01-01T00:01:00Z: a busy command"));
}

/// A step of the model.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(i64),
    /// Activity so long ago, as a replica reports it.
    Use(i64),
    Keep(i64),
    Limit(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_i64..4_000).prop_map(Step::Pass),
        (0_i64..90).prop_map(Step::Use),
        (1_i64..4_000).prop_map(Step::Keep),
        proptest::option::of(5_u64..4_000).prop_map(Step::Limit),
    ]
}

proptest! {
    // The model keeps everything that ever held the workspace awake, and stops it when none of that does.
    #[test]
    fn stop_is_due_exactly_when_nothing_holds_the_workspace(steps in proptest::collection::vec(step(), 1..40)) {
        let (mut idle, mut now, life) = (record(Some(LIMIT)), 0_i64, running());
        let (mut uses, mut keeps) = (vec![0_i64], Vec::new());
        for step in steps {
            match step {
                Step::Pass(seconds) => now += seconds,
                Step::Use(ago) => {
                    uses.push(now - ago);
                    idle = idle.with(activity(now - ago));
                }
                Step::Keep(seconds) => {
                    let until = now + seconds;
                    keeps.push(until);
                    idle.kept_until = Some(idle.kept_until.map_or(at(until), |kept| kept.max(at(until))));
                }
                Step::Limit(seconds) => idle.limit = seconds.map(Duration::from_secs),
            }
            let is_held = |limit: Duration| {
                let limit = i64::try_from(limit.as_secs()).unwrap();
                uses.iter().any(|used| used + limit > now) || keeps.iter().any(|until| *until > now)
            };
            let stage = idle.stage(&life, at(now));
            match idle.limit {
                None => prop_assert_eq!(stage, IdleStage::Off),
                Some(limit) => prop_assert_eq!(stage == IdleStage::Due, !is_held(limit)),
            }
            // Nothing is stopped without notice, and no use makes a stop nearer.
            if let Some(stops) = idle.stops_at(&life) {
                prop_assert_eq!(idle.stage(&life, at(stops.get() - 1)), IdleStage::Near);
                prop_assert!(idle.clone().with(activity(now)).stops_at(&life) >= Some(stops));
            }
        }
    }
}
