//! The engine against the app, over loopback.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpListener;

use super::*;
use crate::live::ProgressReporter;
use crate::profile::{self, ProfileName};
use crate::target::LoadTarget;
use crate::testing::closed;
use crate::units::ArrivalRate;
use crate::verdict::Judgement;

/// Runs the app beside `test`.
async fn with_app<T>(test: impl AsyncFnOnce(Context) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let over = CancellationToken::new();
    let app = crate::app::serve(listener, over.clone());
    let mut load = ProfileName::Http.load();
    (load.duration, load.warm_up) = (Duration::from_millis(1200), Duration::from_millis(100));
    (load.connections, load.workers, load.rate) = (4, 2, ArrivalRate::PerSecond(200.0));
    // What is tested is counting, on a machine that may be busy.
    (load.slo.p99, load.slo.carried) = (None, 0.0);
    let context = Context {
        profile: ProfileName::Http,
        subject: "app".to_owned(),
        target: LoadTarget::plain(address, "app"),
        load,
        live: ProgressReporter::quiet(),
        stop: CancellationToken::new(),
        lab: None,
        trees: None,
    };
    let test = async {
        let result = test(context).await;
        over.cancel();
        result
    };
    tokio::join!(test, app).0
}

/// An exchange with nothing, as slow as told.
struct Nothing {
    takes: Duration,
    fails: bool,
    done: Arc<AtomicU64>,
}

impl Exchange for Nothing {
    type Connection = ();

    async fn connect(&self) -> Result<(), ExchangeFailure> {
        Ok(())
    }

    async fn exchange(&self, (): &mut ()) -> Result<Bytes, ExchangeFailure> {
        tokio::time::sleep(self.takes).await;
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.fails { Err(ExchangeFailure::lost("reset")) } else { Ok(Bytes { down: 1, up: 0 }) }
    }
}

fn nothing(takes: Duration) -> Nothing {
    Nothing { takes, fails: false, done: Arc::default() }
}

#[tokio::test]
async fn every_profile_that_needs_no_lab_carries_what_it_offers() {
    with_app(async |mut context| {
        for name in [ProfileName::Http, ProfileName::Ws, ProfileName::Tcp, ProfileName::Churn, ProfileName::Sse] {
            context.profile = name;
            context.load.size = 100;
            let outcome = profile::run(name, &context).await.unwrap();
            assert_eq!(outcome.verdict.judgement, Judgement::Passed, "{name:?} {:?}", outcome.verdict);
            assert!(outcome.failed.is_empty() && outcome.carried > 0, "{name:?} {:?}", outcome.failed);
            assert!(outcome.bytes_down > 0, "{name:?}");
            // 200/s for 1.2 s is 240; six standard deviations are 93.
            assert!(outcome.offered.abs_diff(240) < 93, "{name:?} {}", outcome.offered);
        }
    })
    .await;
}

#[tokio::test]
async fn long_transfers_count_what_moved_though_none_ended() {
    with_app(async |mut context| {
        context.load.rate = ArrivalRate::Max;
        context.load.size = 1 << 40;
        for name in [ProfileName::Download, ProfileName::Upload] {
            context.profile = name;
            let outcome = profile::run(name, &context).await.unwrap();
            assert!(outcome.verdict.passed(), "{name:?} {:?} {:?}", outcome.verdict, outcome.failed);
            assert!(outcome.bytes_down + outcome.bytes_up > 1 << 20, "{name:?}");
            assert_eq!(outcome.carried, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn same_seed_offers_the_same() {
    with_app(async |context| {
        let first = run(&context, Exchanges(nothing(Duration::ZERO))).await.unwrap();
        let second = run(&context, Exchanges(nothing(Duration::ZERO))).await.unwrap();
        assert_eq!(first.offered, second.offered);
        assert_eq!((first.carried, second.carried), (first.offered, second.offered));
    })
    .await;
}

#[tokio::test]
async fn slow_subject_makes_waiting_visible() {
    with_app(async |mut context| {
        // 4 connections that take 50 ms each carry 80/s of 200/s.
        context.load.slo.p99 = Some(Duration::from_millis(100));
        let outcome = run(&context, Exchanges(nothing(Duration::from_millis(50)))).await.unwrap();
        // Whose fault that is depends on what else the machine does; the tests of the verdict have that.
        assert!(!outcome.verdict.passed(), "{:?}", outcome.verdict);
        assert!(outcome.service.p50 < 100_000, "{}", outcome.service.p50);
        assert!(outcome.latency.p99 > 400_000, "{}", outcome.latency.p99);
        assert_eq!(outcome.offered, outcome.carried + outcome.failed_total());
    })
    .await;
}

#[tokio::test]
async fn what_never_ends_is_unfinished() {
    with_app(async |mut context| {
        context.load.slo.p99 = Some(Duration::from_millis(1));
        let outcome = run(&context, Exchanges(nothing(Duration::from_secs(3600)))).await.unwrap();
        assert_eq!((outcome.carried, outcome.failed.get("unfinished")), (0, Some(&outcome.offered)));
        assert!(!outcome.verdict.passed());
    })
    .await;
}

#[tokio::test]
async fn closed_loop_has_one_exchange_per_connection_under_way_and_pauses_after_failures() {
    with_app(async |mut context| {
        context.load.rate = ArrivalRate::Max;
        let outcome = run(&context, Exchanges(nothing(Duration::from_millis(20)))).await.unwrap();
        // 1.2 s of 4 connections with at least 20 ms each.
        assert!(outcome.carried <= 4 * 61 && outcome.carried > 0, "{}", outcome.carried);
        let work = Nothing { fails: true, ..nothing(Duration::ZERO) };
        let done = Arc::clone(&work.done);
        let outcome = run(&context, Exchanges(work)).await.unwrap();
        assert!(outcome.failed_total() > 0 && done.load(Ordering::Relaxed) < 4 * 30, "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn interrupted_run_tells_what_was_measured() {
    with_app(async |mut context| {
        context.load.duration = Duration::from_secs(3600);
        context.load.warm_up = Duration::ZERO;
        let stop = context.stop.clone();
        let work = nothing(Duration::from_millis(1));
        let done = Arc::clone(&work.done);
        // Half a second of what is offered.
        let interrupt = async {
            while done.load(Ordering::Relaxed) < 100 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
        };
        let both = async { tokio::join!(run(&context, Exchanges(work)), interrupt) };
        let (outcome, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("it does not hang");
        let outcome = outcome.unwrap();
        assert!(outcome.measured_s > 0.2 && outcome.measured_s < 60.0, "{}", outcome.measured_s);
        assert!(outcome.carried > 0 && outcome.failed.is_empty(), "{:?}", outcome.failed);
        assert!(outcome.verdict.passed(), "{:?}", outcome.verdict);
        assert!(outcome.notes[0].contains("Interrupted"));
    })
    .await;
}

#[tokio::test]
async fn busy_generator_says_that_it_was_the_limit() {
    /// Burns the worker's thread.
    struct Burn;

    impl Exchange for Burn {
        type Connection = ();

        async fn connect(&self) -> Result<(), ExchangeFailure> {
            Ok(())
        }

        async fn exchange(&self, (): &mut ()) -> Result<Bytes, ExchangeFailure> {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            Ok(Bytes::default())
        }
    }

    with_app(async |mut context| {
        context.load.slo.p99 = Some(Duration::from_millis(100));
        let outcome = run(&context, Exchanges(Burn)).await.unwrap();
        assert!(outcome.generator_busy > 0.9 || outcome.generator_late.p99 > 10_000, "{}", outcome.generator_busy);
        // A thread that did not get the processor was not busy; the tests of the verdict have what is made of that.
        assert!(!outcome.verdict.passed() && !outcome.verdict.warnings.is_empty(), "{:?}", outcome.verdict);
    })
    .await;
}

#[tokio::test]
async fn generator_that_cannot_offer_what_is_asked_still_carries_what_it_can() {
    with_app(async |mut context| {
        context.load.rate = ArrivalRate::PerSecond(5e6);
        context.load.duration = Duration::from_millis(300);
        (context.load.slo.p99, context.load.slo.carried) = (Some(Duration::from_millis(100)), 0.9);
        let outcome = profile::run(ProfileName::Http, &context).await.unwrap();
        // What is carried may all be of the warm-up, which is not counted; what is late says that it was sent.
        assert!(outcome.carried > 0 || outcome.failed_total() > 0);
        // Whose fault that is depends on what else the machine does; the tests of the verdict have that.
        assert!(!outcome.verdict.passed(), "{:?}", outcome.verdict);
    })
    .await;
}

#[tokio::test]
async fn nobody_there_is_told_before_the_run() {
    with_app(async |mut context| {
        let (nowhere, _kept) = closed();
        context.target = LoadTarget::plain(nowhere, "app");
        let error = run(&context, Exchanges(nothing(Duration::ZERO))).await.unwrap_err().to_string();
        assert!(error.contains("connect_refused") && error.contains("--gateway"), "{error}");
    })
    .await;
}
