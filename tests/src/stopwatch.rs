//! A clock for bounds that have a meaning, which counts no time in which the machine stood still.

use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether the machine runs.
const LOOK: Duration = Duration::from_millis(50);

/// How late a look may be on a machine that is only busy.
const BUSY: Duration = Duration::from_millis(250);

/// What the looks have found since the first stopwatch was started.
struct Looks {
    /// When it was looked last; `None` before the first time.
    last: Option<Instant>,
    /// For how long the machine stood still up to then.
    still: Duration,
}

static LOOKS: Mutex<Looks> = Mutex::new(Looks { last: None, still: Duration::ZERO });

impl Looks {
    /// For how long the machine stood still up to now, also where that has just ended and the look is still to come.
    fn still_at(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |last| self.still + now.duration_since(last).saturating_sub(LOOK + BUSY))
    }

    fn look(&mut self, now: Instant) {
        self.still = self.still_at(now);
        self.last = Some(now);
    }
}

/// Looks from now on, in a thread of its own: tests run in one with what they test, and that may hang.
fn watch() {
    static ONCE: Once = Once::new();
    let look = || LOOKS.lock().unwrap_or_else(PoisonError::into_inner).look(Instant::now());
    ONCE.call_once(|| {
        look();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                look();
            }
        });
    });
}

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
    still: Duration,
}

impl Stopwatch {
    /// Begins to count.
    #[must_use]
    pub fn start() -> Self {
        watch();
        let looks = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        Self { began, still: looks.still_at(began) }
    }

    /// How long it has run, without the time in which the machine stood still.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let looks = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        now.duration_since(self.began).saturating_sub(looks.still_at(now).saturating_sub(self.still))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_longer_than_a_busy_machine_takes_is_no_time_and_it_is_none_before_the_next_look_too() {
        let began = Instant::now();
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut looks = Looks { last: None, still: Duration::ZERO };
        assert_eq!(looks.still_at(at(5_000)), Duration::ZERO, "nobody has looked yet");
        for time in [0, 50, 340, 640] {
            looks.look(at(time));
        }
        assert_eq!(looks.still_at(at(940)), Duration::ZERO);
        assert_eq!(looks.still_at(at(3_940)), Duration::from_secs(3));
        looks.look(at(3_940));
        assert_eq!(looks.still_at(at(3_950)), Duration::from_secs(3));
        looks.look(at(5_240));
        assert_eq!(looks.still_at(at(5_241)), Duration::from_secs(4));
    }

    #[test]
    fn machine_that_runs_loses_no_time() {
        let (watch, began) = (Stopwatch::start(), Instant::now());
        std::thread::sleep(LOOK);
        assert!(watch.elapsed() <= began.elapsed() + LOOK);
    }
}
