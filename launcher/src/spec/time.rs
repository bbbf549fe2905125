//! Times as people write them: `90s`, `5m`, `24h`, `7d`, `1h30m`. The form of
//! flags, files and the record.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// What a time must look like.
pub const RULE: &str = "must be a time such as 90s, 5m, 24h or 7d";

/// What a time must be that is more than can be counted.
const MOST: &str = "must be at most 10 years, 87600h";

/// How long a session may live.
pub const TTL_RULE: &str = "must be from 1m to 10 years, or none";

/// Whether a session may live so long: [`TTL_RULE`].
pub fn is_ttl(time: Duration) -> bool {
    (Duration::from_mins(1)..=Duration::from_hours(10 * 365 * 24)).contains(&time)
}

/// Reads a time.
///
/// # Errors
/// [`RULE`], when it is none or negative; or that it is too long.
pub fn parse(text: &str) -> Result<Duration, String> {
    let form = |_| if is_time(text) { MOST } else { RULE }.to_owned();
    let wrong = |error| form(error);
    let span: Span = text.parse().map_err(wrong)?;
    let time = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(wrong)?;
    Duration::try_from(time).map_err(wrong)
}

/// Whether it has the form of a time, which is too long then.
fn is_time(text: &str) -> bool {
    let mut parts = text.split_inclusive(['d', 'h', 'm', 's']);
    !text.is_empty()
        && parts.all(|part| {
            let number = part.strip_suffix(['d', 'h', 'm', 's']).unwrap_or("");
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Writes a time so that [`parse`] reads it.
pub fn format(time: Duration) -> String {
    SignedDuration::try_from(time)
        .map_or_else(
            |_| format!("{}s", time.as_secs()),
            |time| format!("{time:#}"),
        )
        .replace(' ', "")
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "serde calls it")]
pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*time))
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "serde calls it")]
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// A time, or the word `none`.
pub mod or_none {
    use super::{Deserialize, Deserializer, Duration, Serializer};
    use serde::de::Error as _;

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "serde calls it")]
    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&time.map_or_else(|| "none".to_owned(), super::format))
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "serde calls it")]
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(from)?;
        if text == "none" {
            return Ok(None);
        }
        super::parse(&text)
            .map(Some)
            .map_err(|rule| D::Error::custom(format!("{rule}, or none")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse("24h"), Ok(Duration::from_hours(24)));
        assert_eq!(parse("7d"), Ok(Duration::from_hours(7 * 24)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_mins(90)));
        for bad in ["", "5", "-1s", "soon", "1y"] {
            assert_eq!(parse(bad), Err(RULE.to_owned()), "{bad}");
        }
        for long in ["10000000000000h", "99999999999999999999d1h"] {
            assert_eq!(parse(long), Err(MOST.to_owned()), "{long}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for seconds in [0, 1, 59, 60, 90, 3600, 5400, 86_400, 604_800] {
            let time = Duration::from_secs(seconds);
            assert_eq!(parse(&format(time)), Ok(time), "{}", format(time));
        }
    }
}
