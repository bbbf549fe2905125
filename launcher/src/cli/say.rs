//! What is said on stderr: lines for people or, with `--progress json`, one
//! object a line for programs, whoever has something to say. A reader that has
//! gone away is no failure: the clean-up goes on.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};

/// One for the process, as stderr is.
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on all of it is for programs.
pub fn be_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Whether it is for programs.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// One line.
pub fn say(line: &str) {
    tell("note", line);
}

/// One line of why the program ends without success.
pub fn error(line: &str) {
    tell("error", line);
}

fn tell(event: &str, line: &str) {
    if is_json() {
        object(json!({ "event": event, "message": line }));
    } else {
        let _ = writeln!(io::stderr().lock(), "podcradle: {}", printable(line));
    }
}

/// An event for programs; it gets its time here.
pub fn object(mut event: Value) {
    event["time"] = Timestamp::now().to_string().into();
    let _ = writeln!(io::stderr().lock(), "{event}");
}

/// Where the log goes, each line of which is one write.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if is_json() {
            tell("log", String::from_utf8_lossy(line).trim_end());
        } else {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
