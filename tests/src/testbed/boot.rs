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
use super::config::{Config, Ports, SERVICE_IP, TUNABLES};
use super::error::{At, Error, Result};
use super::layout::Layout;
use super::process::{Daemon, run, spawn};
use super::progress::Progress;
use super::tools::Tools;
use super::{flags, machine, network, pki, prereq};

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
        self.start("etcd", "etcd", &flags::etcd(self.config))?;
        self.start(
            "kube-apiserver",
            "kube-apiserver",
            &flags::apiserver(self.config),
        )?;
        self.start(
            "containerd",
            "containerd",
            &[
                "--config".into(),
                flags::file(self.config, "containerd.toml"),
            ],
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
            &[
                "--config".into(),
                flags::file(self.config, "buildkitd.toml"),
            ],
        )?;

        let api = ApiServer::new(&self.layout.kubeconfig())?;
        self.wait("for the API server", || api.ready().map_err(text))?;
        self.progress.done("API server is ready");
        self.start(
            "kube-controller-manager",
            "kube-controller-manager",
            &flags::controller_manager(self.config),
        )?;
        self.start(
            "kube-scheduler",
            "kube-scheduler",
            &flags::scheduler(self.config),
        )?;
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
        let args = flags::kubelet(self.config);
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
