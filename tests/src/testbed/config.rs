//! The daemons' configuration files. JSON wherever a daemon reads YAML, which
//! contains it: nothing has to be quoted by hand.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::error::Result;
use super::images::PAUSE;
use super::layout::Layout;
use super::pki::{Clients, Pair};
use super::process::write_whole;
use super::subnet::Subnet;
use super::tools::Tools;

/// Cluster IPs are never used: there is no kube-proxy, anchors are headless.
pub(super) const SERVICE_RANGE: &str = "10.230.0.0/16";
/// The API server gives itself the first address of the range.
pub(super) const SERVICE_IP: &str = "10.230.0.1";

/// The kernel settings the kubelet insists on, and the values it wants.
pub(super) const TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Ports on loopback, but for the kubelet's and the registry's (the node's address).
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub api: u16,
    pub etcd: u16,
    pub etcd_peer: u16,
    pub controller_manager: u16,
    pub scheduler: u16,
    pub kubelet: u16,
    pub kubelet_health: u16,
    pub registry: u16,
}

/// What the files are made of.
pub(super) struct Config<'a> {
    pub layout: &'a Layout,
    pub tools: &'a Tools,
    pub subnet: Subnet,
    pub ports: Ports,
    pub runc: PathBuf,
    pub snapshotter: &'static str,
}

impl Config<'_> {
    /// Writes every file.
    pub fn write(&self, clients: &Clients) -> Result<()> {
        let layout = self.layout;
        let save = |path: PathBuf, value: Value| {
            write_whole(&path, format!("{value:#}\n").as_bytes(), 0o600)
        };
        save(
            layout.kubeconfig(),
            self.kubeconfig(clients, "testbed-admin", &clients.admin),
        )?;
        for (name, pair) in [
            ("controller-manager", &clients.controller_manager),
            ("scheduler", &clients.scheduler),
            ("kubelet", &clients.kubelet),
        ] {
            let path = layout.conf(&format!("{name}.kubeconfig"));
            save(path, self.kubeconfig(clients, name, pair))?;
        }
        save(layout.conf("kubelet.json"), self.kubelet())?;
        save(layout.conf("audit-policy.json"), audit_policy())?;
        save(layout.conf("cni/10-testbed.conflist"), self.cni())?;
        let text = |path: PathBuf, text: String| write_whole(&path, text.as_bytes(), 0o600);
        text(layout.conf("containerd.toml"), self.containerd())?;
        text(layout.conf("buildkitd.toml"), self.buildkitd())?;
        text(
            layout.conf("resolv.conf"),
            "# No resolver: the test bed has no DNS.\n".into(),
        )?;
        for (tunable, value) in TUNABLES {
            text(
                layout.conf(&format!("tunables/{}", tunable.replace('/', "."))),
                format!("{value}\n"),
            )?;
        }
        let registry = self.registry();
        let hosts = format!(
            "server = \"http://{registry}\"\n\n[host.\"http://{registry}\"]\n  capabilities = [\"pull\", \"resolve\", \"push\"]\n"
        );
        text(
            layout.conf(&format!("registries/{registry}/hosts.toml")),
            hosts,
        )
    }

    /// Where the registry listens, as an image name starts.
    pub fn registry(&self) -> String {
        format!("{}:{}", self.subnet.node(), self.ports.registry)
    }

    /// Where the API server listens.
    pub fn server(&self) -> String {
        format!("https://{}:{}", Ipv4Addr::LOCALHOST, self.ports.api)
    }

    fn kubeconfig(&self, clients: &Clients, user: &str, pair: &Pair) -> Value {
        let data = |pem: &str| json!(ByteString(pem.as_bytes().to_vec()));
        let cluster = self.layout.node_name();
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": {
                "server": self.server(),
                "certificate-authority-data": data(&clients.authority),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": data(&pair.certificate),
                "client-key-data": data(&pair.key),
            }}],
            "contexts": [{"name": cluster, "context": {
                "cluster": cluster, "user": user, "namespace": "default",
            }}],
            "current-context": cluster,
        })
    }

    fn kubelet(&self) -> Value {
        let layout = self.layout;
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.subnet.node(),
            "port": self.ports.kubelet,
            "readOnlyPort": 0,
            "healthzBindAddress": Ipv4Addr::LOCALHOST,
            "healthzPort": self.ports.kubelet_health,
            "tlsCertFile": layout.pki("kubelet.crt"),
            "tlsPrivateKeyFile": layout.pki("kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": layout.pki("ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": format!("unix://{}", layout.containerd_socket().display()),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", layout.cgroup()),
            "enforceNodeAllocatable": ["pods"],
            // A developer's machine may still have cgroup v1, and has swap.
            "failCgroupV1": false,
            "failSwapOn": false,
            // The machine's firewall is not ours.
            "makeIPTablesUtilChains": false,
            // A full disk is no reason to evict a test's pods.
            "evictionHard": {
                "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                "imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%",
            },
            // No registry has our images, so none may be collected.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "maxPods": 500,
            "nodeStatusUpdateFrequency": "5s",
            // A volume over its limit is found in seconds: a test waits for it.
            "volumeStatsAggPeriod": "5s",
            "serializeImagePulls": false,
            "podLogsDir": layout.logs().join("pods"),
            "volumePluginDir": layout.dir("kubelet").join("volume-plugins"),
            "resolvConf": layout.conf("resolv.conf"),
            "clusterDomain": "cluster.local",
        })
    }

    fn cni(&self) -> Value {
        json!({
            "cniVersion": "1.0.0",
            "name": "testbed",
            "plugins": [{
                "type": "bridge",
                "bridge": self.layout.bridge(),
                // As a gateway the plug-in would switch the machine's IP
                // forwarding on; the bridge has its address from us.
                "isGateway": false,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": self.layout.dir("cni"),
                    "ranges": [[{
                        "subnet": self.subnet.to_string(),
                        "gateway": self.subnet.node(),
                        "rangeStart": self.subnet.first_pod(),
                    }]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        })
    }

    fn containerd(&self) -> String {
        let dir = |part: &str| toml(self.layout.dir("containerd").join(part));
        let socket = self.layout.containerd_socket();
        let bins = self
            .tools
            .dirs()
            .iter()
            .map(toml)
            .collect::<Vec<_>>()
            .join(", ");
        format!(
            r#"version = 3
root = {root}
state = {state}
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs"]

[grpc]
  address = {address}

[ttrpc]
  address = {ttrpc}

[plugins."io.containerd.internal.v1.opt"]
  path = {opt}

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {registries}
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"

# Neither AppArmor nor CAP_SYS_RESOURCE is to be had on every machine.
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{bins}]
    conf_dir = {cni}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = {runc}
        SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"#,
            root = dir("root"),
            state = dir("state"),
            opt = dir("opt"),
            address = toml(&socket),
            ttrpc = toml(socket.with_added_extension("ttrpc")),
            snapshotter = self.snapshotter,
            registries = toml(self.layout.conf("registries")),
            cni = toml(self.layout.conf("cni")),
            runc = toml(&self.runc),
        )
    }

    /// buildkitd works inside the same containerd, in the kubelet's namespace:
    /// what it builds the kubelet runs, without an export and an import.
    fn buildkitd(&self) -> String {
        format!(
            r#"root = {root}

[grpc]
  address = [{socket}]

[otel]
  socketPath = {otel}

[worker.oci]
  enabled = false

[worker.containerd]
  enabled = true
  address = {containerd}
  namespace = "k8s.io"
  networkMode = "host"
  snapshotter = "{snapshotter}"
  defaultCgroupParent = "/{cgroup}/buildkit"

[registry."{registry}"]
  http = true
"#,
            root = toml(self.layout.dir("buildkit")),
            socket = toml(format!(
                "unix://{}",
                self.layout.buildkit_socket().display()
            )),
            otel = toml(self.layout.dir("run").join("otel.sock")),
            containerd = toml(self.layout.containerd_socket()),
            snapshotter = self.snapshotter,
            cgroup = self.layout.cgroup(),
            registry = self.registry(),
        )
    }
}

/// A TOML basic string; its escapes are a superset of JSON's.
fn toml(text: impl AsRef<std::path::Path>) -> String {
    json!(text.as_ref().to_string_lossy()).to_string()
}

/// What benches and tests read: every request of a client by its stages, and
/// the body of status writes, which alone tell when the server knew of Running.
/// A Secret's body is never logged.
fn audit_policy() -> Value {
    let components = json!([
        "system:apiserver",
        "system:kube-scheduler",
        "system:kube-controller-manager"
    ]);
    let groups = json!(["system:nodes", "system:serviceaccounts:kube-system"]);
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [
            {"level": "RequestResponse", "omitStages": ["RequestReceived"],
             "verbs": ["patch", "update"], "resources": [{"group": "", "resources": ["pods/status"]}]},
            {"level": "None", "users": components, "verbs": ["get", "list", "watch"]},
            {"level": "None", "userGroups": groups, "verbs": ["get", "list", "watch"]},
            {"level": "None", "userGroups": ["system:nodes"],
             "resources": [{"group": "coordination.k8s.io"}, {"group": "", "resources": ["nodes/status"]}]},
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "Metadata"},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_logs_the_body_of_a_secret() {
        let policy = audit_policy();
        for rule in policy["rules"].as_array().unwrap() {
            let bodies = rule["level"].as_str().unwrap().starts_with("Request");
            assert!(
                !bodies
                    || rule["resources"] == json!([{"group": "", "resources": ["pods/status"]}])
            );
        }
    }

    #[test]
    fn a_path_with_a_quote_stays_one_toml_string() {
        assert_eq!(toml("/a\"b\\c"), r#""/a\"b\\c""#);
    }
}
