//! Launches, in turn with the same Pod created directly: what the API server
//! counted, when the host was started, what the launcher's process took.

use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use podcradle_tests::e2e::audit::{self, Request};
use podcradle_tests::e2e::{Actor, Error, NAMESPACE, Running, WATCHDOG, native};
use serde_json::{Value, json};

use crate::median;
use crate::memory::peak;
use crate::table::Table;

const ROUNDS: usize = 10;
const HOST: [&str; 2] = ["sleep", "1000"];
/// What the observer prints for a Pod; the second word appears with the host.
const SEEN: &str =
    r#"jsonpath={.metadata.name}{" "}{.status.containerStatuses[0].state.running.startedAt}{"\n"}"#;

/// What one launch took.
struct Launched {
    started: Duration,
    returned: Duration,
    peak: f64,
}

/// Adds the rows of a launch.
pub fn measure(table: &mut Table) -> Result<(), Error> {
    let actor = Actor::new(native())?;
    let admin = &actor.cluster.admin;
    let mut watch = admin.command(&["get", "pods", "--watch", "--output", SEEN]);
    let observer = Running::start(&mut watch)?;
    let direct = Direct::new(&actor)?;
    let (mut launches, mut plain) = (Vec::new(), Vec::new());
    let mut calls = Vec::new();
    for round in 0..ROUNDS {
        let name = actor.reserve("bench")?;
        launches.push(launch(&actor, &name, &observer)?);
        if round == 0 {
            calls = count(&actor)?;
        }
        plain.push(direct.create(&actor, &name, &observer)?);
        actor.run(&["delete", &name])?;
    }
    let middle = |figure: fn(&Launched) -> Duration| {
        let all: Vec<_> = launches.iter().map(figure).collect();
        milliseconds(&all)
    };
    let beside = format!("Pod created directly {:.0} ms", milliseconds(&plain));
    table.plain(
        "launch: start to host started",
        middle(|one| one.started),
        "ms",
        &beside,
    );
    table.plain(
        "launch: start to return",
        middle(|one| one.returned),
        "ms",
        "",
    );
    let peaks: Vec<_> = launches.iter().map(|one| one.peak).collect();
    let peak = peaks.into_iter().fold(0.0, f64::max);
    table.owed(
        "launch: launcher's peak RSS",
        peak,
        "kB",
        10_240.0,
        "largest of all launches",
    );
    report_calls(table, &calls);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a handful of calls")]
fn report_calls(table: &mut Table, calls: &[Request]) {
    if calls.is_empty() {
        return table.absent("launch: API calls", "the audit log cannot be read here");
    }
    let number = |verbs: &[&str]| {
        let calls = calls
            .iter()
            .filter(|call| verbs.contains(&call.verb.as_str()));
        calls.count() as f64
    };
    let short: Vec<_> = calls.iter().map(Request::short).collect();
    let writes = number(&["create", "patch", "update", "delete"]);
    table.owed(
        "launch: writes, hand-over included",
        writes,
        "",
        5.0,
        &short.join(", "),
    );
    table.owed("launch: watches", number(&["watch"]), "", 1.0, "");
    table.owed("launch: reads", number(&["get", "list"]), "", 0.0, "");
}

fn milliseconds(all: &[Duration]) -> f64 {
    median(all).unwrap_or_default().as_secs_f64() * 1e3
}

fn launch(actor: &Actor, name: &str, observer: &Running) -> Result<Launched, Error> {
    let mut command = actor.launch(name).host(&HOST).command();
    let log = actor.folder().join(format!("{name}.log"));
    let failed = |source| Error::Io {
        what: format!("write {}", log.display()),
        source,
    };
    let stderr = std::fs::File::create(&log).map_err(failed)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            observer.wait_for_stdout(&format!("{name} 2"), WATCHDOG)?;
            Ok::<_, Error>(begun.elapsed())
        });
        let (code, peak) = peak(&mut command)?;
        let returned = begun.elapsed();
        if code != 0 {
            return Err(Error::Command {
                command: format!("podcradle launch --sandbox {name}"),
                code,
                stderr: std::fs::read_to_string(&log).unwrap_or_default(),
            });
        }
        let started = seen
            .join()
            .map_err(|_| Error::Missing("observer".to_owned()))??;
        Ok(Launched {
            started,
            returned,
            peak,
        })
    })
}

fn count(actor: &Actor) -> Result<Vec<Request>, Error> {
    actor.cluster.audit.as_ref().map_or_else(
        |_| Ok(Vec::new()),
        |log| audit::requests(log, &actor.credential),
    )
}

/// Creates Pods without a launcher, by a client that is connected already.
struct Direct {
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
}

impl Direct {
    fn new(actor: &Actor) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Missing(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        let kubeconfig = Kubeconfig::read_from(actor.cluster.admin.kubeconfig());
        let kubeconfig = kubeconfig.map_err(|error| failed(&error))?;
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            let config = config.map_err(|error| failed(&error))?;
            let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
            client
                .apiserver_version()
                .await
                .map_err(|error| failed(&error))?;
            Ok::<_, Error>(client)
        })?;
        Ok(Direct { runtime, client })
    }

    /// The Pod of a launched sandbox once more: same containers, same volumes,
    /// nobody's. From the request to the host being seen started.
    fn create(&self, actor: &Actor, like: &str, observer: &Running) -> Result<Duration, Error> {
        let admin = &actor.cluster.admin;
        let name = format!("{like}-direct");
        actor.own(&name);
        let mut pod = admin.one("pod", like)?;
        pod["metadata"] = json!({"name": name});
        pod["status"] = Value::Null;
        pod["spec"]["nodeName"] = Value::Null;
        let secret =
            json!({"metadata": {"name": format!("{name}-token")}, "stringData": {"token": "x"}});
        for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
            if volume.get("secret").is_some() {
                volume["secret"]["secretName"] = secret["metadata"]["name"].clone();
            }
        }
        let parsed = |source| Error::Json {
            what: "copy of a Pod".to_owned(),
            source,
            text: name.clone(),
        };
        let pod: Pod = serde_json::from_value(pod).map_err(parsed)?;
        let secret: Secret = serde_json::from_value(secret).map_err(parsed)?;
        let refused = |error: kube::Error| Error::Missing(format!("{name}: {error}"));
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = PostParams::default();
        self.runtime
            .block_on(secrets.create(&params, &secret))
            .map_err(refused)?;
        let begun = Instant::now();
        self.runtime
            .block_on(pods.create(&params, &pod))
            .map_err(refused)?;
        observer.wait_for_stdout(&format!("{name} 2"), WATCHDOG)?;
        let took = begun.elapsed();
        let (pod, secret) = (format!("pod/{name}"), format!("secret/{name}-token"));
        admin.run(&["delete", &pod, &secret])?;
        Ok(took)
    }
}
