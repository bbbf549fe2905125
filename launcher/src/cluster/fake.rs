//! A cluster that is a function in this process, for tests in paused time.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;

use super::{Cluster, Throttle};

/// What a fake API server answers.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

impl Cluster {
    /// Every request is answered by `answer`.
    pub(crate) fn of<A, F>(answer: A) -> Self
    where
        A: Fn(Request<Body>) -> F + Clone + Send + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let service = tower::service_fn(move |request| {
            let answer = answer(request);
            async { Ok::<_, io::Error>(answer.await) }
        });
        let client = Client::new(service, "ns");
        Self {
            client: client.clone(),
            watches: client.clone(),
            renewals: client,
            throttle: Throttle::new(),
            reading: tokio::sync::watch::channel(0).1,
            namespace: "ns".to_owned(),
            server: "https://api".to_owned(),
        }
    }

    /// The same, where so many wait for credentials.
    pub(crate) fn reading(mut self, reading: watch::Receiver<usize>) -> Self {
        self.reading = reading;
        self
    }
}

/// An object or a list.
pub(crate) fn object(object: &serde_json::Value) -> Answer {
    let body = Full::from(object.to_string());
    Response::new(body.map_err(|never| match never {}).boxed_unsync())
}

/// An answer that breaks off.
pub(crate) fn broken() -> Answer {
    let events = stream::once(async { Err(io::Error::other("broken")) });
    Response::new(StreamBody::new(events).boxed_unsync())
}

/// A watch that tells this after so long, and nothing more.
pub(crate) fn tells_after(time: Duration, event: &serde_json::Value) -> Answer {
    let line = BodyStream::new(Full::from(format!("{event}\n")));
    let line = line.then(move |frame| async move {
        tokio::time::sleep(time).await;
        frame.map_err(|never| match never {})
    });
    let events = line.chain(stream::pending());
    Response::new(StreamBody::new(events).boxed_unsync())
}

/// A watch on which nothing happens for so long, and which then ends as an API
/// server ends it.
pub(crate) fn silent_for(time: Duration) -> Answer {
    let events = stream::unfold((), move |()| async move {
        tokio::time::sleep(time).await;
        None
    });
    Response::new(StreamBody::new(events).boxed_unsync())
}
