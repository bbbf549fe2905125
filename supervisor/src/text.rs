//! Text in fixed buffers: numbers, lines, JSON strings. Nothing here allocates or can panic.
//!
//! A buffer that is full drops what does not fit; whoever needs to know asks `is_full`.

use core::ffi::CStr;

/// At most `N` bytes of text.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    full: bool,
}

impl<const N: usize> Text<N> {
    /// An empty text.
    pub const fn new() -> Self {
        Text {
            bytes: [0; N],
            length: 0,
            full: false,
        }
    }

    /// What has been written.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// What has been written, as a C string, when there was room for its NUL.
    pub fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }

    /// Whether something did not fit.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Appends `bytes`, or as much of them as fits.
    pub fn push(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            match self.bytes.get_mut(self.length) {
                Some(slot) => {
                    *slot = *byte;
                    self.length = self.length.wrapping_add(1);
                }
                None => self.full = true,
            }
        }
        self
    }

    /// Appends a number in decimal.
    pub fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = [0_u8; 20];
        let mut rest = number;
        let mut used = 0_usize;
        for slot in digits.iter_mut().rev() {
            *slot = b'0'.wrapping_add((rest % 10) as u8);
            rest /= 10;
            used = used.wrapping_add(1);
            if rest == 0 {
                break;
            }
        }
        let start = digits.len().wrapping_sub(used);
        self.push(digits.get(start..).unwrap_or(&[]))
    }

    /// Appends a signed number in decimal.
    pub fn signed(&mut self, number: i32) -> &mut Self {
        if number < 0 {
            self.push(b"-");
        }
        self.number(u64::from(number.unsigned_abs()))
    }

    /// Appends `true` or `false`.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.push(if value { b"true" } else { b"false" })
    }

    /// Appends `text` as a JSON string of at most `limit` bytes between its quotes.
    ///
    /// What is not UTF-8 becomes U+FFFD, a text that is too long ends in U+2026.
    pub fn json(&mut self, text: &[u8], limit: usize) -> &mut Self {
        self.push(b"\"");
        let start = self.length;
        'text: for chunk in text.utf8_chunks() {
            let lost = !chunk.invalid().is_empty();
            for c in chunk.valid().chars().chain(lost.then_some('\u{fffd}')) {
                if self.length.wrapping_sub(start).wrapping_add(6) > limit {
                    self.push("\u{2026}".as_bytes());
                    break 'text;
                }
                self.json_char(c);
            }
        }
        self.push(b"\"")
    }

    fn json_char(&mut self, c: char) {
        const HEX: [u8; 16] = *b"0123456789abcdef";
        match c {
            '"' => self.push(b"\\\""),
            '\\' => self.push(b"\\\\"),
            '\n' => self.push(b"\\n"),
            '\t' => self.push(b"\\t"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let digit = |nibble: u32| HEX.get((nibble & 15) as usize).copied().unwrap_or(b'0');
                self.push(&[
                    b'\\',
                    b'u',
                    b'0',
                    b'0',
                    digit(c as u32 >> 4),
                    digit(c as u32),
                ])
            }
            _ => {
                let mut room = [0; 4];
                let encoded = encode(c, &mut room);
                self.push(encoded)
            }
        };
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// UTF-8 of `c`. The library's own encoder has a panic for buffers that are too small.
#[allow(
    clippy::cast_possible_truncation,
    reason = "each arm shifts its bits into a byte"
)]
fn encode(c: char, room: &mut [u8; 4]) -> &[u8] {
    let code = c as u32;
    let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
    let length = match code {
        0..=0x7f => {
            *room = [code as u8, 0, 0, 0];
            1
        }
        0x80..=0x7ff => {
            *room = [0xc0 | (code >> 6) as u8, tail(0), 0, 0];
            2
        }
        0x800..=0xffff => {
            *room = [0xe0 | (code >> 12) as u8, tail(6), tail(0), 0];
            3
        }
        _ => {
            *room = [0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)];
            4
        }
    };
    room.get(..length).unwrap_or(&[])
}

/// A whole decimal number, when `text` is nothing else and not above `most`.
pub fn number(text: &[u8], most: u64) -> Option<u64> {
    let mut value = 0_u64;
    for byte in text {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    (!text.is_empty() && value <= most).then_some(value)
}

/// `text` cut at the first `at`.
pub fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|byte| *byte == at)?;
    Some((text.get(..place)?, text.get(place.wrapping_add(1)..)?))
}

/// `text` without the `prefix` it starts with. (The library's own keeps a reachable panic.)
pub fn after<'t>(text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
    text.get(prefix.len()..)
        .filter(|_| text.starts_with(prefix))
}

/// Whether both are the same but for the case of ASCII letters. (As for `after`.)
pub fn same_letters(one: &[u8], other: &[u8]) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|(a, b)| a.eq_ignore_ascii_case(b))
}

/// What stands behind the last `/`.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &[u8], limit: usize) -> String {
        let mut line = Text::<512>::new();
        line.json(text, limit);
        String::from_utf8(line.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn numbers_are_written_whole() {
        let mut line = Text::<64>::new();
        line.number(0)
            .push(b" ")
            .number(u64::MAX)
            .push(b" ")
            .signed(i32::MIN);
        assert_eq!(line.as_bytes(), b"0 18446744073709551615 -2147483648");
    }

    #[test]
    fn a_full_buffer_drops_the_rest_and_says_so() {
        let mut line = Text::<4>::new();
        line.push(b"abc");
        assert!(!line.is_full());
        line.push(b"def");
        assert_eq!((line.as_bytes(), line.is_full()), (&b"abcd"[..], true));
        assert!(line.as_c_str().is_none());
    }

    #[test]
    fn json_strings_survive_what_is_not_utf8_and_what_json_reserves() {
        assert_eq!(
            json(b"a\"\\\n\x01\x7f\xff\xc3\xa9", 100),
            "\"a\\\"\\\\\\n\\u0001\\u007f\u{fffd}é\""
        );
        for c in ['\u{7ff}', '\u{800}', '\u{ffff}', '\u{1f600}'] {
            assert_eq!(json(c.to_string().as_bytes(), 100), format!("\"{c}\""));
        }
    }

    #[test]
    fn long_json_strings_end_in_an_ellipsis_at_a_character() {
        let cut = json("é".repeat(100).as_bytes(), 20);
        assert!(cut.ends_with("…\"") && cut.len() <= 22 + 2, "{cut}");
    }

    #[test]
    fn numbers_are_read_only_when_they_are_nothing_else() {
        assert_eq!(number(b"255", 255), Some(255));
        for bad in [
            &b""[..],
            b"256",
            b"-1",
            b"1 ",
            b"0x1",
            b"99999999999999999999999",
        ] {
            assert_eq!(number(bad, 255), None);
        }
    }
}
