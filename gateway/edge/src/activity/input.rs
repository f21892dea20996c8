//! Which data frames of a WebSocket count as a person's.

use gateway_types::{ActivityKind, Port};

/// Longest message of a terminal's page that is no input, in bytes: the size of its window, and how much of the output it has shown.
/// What is typed has at least one byte more (`workspace-agent/src/terminal/message.rs`).
const TERMINAL_NOTICE_MAX: u64 = 9;

/// Longest frame of the editor's page that it sends by itself, in bytes. Visual Studio Code's protocol has a head of 13 bytes, and
/// what has nothing else says that the page lives, or how much it has read; it is sent every few seconds for as long as the page
/// is open, and two at once go in one frame.
const EDITOR_NOTICE_MAX: u64 = 26;

/// Rule for the frames of one WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputRule {
    kind: ActivityKind,
    /// Longest data frame that does not count.
    notice_max: u64,
}

impl InputRule {
    /// Returns the rule for a port.
    pub(crate) fn of(port: Port) -> Self {
        match port {
            port if port.is_terminal() => Self { kind: ActivityKind::Terminal, notice_max: TERMINAL_NOTICE_MAX },
            port if port.is_editor() => Self { kind: ActivityKind::WebSocket, notice_max: EDITOR_NOTICE_MAX },
            _ => Self { kind: ActivityKind::WebSocket, notice_max: 0 },
        }
    }

    /// Returns what a frame counts as, by its opcode (RFC 6455, section 5.2) and the length of its payload. Control frames count
    /// as nothing.
    pub(crate) fn judge(self, opcode: u8, length: u64) -> Option<ActivityKind> {
        (opcode < 0x8 && length > self.notice_max).then_some(self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_counts_and_control_frames_do_not() {
        let rule = InputRule::of(Port::new(3000).unwrap());
        for opcode in [0x0, 0x1, 0x2] {
            assert_eq!(rule.judge(opcode, 1), Some(ActivityKind::WebSocket));
            assert_eq!(rule.judge(opcode, 0), None, "nothing is in it");
        }
        for opcode in [0x8, 0x9, 0xa, 0xf] {
            assert_eq!(rule.judge(opcode, 125), None);
        }
    }

    #[test]
    fn terminals_keys_count_and_its_notices_do_not() {
        let rule = InputRule::of(Port::new(60_002).unwrap());
        assert_eq!((rule.judge(2, 5), rule.judge(2, 9)), (None, None), "size, shown");
        assert_eq!(rule.judge(2, 10), Some(ActivityKind::Terminal), "one key");
    }

    #[test]
    fn editors_own_messages_do_not_count() {
        let rule = InputRule::of(Port::new(60_001).unwrap());
        assert_eq!((rule.judge(2, 13), rule.judge(2, 26)), (None, None));
        assert_eq!(rule.judge(2, 80), Some(ActivityKind::WebSocket));
    }
}
