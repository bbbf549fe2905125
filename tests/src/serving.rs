//! What the servers of the tests have in common: a port, and a thread with a
//! runtime of its own that serves there until it is dropped.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// A server that runs; dropping it ends that at once. Connections that are kept
/// alive, and watches that are open, do not hold it up.
pub(crate) struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens on an address, port 0 being any free one, and serves there.
    pub fn on<F: Future>(
        address: impl ToSocketAddrs,
        serve: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static,
    ) -> io::Result<Self> {
        Self::by(runtime()?, address, serve)
    }

    /// The same for a router.
    pub fn router(address: impl ToSocketAddrs, router: axum::Router) -> io::Result<Self> {
        Self::on(address, |listener| {
            axum::serve(listener, router).into_future()
        })
    }

    /// The same by a runtime on which more has been made.
    pub fn by<F: Future>(
        runtime: Runtime,
        address: impl ToSocketAddrs,
        serve: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = serve(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// What such a thread runs.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
