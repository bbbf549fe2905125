//! A sandbox whose host has dialled in with its token to a server of the test,
//! the way a real user has it: name first, token registered, then the launch.

use std::net::SocketAddr;

use serde_json::Value;

use super::{Actor, Arch, Result, WATCHDOG};
use crate::testserver::{Options, Order, TestServer, What, digest};

/// A running sandbox and its server.
pub struct Stage {
    /// Who launched it.
    pub actor: Actor,
    /// Where its host dials in.
    pub server: TestServer,
    /// Its name, which is also its host's id.
    pub name: String,
    /// Its token.
    pub token: String,
    /// What the launch printed.
    pub launched: Value,
    /// What the host said of itself.
    pub says: Value,
}

/// The reference host with a heartbeat that hands orders on at once.
pub const HOST: [&str; 3] = ["host", "--heartbeat", "0.2"];

impl Stage {
    /// Launches the reference host with these options.
    pub fn set(arch: Arch, label: &str, options: &[&str]) -> Result<Self> {
        Self::set_with(Actor::new(arch)?, label, options, &HOST)
    }

    /// Launches this host with these options.
    pub fn set_with(actor: Actor, label: &str, options: &[&str], host: &[&str]) -> Result<Self> {
        let server = serve(&actor)?;
        let name = actor.reserve(label)?;
        let (file, token) = actor.token()?;
        server.expect(&name, digest(&token));
        let launched = actor
            .launch(&name)
            .option(&["--server", &server.url(), "--host-id", &name])
            .option(&["--token-file", &file.to_string_lossy()])
            .option(options)
            .host(host)
            .run()?;
        let says = server.wait_for_dial_in(&name, WATCHDOG)?;
        Ok(Stage {
            actor,
            server,
            name,
            token,
            launched,
            says,
        })
    }

    /// Has the host run a program in the sandbox, and returns what came of it.
    pub fn order(&self, order: &str, argv: &[&str]) -> Result<Value> {
        self.server.order(&self.name, vec![Order::run(order, argv)]);
        Ok(self.server.wait_for_order(&self.name, order, WATCHDOG)?)
    }

    /// Has the host leave orphans behind.
    pub fn orphans(&self, order: &str, count: u32) -> Result<Value> {
        let what = What::Orphans {
            count,
            lifetime_ms: 0,
        };
        let id = order.to_owned();
        self.server.order(&self.name, vec![Order { id, what }]);
        Ok(self.server.wait_for_order(&self.name, order, WATCHDOG)?)
    }
}

/// A server that pods reach.
pub fn serve(actor: &Actor) -> Result<TestServer> {
    let listen = SocketAddr::new(actor.cluster.address, 0);
    Ok(TestServer::start(listen, Options::default())?)
}
