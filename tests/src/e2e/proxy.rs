//! A network between a program and the API server that can be cut: TCP is
//! passed on as it is, until [`Proxy::freeze`] and from then on not a byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Error, Result, Trying};

/// A running proxy; dropping it closes everything.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    frozen: bool,
    ended: bool,
    /// Chunks that clients sent since the freeze, and that went nowhere.
    held: usize,
    open: Vec<TcpStream>,
}

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        self.changed.notify_all();
        result
    }
}

impl Proxy {
    /// Listens on the loopback and passes on to `to`.
    pub fn to(to: SocketAddr) -> Result<Self> {
        Self::between(IpAddr::from([127, 0, 0, 1]), to)
    }

    /// Listens on an address of this machine and passes on to `to`.
    pub fn between(on: IpAddr, to: SocketAddr) -> Result<Self> {
        let failed = format!("listen on {on}");
        let listener = TcpListener::bind((on, 0)).trying(&failed)?;
        let address = listener.local_addr().trying(&failed)?;
        let shared = Arc::new(Shared::default());
        let inner = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if inner.with(|state| state.ended) {
                    return;
                }
                // A client that cannot be served sees its connection closed.
                let _ = serve(&inner, client, to);
            }
        });
        Ok(Proxy {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing gets through, and nobody is told.
    pub fn freeze(&self) {
        self.shared.with(|state| state.frozen = true);
    }

    /// Waits until something was sent that did not get through.
    pub fn wait_for_held(&self, watchdog: Duration) -> Result<()> {
        let state = self.shared.state.lock();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let waited = &self.shared.changed;
        let (_state, timeout) = waited
            .wait_timeout_while(state, watchdog, |state| state.held == 0)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Error::Watchdog {
                what: "something sent into the frozen network".to_owned(),
                watchdog,
                so_far: "nothing".to_owned(),
            });
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let open = self.shared.with(|state| {
            state.ended = true;
            std::mem::take(&mut state.open)
        });
        for stream in open {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// An HTTP proxy that passes on what asks it to (CONNECT); it lives as long as
/// the process.
pub struct Tunnel {
    address: SocketAddr,
    used: Arc<AtomicUsize>,
}

impl Tunnel {
    /// Listens on the loopback.
    pub fn open() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).trying("listen on the loopback")?;
        let address = listener.local_addr().trying("listen on the loopback")?;
        let used = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&used);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                // A client that cannot be served sees its connection closed.
                std::thread::spawn(move || connect(client, &count));
            }
        });
        Ok(Tunnel { address, used })
    }

    /// The same, spoken to by TLS; and its certificate, as PEM.
    pub fn behind_tls() -> Result<(Self, String)> {
        let tunnel = Self::open()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).trying("listen on the loopback")?;
        listener
            .set_nonblocking(true)
            .trying("listen on the loopback")?;
        let address = listener.local_addr().trying("listen on the loopback")?;
        let (acceptor, certificate) = super::middle::tls()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .trying("start a proxy")?;
        let to = tunnel.address;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                    return;
                };
                while let Ok((client, _)) = listener.accept().await {
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let mut client = acceptor.accept(client).await?;
                        let mut plain = tokio::net::TcpStream::connect(to).await?;
                        tokio::io::copy_bidirectional(&mut client, &mut plain).await
                    });
                }
            });
        });
        Ok((Tunnel { address, ..tunnel }, certificate))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections went through it.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }
}

fn connect(client: TcpStream, used: &AtomicUsize) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = request.split(' ');
    let (Some("CONNECT"), Some(to)) = (words.next(), words.next()) else {
        return (&client).write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n");
    };
    let server = TcpStream::connect(to)?;
    used.fetch_add(1, Ordering::SeqCst);
    (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    // A client says nothing before it has this answer: no byte is in the buffer.
    serve_between(&Arc::default(), client, server)
}

fn serve(shared: &Arc<Shared>, client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    serve_between(shared, client, TcpStream::connect(to)?)
}

fn serve_between(
    shared: &Arc<Shared>,
    client: TcpStream,
    server: TcpStream,
) -> std::io::Result<()> {
    let streams = [client.try_clone()?, server.try_clone()?];
    shared.with(|state| state.open.extend(streams));
    let (from_client, to_client) = (client.try_clone()?, client);
    let (from_server, to_server) = (server.try_clone()?, server);
    for (from, to, counts) in [
        (from_client, to_server, true),
        (from_server, to_client, false),
    ] {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || pass_on(&shared, from, to, counts));
    }
    Ok(())
}

fn pass_on(shared: &Shared, mut from: TcpStream, mut to: TcpStream, counts: bool) {
    let mut chunk = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let frozen = shared.with(|state| {
            state.held += usize::from(state.frozen && counts);
            state.frozen
        });
        if !frozen && to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    // An end is passed on too, but not through a network that was cut.
    if !shared.with(|state| state.frozen) {
        let _ = to.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn passes_on_until_it_is_frozen() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::to(server.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"one").unwrap();
        let (mut peer, _) = server.accept().unwrap();
        let mut heard = [0; 3];
        peer.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"one");
        proxy.freeze();
        client.write_all(b"two").unwrap();
        proxy.wait_for_held(SOON).unwrap();
        drop(proxy);
        let mut rest = Vec::new();
        // The proxy is gone: an end or a reset, but not what was held back.
        let _ = peer.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }
}
