//! Profiles: whose defaults, variables and labels a sandbox has.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose defaults, variables and labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Podcradle's own.
    #[default]
    Default,
    /// Those of omnigent's Python launcher, for its users.
    Omnigent,
}

/// Omnigent's variables, and the field of the spec that each sets. Those
/// without one say where the cluster is.
const OMNIGENT: &[(&str, Option<&str>)] = &[
    ("OMNIGENT_KUBERNETES_HOST_IMAGE", Some("image")),
    ("OMNIGENT_KUBERNETES_NAMESPACE", None),
    ("OMNIGENT_KUBERNETES_SECRET", Some("credentialsSecret")),
    ("OMNIGENT_KUBERNETES_SANDBOX_ENV", Some("env")),
    (
        "OMNIGENT_KUBERNETES_SERVICE_ACCOUNT",
        Some("serviceAccount"),
    ),
    ("OMNIGENT_KUBERNETES_KUBECONFIG", None),
];

impl Profile {
    /// The variables that count under this profile, besides Podcradle's, and
    /// the path of the field that each sets.
    pub fn variables(self) -> &'static [(&'static str, Option<&'static str>)] {
        match self {
            Self::Default => &[],
            Self::Omnigent => OMNIGENT,
        }
    }

    /// The variable that names the namespace under this profile.
    pub fn namespace_variable(self) -> Option<&'static str> {
        (self == Self::Omnigent).then_some("OMNIGENT_KUBERNETES_NAMESPACE")
    }

    /// The variable that names the kubeconfig under this profile.
    pub fn kubeconfig_variable(self) -> Option<&'static str> {
        (self == Self::Omnigent).then_some("OMNIGENT_KUBERNETES_KUBECONFIG")
    }

    /// The namespace of its sandboxes; that of the context when there is none.
    pub fn namespace(self) -> Option<&'static str> {
        (self == Self::Omnigent).then_some("omnigent-sandboxes")
    }

    /// Whether its host's command line is known without being spelled out.
    pub fn knows_host(self) -> bool {
        self == Self::Omnigent
    }

    /// How its host is called, before `--server URL`.
    pub(super) fn host(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Default => &["host"],
            Self::Omnigent => &["omnigent", "host"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Omnigent => "omnigent",
        })
    }
}
