//! `Retry-After` of an answer that is no Status. The API server's priority and
//! fairness, and proxies before it, refuse in plain text with the header, which
//! the client drops: it is put where that of a Status stands.

use http::{HeaderMap, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::client::Body;
use serde_json::{Value, json};

/// The answer; a refusal in plain text with a `Retry-After` as a Status.
pub(super) async fn as_status(answer: Response<Body>) -> kube::Result<Response<Body>> {
    let status = answer.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return Ok(answer);
    }
    let Some(seconds) = seconds(answer.headers(), Timestamp::now()) else {
        return Ok(answer);
    };
    let (mut parts, body) = answer.into_parts();
    let text = body.collect_bytes().await?;
    let mut refusal = match serde_json::from_slice(&text) {
        Ok(status) if is_status(&status) => status,
        _ => json!({
            "status": "Failure",
            "code": status.as_u16(),
            "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
            "message": String::from_utf8_lossy(&text).trim(),
        }),
    };
    let known = &refusal["details"]["retryAfterSeconds"];
    if known.as_u64().unwrap_or(0) == 0 {
        refusal["details"]["retryAfterSeconds"] = json!(seconds);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    let text = refusal.to_string().into_bytes();
    Ok(Response::from_parts(parts, Body::from(text)))
}

/// Others answer with JSON too.
fn is_status(text: &Value) -> bool {
    let details = &text["details"];
    text["kind"] == "Status" && (details.is_null() || details.is_object())
}

/// How many, of either form that HTTP has: a number or a date.
fn seconds(headers: &HeaderMap, now: Timestamp) -> Option<u32> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let until = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let wait = until.duration_since(now).max(SignedDuration::ZERO);
    u32::try_from(wait.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::class::{Call, by_status};
    use kube::core::Status;
    use std::time::Duration;

    /// What the class of this answer says to wait, and its message.
    async fn told(code: u16, header: &str, text: &str) -> (Option<Duration>, String) {
        let answer = Response::builder()
            .status(code)
            .header("retry-after", header)
            .body(Body::from(text.as_bytes().to_vec()))
            .unwrap();
        let body = as_status(answer).await.unwrap().into_body();
        let text = body.collect_bytes().await.unwrap();
        let status: Status = serde_json::from_slice(&text).unwrap();
        let call = Call {
            verb: "create",
            resource: "pods",
            namespace: "ns".into(),
            name: "a".into(),
        };
        (by_status(call, &status).retry_after(), status.message)
    }

    #[tokio::test]
    async fn a_refusal_in_plain_text_says_how_long_to_wait() {
        let text = "Too many requests, please try again later.\n";
        let (wait, message) = told(429, "7", text).await;
        assert_eq!(wait, Some(Duration::from_secs(7)));
        assert_eq!(message, text.trim());
        assert_eq!(told(503, "3", "").await.0, Some(Duration::from_secs(3)));
    }

    #[tokio::test]
    async fn a_status_keeps_what_it_says() {
        let own = r#"{"kind": "Status", "code": 429, "message": "m", "details": {"retryAfterSeconds": 2, "kind": "x"}}"#;
        assert_eq!(
            told(429, "7", own).await,
            (Some(Duration::from_secs(2)), "m".into())
        );
        let none = r#"{"kind": "Status", "code": 429, "message": "m"}"#;
        assert_eq!(told(429, "7", none).await.0, Some(Duration::from_secs(7)));
        // Of something else before the API server.
        let other = r#"{"code": 14, "message": "m", "details": []}"#;
        assert_eq!(
            told(503, "7", other).await,
            (Some(Duration::from_secs(7)), other.into())
        );
    }

    #[tokio::test]
    async fn what_succeeds_or_is_refused_for_good_stays_as_it_is() {
        for code in [200, 403, 404] {
            let answer = Response::builder().status(code).header("retry-after", "7");
            let answer = answer.body(Body::from(b"text".to_vec())).unwrap();
            let body = as_status(answer).await.unwrap().into_body();
            assert_eq!(body.collect_bytes().await.unwrap().as_ref(), b"text");
        }
    }

    #[test]
    fn a_date_counts_from_now_and_what_is_neither_is_nothing() {
        let now = "1994-11-06T08:49:30Z".parse().unwrap();
        for (text, wait) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            assert_eq!(seconds(&headers, now), wait, "{text}");
        }
    }
}
