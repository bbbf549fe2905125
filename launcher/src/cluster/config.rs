//! Which cluster, and as whom: an explicit `--kubeconfig`, `--context` or
//! KUBECONFIG first, then the Pod we run in, then the home kubeconfig;
//! `--in-cluster` decides where that would be wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::Kubeconfig;

use super::{kubeconfig, proxy};

/// Where the cluster is taken from. All empty: looked for.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `-n`; else the context's namespace, else `default`.
    pub namespace: Option<String>,
    /// `--in-cluster`.
    pub in_cluster: InCluster,
}

/// Whether the account of the Pod we run in counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InCluster {
    /// When no kubeconfig is named, and this is a Pod.
    #[default]
    Auto,
    /// In any case, KUBECONFIG or not.
    Always,
    /// Never, although this is a Pod.
    Never,
}

/// Why no cluster could be configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nothing names a cluster.
    #[error(
        "no cluster configured: KUBECONFIG is not set, {home} does not exist, and this is not a pod (or --in-cluster=never); give --kubeconfig FILE"
    )]
    Nothing {
        /// The home kubeconfig that was looked for.
        home: String,
    },
    /// A kubeconfig is missing or wrong.
    #[error("kubeconfig {path}: {message}")]
    Kubeconfig {
        /// The file, or KUBECONFIG's value.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// The Pod's own credentials are incomplete.
    #[error("in-cluster configuration: {message}")]
    InCluster {
        /// What is wrong.
        message: String,
    },
    /// The namespace's name cannot be one.
    #[error("namespace {value:?}: {rule}")]
    Namespace {
        /// What was given.
        value: String,
        /// What would be right.
        rule: String,
    },
    /// No client could be made from the configuration.
    #[error("cluster {server}: {message}")]
    Client {
        /// The API server's URL.
        server: String,
        /// What is wrong.
        message: String,
    },
}

/// The configuration that `source` leads to, namespace included.
///
/// # Errors
/// One line that says what was looked for and what to give.
pub fn load(source: &Source) -> Result<kube::Config, ConfigError> {
    let mut config = find(source)?;
    if let Some(namespace) = &source.namespace {
        config.default_namespace.clone_from(namespace);
    }
    if let Err(rule) = crate::name::check_rfc1123_label(&config.default_namespace, 63) {
        let value = config.default_namespace;
        return Err(ConfigError::Namespace {
            value,
            rule: rule.to_string(),
        });
    }
    // Retries are ours: the client's own would repeat a POST whose answer was
    // lost, and outlive our deadlines.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(10));
    Ok(config)
}

fn find(source: &Source) -> Result<kube::Config, ConfigError> {
    let context = source.context.as_deref();
    if source.in_cluster == InCluster::Always {
        if let Some(path) = &source.kubeconfig {
            return Err(wrong(path, "is given beside --in-cluster=always; give one"));
        }
        return in_cluster();
    }
    if let Some(path) = &source.kubeconfig {
        return from_file(path, context);
    }
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty()) {
        for path in std::env::split_paths(&value).filter(|p| !p.as_os_str().is_empty()) {
            if !path.exists() {
                return Err(wrong(&path, "does not exist"));
            }
        }
        let all = Path::new(&value);
        let merged = Kubeconfig::from_env().map_err(|error| wrong(all, &one_line(&error)))?;
        if let Some(merged) = merged {
            return kubeconfig::configuration(&merged, context)
                .map_err(|problem| wrong(all, &problem));
        }
    }
    let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if context.is_none() && is_pod && source.in_cluster == InCluster::Auto {
        return in_cluster();
    }
    let home = std::env::home_dir()
        .unwrap_or_default()
        .join(".kube/config");
    if !home.exists() {
        return Err(ConfigError::Nothing {
            home: home.display().to_string(),
        });
    }
    from_file(&home, context)
}

/// The account of the Pod we run in.
fn in_cluster() -> Result<kube::Config, ConfigError> {
    let failed = |message| ConfigError::InCluster { message };
    let mut config = kube::Config::incluster().map_err(|error| failed(one_line(&error)))?;
    config.proxy_url = proxy::decide(&config.cluster_url, None, |name| std::env::var(name).ok())
        .map_err(|error| failed(error.to_string()))?;
    Ok(config)
}

fn wrong(path: &Path, message: &str) -> ConfigError {
    ConfigError::Kubeconfig {
        path: path.display().to_string(),
        message: message.to_owned(),
    }
}

fn from_file(path: &Path, context: Option<&str>) -> Result<kube::Config, ConfigError> {
    if !path.exists() {
        return Err(wrong(path, "does not exist"));
    }
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(path, &one_line(&error)))?;
    kubeconfig::configuration(&kubeconfig, context).map_err(|problem| wrong(path, &problem))
}

fn one_line(error: &dyn std::error::Error) -> String {
    error
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
