//! Accesses that users have open at a workspace now, and its traffic of the last hour.

use gateway_agents::traffic::MinuteTraffic;
use gateway_edge::watches::OpenAccess;

use crate::words;

/// Most lines that are shown.
const LINES_MAX: usize = 50;

/// Height of the drawing, in its own units; its width is a unit for each minute.
const HEIGHT: f64 = 20.0;

/// Something that a user has open.
pub(super) struct OpenLine {
    /// Its number, for the form.
    pub(super) number: u64,
    pub(super) user: String,
    pub(super) port: u16,
    pub(super) peer: String,
    pub(super) open_for: String,
    pub(super) uses: usize,
}

/// Returns the lines of what is open.
pub(super) fn lines(open: Vec<OpenAccess>) -> Vec<OpenLine> {
    let line = |open: OpenAccess| OpenLine {
        number: open.number,
        user: open.user.map_or_else(|| "no sign-in".to_owned(), |user| user.to_string()),
        port: open.port.get(),
        peer: open.peer.to_canonical().to_string(),
        open_for: words::length(open.open_for),
        uses: open.uses,
    };
    open.into_iter().take(LINES_MAX).map(line).collect()
}

/// Traffic of the last hour, as a drawing and in words.
pub(super) struct TrafficDrawing {
    /// Path of an SVG of 60 by 20 units.
    pub(super) path: String,
    pub(super) words: String,
}

impl TrafficDrawing {
    /// Draws it; nothing without any.
    pub(super) fn new(hour: &[MinuteTraffic]) -> Option<Self> {
        let bytes = |minute: &MinuteTraffic| minute.sent.saturating_add(minute.received);
        let most = hour.iter().map(bytes).max().filter(|most| *most > 0)?;
        let mut path = format!("M0 {HEIGHT}");
        for (at, minute) in hour.iter().enumerate() {
            // A drawing may be off by a rounding.
            #[expect(clippy::cast_precision_loss, reason = "a drawing of 20 units")]
            let y = HEIGHT - (HEIGHT - 1.0) * bytes(minute) as f64 / most as f64;
            path.push_str(&format!("L{at} {y:.1}"));
        }
        path.push_str(&format!("L{} {HEIGHT}Z", hour.len().saturating_sub(1)));
        let sum = |pick: fn(&MinuteTraffic) -> u64| words::bytes(hour.iter().map(pick).sum());
        let (sent, received) = (sum(|minute| minute.sent), sum(|minute| minute.received));
        let words = format!("{sent} to it and {received} from it; {} in the busiest minute.", words::bytes(most));
        Some(Self { path, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_reaches_its_height_in_the_busiest_minute() {
        let quiet = MinuteTraffic::default();
        assert!(TrafficDrawing::new(&[quiet, quiet]).is_none());
        let drawing = TrafficDrawing::new(&[quiet, MinuteTraffic { sent: 1024, received: 1024 }]).unwrap();
        assert_eq!(drawing.path, "M0 20L0 20.0L1 1.0L1 20Z");
        assert_eq!(drawing.words, "1.0 KiB to it and 1.0 KiB from it; 2.0 KiB in the busiest minute.");
    }
}
