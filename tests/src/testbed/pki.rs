//! The cluster's certificates: one authority for everything, one for the front
//! proxy, as Kubernetes wants them; P-256 keys, made anew for each instance.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use super::error::Result;
use super::layout::Layout;
use super::process::write_whole;
use super::subnet::Subnet;

/// A certificate authority.
struct Authority<'a> {
    pem: String,
    issuer: Issuer<'a, KeyPair>,
}

/// A key and its certificate, as PEM.
pub(super) struct Pair {
    pub certificate: String,
    pub key: String,
}

/// What a certificate is good for.
enum Use<'a> {
    Client {
        user: &'a str,
        group: Option<&'a str>,
    },
    Server {
        name: &'a str,
        hosts: Vec<String>,
    },
}

impl Authority<'_> {
    fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            pem,
            issuer: Issuer::new(params, key),
        })
    }

    fn issue(&self, purpose: Use) -> Result<Pair> {
        let (mut params, eku) = match purpose {
            Use::Client { user, group } => {
                let mut params = CertificateParams::default();
                params.distinguished_name = subject(user, group);
                (params, ExtendedKeyUsagePurpose::ClientAuth)
            }
            Use::Server { name, hosts } => {
                let mut params = CertificateParams::new(hosts)?;
                params.distinguished_name = subject(name, None);
                (params, ExtendedKeyUsagePurpose::ServerAuth)
            }
        };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![eku];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

/// Those whose credentials go into a kubeconfig.
pub(super) struct Clients {
    pub authority: String,
    pub admin: Pair,
    pub controller_manager: Pair,
    pub scheduler: Pair,
    pub kubelet: Pair,
}

/// Makes everything; what daemons read as files is written to `pki/`.
pub(super) fn make(layout: &Layout, subnet: Subnet, service_ip: &str) -> Result<Clients> {
    let authority = Authority::new("testbed-ca")?;
    let front = Authority::new("testbed-front-proxy-ca")?;
    let node = layout.node_name();
    let node_ip = subnet.node().to_string();
    let client = |user: &str, group| authority.issue(Use::Client { user, group });
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
    ];
    let mut hosts: Vec<String> = names.iter().map(ToString::to_string).collect();
    hosts.extend(
        [
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
            &node_ip,
            service_ip,
        ]
        .map(Into::into),
    );
    let local = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];

    let save = |name: &str, pair: &Pair| {
        write_whole(
            &file(layout, name, "crt"),
            pair.certificate.as_bytes(),
            0o600,
        )?;
        write_whole(&file(layout, name, "key"), pair.key.as_bytes(), 0o600)
    };
    write_whole(&file(layout, "ca", "crt"), authority.pem.as_bytes(), 0o600)?;
    write_whole(
        &file(layout, "ca", "key"),
        authority.issuer.key().serialize_pem().as_bytes(),
        0o600,
    )?;
    write_whole(
        &file(layout, "front-ca", "crt"),
        front.pem.as_bytes(),
        0o600,
    )?;
    save(
        "apiserver",
        &authority.issue(Use::Server {
            name: "kube-apiserver",
            hosts,
        })?,
    )?;
    save(
        "local",
        &authority.issue(Use::Server {
            name: "testbed",
            hosts: local,
        })?,
    )?;
    let hosts = vec![node.clone(), node_ip];
    save(
        "kubelet",
        &authority.issue(Use::Server { name: &node, hosts })?,
    )?;
    save(
        "apiserver-kubelet",
        &client("kube-apiserver-kubelet-client", Some("system:masters"))?,
    )?;
    save(
        "front",
        &front.issue(Use::Client {
            user: "front-proxy-client",
            group: None,
        })?,
    )?;
    let tokens = KeyPair::generate()?;
    write_whole(
        &file(layout, "tokens", "key"),
        tokens.serialize_pem().as_bytes(),
        0o600,
    )?;
    write_whole(
        &file(layout, "tokens", "pub"),
        tokens.public_key_pem().as_bytes(),
        0o600,
    )?;

    Ok(Clients {
        admin: client("testbed-admin", Some("system:masters"))?,
        controller_manager: client("system:kube-controller-manager", None)?,
        scheduler: client("system:kube-scheduler", None)?,
        kubelet: client(&format!("system:node:{node}"), Some("system:nodes"))?,
        authority: authority.pem,
    })
}

fn file(layout: &Layout, name: &str, kind: &str) -> PathBuf {
    layout.pki(&format!("{name}.{kind}"))
}
