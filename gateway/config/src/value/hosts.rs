//! Lists of host names.

use super::{ValueKind, off_or_list, show_off_or_list};

/// Longest name, in bytes (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

pub(crate) const HOST_NAMES: ValueKind<Vec<String>> = ValueKind::new(
    "`off`, or host names without ports, with commas between them: `gateway-admin.internal, gw.example.com`",
    |text| off_or_list(text, name),
    |names| show_off_or_list(names, String::clone),
);

fn name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("{text:?} is no host name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        let shown = |text| (HOST_NAMES.parse)(text).map(|names| (HOST_NAMES.show)(&names));
        assert_eq!(shown("off").as_deref(), Ok("off"));
        assert_eq!(shown("Gw.Example.com ,admin").as_deref(), Ok("gw.example.com, admin"));
        for text in ["", "a,", "a:80", "http://a", "a b", "*.a"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
