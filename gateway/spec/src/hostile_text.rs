//! Texts for tests of templates: pieces that would do harm if a value that has them were read as YAML or as a reference.

/// Pieces that mean something in YAML, or in the braces of a template.
pub(crate) const PIECES: [&str; 42] = [
    "a", " ", ": ", "- ", "\n", "\n  - ", "{", "}", "{{", "}}", "[", "]", ",", "'", "\"", "\\", "\\n", "#", " # ",
    "&a", "*a", "|\n", ">", "!!int ", "%", "@", "`", "---\n", "...", "null", "true", "1", "0x", "~", "\t", "\u{feff}",
    "ä", "\u{2028}", "<<: ", "? ", "\r\n", "\u{1b}",
];
