//! Which cluster, and as whom: an explicit `--kubeconfig`, `--context` or
//! KUBECONFIG first, then the Pod we run in, then the home kubeconfig;
//! `--in-cluster` decides where that would be wrong.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{Kubeconfig, KubeconfigError};

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
    /// What an exec plugin says on standard error goes to the log, line by line,
    /// and not to the terminal, where standard error is one.
    pub log_plugins: bool,
    /// Longest an exec plugin may take, where that is less than its own minute.
    pub plugin_time: Option<Duration>,
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
    /// An exec plugin did not end in its time.
    #[error("cluster {server}: {message}")]
    TimedOut {
        /// The API server's URL.
        server: String,
        /// Which plugin, and the time.
        message: String,
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

/// The configuration that `source` leads to, namespace included, and the name of
/// the context it is of, where it is of a kubeconfig.
///
/// # Errors
/// One line that says what was looked for and what to give.
pub fn load(source: &Source) -> Result<(kube::Config, Option<String>), ConfigError> {
    let (mut config, context) = find(source)?;
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
    config.connect_timeout = Some(super::REACH);
    Ok((config, context))
}

fn find(source: &Source) -> Result<(kube::Config, Option<String>), ConfigError> {
    let context = source.context.as_deref();
    if source.in_cluster == InCluster::Always {
        if let Some(path) = &source.kubeconfig {
            return Err(wrong(path, "is given beside --in-cluster=always; give one"));
        }
        return Ok((in_cluster()?, None));
    }
    let named = |(config, name)| (config, Some(name));
    if let Some(path) = &source.kubeconfig {
        return from_file(path, context).map(named);
    }
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty()) {
        return from_list(&value, context).map(named);
    }
    let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if context.is_none() && is_pod && source.in_cluster == InCluster::Auto {
        return Ok((in_cluster()?, None));
    }
    let home = std::env::home_dir()
        .unwrap_or_default()
        .join(".kube/config");
    if !home.exists() {
        return Err(ConfigError::Nothing {
            home: home.display().to_string(),
        });
    }
    from_file(&home, context).map(named)
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

/// The files of KUBECONFIG, merged; as for kubectl, one may be missing.
fn from_list(value: &OsStr, context: Option<&str>) -> Result<(kube::Config, String), ConfigError> {
    let all = Path::new(value);
    let mut merged: Option<Kubeconfig> = None;
    for path in std::env::split_paths(value).filter(|path| path.exists()) {
        let next = read(&path)?;
        merged = Some(match merged {
            Some(before) => before
                .merge(next)
                .map_err(|error| wrong(&path, &one_line(&error)))?,
            None => next,
        });
    }
    let merged = merged.ok_or_else(|| wrong(all, "does not exist"))?;
    kubeconfig::configuration(&merged, context).map_err(|problem| wrong(all, &problem))
}

fn from_file(path: &Path, context: Option<&str>) -> Result<(kube::Config, String), ConfigError> {
    if !path.exists() {
        return Err(wrong(path, "does not exist"));
    }
    kubeconfig::configuration(&read(path)?, context).map_err(|problem| wrong(path, &problem))
}

fn read(path: &Path) -> Result<Kubeconfig, ConfigError> {
    Kubeconfig::read_from(path).map_err(|error| {
        let problem = match &error {
            // Its own text quotes the lines around, tokens among them.
            KubeconfigError::Parse(error) => format!("is no kubeconfig: wrong{}", place(error)),
            other => one_line(other),
        };
        wrong(path, &problem)
    })
}

/// Where a text is wrong, without a word of it.
pub(super) fn place(error: &serde_saphyr::Error) -> String {
    error.location().map_or_else(String::new, |at| {
        format!(" at line {}, column {}", at.line(), at.column())
    })
}

fn one_line(error: &dyn std::error::Error) -> String {
    error
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: v1
kind: Config
current-context: a
clusters: [{name: one, cluster: {server: 'https://one:6443'}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: a, context: {cluster: one, user: me}}]
";

    fn problem<T>(loaded: Result<T, ConfigError>) -> String {
        match loaded {
            Ok(_) => panic!("no problem"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_file_of_the_list_may_be_missing_but_not_every_one() {
        let folder = tempfile::tempdir().unwrap();
        let (good, missing) = (folder.path().join("good"), folder.path().join("missing"));
        std::fs::write(&good, GOOD).unwrap();
        let of = |paths: &[&Path]| from_list(&std::env::join_paths(paths).unwrap(), None);
        let (found, context) = of(&[&missing, Path::new(""), &good]).unwrap();
        assert_eq!(context, "a");
        assert_eq!(found.cluster_url.to_string(), "https://one:6443/");
        let none = problem(of(&[&missing, &missing]));
        assert!(none.contains("missing") && none.contains("does not exist"));
    }

    #[test]
    fn no_line_of_a_kubeconfig_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad");
        for bad in [
            "users: [{name: me, user: {token: s3cret}}",
            "users:\n- name: me\n  user: {token: s3cret, exec: s3cret}\n",
            "users:\n- name: me\n  user:\n    token: s3cret\n   x: [\n",
            "users: s3cret",
        ] {
            std::fs::write(&path, bad).unwrap();
            for error in [from_file(&path, None), from_list(path.as_os_str(), None)] {
                let text = problem(error);
                assert!(text.contains("at line ") && text.contains("bad"), "{text}");
                assert!(!text.contains("s3cret"), "{text}");
            }
        }
    }
}
