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

#[cfg(test)]
mod tests {
    use crate::manifest::{Owner, pod};
    use crate::spec::environment::Environment;
    use crate::spec::resolve::merge;
    use crate::spec::{Layer, Origin, SandboxSpec};

    /// What the Python launcher is configured with.
    const VARIABLES: [(&str, &str); 9] = [
        (
            "OMNIGENT_KUBERNETES_HOST_IMAGE",
            "registry.example/omnigent/host:1.4",
        ),
        ("OMNIGENT_KUBERNETES_NAMESPACE", "agents"),
        ("OMNIGENT_KUBERNETES_SECRET", "omnigent-credentials"),
        ("OMNIGENT_KUBERNETES_SANDBOX_ENV", "LANG, TZ HTTP_PROXY"),
        ("OMNIGENT_KUBERNETES_SERVICE_ACCOUNT", "agent-runner"),
        ("OMNIGENT_KUBERNETES_KUBECONFIG", "/etc/omnigent/kubeconfig"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("HTTP_PROXY", "http://proxy:3128"),
    ];

    fn resolved(more: &[(&str, &str)]) -> SandboxSpec {
        let environment: Environment = VARIABLES.iter().chain(more).copied().collect();
        let merged = merge(&Layer::default(), &environment, &[]);
        let variable = Origin::Variable("OMNIGENT_KUBERNETES_HOST_IMAGE".into());
        let by_podcradle = more.iter().any(|(name, _)| *name == "PODCRADLE_IMAGE");
        assert_eq!(*merged.origin("image") == variable, !by_podcradle);
        merged.finish("a", &environment).unwrap()
    }

    #[test]
    fn an_environment_of_omnigents_launcher_gives_its_sandbox() {
        let spec = resolved(&[
            ("PODCRADLE_PROFILE", "omnigent"),
            ("PODCRADLE_SERVER", "https://omnigent.example"),
        ]);
        assert_eq!(spec.image, "registry.example/omnigent/host:1.4");
        assert_eq!(
            spec.credentials_secret.as_deref(),
            Some("omnigent-credentials")
        );
        assert_eq!(spec.service_account, "agent-runner");
        assert_eq!(
            spec.env.keys().collect::<Vec<_>>(),
            ["HTTP_PROXY", "LANG", "TZ"]
        );

        let owner = Owner {
            name: spec.sandbox.clone(),
            uid: "1".into(),
        };
        let pod = serde_json::to_value(pod(&spec, 1, &owner).unwrap()).unwrap();
        assert_eq!(
            pod["metadata"]["labels"]["app.kubernetes.io/managed-by"],
            "omnigent"
        );
        assert_eq!(
            pod["metadata"]["labels"]["omnigent.ai/role"],
            "sandbox-host"
        );
        assert_eq!(pod["spec"]["serviceAccountName"], "agent-runner");
        assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/arch"], "amd64");
        let host = &pod["spec"]["containers"][0];
        let words = [
            "bash",
            "-lc",
            r#"exec "$$@""#,
            "bash",
            "omnigent",
            "host",
            "--server",
            "https://omnigent.example",
        ];
        assert_eq!(host["args"], serde_json::json!(words));
        assert_eq!(host["workingDir"], "/home/omnigent/workspace");
        assert_eq!(
            host["envFrom"][0]["secretRef"]["name"],
            "omnigent-credentials"
        );
        let names: Vec<_> = host["env"]
            .as_array()
            .unwrap()
            .iter()
            .map(|env| env["name"].as_str().unwrap())
            .collect();
        for name in [
            "HOME",
            "IS_SANDBOX",
            "OMNIGENT_HOST_ID",
            "OMNIGENT_HOST_NAME",
            "LANG",
            "TZ",
            "HTTP_PROXY",
        ] {
            assert!(names.contains(&name), "no {name} in {names:?}");
        }
        assert!(
            !names.iter().any(|name| name.starts_with("PODCRADLE")),
            "{names:?}"
        );
        let token = "OMNIGENT_HOST_TOKEN=/run/podcradle/token/token";
        assert!(
            host["command"]
                .as_array()
                .unwrap()
                .iter()
                .any(|word| word == token)
        );
    }

    #[test]
    fn what_podcradle_is_told_is_over_omnigents_variables() {
        let spec = resolved(&[
            ("PODCRADLE_PROFILE", "omnigent"),
            ("PODCRADLE_IMAGE", "mine:1"),
            ("PODCRADLE_ARCH", "any"),
        ]);
        assert_eq!((spec.image.as_str(), spec.arch), ("mine:1", None));
    }

    #[test]
    fn omnigents_variables_count_under_its_profile_alone() {
        let environment: Environment = VARIABLES.iter().copied().collect();
        let error = merge(&Layer::default(), &environment, &[])
            .finish("a", &environment)
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("image \"\": no default image"),
            "{error}"
        );
    }
}
