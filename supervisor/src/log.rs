//! Lines on standard error: one per call, short, under our own name whatever we were
//! called by, and dropped rather than waited for when nobody reads.

use crate::sys::file;
use crate::text::Text;

/// Writes one line.
#[inline(never)]
pub fn line(text: &[u8]) {
    let mut line = Text::<360>::new();
    line.push(b"podcradle-init: ");
    for byte in text {
        // A name with a newline in it must not look like two lines.
        line.push(&[if byte.is_ascii_control() { b'?' } else { *byte }]);
    }
    line.push(b"\n");
    file::warn(line.as_bytes());
}
