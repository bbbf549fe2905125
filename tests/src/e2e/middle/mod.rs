//! Somebody in the middle: a TLS server between `podcradle` and the real API
//! server that sees every request and can do to it what networks, load
//! balancers and busy API servers do. Its script decides on each request, so
//! that a fault comes where the test wants it and not by chance.

mod fault;
mod serve;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use serde_json::{Value, json};

pub use fault::{Fault, Storm, WatchFault, once};
pub(crate) use serve::{serve_tls, tls};

use super::{Actor, Error, Result, Trying};
use crate::serving::{Serving, runtime};

/// One request as it came in: `POST services`, `WATCH pods`, …
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// HTTP method; `WATCH` for a watch.
    pub verb: String,
    /// `services`, `pods`, `pods/log`, …
    pub resource: String,
}

type Script = Box<dyn FnMut(&Seen) -> Option<Fault> + Send>;

struct Shared {
    script: Script,
    seen: Vec<Seen>,
    hurt: Vec<String>,
    refusals: Vec<Value>,
    pods: Vec<Value>,
}

/// The server, on a thread and a loopback port of its own.
pub struct Middle {
    serving: Serving,
    authority: String,
    shared: Arc<Mutex<Shared>>,
}

impl Middle {
    /// From now on `actor` reaches the API server through this.
    pub fn before(actor: &Actor) -> Result<Self> {
        let failed = "start a server between podcradle and the API server";
        let (acceptor, certificate) = tls()?;
        let runtime = runtime().trying(failed)?;
        let upstream = runtime.block_on(serve::upstream(actor.cluster.admin.kubeconfig()))?;
        let shared = Arc::new(Mutex::new(Shared {
            script: Box::new(|_| None),
            seen: Vec::new(),
            hurt: Vec::new(),
            refusals: Vec::new(),
            pods: Vec::new(),
        }));
        let server = serve::Server {
            shared: Arc::clone(&shared),
            upstream,
        };
        let serving = Serving::by(runtime, ("127.0.0.1", 0), move |listener| {
            serve_tls(listener, acceptor, move |request| {
                server.clone().answer(request)
            })
        })
        .trying(failed)?;
        let authority = base64::engine::general_purpose::STANDARD.encode(certificate);
        let middle = Self {
            serving,
            authority,
            shared,
        };
        middle.go_as(actor, actor.credential_token())?;
        Ok(middle)
    }

    /// From now on `actor` comes through this with another token.
    pub fn go_as(&self, actor: &Actor, token: &str) -> Result<()> {
        let server = format!("https://{}", self.serving.address());
        let user = json!({ "token": token });
        let file = actor.kubeconfig();
        let cluster = actor.cluster;
        cluster.kubeconfig_for(file, &server, &self.authority, &user)
    }

    /// Where it listens, and its certificate as a kubeconfig holds it.
    pub fn server(&self) -> (String, &str) {
        (
            format!("https://{}", self.serving.address()),
            &self.authority,
        )
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `script` decides on each request.
    pub fn script(&self, script: impl FnMut(&Seen) -> Option<Fault> + Send + 'static) {
        self.lock().script = Box::new(script);
    }

    /// What came in so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// Which requests met a fault, and which.
    pub fn hurt(&self) -> Vec<String> {
        self.lock().hurt.clone()
    }

    /// The API server's own refusals: each the `Status` it answered with.
    pub fn refusals(&self) -> Vec<Value> {
        self.lock().refusals.clone()
    }

    /// What watches of Pods were told: `{"type": …, "object": …}`.
    pub fn pods(&self) -> Vec<Value> {
        self.lock().pods.clone()
    }
}

/// What the fixture itself could not do.
fn missing(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Missing(format!("cannot {what}: {error}"))
}
