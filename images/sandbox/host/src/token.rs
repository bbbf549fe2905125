//! The token, wrapped so that it cannot be printed by accident.

/// The secret the host dials back with. No `Debug`, no `Display`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Takes a token as found in the environment; a trailing newline, left by
    /// many ways to write a Secret, is not part of it. `None` when what is left
    /// is empty or cannot stand in a header.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim_end_matches(['\n', '\r']);
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Token(text.to_owned()))
    }

    /// The value of the `Authorization` header.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// `text` with every occurrence of the token blotted out: a server may
    /// echo what it was sent, and a log must not keep it.
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "[token]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_newline_is_not_part_of_the_token() {
        assert_eq!(Token::new("abc\n").unwrap().bearer(), "Bearer abc");
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_no_token() {
        for text in ["", "\n", "a b", "a\nb", "é"] {
            assert!(Token::new(text).is_none(), "{text:?} was taken");
        }
    }

    #[test]
    fn an_echoed_token_is_blotted_out() {
        let token = Token::new("s3cret").unwrap();
        assert_eq!(token.redact("you sent s3cret."), "you sent [token].");
    }
}
