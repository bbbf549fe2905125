//! The one place that speaks HTTP. In: what to say. Out: the server's answer,
//! or a `Failure` that tells whether trying again can help. The protocol is
//! three POSTs below `<server>/v1/hosts/<id>`: `dial-in`, `heartbeat`,
//! `goodbye`; JSON both ways, `Authorization: Bearer` on each.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use ureq::http::StatusCode;
use ureq::tls::{RootCerts, TlsConfig};

use crate::args::Plan;
use crate::orders::{Done, Order};
use crate::surroundings::Surroundings;
use crate::token::Token;

/// Most of an answer that is read; a host need not trust its server's size.
const ANSWER_LIMIT: u64 = 1 << 20;

/// What the server answers to a dial-in or a heartbeat.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Something to print.
    #[serde(default)]
    pub message: Option<String>,
    /// Something to do.
    #[serde(default)]
    pub orders: Vec<Order>,
}

/// What the host says when it dials in.
#[derive(Serialize)]
struct DialIn<'a> {
    name: &'a str,
    version: &'static str,
    #[serde(flatten)]
    surroundings: &'a Surroundings,
}

/// What the host says with each heartbeat.
#[derive(Debug, Serialize)]
struct Heartbeat<'a> {
    beat: u64,
    done: &'a [Done],
}

#[derive(Serialize)]
struct Goodbye<'a> {
    reason: &'a str,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Failure {
    /// 401 or 403: the token is not good here, and will not become so.
    #[error("the server refused the token ({0})")]
    Refused(StatusCode),
    /// 404: the server does not know this host, perhaps not any more.
    #[error("the server does not know this host (404)")]
    Unknown,
    /// Any other status: a server in trouble, or no server of this kind.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// No answer at all.
    #[error("no answer: {0}")]
    Unreachable(ureq::Error),
}

/// The server, as the host sees it.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    base: String,
    token: Token,
}

impl Client {
    /// Prepares to speak; nothing is sent.
    pub fn new(plan: &Plan) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(plan.request_timeout))
            // A redirect would carry the token to where nobody meant it to go.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .user_agent(concat!("podcradle-host/", env!("CARGO_PKG_VERSION")))
            .tls_config(
                TlsConfig::builder()
                    .root_certs(RootCerts::PlatformVerifier)
                    .build(),
            )
            .build();
        Client {
            agent: config.into(),
            base: format!("{}/v1/hosts/{}", plan.server, plan.id),
            token: plan.token.clone(),
        }
    }

    /// Says who is here.
    pub fn dial_in(&self, name: &str, surroundings: &Surroundings) -> Result<Answer, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        self.post(
            "dial-in",
            &DialIn {
                name,
                version,
                surroundings,
            },
            None,
        )
    }

    /// Says that the host lives, and what it did since the last time.
    pub fn heartbeat(&self, beat: u64, done: &[Done]) -> Result<Answer, Failure> {
        self.post("heartbeat", &Heartbeat { beat, done }, None)
    }

    /// Says that the host leaves; bounded more tightly than the rest, since
    /// whoever stopped us has a schedule.
    pub fn goodbye(&self, reason: &str, within: Duration) -> Result<(), Failure> {
        self.post("goodbye", &Goodbye { reason }, Some(within))
            .map(drop)
    }

    fn post(
        &self,
        verb: &str,
        body: &impl Serialize,
        within: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let mut request = self
            .agent
            .post(format!("{}/{verb}", self.base))
            .header("Authorization", self.token.bearer());
        if within.is_some() {
            request = request.config().timeout_global(within).build();
        }
        let mut response = request.send_json(body).map_err(Failure::Unreachable)?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(Answer::default()),
            status if status.is_success() => {
                let body = response.body_mut().with_config().limit(ANSWER_LIMIT);
                body.read_json().map_err(Failure::Unreachable)
            }
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Failure::Refused(status))
            }
            StatusCode::NOT_FOUND => Err(Failure::Unknown),
            status => Err(Failure::Status(status)),
        }
    }
}
