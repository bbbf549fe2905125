//! The boot, in order of execution: addresses, certificates, files, bridge;
//! then, in a mount namespace of their own, the daemons. Each starts as soon as
//! what it cannot do without answers, and the boot fails at once when one ends.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::statfs;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

use super::api::ApiServer;
use super::cgroup::Hierarchies;
use super::config::{Config, Ports, SERVICE_IP, SERVICE_RANGE, TUNABLES};
use super::error::{At, Error, Result};
use super::layout::Layout;
use super::process::{Daemon, run, spawn};
use super::progress::Progress;
use super::tools::Tools;
use super::{machine, network, pki, prereq};

/// A watchdog for each step, twenty times what it takes on two cores.
const PATIENCE: Duration = Duration::from_mins(2);
/// overlayfs cannot lie on overlayfs, which a container's root often is.
const OVERLAYFS_MAGIC: i64 = 0x794c_7630;

/// What came of it.
pub(super) struct Booted {
    pub daemons: Vec<Daemon>,
    pub server: String,
    pub registry: String,
    pub node_ip: Ipv4Addr,
    pub pods: String,
}

/// Boots an instance of which nothing is left.
pub(super) fn boot(
    layout: &Layout,
    tools: &Tools,
    archive: &Path,
    progress: &Progress,
) -> Result<Booted> {
    let cgroups = Hierarchies::here()?;
    let subnet = machine::enter(layout, &cgroups)?;
    for dir in [
        "run",
        "pki",
        "conf",
        "conf/cni",
        "conf/tunables",
        "kubelet",
        "log/pods",
        "buildx",
    ] {
        make_dir(&layout.dir(dir))?;
    }
    let ports = free_ports()?;
    let config = Config {
        layout,
        tools,
        subnet,
        ports,
        runc: prereq::find("runc").unwrap_or_else(|| "runc".into()),
        snapshotter: snapshotter(layout)?,
    };
    make_dir(&layout.conf(&format!("registries/{}", config.registry())))?;
    config.write(&pki::make(layout, subnet, SERVICE_IP)?)?;
    network::up(layout, subnet)?;
    let mut boot = Boot {
        layout,
        tools,
        config: &config,
        progress,
        daemons: Vec::new(),
    };
    // A thread has its own mount namespace if it wants one, and what it starts
    // inherits it.
    thread::scope(|scope| scope.spawn(|| boot.run(archive)).join())
        .map_err(|_| Error::Api("the boot's thread panicked".into()))??;
    Ok(Booted {
        daemons: boot.daemons,
        server: config.server(),
        registry: config.registry(),
        node_ip: subnet.node(),
        pods: subnet.to_string(),
    })
}

struct Boot<'a> {
    layout: &'a Layout,
    tools: &'a Tools,
    config: &'a Config<'a>,
    progress: &'a Progress,
    daemons: Vec<Daemon>,
}

impl Boot<'_> {
    fn run(&mut self, archive: &Path) -> Result<()> {
        own_mounts(self.layout)?;
        self.start("etcd", "etcd", &self.etcd())?;
        self.start("kube-apiserver", "kube-apiserver", &self.apiserver())?;
        self.start(
            "containerd",
            "containerd",
            &["--config".into(), self.conf("containerd.toml")],
        )?;
        let registry = self.config.registry();
        self.start(
            "registry",
            "crane",
            &[
                "registry".into(),
                "serve".into(),
                format!("--address={registry}"),
            ],
        )?;

        let socket = self.layout.containerd_socket();
        self.wait("for containerd", || {
            UnixStream::connect(&socket).map(drop).map_err(text)
        })?;
        ctr_import(self.layout, self.tools, archive, None)?;
        self.progress.done("containerd is up, with its base images");
        self.start(
            "buildkitd",
            "buildkitd",
            &["--config".into(), self.conf("buildkitd.toml")],
        )?;

        let api = ApiServer::new(&self.layout.kubeconfig())?;
        self.wait("for the API server", || api.ready().map_err(text))?;
        self.progress.done("API server is ready");
        self.start(
            "kube-controller-manager",
            "kube-controller-manager",
            &self.controller_manager(),
        )?;
        self.start("kube-scheduler", "kube-scheduler", &self.scheduler())?;
        self.start_kubelet()?;

        let node = self.layout.node_name();
        let moment = Duration::from_secs(1);
        self.wait("for the node", || arrived(api.node_ready(&node, moment)))?;
        self.wait("for the default service account", || {
            arrived(api.service_account(moment))
        })?;
        self.progress.done(&format!("node {node} is ready"));
        let socket = self.layout.buildkit_socket();
        self.wait("for buildkitd", || {
            UnixStream::connect(&socket).map(drop).map_err(text)
        })?;
        self.create_builder()
    }

    fn start(&mut self, name: &str, program: &str, args: &[String]) -> Result<()> {
        let program = self.tools.path(program);
        let daemon = spawn(
            self.layout,
            name,
            &program,
            args,
            &environment(self.tools, &self.config.registry()),
        )?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// The kubelet sets kernel parameters of the whole machine. It gets a view
    /// of /proc in which they already are what it wants; that view is its own,
    /// its other mounts stay shared with containerd.
    fn start_kubelet(&mut self) -> Result<()> {
        let conf = self.layout.conf("tunables");
        let args = self.kubelet();
        thread::scope(|scope| {
            let kubelet = || {
                unshare(CloneFlags::CLONE_NEWNS).at("unshare mounts for", "kubelet")?;
                mount_change("/proc", MountPropagationFlags::PRIVATE)
                    .at("make private", "/proc")?;
                for (tunable, _) in TUNABLES {
                    let path = Path::new("/proc/sys").join(tunable);
                    mount_bind(conf.join(tunable.replace('/', ".")), &path).at("cover", path)?;
                }
                self.start("kubelet", "kubelet", &args)
            };
            scope.spawn(kubelet).join()
        })
        .map_err(|_| Error::Api("the kubelet's thread panicked".into()))?
    }

    /// Asks again and again, since these daemons announce nothing.
    fn wait(&self, what: &str, mut check: impl FnMut() -> Result<(), String>) -> Result<()> {
        let what = format!("waiting {what}");
        self.progress.live(&what);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Err(detail) = check() else { return Ok(()) };
            for daemon in &self.daemons {
                daemon.check(&what)?;
            }
            if Instant::now() > deadline {
                let logs = self.layout.logs();
                return Err(Error::Timeout {
                    what,
                    seconds: PATIENCE.as_secs(),
                    detail,
                    logs,
                });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn create_builder(&self) -> Result<()> {
        let endpoint = format!("unix://{}", self.layout.buildkit_socket().display());
        let mut buildx = Command::new(self.tools.path("buildx"));
        buildx
            .args([
                "create",
                "--use",
                "--name",
                &self.layout.builder(),
                "--driver",
                "remote",
            ])
            .arg(endpoint)
            .env("BUILDX_CONFIG", self.layout.dir("buildx"));
        run(&mut buildx)?;
        self.progress.done("buildkitd is up");
        Ok(())
    }

    fn conf(&self, file: &str) -> String {
        self.layout.conf(file).display().to_string()
    }

    fn pki(&self, file: &str) -> String {
        self.layout.pki(file).display().to_string()
    }

    fn etcd(&self) -> Vec<String> {
        let url = |port| format!("http://127.0.0.1:{port}");
        let (client, peer) = (
            url(self.config.ports.etcd),
            url(self.config.ports.etcd_peer),
        );
        let data = self.layout.dir("etcd");
        [
            "--name=testbed".to_owned(),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=testbed={peer}"),
            // Nothing here has to outlive the machine.
            "--unsafe-no-fsync".to_owned(),
        ]
        .into()
    }

    fn apiserver(&self) -> Vec<String> {
        let flag = |name: &str, value: String| format!("--{name}={value}");
        let pki = |name: &str, file: &str| flag(name, self.pki(file));
        vec![
            flag("bind-address", "127.0.0.1".into()),
            flag("secure-port", self.config.ports.api.to_string()),
            flag("advertise-address", self.config.subnet.node().to_string()),
            flag(
                "etcd-servers",
                format!("http://127.0.0.1:{}", self.config.ports.etcd),
            ),
            flag("service-cluster-ip-range", SERVICE_RANGE.into()),
            "--anonymous-auth=false".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            pki("client-ca-file", "ca.crt"),
            pki("tls-cert-file", "apiserver.crt"),
            pki("tls-private-key-file", "apiserver.key"),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            pki("service-account-key-file", "tokens.pub"),
            pki("service-account-signing-key-file", "tokens.key"),
            pki("kubelet-certificate-authority", "ca.crt"),
            pki("kubelet-client-certificate", "apiserver-kubelet.crt"),
            pki("kubelet-client-key", "apiserver-kubelet.key"),
            "--kubelet-preferred-address-types=InternalIP".into(),
            pki("requestheader-client-ca-file", "front-ca.crt"),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            pki("proxy-client-cert-file", "front.crt"),
            pki("proxy-client-key-file", "front.key"),
            flag("audit-policy-file", self.conf("audit-policy.json")),
            flag(
                "audit-log-path",
                self.layout.audit_log().display().to_string(),
            ),
            // Written when it happens, so that a reader never misses the last one.
            "--audit-log-mode=blocking".into(),
            "--profiling=false".into(),
            "-v=1".into(),
        ]
    }

    /// What controller manager and scheduler have in common.
    fn controller(&self, kubeconfig: &str, port: u16) -> Vec<String> {
        let kubeconfig = self.conf(kubeconfig);
        vec![
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--tls-cert-file={}", self.pki("local.crt")),
            format!("--tls-private-key-file={}", self.pki("local.key")),
            "--leader-elect=false".into(),
            "--profiling=false".into(),
            "-v=1".into(),
        ]
    }

    fn controller_manager(&self) -> Vec<String> {
        let mut args = self.controller(
            "controller-manager.kubeconfig",
            self.config.ports.controller_manager,
        );
        args.extend([
            "--use-service-account-credentials=true".into(),
            format!(
                "--service-account-private-key-file={}",
                self.pki("tokens.key")
            ),
            format!("--root-ca-file={}", self.pki("ca.crt")),
            format!("--cluster-signing-cert-file={}", self.pki("ca.crt")),
            format!("--cluster-signing-key-file={}", self.pki("ca.key")),
            "--allocate-node-cidrs=false".into(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            // Tests wait for the collector all the time.
            "--concurrent-gc-syncs=20".into(),
            "--concurrent-namespace-syncs=20".into(),
            "--kube-api-qps=300".into(),
            "--kube-api-burst=600".into(),
            "--node-monitor-period=1s".into(),
        ]);
        args
    }

    fn scheduler(&self) -> Vec<String> {
        self.controller("scheduler.kubeconfig", self.config.ports.scheduler)
    }

    fn kubelet(&self) -> Vec<String> {
        let root = self.layout.dir("kubelet");
        vec![
            format!("--config={}", self.conf("kubelet.json")),
            format!("--kubeconfig={}", self.conf("kubelet.kubeconfig")),
            format!("--root-dir={}", root.display()),
            format!("--cert-dir={}", root.join("pki").display()),
            format!("--hostname-override={}", self.layout.node_name()),
            format!("--node-ip={}", self.config.subnet.node()),
            "-v=2".into(),
        ]
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn arrived(watched: Result<bool>) -> Result<(), String> {
    match watched {
        Ok(true) => Ok(()),
        Ok(false) => Err("not seen yet".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn make_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(path)
        .at("make", path)
}

/// Gives this thread, and what it starts, mounts that nobody else sees. The
/// machine's own mounts still arrive; ours never leave.
fn own_mounts(layout: &Layout) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).at("unshare mounts for", layout.state())?;
    let all =
        |flags| mount_change("/", flags | MountPropagationFlags::REC).at("set propagation of", "/");
    all(MountPropagationFlags::DOWNSTREAM)?;
    // Shared below that: a pod may ask for its mounts to reach the node.
    all(MountPropagationFlags::SHARED)?;
    for point in machine::MOUNT_POINTS {
        let own = layout
            .dir("mounts")
            .join(point.trim_start_matches('/').replace('/', "."));
        make_dir(&own)?;
        mount_bind(&own, point).at("mount over", point)?;
    }
    Ok(())
}

/// Held all at once, so that they differ; given up just before the daemons start.
fn free_ports() -> Result<Ports> {
    let mut held = Vec::new();
    let mut port = || -> std::io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        Ok(port)
    };
    let mut ports = || {
        Ok::<_, std::io::Error>(Ports {
            api: port()?,
            etcd: port()?,
            etcd_peer: port()?,
            controller_manager: port()?,
            scheduler: port()?,
            kubelet: port()?,
            kubelet_health: port()?,
            registry: port()?,
        })
    };
    ports().at("find a free port on", "this machine")
}

fn snapshotter(layout: &Layout) -> Result<&'static str> {
    let state = layout.state();
    let kind = statfs(state)
        .at("look at the file system of", state)?
        .f_type;
    Ok(if kind == OVERLAYFS_MAGIC {
        "native"
    } else {
        "overlayfs"
    })
}

/// A daemon's whole environment: the machine's proxies and authorities count,
/// nothing else of whoever happens to start the test bed.
fn environment(tools: &Tools, registry: &str) -> Vec<(OsString, OsString)> {
    let mut dirs: Vec<PathBuf> = tools.dirs().to_vec();
    dirs.extend(
        [
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ]
        .map(PathBuf::from),
    );
    let path = std::env::join_paths(dirs).unwrap_or_default();
    let mut env = vec![("PATH".into(), path), ("HOME".into(), "/root".into())];
    let kept = [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "http_proxy",
        "https_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ];
    env.extend(
        kept.iter()
            .filter_map(|name| Some((name.into(), std::env::var_os(name)?))),
    );
    let mut direct = std::env::var_os("NO_PROXY")
        .or_else(|| std::env::var_os("no_proxy"))
        .unwrap_or_default();
    let host = registry.split(':').next().unwrap_or_default();
    direct.push(format!(",127.0.0.1,localhost,{host}"));
    env.push(("NO_PROXY".into(), direct.clone()));
    env.push(("no_proxy".into(), direct));
    env
}

/// Imports an image archive for the kubelet.
pub(super) fn ctr_import(
    layout: &Layout,
    tools: &Tools,
    archive: &Path,
    platform: Option<&str>,
) -> Result<String> {
    let mut ctr = Command::new(tools.path("ctr"));
    ctr.arg("--address").arg(layout.containerd_socket());
    ctr.args(["--namespace", "k8s.io", "images", "import", "--local"]);
    // An import leaves the labels of a name that is there already, the one by
    // which containerd's kubelet side knows that it has seen the image
    // included. It would then miss the new content, and an image volume of it
    // would not be found. Labels of our own take that one away.
    ctr.args(["--label", "podcradle.dev/testbed=imported"]);
    if let Some(platform) = platform {
        ctr.args(["--platform", platform]);
    }
    run(ctr.arg(archive))
}
