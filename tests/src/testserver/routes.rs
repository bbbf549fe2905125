//! The endpoints. Hosts: three POSTs below `/v1/hosts/{id}`. Whoever has the
//! admin token: `/v1/admin/expect`, `/v1/admin/hosts/{id}/orders`,
//! `/v1/admin/events`. Nothing else answers, and nothing without a token.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Path, State as Shares};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{Digest, Event, Order, Shared, Why, digest};

#[derive(Clone)]
struct Server {
    shared: Arc<Shared>,
    admin: Option<Digest>,
}

pub fn router(shared: Arc<Shared>, admin: Option<Digest>) -> Router {
    Router::new()
        .route("/v1/hosts/{id}/dial-in", post(dial_in))
        .route("/v1/hosts/{id}/heartbeat", post(heartbeat))
        .route("/v1/hosts/{id}/goodbye", post(goodbye))
        .route("/v1/admin/expect", post(expect))
        .route("/v1/admin/hosts/{id}/orders", post(order))
        .route("/v1/admin/events", get(events))
        .with_state(Server { shared, admin })
}

impl IntoResponse for Why {
    fn into_response(self) -> Response {
        let status = match self {
            Why::NoToken | Why::WrongToken => StatusCode::UNAUTHORIZED,
            Why::UnknownId => StatusCode::FORBIDDEN,
            // Tells a host that the server forgot it: it dials in again.
            Why::NotDialledIn => StatusCode::NOT_FOUND,
        };
        (status, Json(json!({ "refused": self }))).into_response()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ")
}

async fn dial_in(
    Shares(server): Shares<Server>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(says): Json<Value>,
) -> Result<Json<Value>, Why> {
    let orders = server
        .shared
        .state()
        .dial_in(&id, bearer(&headers), peer, says);
    server.shared.changed();
    Ok(Json(
        json!({ "message": format!("welcome, {id}"), "orders": orders? }),
    ))
}

#[derive(Deserialize)]
struct Beat {
    beat: u64,
    #[serde(default)]
    done: Vec<Value>,
}

async fn heartbeat(
    Shares(server): Shares<Server>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(Beat { beat, done }): Json<Beat>,
) -> Result<Json<Value>, Why> {
    let orders = server
        .shared
        .state()
        .heartbeat(&id, bearer(&headers), beat, done);
    server.shared.changed();
    Ok(Json(json!({ "orders": orders? })))
}

#[derive(Deserialize)]
struct Reason {
    reason: String,
}

async fn goodbye(
    Shares(server): Shares<Server>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(Reason { reason }): Json<Reason>,
) -> Result<StatusCode, Why> {
    let gone = server.shared.state().goodbye(&id, bearer(&headers), reason);
    server.shared.changed();
    gone.map(|()| StatusCode::NO_CONTENT)
}

/// Whether the caller has the admin token; without one nobody is admin.
fn is_admin(server: &Server, headers: &HeaderMap) -> Result<(), StatusCode> {
    let given = bearer(headers).map(digest);
    if server.admin.is_some() && given == server.admin {
        return Ok(());
    }
    Err(StatusCode::UNAUTHORIZED)
}

#[derive(Deserialize)]
struct Expectation {
    id: String,
    sha256: String,
}

async fn expect(
    Shares(server): Shares<Server>,
    headers: HeaderMap,
    Json(Expectation { id, sha256 }): Json<Expectation>,
) -> Result<StatusCode, StatusCode> {
    is_admin(&server, &headers)?;
    let token = parse_digest(&sha256).ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
    server.shared.state().expect(&id, token);
    server.shared.happened(Event::Expected { id });
    Ok(StatusCode::NO_CONTENT)
}

async fn order(
    Shares(server): Shares<Server>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(orders): Json<Vec<Order>>,
) -> Result<StatusCode, StatusCode> {
    is_admin(&server, &headers)?;
    let known = server.shared.state().order(&id, orders);
    known
        .then_some(StatusCode::NO_CONTENT)
        .ok_or(StatusCode::NOT_FOUND)
}

async fn events(
    Shares(server): Shares<Server>,
    headers: HeaderMap,
) -> Result<Json<Vec<Event>>, StatusCode> {
    is_admin(&server, &headers)?;
    Ok(Json(server.shared.state().events().to_vec()))
}

/// 64 hexadecimal digits, as `sha256sum` prints them.
pub fn parse_digest(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        let text = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        assert_eq!(parse_digest(text), Some(digest("foo")));
        for bad in [
            "",
            "00",
            &text[1..],
            &text.replace('2', "g"),
            &text.replace("2c", "+c"),
        ] {
            assert_eq!(parse_digest(bad), None, "{bad:?} was taken");
        }
    }
}
