//! Recording of results: one recorder per worker, merged each second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::micros;
use crate::outcome::{Latency, Second};

/// Longest latency that is told apart: an hour.
const LATENCY_MICROS_MAX: u64 = 3_600_000_000;

/// Seconds whose distribution is kept before only its percentiles remain: recorders flush once a second.
const SECONDS_OPEN_MAX: u64 = 5;

/// Makes an empty histogram of microseconds: three digits, growing with what is recorded.
///
/// # Panics
/// Never: the bounds are constants that hold.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "three digits are within what the library takes")]
    Histogram::new(3).expect("three digits are allowed")
}

/// Records a latency; one of more than an hour counts as an hour.
pub fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    // It grows as needed up to the bound, so recording cannot fail.
    if histogram.record(micros(latency).min(LATENCY_MICROS_MAX)).is_err() {
        debug_assert!(false, "a latency within the bound is recorded");
    }
}

/// Adds one histogram to another.
fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    // Both grow as needed and hold values up to the same bound, so adding cannot fail.
    if to.add(from).is_err() {
        debug_assert!(false, "histograms of the same kind add up");
    }
}

/// Counters and distributions of one span of time.
#[derive(Clone)]
struct SpanTally {
    offered: u64,
    withdrawn: u64,
    carried: u64,
    failed: BTreeMap<&'static str, u64>,
    bytes_down: u64,
    bytes_up: u64,
    latency: Histogram<u64>,
    service: Histogram<u64>,
    late: Histogram<u64>,
}

impl SpanTally {
    fn new() -> Self {
        Self {
            offered: 0,
            withdrawn: 0,
            carried: 0,
            failed: BTreeMap::new(),
            bytes_down: 0,
            bytes_up: 0,
            latency: histogram(),
            service: histogram(),
            late: histogram(),
        }
    }

    fn is_empty(&self) -> bool {
        self.offered == 0
            && self.withdrawn == 0
            && self.failed.is_empty()
            && self.bytes_down == 0
            && self.bytes_up == 0
            && self.latency.is_empty()
            && self.late.is_empty()
    }

    fn add(&mut self, from: &Self) {
        self.offered += from.offered;
        self.withdrawn += from.withdrawn;
        self.carried += from.carried;
        self.bytes_down += from.bytes_down;
        self.bytes_up += from.bytes_up;
        for (why, count) in &from.failed {
            *self.failed.entry(why).or_default() += count;
        }
        add(&mut self.latency, &from.latency);
        add(&mut self.service, &from.service);
        add(&mut self.late, &from.late);
    }

    /// Empties it without giving memory back.
    fn reset(&mut self) {
        self.offered = 0;
        self.withdrawn = 0;
        self.carried = 0;
        self.failed.clear();
        self.bytes_down = 0;
        self.bytes_up = 0;
        self.latency.reset();
        self.service.reset();
        self.late.reset();
    }
}

/// One second while recorders may still add to it.
struct OpenSecond {
    row: Second,
    latency: Histogram<u64>,
}

impl OpenSecond {
    fn close(mut self) -> Second {
        if !self.latency.is_empty() {
            self.row.p50_us = self.latency.value_at_quantile(0.5);
            self.row.p99_us = self.latency.value_at_quantile(0.99);
            self.row.max_us = self.latency.max();
        }
        self.row
    }
}

struct Merged {
    total: SpanTally,
    open: BTreeMap<u64, OpenSecond>,
    closed: BTreeMap<u64, Second>,
}

impl Merged {
    fn add(&mut self, at: u64, tally: &SpanTally) {
        self.total.add(tally);
        if let Some(row) = self.closed.get_mut(&at) {
            // Too late for percentiles; counts still add up.
            count(row, tally);
            return;
        }
        let open = self
            .open
            .entry(at)
            .or_insert_with(|| OpenSecond { row: Second { at, ..Second::default() }, latency: histogram() });
        count(&mut open.row, tally);
        add(&mut open.latency, &tally.latency);
        while let Some(first) = self.open.first_entry()
            && first.key() + SECONDS_OPEN_MAX < at
        {
            let (second, open) = first.remove_entry();
            self.closed.insert(second, open.close());
        }
    }
}

fn count(row: &mut Second, tally: &SpanTally) {
    row.offered += tally.offered;
    row.carried += tally.carried;
    row.failed += tally.failed.values().sum::<u64>();
    row.bytes_down += tally.bytes_down;
    row.bytes_up += tally.bytes_up;
}

/// Measured time: nothing outside of it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Beginning of the measured time: after warm-up.
    pub begin: Instant,
    /// End of the measured time.
    pub end: Instant,
}

impl Window {
    /// Returns whether an instant is measured.
    #[must_use]
    pub fn holds(&self, at: Instant) -> bool {
        at >= self.begin && at < self.end
    }

    fn second(&self, at: Instant) -> u64 {
        at.min(self.end).saturating_duration_since(self.begin).as_secs()
    }
}

/// Collector of a run's recorders.
#[derive(Clone)]
pub struct Collector {
    window: Window,
    merged: Arc<Mutex<Merged>>,
}

/// Data that a collector gathered; the measured half of a [`RunOutcome`](crate::outcome::RunOutcome).
#[derive(Clone, Debug, Default)]
pub struct CollectedStats {
    /// Arrivals.
    pub offered: u64,
    /// Ended well.
    pub carried: u64,
    /// Failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Payload bytes from the app.
    pub bytes_down: u64,
    /// Payload bytes to the app.
    pub bytes_up: u64,
    /// Latency from the intended start.
    pub latency: Latency,
    /// Latency from the actual send.
    pub service: Latency,
    /// Delay of the generator itself.
    pub generator_late: Latency,
    /// Each second.
    pub seconds: Vec<Second>,
    /// Measured time.
    pub measured: Duration,
}

impl Collector {
    /// Makes a collector for a measured time.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let merged = Merged { total: SpanTally::new(), open: BTreeMap::new(), closed: BTreeMap::new() };
        Self { window, merged: Arc::new(Mutex::new(merged)) }
    }

    /// Returns the measured time.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Makes a recorder. Each worker has its own; dropping it flushes it.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        Recorder { collector: self.clone(), second: 0, tally: SpanTally::new() }
    }

    /// Returns the figures of one second of the measured time.
    #[must_use]
    pub fn second(&self, at: u64) -> Second {
        let merged = self.merged.lock();
        if let Some(row) = merged.closed.get(&at) {
            return row.clone();
        }
        match merged.open.get(&at) {
            Some(open) => OpenSecond { row: open.row.clone(), latency: open.latency.clone() }.close(),
            None => Second { at, ..Second::default() },
        }
    }

    /// Returns the data gathered until `now`; recorders should have been dropped or flushed.
    #[must_use]
    pub fn finish(&self, now: Instant) -> CollectedStats {
        let measured = now.min(self.window.end).saturating_duration_since(self.window.begin);
        let merged = self.merged.lock();
        let total = &merged.total;
        let mut seconds = merged.closed.clone();
        for (at, open) in &merged.open {
            seconds.insert(*at, OpenSecond { row: open.row.clone(), latency: open.latency.clone() }.close());
        }
        // A second without events is a finding, not a gap.
        let last = measured.as_secs().saturating_sub(u64::from(measured.subsec_nanos() == 0));
        for at in 0..=last {
            seconds.entry(at).or_insert_with(|| Second { at, ..Second::default() });
        }
        CollectedStats {
            offered: total.offered.saturating_sub(total.withdrawn),
            carried: total.carried,
            failed: total.failed.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect(),
            bytes_down: total.bytes_down,
            bytes_up: total.bytes_up,
            latency: Latency::of(&total.latency),
            service: Latency::of(&total.service),
            generator_late: Latency::of(&total.late),
            seconds: seconds.into_values().collect(),
            measured,
        }
    }
}

/// Payload bytes of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// From the app.
    pub down: u64,
    /// To the app.
    pub up: u64,
}

/// Records for one worker, without a lock: its tally is merged when a second is over.
pub struct Recorder {
    collector: Collector,
    second: u64,
    tally: SpanTally,
}

impl Recorder {
    /// Records an arrival that is to start at `intended`.
    pub fn offered(&mut self, intended: Instant) {
        if self.collector.window.holds(intended) {
            self.turn(intended);
            self.tally.offered += 1;
        }
    }

    /// Takes an arrival back: the run was interrupted before it could end.
    pub fn withdrawn(&mut self, intended: Instant) {
        if self.collector.window.holds(intended) {
            self.tally.withdrawn += 1;
        }
    }

    /// Records how late the generator itself was with an arrival that was to start at `intended`.
    pub fn late(&mut self, intended: Instant, late: Duration) {
        if self.collector.window.holds(intended) {
            record(&mut self.tally.late, late);
        }
    }

    /// Records an exchange that ended well. It counts if its intended start is in the measured time.
    pub fn ok(&mut self, intended: Instant, sent: Instant, done: Instant, bytes: Bytes) {
        if self.collector.window.holds(intended) {
            self.turn(done);
            self.tally.carried += 1;
            self.tally.bytes_down += bytes.down;
            self.tally.bytes_up += bytes.up;
            record(&mut self.tally.latency, done.saturating_duration_since(intended));
            record(&mut self.tally.service, done.saturating_duration_since(sent));
        }
    }

    /// Records an exchange that failed. It counts if its intended start is in the measured time.
    pub fn failed(&mut self, intended: Instant, now: Instant, why: &'static str) {
        if self.collector.window.holds(intended) {
            self.turn(now);
            *self.tally.failed.entry(why).or_default() += 1;
        }
    }

    /// Records bytes of an exchange that goes on; they count if `now` is in the measured time.
    pub fn moved(&mut self, now: Instant, bytes: Bytes) {
        if self.collector.window.holds(now) {
            self.turn(now);
            self.tally.bytes_down += bytes.down;
            self.tally.bytes_up += bytes.up;
        }
    }

    /// Merges the records of seconds before that of `now`. Must be called once a second when little happens.
    pub fn tick(&mut self, now: Instant) {
        if now >= self.collector.window.begin {
            self.turn(now);
        }
    }

    /// Merges everything.
    pub fn flush(&mut self) {
        if !self.tally.is_empty() {
            self.collector.merged.lock().add(self.second, &self.tally);
            self.tally.reset();
        }
    }

    /// Goes on to the second of `at`, merging the one before.
    fn turn(&mut self, at: Instant) {
        let second = self.collector.window.second(at);
        if second > self.second {
            self.flush();
            self.second = second;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collector(seconds: u64) -> (Collector, Instant) {
        let begin = Instant::now() + Duration::from_secs(10);
        (Collector::new(Window { begin, end: begin + Duration::from_secs(seconds) }), begin)
    }

    const NOTHING: Bytes = Bytes { down: 0, up: 0 };

    proptest! {
        #[test]
        fn recorders_merge_to_what_one_would_have_recorded(
            samples in prop::collection::vec((0_usize..4, 0_u64..9_000, 1_u64..5_000_000), 1..200),
        ) {
            let (many, begin) = collector(10);
            let (one, _) = collector(10);
            let one = Collector::new(Window { begin, end: one.window().begin + Duration::from_secs(10) });
            let mut recorders: Vec<Recorder> = (0..4).map(|_| many.recorder()).collect();
            let mut only = one.recorder();
            for (index, at_ms, latency_us) in &samples {
                let intended = begin + Duration::from_millis(*at_ms);
                let done = intended + Duration::from_micros(*latency_us);
                for recorder in [&mut recorders[*index], &mut only] {
                    recorder.offered(intended);
                    recorder.ok(intended, intended, done, Bytes { down: 3, up: 1 });
                }
            }
            drop((recorders, only));
            let end = begin + Duration::from_secs(10);
            let (many, one) = (many.finish(end), one.finish(end));
            prop_assert_eq!(&many.latency, &one.latency);
            prop_assert_eq!(many.latency.count, samples.len() as u64);
            prop_assert_eq!(many.carried, samples.len() as u64);
            prop_assert_eq!(many.bytes_down, 3 * samples.len() as u64);
            prop_assert_eq!(many.seconds.iter().map(|second| second.carried).sum::<u64>(), many.carried);
            // Three digits.
            let mut latencies: Vec<u64> = samples.iter().map(|(_, _, latency)| *latency).collect();
            latencies.sort_unstable();
            let middle = latencies[(latencies.len() - 1) / 2];
            prop_assert!(many.latency.p50.abs_diff(middle) <= middle / 500 + 1, "{} {middle}", many.latency.p50);
        }

        #[test]
        fn exported_histogram_gives_the_same_percentiles(latencies in prop::collection::vec(1_u64..10_000_000, 1..300)) {
            let mut histogram = histogram();
            for latency in &latencies {
                record(&mut histogram, Duration::from_micros(*latency));
            }
            let latency = Latency::of(&histogram);
            for (quantile, expected) in [(0.5, latency.p50), (0.9, latency.p90), (0.99, latency.p99), (1.0, latency.max)] {
                let found = latency.at(quantile);
                // One may name a bucket by its highest value.
                prop_assert!(found.abs_diff(expected) <= expected / 500 + 1, "{quantile} {found} {expected}");
            }
        }
    }

    #[test]
    fn warm_up_is_not_counted() {
        let (collector, begin) = collector(10);
        let mut recorder = collector.recorder();
        let before = begin.checked_sub(Duration::from_millis(1)).unwrap();
        recorder.offered(before);
        recorder.ok(before, before, begin + Duration::from_secs(1), Bytes { down: 5, up: 5 });
        recorder.failed(before, begin, "reset");
        recorder.late(before, Duration::from_secs(1));
        recorder.moved(before, Bytes { down: 5, up: 5 });
        recorder.offered(begin + Duration::from_secs(10));
        drop(recorder);
        let parts = collector.finish(begin + Duration::from_secs(10));
        assert_eq!((parts.offered, parts.carried, parts.bytes_down, parts.failed.len()), (0, 0, 0, 0));
        assert_eq!((parts.latency.count, parts.generator_late.count), (0, 0));
    }

    #[test]
    fn latency_from_intended_start_has_the_waiting_in_it() {
        let (collector, begin) = collector(10);
        let mut recorder = collector.recorder();
        recorder.ok(begin, begin + Duration::from_millis(900), begin + Duration::from_millis(1000), NOTHING);
        drop(recorder);
        let parts = collector.finish(begin + Duration::from_secs(10));
        assert_eq!((parts.latency.max / 1000, parts.service.max / 1000), (1000, 100));
    }

    #[test]
    fn second_in_which_nothing_happened_is_there() {
        let (collector, begin) = collector(3);
        let mut recorder = collector.recorder();
        for second in [0, 2] {
            let at = begin + Duration::from_secs(second);
            recorder.offered(at);
            recorder.ok(at, at, at, NOTHING);
        }
        drop(recorder);
        let parts = collector.finish(begin + Duration::from_secs(3));
        let rows: Vec<_> = parts.seconds.iter().map(|second| (second.at, second.carried)).collect();
        assert_eq!(rows, [(0, 1), (1, 0), (2, 1)]);
    }

    #[test]
    fn late_flush_of_an_old_second_still_adds_up() {
        let (collector, begin) = collector(60);
        let mut slow = collector.recorder();
        slow.ok(begin, begin, begin, NOTHING);
        let mut quick = collector.recorder();
        for second in 0..30 {
            let at = begin + Duration::from_secs(second);
            quick.ok(at, at, at, NOTHING);
        }
        quick.flush();
        slow.flush();
        assert_eq!(collector.second(0).carried, 2);
        assert_eq!(collector.finish(begin + Duration::from_secs(60)).carried, 31);
    }

    #[test]
    fn withdrawn_arrival_was_never_offered() {
        let (collector, begin) = collector(10);
        let mut recorder = collector.recorder();
        recorder.offered(begin);
        recorder.offered(begin);
        recorder.withdrawn(begin);
        drop(recorder);
        assert_eq!(collector.finish(begin + Duration::from_secs(1)).offered, 1);
    }
}
