//! The daemons' command lines: what their files cannot say, or not as simply.

use super::config::{Config, SERVICE_RANGE};

/// The path of a configuration file.
pub(super) fn file(config: &Config, file: &str) -> String {
    config.layout.conf(file).display().to_string()
}

fn pki(config: &Config, file: &str) -> String {
    config.layout.pki(file).display().to_string()
}

pub(super) fn etcd(config: &Config) -> Vec<String> {
    let url = |port| format!("http://127.0.0.1:{port}");
    let (client, peer) = (url(config.ports.etcd), url(config.ports.etcd_peer));
    let data = config.layout.dir("etcd");
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

pub(super) fn apiserver(config: &Config) -> Vec<String> {
    let flag = |name: &str, value: String| format!("--{name}={value}");
    let pki = |name: &str, file: &str| flag(name, pki(config, file));
    vec![
        flag("bind-address", "127.0.0.1".into()),
        flag("secure-port", config.ports.api.to_string()),
        flag("advertise-address", config.subnet.node().to_string()),
        flag(
            "etcd-servers",
            format!("http://127.0.0.1:{}", config.ports.etcd),
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
        flag("audit-policy-file", file(config, "audit-policy.json")),
        flag(
            "audit-log-path",
            config.layout.audit_log().display().to_string(),
        ),
        // Written when it happens, so that a reader never misses the last one.
        "--audit-log-mode=blocking".into(),
        "--profiling=false".into(),
        "-v=1".into(),
    ]
}

/// What controller manager and scheduler have in common.
fn controller(config: &Config, kubeconfig: &str, port: u16) -> Vec<String> {
    let kubeconfig = file(config, kubeconfig);
    vec![
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--tls-cert-file={}", pki(config, "local.crt")),
        format!("--tls-private-key-file={}", pki(config, "local.key")),
        "--leader-elect=false".into(),
        "--profiling=false".into(),
        "-v=1".into(),
    ]
}

pub(super) fn controller_manager(config: &Config) -> Vec<String> {
    let mut args = controller(
        config,
        "controller-manager.kubeconfig",
        config.ports.controller_manager,
    );
    args.extend([
        "--use-service-account-credentials=true".into(),
        format!(
            "--service-account-private-key-file={}",
            pki(config, "tokens.key")
        ),
        format!("--root-ca-file={}", pki(config, "ca.crt")),
        format!("--cluster-signing-cert-file={}", pki(config, "ca.crt")),
        format!("--cluster-signing-key-file={}", pki(config, "ca.key")),
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

pub(super) fn scheduler(config: &Config) -> Vec<String> {
    controller(config, "scheduler.kubeconfig", config.ports.scheduler)
}

pub(super) fn kubelet(config: &Config) -> Vec<String> {
    let root = config.layout.dir("kubelet");
    vec![
        format!("--config={}", file(config, "kubelet.json")),
        format!("--kubeconfig={}", file(config, "kubelet.kubeconfig")),
        format!("--root-dir={}", root.display()),
        format!("--cert-dir={}", root.join("pki").display()),
        format!("--hostname-override={}", config.layout.node_name()),
        format!("--node-ip={}", config.subnet.node()),
        "-v=2".into(),
    ]
}
