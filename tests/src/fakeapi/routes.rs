//! Requests → the store, through the script.

use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Changes, Fault, Seen, Shared};

#[derive(Clone)]
struct Server {
    shared: Arc<Mutex<Shared>>,
    came: Arc<Condvar>,
    released: Arc<Semaphore>,
    changes: Changes,
}

pub(super) fn router(
    shared: Arc<Mutex<Shared>>,
    came: Arc<Condvar>,
    released: Arc<Semaphore>,
    changes: Changes,
) -> Router {
    let server = Server {
        shared,
        came,
        released,
        changes,
    };
    Router::new().fallback(answer).with_state(server)
}

struct Request {
    resource: String,
    name: Option<String>,
    /// From which version, for a watch.
    watch: Option<u64>,
    /// Nothing is to be stored.
    dry: bool,
    /// Of an object that is answered only the metadata are wanted.
    bare: bool,
}

async fn answer(
    State(server): State<Server>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // /api/v1/namespaces/ns/pods, /apis/GROUP/v1/namespaces/ns/leases
    let core = usize::from(!uri.path().starts_with("/api/"));
    let mut parts = uri.path().split('/').skip(5 + core);
    let resource = parts.next().unwrap_or_default().to_owned();
    let name = parts.next().map(str::to_owned);
    let resource = parts
        .next()
        .map_or(resource.clone(), |sub| format!("{resource}/{sub}"));
    let query = uri.query().unwrap_or_default();
    let version = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion="));
    let watch = query
        .contains("watch=true")
        .then(|| version.and_then(|v| v.parse().ok()).unwrap_or(0));
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = Request {
        resource,
        name,
        watch,
        dry: query.contains("dryRun=All") || sent["dryRun"][0] == "All",
        bare: accept.is_some_and(|types| types.contains("as=PartialObjectMetadata;")),
    };
    let fault = {
        let mut shared = server.lock();
        let verb = if request.watch.is_some() {
            "WATCH".to_owned()
        } else if request.dry && method == Method::DELETE {
            "DRY-DELETE".to_owned()
        } else {
            method.to_string()
        };
        let seen = Seen {
            verb,
            resource: request.resource.clone(),
            query: query.to_owned(),
        };
        let nth = shared.seen.len();
        shared.seen.push(seen.clone());
        server.came.notify_all();
        (shared.script)(nth, &seen)
    };
    match fault {
        Fault::None => server.answer(&method, &request, &body),
        Fault::Refuse(code) => refusal(code),
        Fault::Taken => {
            let wanted: Value = serde_json::from_slice(&body).unwrap_or_default();
            let theirs = json!({ "metadata": { "name": wanted["metadata"]["name"] } });
            server.lock().store.put(&request.resource, theirs);
            server.answer(&method, &request, &body)
        }
        Fault::Quota => status(403, "Forbidden", "exceeded quota: few, limited: count=0"),
        Fault::Denied => {
            let resource = &request.resource;
            let message = format!("{resource} is forbidden: User \"u\" cannot do that to them");
            status(403, "Forbidden", &message)
        }
        Fault::DoneButSay(code) => {
            server.answer(&method, &request, &body);
            refusal(code)
        }
        Fault::DoneButReset => {
            server.answer(&method, &request, &body);
            let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            let half = [Ok("{".to_owned()), Err(broken)];
            Response::new(Body::from_stream(futures::stream::iter(half)))
        }
        Fault::DoneButGarble => {
            server.answer(&method, &request, &body);
            text(format!("{:?}", String::from_utf8_lossy(&body)))
        }
        Fault::Hold => {
            if let Ok(permit) = server.released.acquire().await {
                permit.forget();
            }
            server.answer(&method, &request, &body)
        }
        Fault::DoneButSilent => {
            server.answer(&method, &request, &body);
            std::future::pending().await
        }
        Fault::Silent => std::future::pending().await,
    }
}

impl Request {
    /// An object, as far as it is wanted.
    fn answer(&self, found: &Value) -> Response {
        if !self.bare {
            return object(found);
        }
        object(&json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": found["metadata"],
        }))
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, method: &Method, request: &Request, body: &Bytes) -> Response {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let resource = request.resource.as_str();
        if let Some(version) = request.watch {
            return self.watch(resource, version);
        }
        match (method.as_str(), request.name.as_deref()) {
            ("GET", _) if resource == "pods/log" => text("a line of the log\n".to_owned()),
            ("GET", None) => object(&self.lock().store.list(resource)),
            ("GET", Some(name)) => self
                .lock()
                .store
                .get(resource, name)
                .map_or_else(|| refusal(404), object),
            ("POST", _) => self.create(request, body),
            ("PATCH", Some(name)) => self.patch(request, name, &body),
            // As one that waits for dependents: the object as it would be marked.
            ("DELETE", Some(name)) if request.dry => {
                let found = self.lock().store.get(resource, name).cloned();
                found.map_or_else(|| refusal(404), |found| request.answer(&found))
            }
            ("DELETE", Some(name)) => {
                let deleted = self
                    .lock()
                    .store
                    .delete(resource, name, &body["preconditions"]);
                deleted.map_or_else(refusal, |event| self.tell(request, event))
            }
            _ => refusal(405),
        }
    }

    fn create(&self, request: &Request, mut body: Value) -> Response {
        let resource = request.resource.as_str();
        let mut shared = self.lock();
        (shared.admission)(resource, &mut body);
        if request.dry {
            return request.answer(&body);
        }
        let created = shared.store.create(resource, body);
        drop(shared);
        created.map_or_else(|| exists(resource), |event| self.tell(request, event))
    }

    /// A merge patch, or a JSON patch of tests and removals; the one that takes
    /// a Pod's last gate off lets it run.
    fn patch(&self, request: &Request, name: &str, body: &Value) -> Response {
        let resource = request.resource.as_str();
        let mut shared = self.lock();
        let Some(now) = shared.store.get(resource, name).cloned() else {
            return refusal(404);
        };
        for key in ["uid", "resourceVersion"] {
            let wanted = &body["metadata"][key];
            if wanted.is_string() && *wanted != now["metadata"][key] {
                return refusal(409);
            }
        }
        let gated = now["spec"]["schedulingGates"][0].is_object();
        let mut patched = now.clone();
        if let Some(operations) = body.as_array() {
            if !operations
                .iter()
                .all(|operation| apply(&mut patched, operation))
            {
                return refusal(422);
            }
        } else {
            merge(&mut patched, body);
        }
        // As the real one: nothing is written, and no version passes.
        if patched == now {
            return request.answer(&now);
        }
        let let_go = gated && patched["spec"]["schedulingGates"][0].is_null();
        let changed = shared
            .store
            .change(resource, name, |object| *object = patched);
        let statuses = if let_go {
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
        let answer = changed.map_or_else(|| refusal(404), |event| self.tell(request, event));
        for event in later {
            let _ = self.changes.send((resource.to_owned(), event));
        }
        answer
    }

    /// Sends the event to the watches and the object to the caller.
    fn tell(&self, request: &Request, event: Value) -> Response {
        let answer = request.answer(&event["object"]);
        let _ = self.changes.send((request.resource.clone(), event));
        answer
    }

    /// What has happened to objects since is what those are now that were written
    /// since, and who is gone: a watch begins with that, so that nothing between
    /// a call and its watch is missed.
    fn watch(&self, resource: &str, version: u64) -> Response {
        let shared = self.lock();
        let receiver = self.changes.subscribe();
        let gone = shared.store.deleted_since(resource, version);
        let now = shared.store.list(resource);
        drop(shared);
        let items = now["items"].as_array().cloned().unwrap_or_default();
        let first = items
            .into_iter()
            .filter(move |object| version_of(object) > version)
            .map(|object| json!({ "type": "MODIFIED", "object": object }));
        let later = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.ok().map(|event| (event, receiver))
        });
        let resource = resource.to_owned();
        let later = later
            .filter_map(move |(of, event)| std::future::ready((of == resource).then_some(event)));
        let events = futures::stream::iter(gone.into_iter().chain(first))
            .chain(later)
            .map(|event| Ok::<_, Infallible>(format!("{event}\n")));
        Response::new(Body::from_stream(events))
    }
}

fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|v| v.parse().ok()).unwrap_or(u64::MAX)
}

/// One operation of RFC 6902; whether it could be done.
fn apply(object: &mut Value, operation: &Value) -> bool {
    let path = operation["path"].as_str().unwrap_or_default();
    let op = operation["op"].as_str();
    if op == Some("test") {
        return object.pointer(path) == Some(&operation["value"]);
    }
    let (parent, last) = path.rsplit_once('/').unwrap_or_default();
    let last = last.replace("~1", "/");
    match (op, object.pointer_mut(parent)) {
        (Some("remove"), Some(Value::Array(list))) => match last.parse::<usize>() {
            Ok(place) if place < list.len() => {
                list.remove(place);
                true
            }
            _ => false,
        },
        (Some("remove"), Some(Value::Object(map))) => map.remove(&last).is_some(),
        (Some("add"), Some(Value::Object(map))) => {
            map.insert(last, operation["value"].clone());
            true
        }
        _ => false,
    }
}

/// RFC 7386.
fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(object) = into.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut into[key], value);
        }
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
    if code == 429 {
        // As priority and fairness refuses: no Status.
        let mut response = text("Too many requests, please try again later.\n".to_owned());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        headers.insert("retry-after", axum::http::HeaderValue::from(1));
        return response;
    }
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
        "reason": reason, "message": message,
    });
    let mut response = object(&body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
