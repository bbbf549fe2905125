//! A fake API server, for exact fault order: it keeps Services, Pods and
//! Secrets as JSON, answers the verbs the launcher uses, and does to chosen
//! requests what networks and API servers do (an answer lost after the write,
//! a 429, a watch that ends). Never the only proof of anything: the same
//! behaviour is shown on a real cluster.

mod routes;
mod store;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, broadcast};

pub use store::Store;

use crate::serving::Serving;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is answered as it should be.
    None,
    /// This status, without doing anything.
    Refuse(u16),
    /// Somebody else has made an object of that name just before.
    Taken,
    /// A quota has no room for it.
    Quota,
    /// No Role allows it.
    Denied,
    /// It is done, but this status is the answer.
    DoneButSay(u16),
    /// It is done, and then the connection breaks in the middle of the answer.
    DoneButReset,
    /// It is done, and the answer is no object but a text that holds what was sent.
    DoneButGarble,
    /// It is done once the test says so, with [`FakeApi::release`].
    Hold,
    /// It is done, but no answer ever comes.
    DoneButSilent,
    /// It is not done and no answer ever comes.
    Silent,
}

/// One request as it came in: `POST services`, `WATCH pods`, `DRY-DELETE
/// secrets`, …
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// HTTP method; `WATCH` for a watch, `DRY-DELETE` for one that does nothing.
    pub verb: String,
    /// `services`, `pods`, `secrets`, `events`, `pods/log`.
    pub resource: String,
    /// What stands after the question mark.
    pub query: String,
}

/// What a watch may see: the resource, and the event.
pub(crate) type Changes = broadcast::Sender<(String, Value)>;

type Script = Box<dyn FnMut(usize, &Seen) -> Fault + Send>;
type Admission = Box<dyn Fn(&str, &mut Value) + Send>;

pub(crate) struct Shared {
    pub store: Store,
    pub seen: Vec<Seen>,
    pub script: Script,
    pub admission: Admission,
    pub kubelet: Vec<Value>,
}

/// How long [`FakeApi::wait_for`] waits: nothing here takes a tenth of it.
const WATCHDOG: Duration = Duration::from_secs(100);

/// What has come in so far, for [`FakeApi::wait_for`].
pub struct SoFar<'a>(&'a [Seen]);

impl SoFar<'_> {
    /// How often this was asked, such as `POST pods`.
    pub fn calls(&self, call: &str) -> usize {
        let short = |seen: &Seen| format!("{} {}", seen.verb, seen.resource);
        self.0.iter().filter(|seen| short(seen) == call).count()
    }
}

/// The server, on a thread and a loopback port of its own.
pub struct FakeApi {
    serving: Serving,
    shared: Arc<Mutex<Shared>>,
    /// Told of each request.
    came: Arc<Condvar>,
    /// One permit for each held request that may go on.
    released: Arc<Semaphore>,
    changes: Changes,
}

impl FakeApi {
    /// A server that answers everything, and whose kubelet gives a Pod these
    /// statuses one after the other once its gates are off.
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub fn start(kubelet: Vec<Value>) -> std::io::Result<Self> {
        let shared = Arc::new(Mutex::new(Shared {
            store: Store::default(),
            seen: Vec::new(),
            script: Box::new(|_, _| Fault::None),
            admission: Box::new(|_, _| ()),
            kubelet,
        }));
        let (changes, _) = broadcast::channel(1 << 14);
        let came = Arc::new(Condvar::new());
        let released = Arc::new(Semaphore::new(0));
        let router = routes::router(
            Arc::clone(&shared),
            Arc::clone(&came),
            Arc::clone(&released),
            changes.clone(),
        );
        let serving = Serving::router("127.0.0.1:0", router)?;
        Ok(Self {
            serving,
            shared,
            came,
            released,
            changes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `script` decides on each request, counted from 0.
    pub fn script(&self, script: impl FnMut(usize, &Seen) -> Fault + Send + 'static) {
        let mut shared = self.lock();
        shared.seen.clear();
        shared.script = Box::new(script);
    }

    /// From now on every created object passes through `admission` (resource, object).
    pub fn admission(&self, admission: impl Fn(&str, &mut Value) + Send + 'static) {
        self.lock().admission = Box::new(admission);
    }

    /// From now on these are the statuses of a Pod whose gates are taken off.
    pub fn kubelet(&self, statuses: Vec<Value>) {
        self.lock().kubelet = statuses;
    }

    /// Gives all Pods these statuses, one after the other: those whose gates
    /// are off now, and the others once they are.
    pub fn run_all(&self, statuses: Vec<Value>) {
        let mut shared = self.lock();
        shared.kubelet.clone_from(&statuses);
        let pods = shared.store.list("pods");
        let names: Vec<_> = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|pod| pod["spec"]["schedulingGates"][0].is_null())
            .filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
        for status in statuses {
            for name in &names {
                let change = |pod: &mut Value| pod["status"] = status.clone();
                if let Some(event) = shared.store.change("pods", name, change) {
                    let _ = self.changes.send(("pods".to_owned(), event));
                }
            }
        }
    }

    /// Waits until what has come in is enough.
    ///
    /// # Errors
    /// When that does not happen.
    pub fn wait_for(&self, enough: impl Fn(&SoFar) -> bool) -> Result<(), String> {
        let (shared, timeout) = self
            .came
            .wait_timeout_while(self.lock(), WATCHDOG, |shared| {
                !enough(&SoFar(&shared.seen))
            })
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(format!(
                "not within {WATCHDOG:?}; came in: {:?}",
                shared.seen
            ));
        }
        Ok(())
    }

    /// Lets one held request go on.
    pub fn release(&self) {
        self.released.add_permits(1);
    }

    /// What came in so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// `verb resource` of what came in so far.
    pub fn calls(&self) -> Vec<String> {
        self.seen()
            .iter()
            .map(|seen| format!("{} {}", seen.verb, seen.resource))
            .collect()
    }

    /// Names of the objects there are, as `resource/name`.
    pub fn objects(&self) -> Vec<String> {
        self.lock().store.names()
    }

    /// Puts an object there, as somebody else would.
    pub fn put(&self, resource: &str, object: Value) {
        let change = self.lock().store.put(resource, object);
        let _ = self.changes.send((resource.to_owned(), change));
    }

    /// Changes an object, as somebody else would.
    pub fn change(&self, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut shared = self.lock();
        if let Some(event) = shared.store.change(resource, name, change) {
            let _ = self.changes.send((resource.to_owned(), event));
        }
    }

    /// Deletes an object whatever it is, as its last finalizer would.
    pub fn remove(&self, resource: &str, name: &str) {
        let deleted = self.lock().store.delete(resource, name, &Value::Null);
        if let Ok(event) = deleted {
            let _ = self.changes.send((resource.to_owned(), event));
        }
    }

    /// Does the garbage collector's work, as often as it finds some.
    pub fn collect(&self) {
        loop {
            let orphans = self.lock().store.orphans();
            if orphans.is_empty() {
                return;
            }
            for (resource, name) in orphans {
                self.remove(&resource, &name);
            }
        }
    }

    /// One object, as it is now.
    pub fn object(&self, resource: &str, name: &str) -> Value {
        let shared = self.lock();
        shared
            .store
            .get(resource, name)
            .cloned()
            .unwrap_or_default()
    }

    /// Writes a kubeconfig that leads here.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig(&self, path: &Path) -> std::io::Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{ "name": "fake", "cluster": { "server": format!("http://{}", self.serving.address()) } }],
            "users": [{ "name": "fake", "user": {} }],
            "contexts": [{ "name": "fake", "context": { "cluster": "fake", "user": "fake", "namespace": "ns" } }],
        });
        std::fs::write(path, config.to_string())
    }
}

/// A Pod's status with its containers in these states.
pub fn status(prep: &Value, host: &Value) -> Value {
    let container = |name: &str, state: &Value| {
        json!({
            "name": name, "image": "i:1", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        })
    };
    json!({
        "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "True" }],
        "initContainerStatuses": [container("workspace-prep", prep)],
        "containerStatuses": [container("host", host)],
    })
}

/// The statuses of a launch that goes well.
pub fn going_well() -> Vec<Value> {
    let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
    let running = json!({ "running": {} });
    let done = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    vec![
        status(&waiting, &waiting),
        status(&running, &waiting),
        status(&done, &waiting),
        status(&done, &running),
    ]
}
