//! The parts of a spec.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity_text::{self, QuantityText};
use super::{defaults, time};

/// How `podcradle-init` gets into the host's container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Inject {
    /// `baked` for the baked image, and where no supervisor image is known;
    /// else `copy`.
    #[default]
    Auto,
    /// The image holds it, in `initDir`.
    Baked,
    /// An init container copies it from the supervisor image.
    Copy,
    /// The supervisor image is mounted as a volume.
    ImageVolume,
}

/// How the token reaches the host's environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenDelivery {
    /// Mounted, and put into the host's environment alone by the supervisor.
    #[default]
    File,
    /// By the kubelet, for hosts that must run without the supervisor's help:
    /// every process of the container, `kubectl exec` too, sees it.
    SecretKeyRef,
}

/// What a launch waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Nothing: done once the gate is off.
    None,
    /// The host's container runs.
    Started,
    /// It runs, and is Ready when it has a readiness or startup probe.
    #[default]
    Ready,
}

/// Restarts of a failed host inside its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Restart {
    /// At most so many; without a limit when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<u32>,
}

/// Something mounted into the host's container: exactly one of `claim` and
/// `secret`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Mount {
    /// Absolute path in the container.
    pub path: String,
    /// A `PersistentVolumeClaim`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub claim: Option<String>,
    /// A Secret.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<String>,
    /// Whether the host may write; only to a claim.
    #[serde(default)]
    pub writable: bool,
}

/// A NetworkPolicy: nothing comes in, and only this goes out. It works where
/// the network plug-in enforces policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// Address ranges the sandbox may reach, besides DNS and a server that is
    /// named by its address. The cloud's metadata address is never among them.
    pub egress: Vec<String>,
}

/// A repository for the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Repo {
    /// Where to clone from; no credentials in it.
    pub url: String,
    /// Branch or tag; the remote's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Directory below the workspace, one path component; from the URL when
    /// empty.
    pub dir: String,
}

/// Requests and limits of host and workspace-prep, as Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct Resources {
    /// CPU request.
    #[serde(deserialize_with = "quantity_text::text")]
    #[schemars(with = "QuantityText")]
    pub cpu_request: String,
    /// Memory request.
    #[serde(deserialize_with = "quantity_text::text")]
    #[schemars(with = "QuantityText")]
    pub memory_request: String,
    /// CPU limit.
    #[serde(deserialize_with = "quantity_text::text")]
    #[schemars(with = "QuantityText")]
    pub cpu_limit: String,
    /// Memory limit.
    #[serde(deserialize_with = "quantity_text::text")]
    #[schemars(with = "QuantityText")]
    pub memory_limit: String,
    /// Request of local disk (logs, HOME, the writable layer).
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "quantity_text::optional"
    )]
    #[schemars(with = "Option<QuantityText>")]
    pub ephemeral_storage_request: Option<String>,
    /// Limit of local disk.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "quantity_text::optional"
    )]
    #[schemars(with = "Option<QuantityText>")]
    pub ephemeral_storage_limit: Option<String>,
}

impl Default for Resources {
    fn default() -> Self {
        defaults::resources()
    }
}

/// How long each part of a launch may take; each has its own message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct Budgets {
    /// Until a node is found.
    #[serde(with = "time")]
    #[schemars(with = "String")]
    pub schedule: Duration,
    /// While an image is pulled.
    #[serde(with = "time")]
    #[schemars(with = "String")]
    pub pull: Duration,
    /// While workspace-prep runs.
    #[serde(with = "time")]
    #[schemars(with = "String")]
    pub init: Duration,
    /// Until the host is started (and ready, when it has a probe).
    #[serde(with = "time")]
    #[schemars(with = "String")]
    pub start: Duration,
    /// All of it together, calls included.
    #[serde(with = "time")]
    #[schemars(with = "String")]
    pub total: Duration,
}

impl Default for Budgets {
    fn default() -> Self {
        defaults::budgets()
    }
}

impl Repo {
    /// Directory below the workspace: as given, or what `git clone` would take.
    pub fn dir(&self) -> &str {
        if !self.dir.is_empty() {
            return &self.dir;
        }
        let url = self.url.trim_end_matches('/');
        let last = url.rsplit(['/', ':']).next().unwrap_or_default();
        last.strip_suffix(".git").unwrap_or(last)
    }
}
