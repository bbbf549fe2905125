//! The cluster of the suite: the test bed, booted when it is not there yet, or
//! the one `PODCRADLE_KUBECONFIG` names; either with `deploy/` applied, as an
//! operator would. What needs the node itself says why it is absent elsewhere.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::{Arch, Error, NAMESPACE, Result, Trying, repository};
use crate::harness::{Stop, skip};
use crate::testbed::{self, Testbed};

/// A cluster that is ready for sandboxes.
pub struct Cluster {
    /// Its administrator.
    pub admin: Kubectl,
    /// The audit log, or why there is none to read.
    pub audit: Result<PathBuf, String>,
    /// A registry the kubelet pulls from, or why there is none.
    pub registry: Result<String, String>,
    /// The test bed's name, or why there is none to put images into.
    pub testbed: Result<String, String>,
    /// An address of this machine that pods reach.
    pub address: IpAddr,
    server: String,
    authority: String,
}

static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();

impl Cluster {
    /// The one cluster of this process.
    pub fn get() -> Result<&'static Self> {
        let made = CLUSTER.get_or_init(|| Cluster::make().map_err(|error| error.to_string()));
        made.as_ref().map_err(|text| Error::Missing(text.clone()))
    }

    /// The cluster, when somebody in this process has used it.
    pub fn used() -> Option<&'static Self> {
        CLUSTER.get()?.as_ref().ok()
    }

    fn make() -> Result<Self> {
        let bed = Testbed::up().map_err(|error| Error::Missing(testbed::chain(&error)))?;
        let admin = Kubectl::new(bed.kubectl(), bed.kubeconfig());
        admin.apply(&repository().join("deploy"))?;
        let view = admin.run(&[
            "config",
            "view",
            "--raw",
            "--minify",
            "--flatten",
            "-o=json",
        ])?;
        let view: Value = serde_json::from_str(&view).map_err(|source| Error::Json {
            what: "kubeconfig".to_owned(),
            source,
            text: String::new(),
        })?;
        let cluster = &view["clusters"][0]["cluster"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Cluster {
            address: address(&admin)?,
            audit: bed.audit_log().map(Path::to_owned).ok_or_else(|| {
                "the audit log of the cluster in PODCRADLE_KUBECONFIG cannot be read".to_owned()
            }),
            registry: bed.registry().map(str::to_owned).ok_or_else(|| {
                "the cluster in PODCRADLE_KUBECONFIG has no registry of ours to pull from"
                    .to_owned()
            }),
            testbed: bed.node().map(|node| node.name.clone()).ok_or_else(|| {
                "the cluster in PODCRADLE_KUBECONFIG is none to put images into".to_owned()
            }),
            server: text(&cluster["server"]),
            authority: text(&cluster["certificate-authority-data"]),
            admin,
        })
    }

    /// The sandbox image for this architecture.
    pub fn image(arch: Arch) -> String {
        Self::of_ours("sandbox", arch)
    }

    /// The image of podcradle-init alone for this architecture.
    pub fn supervisor(arch: Arch) -> String {
        Self::of_ours("supervisor", arch)
    }

    fn of_ours(image: &str, arch: Arch) -> String {
        let variable = format!("PODCRADLE_{image}_IMAGE_{}", arch.name()).to_uppercase();
        // An index alone would give the node's own architecture.
        let suffix = if arch == super::native() {
            String::new()
        } else {
            format!("-{}", arch.name())
        };
        std::env::var(variable)
            .unwrap_or_else(|_| format!("localhost/podcradle/{image}:dev{suffix}"))
    }

    /// An image that is not ours, for this architecture: busybox.
    ///
    /// # Errors
    /// A skip where it cannot be had: in a cluster that is not the test bed's,
    /// and where no Debian mirror has the other architecture's.
    pub fn busybox(&self, arch: Arch) -> std::result::Result<String, Stop> {
        let name = self.testbed.as_ref().map_err(skip)?;
        let (image, archive) = Self::busybox_archive(arch)?;
        if arch != super::native() {
            let layout = testbed::Layout::new(name)?;
            let platform = format!("linux/{}", arch.name());
            testbed::load(&layout, &[archive], Some(&platform))?;
        }
        Ok(image)
    }

    /// The same image as an archive.
    ///
    /// # Errors
    /// A skip where no Debian mirror has the other architecture's; this
    /// machine's own is made here, so that nothing excuses its absence.
    pub fn busybox_archive(arch: Arch) -> std::result::Result<(String, PathBuf), Stop> {
        match testbed::busybox(arch.name()) {
            Ok(made) => Ok(made),
            Err(error) if arch == super::native() => Err(Stop::from(testbed::chain(&error))),
            Err(error) => Err(skip(testbed::chain(&error))),
        }
    }

    /// The `podcradle` built for this architecture.
    pub fn launcher(arch: Arch) -> Result<PathBuf> {
        let variable = format!("PODCRADLE_{}", arch.name().to_uppercase());
        let target = format!("{}-unknown-linux-musl", arch.machine());
        let path = std::env::var_os(&variable).map_or_else(
            || target_dir().join(&target).join("release/podcradle"),
            PathBuf::from,
        );
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::Missing(format!(
            "{} is missing; build it with `cargo build --release -p podcradle-launcher --target {target}` or name it in {variable}",
            path.display()
        )))
    }

    /// Where the API server listens.
    pub fn api(&self) -> Result<SocketAddr> {
        let address = self.server.trim_start_matches("https://");
        address.parse().map_err(|_| {
            Error::Missing(format!(
                "API server {}: not https://ADDRESS:PORT",
                self.server
            ))
        })
    }

    /// The API server's URL, and its authority's certificate in base64.
    pub fn server(&self) -> (&str, &str) {
        (&self.server, &self.authority)
    }

    /// A kubeconfig with a bearer token, for an API server that may be reached
    /// at another address than its own (`at`).
    pub fn kubeconfig(&self, file: &Path, token: &str, at: Option<SocketAddr>) -> Result<()> {
        let server = at.map_or_else(|| self.server.clone(), |at| format!("https://{at}"));
        self.kubeconfig_for(file, &server, &self.authority, &json!({ "token": token }))
    }

    /// A kubeconfig of any kind: whom to reach, whom to trust (as base64 of
    /// PEM), and how to say who one is.
    pub fn kubeconfig_for(
        &self,
        file: &Path,
        server: &str,
        authority: &str,
        user: &Value,
    ) -> Result<()> {
        let cluster = json!({ "server": server, "certificate-authority-data": authority });
        let context = json!({ "cluster": "c", "user": "launcher", "namespace": NAMESPACE });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "launcher",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "launcher", "user": user }],
            "contexts": [{ "name": "launcher", "context": context }],
        });
        std::fs::write(file, config.to_string()).trying(format!("write {}", file.display()))
    }

    /// A token for the launcher's `ServiceAccount`, and the id the audit log
    /// knows it by.
    pub fn launcher_token(&self) -> Result<(String, String)> {
        let token = self.admin.run(&[
            "create",
            "token",
            "podcradle-launcher",
            "--namespace=podcradle-system",
            "--duration=1h",
        ])?;
        let token = token.trim().to_owned();
        let id = token_id(&token).ok_or_else(|| {
            Error::Missing("the token of the launcher's ServiceAccount has no id".to_owned())
        })?;
        Ok((token, id))
    }
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// `jti` of a JSON web token.
fn token_id(token: &str) -> Option<String> {
    use base64::Engine as _;
    let claims = token.split('.').nth(1)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(claims)
        .ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims["jti"].as_str().map(str::to_owned)
}

/// The node's own address when the node is this machine: pods reach it without
/// any service or DNS.
fn address(admin: &Kubectl) -> Result<IpAddr> {
    let nodes = admin.get(&["nodes"])?;
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    let addresses = nodes
        .iter()
        .filter_map(|node| node["status"]["addresses"].as_array())
        .flatten()
        .filter(|address| address["type"] == "InternalIP")
        .filter_map(|address| address["address"].as_str()?.parse::<IpAddr>().ok());
    let mine = |address: &IpAddr| TcpListener::bind((*address, 0)).is_ok();
    addresses.into_iter().find(mine).ok_or_else(|| {
        Error::Missing(
            "no node of the cluster is this machine, so pods would not reach the test's server"
                .to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_token_is_its_jti() {
        // {"jti":"id-1"}
        assert_eq!(token_id("x.eyJqdGkiOiJpZC0xIn0.y").as_deref(), Some("id-1"));
        for bad in ["", "x", "x.!.y", "x.e30.y"] {
            assert_eq!(token_id(bad), None, "{bad:?} has an id");
        }
    }
}
