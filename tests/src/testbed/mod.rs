//! A real single-node Kubernetes beside whatever else runs on this machine.
//!
//! In: a name. Out: a cluster with its kubeconfig, builder, registry and audit
//! log, in seconds once its programs are built. [`Testbed::up`] is what test
//! suites call: any number of them share one instance, and whoever comes first
//! boots it. With `PODCRADLE_KUBECONFIG` set nothing is booted: the cluster it
//! names is used, and what needs the node itself is not to be had.
//!
//! It must never touch what it did not make, and leaves nothing behind.

mod api;
mod binfmt;
mod boot;
mod cgroup;
mod clean;
mod config;
mod error;
mod flags;
mod images;
mod layout;
mod machine;
mod network;
mod pki;
mod prereq;
mod process;
mod progress;
mod subnet;
mod tools;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::error::{Error, Result};
pub use self::images::{BUSYBOX, PAUSE, busybox, of_one_program};
pub use self::layout::{Layout, cache_dir};
pub use self::process::Daemon;
pub use self::progress::Progress;
pub use self::subnet::Subnet;
pub use self::tools::Tools;

use self::clean::Logs;
use self::error::At;

/// An instance that was booted: what `testbed status -o json` prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// The instance.
    pub name: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Where the API server listens.
    pub server: String,
    /// The node's name in the cluster.
    pub node_name: String,
    /// The node's address, which pods reach.
    pub node_ip: std::net::Ipv4Addr,
    /// The pods' range.
    pub pod_range: String,
    /// Everything of the instance is in here.
    pub state_dir: PathBuf,
    /// One log a daemon.
    pub log_dir: PathBuf,
    /// The API server's audit log: one JSON event a line.
    pub audit_log: PathBuf,
    /// containerd's socket.
    pub containerd_socket: PathBuf,
    /// The containerd namespace the kubelet uses.
    pub containerd_namespace: String,
    /// The cgroup all pods are below.
    pub cgroup: String,
    /// A directory for `ctr run --fifo-dir`, at the same path for containerd.
    pub fifo_dir: PathBuf,
    /// Path of `ctr`.
    pub ctr: PathBuf,
    /// Path of `kubectl`.
    pub kubectl: PathBuf,
    /// Path of `buildx`, which runs alone or as docker's plug-in.
    pub buildx: PathBuf,
    /// What to set `BUILDX_CONFIG` to.
    pub buildx_config: PathBuf,
    /// The builder's name.
    pub builder: String,
    /// A registry without a password, plain HTTP: `HOST:PORT`.
    pub registry: String,
    /// Which programs it was booted from.
    pub tools: String,
    /// What runs.
    pub daemons: Vec<Daemon>,
}

impl Node {
    /// Whether every daemon still runs.
    pub fn is_alive(&self) -> bool {
        self.daemons.iter().all(Daemon::is_alive)
    }
}

/// A cluster for tests.
#[derive(Debug, Clone)]
pub struct Testbed {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    node: Option<Node>,
}

impl Testbed {
    /// The cluster `PODCRADLE_KUBECONFIG` names, or else the default instance,
    /// booted unless it runs (`PODCRADLE_TESTBED` names another one).
    pub fn up() -> Result<Self> {
        if let Some(kubeconfig) = env::var_os("PODCRADLE_KUBECONFIG").filter(|v| !v.is_empty()) {
            let kubeconfig = PathBuf::from(kubeconfig);
            fs::metadata(&kubeconfig).at("read PODCRADLE_KUBECONFIG", &kubeconfig)?;
            let kubectl = Tools::locate().path("kubectl");
            return Ok(Self {
                kubeconfig,
                kubectl,
                node: None,
            });
        }
        let name = env::var("PODCRADLE_TESTBED").unwrap_or_else(|_| "default".into());
        Ok(Self::from(up(
            &Layout::new(&name)?,
            false,
            &Progress::new(),
        )?))
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubectl; of the cluster's own version when it is ours.
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// The node itself, when it is this machine.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// The audit log, when it can be read.
    pub fn audit_log(&self) -> Option<&Path> {
        self.node().map(|node| node.audit_log.as_path())
    }

    /// A registry the kubelet pulls from, when there is one of ours.
    pub fn registry(&self) -> Option<&str> {
        self.node().map(|node| node.registry.as_str())
    }
}

impl From<Node> for Testbed {
    fn from(node: Node) -> Self {
        Self {
            kubeconfig: node.kubeconfig.clone(),
            kubectl: node.kubectl.clone(),
            node: Some(node),
        }
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let mut text = error.to_string();
    for cause in causes.map(ToString::to_string) {
        // Some errors repeat their cause already.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What is known of an instance; `None` when it was never booted or is down.
pub fn status(layout: &Layout) -> Option<Node> {
    serde_json::from_slice(&fs::read(layout.record()).ok()?).ok()
}

/// Boots the instance, or finds it running; waits for whoever is at it.
pub fn up(layout: &Layout, install: bool, progress: &Progress) -> Result<Node> {
    let tools = Tools::locate();
    prereq::check(!tools.are_built(), !images::archive().exists(), install)?;
    let wait = || progress.begin("waiting for another testbed command");
    let _lock = machine::Lock::instance(layout, wait)?;
    if let Some(node) =
        status(layout).filter(|node| node.tools == tools.digest() && node.is_alive())
        && api::ApiServer::new(&node.kubeconfig)
            .and_then(|api| api.ready())
            .is_ok()
    {
        return Ok(node);
    }
    tools.ensure(progress)?;
    let archive = images::ensure()?;
    clean::clean(layout, Logs::Remove)?;
    let booted = boot::boot(layout, &tools, &archive, progress).inspect_err(|_| {
        // What went wrong first is what counts.
        let _ = clean::clean(layout, Logs::Keep).and_then(|()| machine::tidy(layout));
    })?;
    let node = describe(layout, &tools, booted);
    let text = serde_json::to_vec_pretty(&node).map_err(|error| Error::Api(error.to_string()))?;
    process::write_whole(&layout.record(), &text, 0o600)?;
    Ok(node)
}

/// Stops the instance and removes everything of it.
pub fn down(layout: &Layout, progress: &Progress) -> Result<()> {
    let wait = || progress.begin("waiting for another testbed command");
    let _lock = machine::Lock::instance(layout, wait)?;
    clean::clean(layout, Logs::Remove)?;
    machine::tidy(layout)
}

/// Kills the API server as a crash would, starts it again, and returns once it
/// answers.
pub fn restart_api_server(layout: &Layout) -> Result<()> {
    let _lock = machine::Lock::instance(layout, || ())?;
    let mut node = status(layout)
        .filter(Node::is_alive)
        .ok_or_else(|| Error::NotUp(layout.name().to_owned()))?;
    let patience = std::time::Duration::from_mins(2);
    for daemon in &mut node.daemons {
        if daemon.name == "kube-apiserver" {
            *daemon = process::respawn(layout, daemon, patience)?;
        }
    }
    let text = serde_json::to_vec_pretty(&node).map_err(|error| Error::Api(error.to_string()))?;
    process::write_whole(&layout.record(), &text, 0o600)?;
    let api = api::ApiServer::new(&node.kubeconfig)?;
    let deadline = std::time::Instant::now() + patience;
    loop {
        match api.ready() {
            Ok(()) => return Ok(()),
            Err(error) if std::time::Instant::now() >= deadline => return Err(error),
            // It announces nothing.
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
        }
    }
}

/// Imports docker or OCI archives, so that pods can use their images.
pub fn load(layout: &Layout, archives: &[PathBuf], platform: Option<&str>) -> Result<String> {
    let running = status(layout).filter(Node::is_alive);
    running.ok_or_else(|| Error::NotUp(layout.name().to_owned()))?;
    let tools = Tools::locate();
    archives
        .iter()
        .map(|archive| boot::ctr_import(layout, &tools, archive, platform))
        .collect()
}

fn describe(layout: &Layout, tools: &Tools, booted: boot::Booted) -> Node {
    Node {
        name: layout.name().to_owned(),
        kubeconfig: layout.kubeconfig(),
        server: booted.server,
        node_name: layout.node_name(),
        node_ip: booted.node_ip,
        pod_range: booted.pods,
        state_dir: layout.state().to_owned(),
        log_dir: layout.logs(),
        audit_log: layout.audit_log(),
        containerd_socket: layout.containerd_socket(),
        containerd_namespace: "k8s.io".into(),
        cgroup: layout.cgroup(),
        fifo_dir: layout.dir("fifo"),
        ctr: tools.path("ctr"),
        kubectl: tools.path("kubectl"),
        buildx: tools.path("buildx"),
        buildx_config: layout.dir("buildx"),
        builder: layout.builder(),
        registry: booted.registry,
        tools: tools.digest(),
        daemons: booted.daemons,
    }
}
