//! Which cluster, and as whom: an explicit `--kubeconfig`, `--context` or
//! KUBECONFIG first, then the Pod we run in, then the home kubeconfig.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};

/// Where the cluster is taken from. All empty: looked for.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `-n`; else the context's namespace, else `default`.
    pub namespace: Option<String>,
}

/// Why no cluster could be configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nothing names a cluster.
    #[error(
        "no cluster configured: KUBECONFIG is not set, {home} does not exist, and this is not a pod; give --kubeconfig FILE"
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
pub async fn load(source: &Source) -> Result<kube::Config, ConfigError> {
    let mut config = find(source).await?;
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

async fn find(source: &Source) -> Result<kube::Config, ConfigError> {
    let wrong = |path: String| {
        move |error: kube::config::KubeconfigError| ConfigError::Kubeconfig {
            path,
            message: one_line(&error),
        }
    };
    let options = KubeConfigOptions {
        context: source.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &source.kubeconfig {
        return from_file(path, &options).await;
    }
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty()) {
        let shown = value.to_string_lossy().into_owned();
        for path in std::env::split_paths(&value).filter(|p| !p.as_os_str().is_empty()) {
            if !path.exists() {
                let message = "does not exist".to_owned();
                return Err(ConfigError::Kubeconfig {
                    path: path.display().to_string(),
                    message,
                });
            }
        }
        if let Some(kubeconfig) = Kubeconfig::from_env().map_err(wrong(shown.clone()))? {
            return kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(wrong(shown));
        }
    }
    if source.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return kube::Config::incluster().map_err(|error| ConfigError::InCluster {
            message: one_line(&error),
        });
    }
    let home = std::env::home_dir()
        .unwrap_or_default()
        .join(".kube/config");
    if !home.exists() {
        return Err(ConfigError::Nothing {
            home: home.display().to_string(),
        });
    }
    from_file(&home, &options).await
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<kube::Config, ConfigError> {
    let wrong = |message: String| ConfigError::Kubeconfig {
        path: path.display().to_string(),
        message,
    };
    if !path.exists() {
        return Err(wrong("does not exist".to_owned()));
    }
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(one_line(&error)))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, options)
        .await
        .map_err(|error| wrong(one_line(&error)))
}

fn one_line(error: &dyn std::error::Error) -> String {
    error
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
