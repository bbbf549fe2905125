//! What the server knows and decides; no I/O. Who is expected, with which
//! token, what they are ordered to do, and everything that happened.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Sink;

/// The SHA-256 of a token.
pub type Digest = [u8; 32];

/// What the server keeps instead of a token.
pub fn digest(token: &str) -> Digest {
    Sha256::digest(token).into()
}

/// Something that happened. As JSON: one object, its kind in `event`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Event {
    Listening {
        address: SocketAddr,
    },
    Expected {
        id: String,
    },
    DialledIn {
        id: String,
        peer: SocketAddr,
        says: Value,
    },
    Heartbeat {
        id: String,
        beat: u64,
        done: Vec<Value>,
    },
    Goodbye {
        id: String,
        reason: String,
    },
    Refused {
        id: String,
        verb: &'static str,
        why: Why,
    },
}

/// Why a host was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Why {
    NoToken,
    WrongToken,
    UnknownId,
    /// A heartbeat or goodbye of a host that has not dialled in.
    NotDialledIn,
}

/// Something for a host to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The name under which the result comes back.
    pub id: String,
    /// What to do.
    #[serde(flatten)]
    pub what: What,
}

/// The kinds of orders a host takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// Run a program.
    Run(Vec<String>),
    /// Leave orphans behind.
    Orphans {
        /// How many.
        count: u32,
        /// How long each lives.
        lifetime_ms: u64,
    },
}

impl Order {
    /// An order to run a program.
    pub fn run(id: &str, argv: &[&str]) -> Self {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Order {
            id: id.to_owned(),
            what: What::Run(argv),
        }
    }
}

struct Expected {
    token: Digest,
    orders: Vec<Order>,
    dialled_in: bool,
}

/// Everything the server knows.
pub struct State {
    hosts: BTreeMap<String, Expected>,
    events: Vec<Event>,
    sink: Option<Sink>,
}

impl State {
    pub fn new(sink: Option<Sink>) -> Self {
        State {
            hosts: BTreeMap::new(),
            events: Vec::new(),
            sink,
        }
    }

    /// Expects a host; one that was expected already starts anew.
    pub fn expect(&mut self, id: &str, token: Digest) {
        let host = Expected {
            token,
            orders: Vec::new(),
            dialled_in: false,
        };
        self.hosts.insert(id.to_owned(), host);
    }

    pub fn order(&mut self, id: &str, orders: Vec<Order>) -> bool {
        let host = self.hosts.get_mut(id);
        host.map(|host| host.orders.extend(orders)).is_some()
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn happened(&mut self, event: Event) {
        if let Some(sink) = &self.sink {
            sink(&event);
        }
        self.events.push(event);
    }

    /// Lets a host dial in, and returns its orders.
    pub fn dial_in(
        &mut self,
        id: &str,
        token: Option<&str>,
        peer: SocketAddr,
        says: Value,
    ) -> Result<Vec<Order>, Why> {
        let orders = {
            let host = self.admit(id, token, "dial-in")?;
            host.dialled_in = true;
            std::mem::take(&mut host.orders)
        };
        self.happened(Event::DialledIn {
            id: id.to_owned(),
            peer,
            says,
        });
        Ok(orders)
    }

    /// Takes a heartbeat, and returns new orders.
    pub fn heartbeat(
        &mut self,
        id: &str,
        token: Option<&str>,
        beat: u64,
        done: Vec<Value>,
    ) -> Result<Vec<Order>, Why> {
        let orders = std::mem::take(&mut self.admit(id, token, "heartbeat")?.orders);
        self.happened(Event::Heartbeat {
            id: id.to_owned(),
            beat,
            done,
        });
        Ok(orders)
    }

    /// Lets a host leave.
    pub fn goodbye(&mut self, id: &str, token: Option<&str>, reason: String) -> Result<(), Why> {
        self.admit(id, token, "goodbye")?.dialled_in = false;
        self.happened(Event::Goodbye {
            id: id.to_owned(),
            reason,
        });
        Ok(())
    }

    fn admit(
        &mut self,
        id: &str,
        token: Option<&str>,
        verb: &'static str,
    ) -> Result<&mut Expected, Why> {
        // Digests are compared, so that the time it takes tells nothing of the token.
        let why = match (self.hosts.get(id), token.map(digest)) {
            (_, None) => Some(Why::NoToken),
            (None, _) => Some(Why::UnknownId),
            (Some(host), Some(token)) if host.token != token => Some(Why::WrongToken),
            (Some(host), _) if verb != "dial-in" && !host.dialled_in => Some(Why::NotDialledIn),
            _ => None,
        };
        if let Some(why) = why {
            self.happened(Event::Refused {
                id: id.to_owned(),
                verb,
                why,
            });
            return Err(why);
        }
        self.hosts.get_mut(id).ok_or(Why::UnknownId)
    }
}

/// The state, and whoever waits for it to change.
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub fn new(state: State) -> Self {
        Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// The state; waiters look again once the guard is gone and `changed` was called.
    pub fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked in its condition leaves the state as good as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn happened(&self, event: Event) {
        self.state().happened(event);
        self.changed();
    }

    pub fn changed(&self) {
        self.changed.notify_all();
    }

    pub fn wait<T>(
        &self,
        watchdog: Duration,
        mut seen: impl FnMut(&[Event]) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + watchdog;
        let mut state = self.state();
        loop {
            if let Some(found) = seen(state.events()) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let mut state = State::new(None);
        state.expect("h", digest("good"));
        state
    }

    const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

    #[test]
    fn only_the_right_token_under_the_right_id_dials_in() {
        let mut state = state();
        let mut dial = |id, token| state.dial_in(id, token, PEER.into(), Value::Null).err();
        assert_eq!(dial("h", None), Some(Why::NoToken));
        assert_eq!(dial("h", Some("bad")), Some(Why::WrongToken));
        assert_eq!(dial("other", Some("good")), Some(Why::UnknownId));
        assert_eq!(dial("h", Some("good")), None);
        assert_eq!(state.events().len(), 4);
    }

    #[test]
    fn orders_are_given_once() {
        let mut state = state();
        assert!(state.order("h", vec![Order::run("1", &["true"])]));
        assert!(!state.order("nobody", Vec::new()));
        let first = state
            .dial_in("h", Some("good"), PEER.into(), Value::Null)
            .unwrap();
        assert_eq!(first, [Order::run("1", &["true"])]);
        assert!(
            state
                .heartbeat("h", Some("good"), 1, Vec::new())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_heartbeat_needs_a_dial_in() {
        let why = state().heartbeat("h", Some("good"), 1, Vec::new()).err();
        assert_eq!(why, Some(Why::NotDialledIn));
    }
}
