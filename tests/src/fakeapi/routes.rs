//! Requests → the store, through the script.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{Fault, Seen, Shared};

#[derive(Clone)]
struct Server {
    shared: Arc<Mutex<Shared>>,
    changes: broadcast::Sender<Value>,
}

pub(super) fn router(shared: Arc<Mutex<Shared>>, changes: broadcast::Sender<Value>) -> Router {
    Router::new()
        .fallback(answer)
        .with_state(Server { shared, changes })
}

struct Request {
    resource: String,
    name: Option<String>,
    watch: bool,
}

async fn answer(State(server): State<Server>, method: Method, uri: Uri, body: Bytes) -> Response {
    let mut parts = uri.path().split('/').skip(5);
    let resource = parts.next().unwrap_or_default().to_owned();
    let name = parts.next().map(str::to_owned);
    let resource = parts
        .next()
        .map_or(resource.clone(), |sub| format!("{resource}/{sub}"));
    let watch = uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let request = Request {
        resource,
        name,
        watch,
    };
    let fault = {
        let mut shared = server.lock();
        let verb = if request.watch {
            "WATCH".to_owned()
        } else {
            method.to_string()
        };
        let seen = Seen {
            verb,
            resource: request.resource.clone(),
        };
        let nth = shared.seen.len();
        shared.seen.push(seen.clone());
        (shared.script)(nth, &seen)
    };
    match fault {
        Fault::None => server.answer(&method, &request, &body),
        Fault::Refuse(code) => refusal(code),
        Fault::DoneButSay(code) => {
            server.answer(&method, &request, &body);
            refusal(code)
        }
        Fault::DoneButSilent => {
            server.answer(&method, &request, &body);
            std::future::pending().await
        }
        Fault::Silent => std::future::pending().await,
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, method: &Method, request: &Request, body: &Bytes) -> Response {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let resource = request.resource.as_str();
        match (method.as_str(), request.name.as_deref()) {
            ("GET", _) if resource == "pods/log" => text("a line of the log\n".to_owned()),
            ("GET", _) if request.watch => self.watch(),
            ("GET", None) => object(&self.lock().store.list(resource)),
            ("GET", Some(name)) => self
                .lock()
                .store
                .get(resource, name)
                .map_or_else(|| refusal(404), object),
            ("POST", _) => self.create(resource, body),
            ("PATCH", Some(name)) => self.patch(resource, name, &body),
            ("DELETE", Some(name)) => {
                let deleted = self
                    .lock()
                    .store
                    .delete(resource, name, &body["preconditions"]);
                deleted.map_or_else(refusal, |event| self.tell(event))
            }
            _ => refusal(405),
        }
    }

    fn create(&self, resource: &str, mut body: Value) -> Response {
        let mut shared = self.lock();
        (shared.admission)(resource, &mut body);
        let created = shared.store.create(resource, body);
        drop(shared);
        created.map_or_else(|| exists(resource), |event| self.tell(event))
    }

    /// A merge patch of annotations, or the JSON patch that takes a gate off.
    fn patch(&self, resource: &str, name: &str, body: &Value) -> Response {
        let mut shared = self.lock();
        let Some(now) = shared.store.get(resource, name).cloned() else {
            return refusal(404);
        };
        let version = &body["metadata"]["resourceVersion"];
        if version.is_string() && *version != now["metadata"]["resourceVersion"] {
            return refusal(409);
        }
        if body.is_array() && now["spec"]["schedulingGates"][0].is_null() {
            return refusal(422);
        }
        let changed = shared
            .store
            .change(resource, name, |object| match body.as_array() {
                Some(_) => object["spec"]["schedulingGates"] = json!([]),
                None => {
                    for (key, value) in body["metadata"]["annotations"]
                        .as_object()
                        .into_iter()
                        .flatten()
                    {
                        object["metadata"]["annotations"][key] = value.clone();
                    }
                }
            });
        let statuses = if body.is_array() {
            shared.kubelet.clone()
        } else {
            Vec::new()
        };
        let mut later = Vec::new();
        for status in statuses {
            later.extend(
                shared
                    .store
                    .change(resource, name, |pod| pod["status"] = status),
            );
        }
        drop(shared);
        let answer = changed.map_or_else(|| refusal(404), |event| self.tell(event));
        for event in later {
            let _ = self.changes.send(event);
        }
        answer
    }

    /// Sends the event to the watches and the object to the caller.
    fn tell(&self, event: Value) -> Response {
        let answer = object(&event["object"]);
        let _ = self.changes.send(event);
        answer
    }

    /// What has happened to Pods since is what they are now: a watch begins
    /// with that, so that nothing between a call and its watch is missed.
    fn watch(&self) -> Response {
        let receiver = self.changes.subscribe();
        let now = self.lock().store.list("pods");
        let items = now["items"].as_array().cloned().unwrap_or_default();
        let first = items
            .into_iter()
            .map(|object| json!({ "type": "MODIFIED", "object": object }));
        let later = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.ok().map(|event| (event, receiver))
        });
        let is_pod = |event: &Value| event["object"]["spec"]["containers"].is_array();
        let events = futures::stream::iter(first)
            .chain(later)
            .filter(move |event| std::future::ready(is_pod(event)))
            .map(|event| Ok::<_, Infallible>(format!("{event}\n")));
        Response::new(Body::from_stream(events))
    }
}

fn object(value: &Value) -> Response {
    text(value.to_string())
}

fn text(text: String) -> Response {
    Response::new(Body::from(text))
}

fn exists(resource: &str) -> Response {
    status(409, "AlreadyExists", &format!("{resource} already exists"))
}

fn refusal(code: u16) -> Response {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        _ => "Fault",
    };
    status(code, reason, "as the test wants it")
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message, "details": { "retryAfterSeconds": u8::from(code == 429) },
    });
    let mut response = object(&body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
