//! The server's I/O: TLS in front, the API server behind, the script between.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures::{Stream, StreamExt as _};
use hyper_util::rt::TokioIo;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

use super::{Fault, Result, Seen, Shared, WatchFault, missing};

/// No answer of the API server here is larger.
const BODY_MAX: usize = 16 << 20;

#[derive(Clone)]
pub(super) struct Server {
    pub shared: Arc<Mutex<Shared>>,
    pub upstream: kube::Client,
}

/// A certificate for the loopback, which is its own authority, as PEM.
pub(crate) fn tls() -> Result<(TlsAcceptor, String)> {
    let what = "make a certificate";
    let key = rcgen::KeyPair::generate().map_err(|e| missing(what, e))?;
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .map_err(|e| missing(what, e))?;
    let secret = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|e| missing(what, e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| missing(what, e))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .map_err(|e| missing(what, e))?;
    Ok((TlsAcceptor::from(Arc::new(config)), certificate.pem()))
}

/// A client with the cluster's authority and no credentials: what the client in
/// front says of itself is passed on as it is.
pub(super) async fn upstream(kubeconfig: &Path) -> Result<kube::Client> {
    let what = "reach the API server";
    let kubeconfig = Kubeconfig::read_from(kubeconfig).map_err(|e| missing(what, e))?;
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|e| missing(what, e))?;
    config.auth_info = AuthInfo::default();
    config.proxy_url = None;
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|e| missing(what, e))
}

/// Serves HTTP over TLS; a handler's error closes the connection.
pub(crate) async fn serve_tls<H, F>(
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
    handler: H,
) where
    H: Fn(Request<hyper::body::Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<Response<Body>>> + Send,
{
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, handler) = (acceptor.clone(), handler.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = hyper::service::service_fn(handler);
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn answer(
        self,
        request: Request<hyper::body::Incoming>,
    ) -> io::Result<Response<Body>> {
        let seen = seen(&request);
        let fault = {
            let mut shared = self.lock();
            shared.seen.push(seen.clone());
            let fault = (shared.script)(&seen);
            if let Some(fault) = fault {
                let line = format!("{} {}: {fault:?}", seen.verb, seen.resource);
                shared.hurt.push(line);
            }
            fault
        };
        match fault {
            None => self.pass_on(&seen, request, None).await,
            Some(Fault::Refuse(code)) => Ok(refusal(code, 0)),
            Some(Fault::TryAgainIn(seconds)) => Ok(refusal(429, seconds)),
            Some(Fault::DoneButSay(code)) => {
                self.pass_on(&seen, request, None).await?;
                Ok(refusal(code, 0))
            }
            Some(Fault::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(Fault::DoneButReset) => {
                self.pass_on(&seen, request, None).await?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::DoneButSilent) => {
                self.pass_on(&seen, request, None).await?;
                std::future::pending().await
            }
            Some(Fault::Late(time)) => {
                tokio::time::sleep(time).await;
                self.pass_on(&seen, request, None).await
            }
            Some(Fault::Watch(events, how)) => {
                self.pass_on(&seen, request, Some((events, how))).await
            }
        }
    }

    async fn pass_on(
        &self,
        seen: &Seen,
        request: Request<hyper::body::Incoming>,
        fault: Option<(usize, WatchFault)>,
    ) -> io::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        // These are of the connection in front, not of the request.
        for header in ["host", "connection", "content-length"] {
            parts.headers.remove(header);
        }
        let body = axum::body::to_bytes(Body::new(body), BODY_MAX)
            .await
            .map_err(io::Error::other)?;
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        let answer = self
            .upstream
            .send(request)
            .await
            .map_err(io::Error::other)?;
        let (mut parts, body) = answer.into_parts();
        parts.headers.remove("transfer-encoding");
        let body = Body::new(body);
        if seen.verb == "WATCH" && parts.status.is_success() {
            let events = Events {
                server: self.clone(),
                is_pods: seen.resource == "pods",
                from: body.into_data_stream(),
                read: VecDeque::new(),
                passed: 0,
                fault,
                ended: false,
            };
            let body = Body::from_stream(events.into_stream());
            return Ok(Response::from_parts(parts, body));
        }
        if parts.status.is_success() && seen.resource == "pods/log" {
            return Ok(Response::from_parts(parts, body));
        }
        let body = axum::body::to_bytes(body, BODY_MAX)
            .await
            .map_err(io::Error::other)?;
        self.note(seen, parts.status, &body);
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    fn note(&self, seen: &Seen, status: StatusCode, body: &[u8]) {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return;
        };
        if status.as_u16() >= 400 {
            self.lock().refusals.push(body);
        } else if seen.verb == "PATCH" && seen.resource == "pods" {
            self.note_pod(json!({ "type": "MODIFIED", "object": body }));
        }
    }

    fn note_pod(&self, event: Value) {
        self.lock().pods.push(event);
    }
}

fn seen(request: &Request<hyper::body::Incoming>) -> Seen {
    // /api/v1/namespaces/NAMESPACE/RESOURCE[/NAME[/SUB]]; groups have one more.
    let path = request.uri().path();
    let skip = if path.starts_with("/apis/") { 6 } else { 5 };
    let mut parts = path.split('/').skip(skip);
    let resource = parts.next().unwrap_or_default().to_owned();
    let resource = parts
        .nth(1)
        .map_or(resource.clone(), |sub| format!("{resource}/{sub}"));
    let watch = request
        .uri()
        .query()
        .is_some_and(|q| q.contains("watch=true"));
    let verb = if watch {
        "WATCH".to_owned()
    } else {
        request.method().to_string()
    };
    Seen { verb, resource }
}

fn status(code: u16) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        410 => "Expired",
        504 => "Timeout",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": "as the test wants it",
    })
}

fn refusal(code: u16, seconds: u32) -> Response<Body> {
    // Priority and fairness refuses in plain text.
    let (kind, text) = match code {
        429 => ("text/plain", "Too many requests.\n".to_owned()),
        _ => ("application/json", status(code).to_string()),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert("content-type", axum::http::HeaderValue::from_static(kind));
    if seconds > 0 {
        headers.insert("retry-after", axum::http::HeaderValue::from(seconds));
    }
    response
}

type Data = Pin<Box<dyn Stream<Item = io::Result<Vec<u8>>> + Send>>;

/// A watch on its way through, an event (a line) at a time.
struct Events<S> {
    server: Server,
    is_pods: bool,
    from: S,
    read: VecDeque<u8>,
    passed: usize,
    fault: Option<(usize, WatchFault)>,
    ended: bool,
}

impl<S> Events<S>
where
    S: Stream<Item = Result<axum::body::Bytes, axum::Error>> + Unpin + Send + 'static,
{
    fn into_stream(self) -> Data {
        Box::pin(futures::stream::unfold(self, |mut events| async move {
            let next = events.next().await?;
            Some((next, events))
        }))
    }

    async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        if self.ended {
            return None;
        }
        if let Some((after, how)) = self.fault
            && self.passed >= after
        {
            return self.go_wrong(how).await;
        }
        let line = self.line().await?;
        self.passed += 1;
        if self.is_pods
            && let Ok(event) = serde_json::from_slice::<Value>(&line)
            && event["object"]["kind"] == "Pod"
            && event["type"] != "BOOKMARK"
        {
            self.server.note_pod(event);
        }
        Some(Ok(line))
    }

    async fn go_wrong(&mut self, how: WatchFault) -> Option<io::Result<Vec<u8>>> {
        self.ended = true;
        match how {
            WatchFault::Silence => std::future::pending().await,
            WatchFault::End => None,
            WatchFault::Gone => {
                let event = json!({ "type": "ERROR", "object": status(410) });
                Some(Ok(format!("{event}\n").into_bytes()))
            }
            WatchFault::Truncated => {
                let mut line = self.line().await?;
                line.truncate(line.len() / 2);
                Some(Ok(line))
            }
        }
    }

    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                return Some(self.read.drain(..=end).collect());
            }
            let more = self.from.next().await?.ok()?;
            self.read.extend(more);
        }
    }
}
