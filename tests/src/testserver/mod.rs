//! The server a host dials back to, in the small: it checks id and token,
//! keeps everything that happened as events, and hands out orders. Tests start
//! it on a thread and wait for what they expect by condition, never by time;
//! `podcradle-testserver` is the same thing as a program.
//!
//! It knows tokens only by their SHA-256, and nothing answers without one: an
//! address that pods reach may be reached by others.

mod routes;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

pub use routes::parse_digest;
pub use state::{Digest, Event, Order, What, Why, digest};
use state::{Shared, State};

use crate::serving::Serving;

/// Called with each event, in order, while nothing else can happen.
pub type Sink = Box<dyn Fn(&Event) + Send>;

/// Why there is no server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TestServerError {
    /// Every interface is more than a test has any business with.
    #[error("--listen {0}: give one address, of the loopback or of the bridge the pods use")]
    Unspecified(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What was waited for did not happen; says what did.
#[derive(Debug, Error)]
#[error("{what}: not within {watchdog:?}; what happened instead: {events:#?}")]
pub struct NotSeen {
    what: String,
    watchdog: Duration,
    events: Vec<Event>,
}

/// How a server is made.
#[derive(Default)]
pub struct Options {
    /// Who may use the endpoints below `/v1/admin`; nobody when absent.
    pub admin: Option<Digest>,
    /// Where events go beside the server's own memory.
    pub sink: Option<Sink>,
}

/// A running server; dropping it stops it.
pub struct TestServer {
    serving: Serving,
    shared: Arc<Shared>,
}

impl TestServer {
    /// Listens on a free port of the loopback.
    pub fn on_loopback() -> Result<Self, TestServerError> {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0)), Options::default())
    }

    /// Listens on one address, port 0 being any free one.
    pub fn start(listen: SocketAddr, options: Options) -> Result<Self, TestServerError> {
        if listen.ip().is_unspecified() {
            return Err(TestServerError::Unspecified(listen));
        }
        let shared = Arc::new(Shared::new(State::new(options.sink)));
        let router = routes::router(shared.clone(), options.admin)
            .into_make_service_with_connect_info::<SocketAddr>();
        let serving = Serving::on(listen, |listener| {
            axum::serve(listener, router).into_future()
        })
        .map_err(|source| TestServerError::Listen {
            address: listen,
            source,
        })?;
        let address = serving.address();
        shared.happened(Event::Listening { address });
        Ok(TestServer { serving, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// What to give a host as its server.
    pub fn url(&self) -> String {
        format!("http://{}", self.serving.address())
    }

    /// From now on a host with this id and token may dial in.
    pub fn expect(&self, id: &str, token: Digest) {
        self.shared.happened(Event::Expected { id: id.to_owned() });
        self.shared.state().expect(id, token);
    }

    /// Gives orders to a host, with its next heartbeat or dial-in. False when
    /// no such host is expected.
    pub fn order(&self, id: &str, orders: Vec<Order>) -> bool {
        self.shared.state().order(id, orders)
    }

    /// Everything that has happened.
    pub fn events(&self) -> Vec<Event> {
        self.shared.state().events().to_vec()
    }

    /// Waits until `seen` finds what it looks for among the events; it is
    /// asked again whenever one is added. The watchdog is for a test that
    /// would otherwise hang, and is meant to be generous.
    pub fn wait<T>(
        &self,
        what: &str,
        watchdog: Duration,
        seen: impl FnMut(&[Event]) -> Option<T>,
    ) -> Result<T, NotSeen> {
        self.shared.wait(watchdog, seen).ok_or_else(|| NotSeen {
            what: what.to_owned(),
            watchdog,
            events: self.events(),
        })
    }

    /// Waits for a dial-in of this host and returns what it said.
    pub fn wait_for_dial_in(
        &self,
        id: &str,
        watchdog: Duration,
    ) -> Result<serde_json::Value, NotSeen> {
        let mut says = |event: &Event| match event {
            Event::DialledIn {
                id: other, says, ..
            } if other == id => Some(says.clone()),
            _ => None,
        };
        self.wait(&format!("dial-in of {id}"), watchdog, |events| {
            events.iter().find_map(&mut says)
        })
    }

    /// Waits for what came of an order, and returns it.
    pub fn wait_for_order(
        &self,
        id: &str,
        order: &str,
        watchdog: Duration,
    ) -> Result<serde_json::Value, NotSeen> {
        let find = |event: &Event| match event {
            Event::Heartbeat {
                id: other, done, ..
            } if other == id => done.iter().find(|done| done["id"] == order).cloned(),
            _ => None,
        };
        let what = format!("order {order} of {id} done");
        self.wait(&what, watchdog, |events| events.iter().find_map(find))
    }
}
