//! Names: the RFC forms Kubernetes asks for, checked here because a newer API
//! server accepts what an older one refuses (Service names before 1.36), and
//! the names Podcradle makes: `podcradle-<label>-<6 hex>`.

use std::fmt;

/// Longest label a generated name may carry.
pub const MAX_LABEL: usize = 40;
/// Longest sandbox name: it is a Service's name too.
pub const MAX_NAME: usize = 63;

/// Why a name is refused, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    rule: String,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rule)
    }
}

impl std::error::Error for NameError {}

fn refuse(rule: impl Into<String>) -> Result<(), NameError> {
    Err(NameError { rule: rule.into() })
}

fn is_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// An RFC 1123 label of at most `max` characters.
///
/// *Source*: `k8s.io/apimachinery/pkg/util/validation`, `IsDNS1123Label`.
pub fn check_rfc1123_label(name: &str, max: usize) -> Result<(), NameError> {
    let bytes = name.as_bytes();
    let ends_well = |b: Option<&u8>| b.is_some_and(|b| is_alnum(*b));
    if bytes.len() > max {
        return refuse(format!(
            "has {} characters, at most {max} are allowed",
            bytes.len()
        ));
    }
    if !bytes.iter().all(|b| is_alnum(*b) || *b == b'-')
        || !ends_well(bytes.first())
        || !ends_well(bytes.last())
    {
        return refuse(
            "must be lower case letters, digits and '-', and start and end with a letter or digit (RFC 1123 label)",
        );
    }
    Ok(())
}

/// An RFC 1035 label: as RFC 1123's, but it starts with a letter.
///
/// *Source*: Service names, up to Kubernetes 1.35.
pub fn check_rfc1035_label(name: &str, max: usize) -> Result<(), NameError> {
    check_rfc1123_label(name, max)?;
    if !name.as_bytes().first().is_some_and(u8::is_ascii_lowercase) {
        return refuse("must start with a letter (RFC 1035 label, as Services need)");
    }
    Ok(())
}

/// An RFC 1123 subdomain (labels joined by dots), at most 253 characters.
pub fn check_rfc1123_subdomain(name: &str) -> Result<(), NameError> {
    if name.len() > 253 {
        return refuse(format!(
            "has {} characters, at most 253 are allowed",
            name.len()
        ));
    }
    if name.is_empty()
        || name
            .split('.')
            .any(|l| check_rfc1123_label(l, 253).is_err())
    {
        return refuse(
            "must be lower case letters, digits, '-' and '.', and start and end with a letter or digit (RFC 1123 subdomain)",
        );
    }
    Ok(())
}

/// A label's value: at most 63 characters, letters, digits, `-`, `_`, `.`.
pub fn check_label_value(value: &str) -> Result<(), NameError> {
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    if bytes.len() > 63
        || !bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        || !edge(bytes.first())
        || !edge(bytes.last())
    {
        return refuse(
            "must be at most 63 letters, digits, '-', '_' or '.', and start and end with a letter or digit",
        );
    }
    Ok(())
}

/// A label's key: a name in the form of a value, with or without a domain and
/// a slash before it.
///
/// *Source*: `k8s.io/apimachinery/pkg/util/validation`, `IsQualifiedName`.
pub fn check_label_key(key: &str) -> Result<(), NameError> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    if domain.is_some_and(|domain| check_rfc1123_subdomain(domain).is_err()) || name.is_empty() {
        return refuse("must be a label key such as team or example.com/team");
    }
    check_label_value(name)
}

/// An environment variable's name as a C identifier.
pub fn check_env_name(name: &str) -> Result<(), NameError> {
    let first = name
        .as_bytes()
        .first()
        .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
    if !first || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return refuse("must be letters, digits and '_', and not start with a digit");
    }
    Ok(())
}

const OF_PROCESS: &str = "podcradle-attach-";

/// A name for the Lease of one process: `podcradle-attach-<16 hex>`.
pub fn of_process() -> String {
    format!("{OF_PROCESS}{}", random_hex(8))
}

/// Whether a Lease of this name may be that of one process.
pub(crate) fn may_be_of_process(name: &str) -> bool {
    name.starts_with(OF_PROCESS)
}

/// `bytes` random bytes in hex, from the operating system.
///
/// # Panics
/// When the operating system has no randomness to give: nothing that follows
/// would be safe.
pub fn random_hex(bytes: usize) -> String {
    let mut buffer = [0u8; 32];
    let wanted = &mut buffer[..bytes.min(32)];
    getrandom::fill(wanted).expect("the operating system gives random bytes");
    wanted
        .iter()
        .fold(String::with_capacity(bytes * 2), |mut text, byte| {
            use fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// A new sandbox name for a label: `podcradle-<label>-<6 hex>`.
pub fn generate(label: &str) -> String {
    format!("podcradle-{label}-{}", random_hex(3))
}

/// The same label's name with another suffix, for a name that [`generate`]
/// made and that is taken.
pub fn another(taken: &str) -> Option<String> {
    let (label, suffix) = taken.strip_prefix("podcradle-")?.rsplit_once('-')?;
    (suffix.len() == 6).then(|| generate(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_rfc_1123() {
        for good in ["a", "0a", "a-b", "a1"] {
            assert!(check_rfc1123_label(good, 63).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a\n"] {
            assert!(check_rfc1123_label(bad, 63).is_err(), "{bad:?}");
        }
        assert!(check_rfc1123_label(&"a".repeat(41), MAX_LABEL).is_err());
    }

    #[test]
    fn service_names_start_with_a_letter() {
        assert!(check_rfc1035_label("0a", 63).is_err());
        assert!(check_rfc1035_label("a0", 63).is_ok());
    }

    #[test]
    fn subdomains_have_no_empty_label() {
        assert!(check_rfc1123_subdomain("a.b-c.d").is_ok());
        for bad in ["a..b", ".a", "a.", ""] {
            assert!(check_rfc1123_subdomain(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_generated_name_is_a_service_name_for_the_longest_label() {
        let name = generate(&"a".repeat(MAX_LABEL));
        assert!(check_rfc1035_label(&name, MAX_NAME).is_ok());
        assert_ne!(generate("a"), generate("a"));
    }

    #[test]
    fn another_name_keeps_the_label() {
        let name = another("podcradle-my-label-0a1b2c").unwrap();
        assert!(name.starts_with("podcradle-my-label-") && name.len() == 25);
        assert_ne!(name, "podcradle-my-label-0a1b2c");
        assert_eq!(another("mine"), None);
    }
}
