//! The token: 256 random bits, or the caller's own. It has no `Display`, its
//! `Debug` says nothing, and its memory is wiped when it is dropped.

mod source;

use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

pub use source::{Callback, TokenSource};

/// Longest token accepted from a caller, in bytes.
pub const MAX_BYTES: u64 = 16 * 1024;

/// Shortest token accepted from a caller, in bytes: a word of every day could
/// not be taken out of what is said.
pub const MIN_BYTES: usize = 8;

/// The secret the host dials back with.
#[derive(Clone)]
pub struct Token {
    text: Zeroizing<String>,
    known: Known,
}

/// Who knows a token beside its host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Somebody is told: it was made for this launch, so that a sandbox of an
    /// earlier attempt at it has another one.
    New,
    /// The caller gave it.
    Given,
    /// Nobody: it does not matter which one a sandbox has.
    Untold,
}

/// Why a caller's token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("token file {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// Nothing is in it.
    #[error("token from {from} is empty")]
    Empty {
        /// Where it came from.
        from: String,
    },
    /// It is too short to be a secret.
    #[error(
        "token from {from} must be at least {MIN_BYTES} bytes long; take 32 random ones in hex"
    )]
    Short {
        /// Where it came from.
        from: String,
    },
    /// It could not be an environment variable's value, or is far too long.
    #[error(
        "token from {from} must be at most {MAX_BYTES} bytes of UTF-8 text without NUL or line breaks"
    )]
    Malformed {
        /// Where it came from.
        from: String,
    },
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// 256 random bits in hex.
    pub fn random() -> Self {
        Self {
            known: Known::New,
            ..Self::untold()
        }
    }

    /// 256 random bits in hex that nobody will be told: for a host that does
    /// not dial back.
    pub fn untold() -> Self {
        Self {
            text: Zeroizing::new(crate::name::random_hex(32)),
            known: Known::Untold,
        }
    }

    /// Whether no sandbox of an earlier attempt can have it.
    pub fn is_new(&self) -> bool {
        self.known == Known::New
    }

    /// Whether somebody knows it beside its host.
    pub(crate) fn is_known(&self) -> bool {
        self.known != Known::Untold
    }

    /// 16 bits by which another token of the same launch is told from this one;
    /// too few to guess it by. For one that nobody was told, that it is one.
    pub(crate) fn check(&self, launch_id: &str) -> String {
        if !self.is_known() {
            return "untold".to_owned();
        }
        let hash = Sha256::new()
            .chain_update(launch_id)
            .chain_update([0])
            .chain_update(self.expose())
            .finalize();
        format!("{:02x}{:02x}", hash[0], hash[1])
    }

    /// Reads a token; one trailing line break is cut, as the supervisor does.
    pub fn read(from: &str, reader: impl Read) -> Result<Self, TokenError> {
        let mut text = Zeroizing::new(String::new());
        reader
            .take(MAX_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|source| {
                if source.kind() == std::io::ErrorKind::InvalidData {
                    TokenError::Malformed {
                        from: from.to_owned(),
                    }
                } else {
                    TokenError::Io {
                        path: from.to_owned(),
                        source,
                    }
                }
            })?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Err(TokenError::Empty {
                from: from.to_owned(),
            });
        }
        if text.len() as u64 > MAX_BYTES || line.contains(['\0', '\n', '\r']) {
            return Err(TokenError::Malformed {
                from: from.to_owned(),
            });
        }
        if line.len() < MIN_BYTES {
            return Err(TokenError::Short {
                from: from.to_owned(),
            });
        }
        Ok(Self {
            text: Zeroizing::new(line.to_owned()),
            known: Known::Given,
        })
    }

    /// Reads a token from a file.
    pub fn read_file(path: &Path) -> Result<Self, TokenError> {
        let name = path.display().to_string();
        let file = std::fs::File::open(path).map_err(|source| TokenError::Io {
            path: name.clone(),
            source,
        })?;
        Self::read(&name, file)
    }

    /// Writes the token to a new file of mode 0600, or to a pipe or terminal
    /// that is there.
    ///
    /// # Errors
    /// When a file is there already: it may hold the token of a sandbox that
    /// runs.
    pub fn write_file(&self, path: &Path) -> Result<(), TokenError> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let io = |source| TokenError::Io {
            path: path.display().to_string(),
            source,
        };
        let is_file = std::fs::metadata(path).map_or(true, |there| there.is_file());
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(is_file)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        file.write_all(self.text.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .map_err(io)
    }

    /// The secret itself, for the Secret and for the caller.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether `text` holds the token in a form that [`Token::redact`] knows.
    pub fn is_in(&self, text: &str) -> bool {
        text.contains(self.expose()) || text.contains(self.encoded().trim_end_matches('='))
    }

    fn encoded(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.expose()))
    }

    /// `text` with the token taken out, wherever it stands, and in the forms
    /// a program would show it in: as it is, and as base64 (of a Secret).
    pub fn redact(&self, text: &str) -> String {
        let text = text.replace(self.expose(), "[redacted]");
        // Without the padding, which a part of it that is shown may lack.
        text.replace(self.encoded().trim_end_matches('='), "[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_token_has_256_bits_and_does_not_print_itself() {
        let token = Token::random();
        assert_eq!(token.expose().len(), 64);
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_ne!(token.expose(), Token::random().expose());
    }

    #[test]
    fn one_trailing_line_break_is_cut() {
        for text in ["of-eight\n", "of-eight\r\n"] {
            let token = Token::read("x", text.as_bytes()).unwrap();
            assert_eq!(token.expose(), "of-eight");
        }
        let short = Token::read("x", &b"token\n"[..]).unwrap_err().to_string();
        assert!(short.contains("from x must be at least 8 bytes"), "{short}");
        assert!(matches!(
            Token::read("x", &b"\n"[..]),
            Err(TokenError::Empty { .. })
        ));
        for bad in [&b"a\nb"[..], b"a\0b", b"\xff"] {
            assert!(matches!(
                Token::read("x", bad),
                Err(TokenError::Malformed { .. })
            ));
        }
    }

    #[test]
    fn the_file_is_new_and_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = Token::random();
        token.write_file(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = Token::random().write_file(&path);
        assert!(matches!(other, Err(TokenError::Io { .. })), "overwritten");
        assert_eq!(Token::read_file(&path).unwrap().expose(), token.expose());
    }

    #[test]
    fn another_token_has_another_check_and_one_that_nobody_knows_is_none() {
        let given = |text: &str| Token::read("x", text.as_bytes()).unwrap();
        let check = given("s3cret-one").check("launch");
        assert_eq!(check.len(), 4);
        assert_eq!(given("s3cret-one\n").check("launch"), check);
        assert_ne!(given("s3cret-two").check("launch"), check);
        // The same token elsewhere does not show that it is the same.
        assert_ne!(given("s3cret-one").check("another"), check);
        assert_ne!(Token::random().check("launch").len(), 6);
        let untold = [Token::untold(), Token::untold()];
        assert_eq!(untold[0].check("launch"), untold[1].check("launch"));
    }

    #[test]
    fn redaction_finds_every_place() {
        let token = Token::read("x", &b"s3cret-s3cret"[..]).unwrap();
        assert_eq!(
            token.redact("a s3cret-s3cret b s3cret-s3cret"),
            "a [redacted] b [redacted]"
        );
        // As `kubectl get secret` shows it.
        assert_eq!(
            token.redact("token: czNjcmV0LXMzY3JldA=="),
            "token: [redacted]=="
        );
        let padded = Token::read("x", &b"abcdefgh"[..]).unwrap();
        assert_eq!(
            padded.redact("YWJjZGVmZ2g= YWJjZGVmZ2g"),
            "[redacted]= [redacted]"
        );
    }
}
