//! What people are told, on stderr. A reader that has gone away is no failure:
//! the clean-up goes on.

use std::borrow::Cow;
use std::io::Write as _;

/// One line.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "podcradle: {}", printable(line));
}

/// Without control characters. A host's log, an event, a report are somebody
/// else's text: it may not begin a line of its own nor steer the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\t' => shown.push(' '),
            control if control.is_control() => shown.extend(control.escape_default()),
            other => shown.push(other),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_keeps_to_its_line() {
        for (text, shown) in [
            ("as it is: ü \"q\" \\", "as it is: ü \"q\" \\"),
            ("a\tb", "a b"),
            (
                "one\npodcradle: all is well",
                "one\\npodcradle: all is well",
            ),
            ("\u{1b}[2Jgone\u{7}\r", "\\u{1b}[2Jgone\\u{7}\\r"),
            ("\u{9b}2J", "\\u{9b}2J"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
