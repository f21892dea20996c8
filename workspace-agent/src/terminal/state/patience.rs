//! Patience of a terminal with a page that is slower than it.

use std::time::{Duration, Instant};

/// Most bytes that the leading page may have to show yet before the shell's output is not read on: the shell then
/// waits, as it would for a slow screen, and nothing is lost.
pub(super) const BEHIND_BYTES_MAX: u64 = 512 * 1024;

/// Longest such wait without the page showing anything. A page that is gone must not hold up the programs.
pub const STALL: Duration = Duration::from_secs(2);

/// Progress of the leading page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageProgress {
    /// Number of bytes that it has shown.
    pub shown: u64,
    /// Number of bytes that there are.
    pub end: u64,
}

/// Decides whether to read on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    stalled: Option<(u64, Instant)>,
}

impl Patience {
    /// Returns the time until which the shell's output is not to be read; `None` for no wait.
    pub fn wait_until(&mut self, progress: Option<PageProgress>, now: Instant) -> Option<Instant> {
        let PageProgress { shown, end } = progress.unwrap_or_default();
        if end.saturating_sub(shown) <= BEHIND_BYTES_MAX {
            self.stalled = None;
            return None;
        }
        let since = match self.stalled {
            Some((before, since)) if before == shown => since,
            Some(_) | None => now,
        };
        self.stalled = Some((shown, since));
        Some(since + STALL).filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_that_shows_something_is_waited_for_and_one_that_stalls_is_not() {
        let (mut patience, start) = (Patience::default(), tokio::time::Instant::now().into_std());
        let at = |shown: u64, end: u64| Some(PageProgress { shown, end });
        let behind = |shown: u64| at(shown, shown + BEHIND_BYTES_MAX + 1);
        assert_eq!(patience.wait_until(None, start), None);
        assert_eq!(patience.wait_until(at(0, BEHIND_BYTES_MAX), start), None);
        assert_eq!(patience.wait_until(behind(0), start), Some(start + STALL));
        let later = start + STALL / 2;
        assert_eq!(patience.wait_until(behind(0), later), Some(start + STALL), "the same wait");
        assert_eq!(patience.wait_until(behind(1), later), Some(later + STALL), "it moved");
        assert_eq!(patience.wait_until(behind(1), later + STALL), None);
        assert_eq!(patience.wait_until(behind(1), later + 9 * STALL), None, "it is not waited for again");
        assert_eq!(patience.wait_until(at(8, 8), later), None);
        assert_eq!(patience.wait_until(behind(8), later), Some(later + STALL));
    }
}
