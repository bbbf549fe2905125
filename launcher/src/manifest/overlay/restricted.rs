//! Pod Security `restricted`, as far as an overlay could leave it.
//!
//! *Source*: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

use serde_json::Value;

/// Volumes that show nothing of the node.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const SELINUX: [&str; 5] = [
    "",
    "container_engine_t",
    "container_init_t",
    "container_kvm_t",
    "container_t",
];
pub(super) const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// What of a Pod is outside of `restricted`.
#[derive(Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

/// One thing that `restricted` does not allow.
pub(super) struct Violation {
    pub(super) field: String,
    pub(super) value: Value,
    pub(super) rule: &'static str,
}

/// Looks a Pod over.
pub(super) fn violations(pod: &Value) -> Violations {
    let mut found = Violations::default();
    let spec = &pod["spec"];
    for field in ["hostPID", "hostIPC", "hostNetwork"] {
        let value = &spec[field];
        found.require(
            value != true,
            &format!("spec.{field}"),
            value,
            "must not be true",
        );
    }
    for (key, value) in pod["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let profile = value.as_str().unwrap_or_default();
        found.require(
            !key.starts_with(APPARMOR)
                || profile == "runtime/default"
                || profile.starts_with("localhost/"),
            &format!("metadata.annotations.{key}"),
            value,
            "must be runtime/default or localhost/…",
        );
    }
    found.volumes(spec);
    found.pod_context(&spec["securityContext"]);
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            found.container(&format!("spec.{list}[{name}]"), container);
        }
    }
    found
}

impl Violations {
    fn require(&mut self, right: bool, field: &str, value: &Value, rule: &'static str) {
        if !right {
            self.0.push(Violation {
                field: field.to_owned(),
                value: value.clone(),
                rule,
            });
        }
    }

    fn volumes(&mut self, spec: &Value) {
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            let name = volume["name"].as_str().unwrap_or_default();
            for (kind, value) in volume.as_object().into_iter().flatten() {
                self.require(
                    kind == "name" || VOLUMES.contains(&kind.as_str()),
                    &format!("spec.volumes[{name}].{kind}"),
                    value,
                    "must be one of the kinds that show nothing of the node",
                );
            }
        }
    }

    fn pod_context(&mut self, context: &Value) {
        let at = "spec.securityContext";
        self.require(
            context["runAsNonRoot"] == true,
            &format!("{at}.runAsNonRoot"),
            &context["runAsNonRoot"],
            "must be true",
        );
        let seccomp = &context["seccompProfile"]["type"];
        self.require(
            confined(seccomp),
            &format!("{at}.seccompProfile"),
            &context["seccompProfile"],
            "must be RuntimeDefault or Localhost",
        );
        for sysctl in context["sysctls"].as_array().into_iter().flatten() {
            let name = sysctl["name"].as_str().unwrap_or_default();
            self.require(
                SYSCTLS.contains(&name),
                &format!("{at}.sysctls"),
                sysctl,
                "must be one of the safe ones",
            );
        }
        self.common(at, context);
    }

    /// What Pods and containers say with the same words.
    fn common(&mut self, at: &str, context: &Value) {
        self.require(
            context["runAsUser"] != 0,
            &format!("{at}.runAsUser"),
            &context["runAsUser"],
            "must not be root",
        );
        self.require(
            context["appArmorProfile"]["type"] != "Unconfined",
            &format!("{at}.appArmorProfile"),
            &context["appArmorProfile"],
            "must be RuntimeDefault or Localhost",
        );
        let selinux = &context["seLinuxOptions"];
        let text = |field: &str| selinux[field].as_str().unwrap_or_default();
        self.require(
            SELINUX.contains(&text("type")) && text("user").is_empty() && text("role").is_empty(),
            &format!("{at}.seLinuxOptions"),
            selinux,
            "must have neither user nor role, and the type of a container",
        );
        self.require(
            context["windowsOptions"]["hostProcess"] != true,
            &format!("{at}.windowsOptions.hostProcess"),
            &context["windowsOptions"]["hostProcess"],
            "must not be true",
        );
    }

    fn container(&mut self, at: &str, container: &Value) {
        let context = &container["securityContext"];
        let here = format!("{at}.securityContext");
        self.require(
            context["allowPrivilegeEscalation"] == false,
            &format!("{here}.allowPrivilegeEscalation"),
            &context["allowPrivilegeEscalation"],
            "must be false",
        );
        self.require(
            context["privileged"] != true,
            &format!("{here}.privileged"),
            &context["privileged"],
            "must not be true",
        );
        let names = |list: &str| -> Vec<&str> {
            let list = context["capabilities"][list].as_array();
            list.into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect()
        };
        self.require(
            names("drop").contains(&"ALL"),
            &format!("{here}.capabilities.drop"),
            &context["capabilities"]["drop"],
            "must have ALL",
        );
        self.require(
            names("add").iter().all(|name| *name == "NET_BIND_SERVICE"),
            &format!("{here}.capabilities.add"),
            &context["capabilities"]["add"],
            "may have NET_BIND_SERVICE alone",
        );
        self.require(
            context["runAsNonRoot"] != false,
            &format!("{here}.runAsNonRoot"),
            &context["runAsNonRoot"],
            "must be true, or absent",
        );
        let seccomp = &context["seccompProfile"]["type"];
        self.require(
            seccomp.is_null() || confined(seccomp),
            &format!("{here}.seccompProfile"),
            &context["seccompProfile"],
            "must be RuntimeDefault or Localhost, or absent",
        );
        let mount = &context["procMount"];
        self.require(
            mount.is_null() || mount == "Default",
            &format!("{here}.procMount"),
            mount,
            "must be Default, or absent",
        );
        self.common(&here, context);
        self.reach(at, container);
    }

    /// Ports of the node, and other machines that the kubelet would talk to.
    fn reach(&mut self, at: &str, container: &Value) {
        for port in container["ports"].as_array().into_iter().flatten() {
            let host = &port["hostPort"];
            self.require(
                host.is_null() || host == 0,
                &format!("{at}.ports[{}].hostPort", port["containerPort"]),
                host,
                "must be absent",
            );
        }
        for handler in [
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle/postStart",
            "lifecycle/preStop",
        ] {
            for kind in ["httpGet", "tcpSocket"] {
                let path = format!("/{handler}/{kind}/host");
                let host = container.pointer(&path).unwrap_or(&Value::Null);
                self.require(
                    host.as_str().is_none_or(str::is_empty),
                    &format!("{at}{}", path.replace('/', ".")),
                    host,
                    "must be absent",
                );
            }
        }
    }
}

fn confined(profile: &Value) -> bool {
    profile == "RuntimeDefault" || profile == "Localhost"
}
