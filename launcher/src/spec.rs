//! What is wanted: a [`SandboxSpec`], and its validation. Everything is
//! checked here, before the first call; all problems are reported at once.
//! Serialized (for the anchor's record) it holds names of environment
//! variables, never their values.

mod check;
mod defaults;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use check::{Problem, Problems, passthrough};
pub use defaults::{DEFAULT_HOME, DEFAULT_ID, TOKEN_FILE, TOKEN_KEY, TOKEN_MOUNT};

/// One sandbox, as its caller wants it. Make one with [`SandboxSpec::new`] and
/// change what differs from the defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Name of the session, its anchor and its Pod.
    pub sandbox: String,
    /// The caller's idempotency key.
    pub launch_id: String,
    /// Image reference of host and (unless `prep_image`) workspace-prep.
    pub image: String,
    /// Another image for workspace-prep, when the host's has no git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prep_image: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`; the cluster's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Directory of `podcradle-init` in the image.
    pub init_dir: String,
    /// The host's command line; empty: `host`, with `--server URL` when set.
    pub host: Vec<String>,
    /// URL the host dials back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Identity the host reports; the sandbox's name by default.
    pub host_id: String,
    /// Name the host reports; the sandbox's name by default.
    pub host_name: String,
    /// Prefix of the host's variables (`<PREFIX>_HOST_TOKEN`, …).
    pub env_prefix: String,
    /// Repository that workspace-prep clones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<Repo>,
    /// Variables passed through to the host. Values are not serialized.
    #[serde(serialize_with = "names_only", deserialize_with = "names_back")]
    pub env: BTreeMap<String, String>,
    /// An operator's Secret, taken into the environment of both containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<String>,
    /// ServiceAccount of the Pod; it needs no rights.
    pub service_account: String,
    /// Node labels the Pod asks for.
    pub node_selector: BTreeMap<String, String>,
    /// HOME of both containers, an emptyDir.
    pub home: String,
    /// User, group and fsGroup.
    pub run_as: i64,
    /// Requests and limits.
    pub resources: Resources,
    /// Seconds the kubelet waits between SIGTERM and SIGKILL.
    pub termination_grace_period: u32,
    /// Seconds the supervisor gives the host.
    pub grace: u32,
    /// Seconds the supervisor gives what the host left behind.
    pub drain: u32,
    /// When the session expires, from its creation; `None` is never.
    pub ttl: Option<Duration>,
    /// End of the compute in any case (`activeDeadlineSeconds`).
    pub max_lifetime: Duration,
    /// How long each part of the launch may take.
    pub budgets: Budgets,
    /// Keep the Pod of a failed launch for an hour (never its token).
    pub keep_on_failure: bool,
}

/// A repository for the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repo {
    /// Where to clone from; no credentials in it.
    pub url: String,
    /// Branch or tag; the remote's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Directory below the workspace, one path component.
    pub dir: String,
}

/// Requests and limits of host and workspace-prep, as Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// CPU request.
    pub cpu_request: String,
    /// Memory request.
    pub memory_request: String,
    /// CPU limit.
    pub cpu_limit: String,
    /// Memory limit.
    pub memory_limit: String,
}

/// How long each part of a launch may take; each has its own message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budgets {
    /// Until a node is found.
    pub schedule: Duration,
    /// While an image is pulled.
    pub pull: Duration,
    /// While workspace-prep runs.
    pub init: Duration,
    /// Until the host is started (and ready, when it has a probe).
    pub start: Duration,
    /// All of it together, calls included.
    pub total: Duration,
}

impl SandboxSpec {
    /// A spec with every default of the README's table.
    pub fn new(sandbox: impl Into<String>, image: impl Into<String>) -> Self {
        defaults::spec(sandbox.into(), image.into())
    }

    /// The host's command line, the default one spelled out.
    pub fn host_command(&self) -> Vec<String> {
        if !self.host.is_empty() {
            return self.host.clone();
        }
        let mut command = vec!["host".to_owned()];
        if let Some(server) = &self.server {
            command.extend(["--server".to_owned(), server.clone()]);
        }
        command
    }

    /// Absolute path of the workspace in both containers.
    pub fn workspace(&self) -> String {
        let base = format!("{}/workspace", self.home.trim_end_matches('/'));
        self.repo
            .as_ref()
            .map_or_else(|| base.clone(), |repo| format!("{base}/{}", repo.dir))
    }

    /// Name of an environment variable of ours: `<PREFIX>_<SUFFIX>`.
    pub fn env_name(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.env_prefix)
    }

    /// Checks the whole spec.
    ///
    /// # Errors
    /// Every problem there is, each with its path.
    pub fn validate(&self) -> Result<(), Problems> {
        check::all(self)
    }
}

fn names_only<S: serde::Serializer>(
    env: &BTreeMap<String, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(env.keys())
}

fn names_back<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names
        .into_iter()
        .map(|name| (name, String::new()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serialized_spec_has_no_value_of_an_environment_variable() {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "image:1");
        spec.env.insert("COLOUR".into(), "ultramarine".into());
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains("COLOUR") && !text.contains("ultramarine"));
        let back: SandboxSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(back.env.get("COLOUR").map(String::as_str), Some(""));
    }

    #[test]
    fn the_default_host_is_told_its_server() {
        let mut spec = SandboxSpec::new("a", "i");
        assert_eq!(spec.host_command(), ["host"]);
        spec.server = Some("http://server:1".into());
        assert_eq!(spec.host_command(), ["host", "--server", "http://server:1"]);
        spec.host = vec!["other".into()];
        assert_eq!(spec.host_command(), ["other"]);
    }

    #[test]
    fn the_workspace_is_absolute() {
        let mut spec = SandboxSpec::new("a", "i");
        assert_eq!(spec.workspace(), "/home/sandbox/workspace");
        spec.repo = Some(Repo {
            url: "u".into(),
            branch: None,
            dir: "r".into(),
        });
        assert_eq!(spec.workspace(), "/home/sandbox/workspace/r");
    }
}
