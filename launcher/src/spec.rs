//! What is wanted: a [`SandboxSpec`], and its validation. Everything is
//! checked here, before the first call; all problems are reported at once.
//! Serialized (for the anchor's record) it holds names of environment
//! variables, never their values.

mod check;
mod defaults;
pub mod environment;
pub mod fields;
pub mod file;
mod layer;
mod parts;
mod problem;
mod profile;
mod quantity_text;
pub mod resolve;
pub mod schema;
pub(crate) mod server;
mod session;
pub mod time;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use check::placement;
pub use check::{passthrough, redact_url};
pub use defaults::{
    COPIED_INIT, DEFAULT_HOME, DEFAULT_ID, METADATA, TOKEN_FILE, TOKEN_KEY, TOKEN_MOUNT,
};
pub use layer::{Layer, Origin, Setting};
pub use parts::{
    Budgets, Inject, Mount, NetworkPolicy, Repo, Resources, Restart, TokenDelivery, Wait,
};
pub use problem::{Problem, Problems};
pub use profile::Profile;
use quantity_text::QuantityText;
pub use session::SessionSpec;

/// One sandbox, as its caller wants it. Make one with [`SandboxSpec::new`] and
/// change what differs from the defaults.
///
/// Its serialized form is the YAML file's, and the record's on the anchor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct SandboxSpec {
    /// Whose defaults, variables and labels.
    pub profile: Profile,
    /// Name of the Pod, and of its session and anchor unless `session` names one.
    pub sandbox: String,
    /// The caller's idempotency key.
    pub launch_id: String,
    /// Shared session to launch into, instead of one of the sandbox's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Image reference of host and (unless `prepImage`) workspace-prep.
    pub image: String,
    /// Another image for workspace-prep, when the host's has no git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prep_image: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`; the cluster's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Secrets the kubelet pulls with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<String>,
    /// Architecture of the node (`amd64`, `arm64`); absent or `any`: as it comes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "any_or")]
    pub arch: Option<String>,
    /// How `podcradle-init` gets into the host's container.
    pub inject: Inject,
    /// The image known to have `podcradle-init` baked in: `auto` trusts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baked_image: Option<String>,
    /// The image of `podcradle-init` alone, for `copy` and `image-volume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor_image: Option<String>,
    /// Directory of `podcradle-init` in the image, where it is baked in.
    pub init_dir: String,
    /// The host's command line; empty: `host`, with `--server URL` when set.
    pub host: Vec<String>,
    /// Run the host by `bash -lc`, for images whose PATH comes from the profile.
    pub login_shell: bool,
    /// URL the host dials back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Identity the host reports; the sandbox's name when empty.
    pub host_id: String,
    /// Name the host reports; the sandbox's name when empty.
    pub host_name: String,
    /// Prefix of the host's variables (`<PREFIX>_HOST_TOKEN`, …).
    pub env_prefix: String,
    /// How the token reaches the host's environment.
    pub token_delivery: TokenDelivery,
    /// Restarts of a host that failed, by the supervisor: `on-failure` or
    /// `on-failure:3`; in a file `{}` or `{max: 3}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Repository that workspace-prep clones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<Repo>,
    /// Variables passed through to the host, by name: their values come from
    /// the environment of the launcher, and are never serialized.
    #[serde(serialize_with = "names_only", deserialize_with = "names_back")]
    #[schemars(with = "Vec<String>")]
    pub env: BTreeMap<String, String>,
    /// An operator's Secret, taken into the environment of both containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<String>,
    /// ServiceAccount of the Pod; it needs no rights.
    pub service_account: String,
    /// More labels for all objects; none of Podcradle's or Kubernetes' own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Node labels the Pod asks for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints the Pod tolerates, as in a Pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Affinity, as in a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Runtime class of the Pod (gVisor, Kata, …).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// Priority class of the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// `false` asks for a user namespace of the Pod's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// HOME of both containers, an emptyDir.
    pub home: String,
    /// Most that may lie in HOME, a quantity.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "quantity_text::optional"
    )]
    #[schemars(with = "Option<QuantityText>")]
    pub home_size_limit: Option<String>,
    /// Volume claims and Secrets mounted into the host's container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
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
    /// When the session expires, from its creation; `none` is never.
    #[serde(with = "time::or_none")]
    #[schemars(with = "String")]
    pub ttl: Option<Duration>,
    /// End of the compute in any case (`activeDeadlineSeconds`).
    #[serde(with = "time")]
    #[schemars(with = "String")]
    pub max_lifetime: Duration,
    /// Lease of the deployment that owns the session, instead of a TTL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The traffic the sandbox may have; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
    /// What a launch waits for.
    pub wait: Wait,
    /// How long each part of the launch may take.
    pub budgets: Budgets,
    /// Keep the Pod of a failed launch for an hour (never its token).
    pub keep_on_failure: bool,
    /// Laid over the Pod, as a strategic merge patch of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<serde_json::Map<String, serde_json::Value>>,
    /// Let the overlay weaken what keeps the sandbox in.
    pub allow_unsafe_overlay: bool,
}

impl Default for SandboxSpec {
    /// Every default, without a name and an image: those have none.
    fn default() -> Self {
        defaults::spec(Profile::Default)
    }
}

impl SandboxSpec {
    /// Every default of a profile, without a name and an image.
    pub fn of_profile(profile: Profile) -> Self {
        defaults::spec(profile)
    }

    /// A spec with every default of the README's table. A request stays as it is
    /// when its limit is set below it, and the spec is wrong then: set both.
    pub fn new(sandbox: impl Into<String>, image: impl Into<String>) -> Self {
        Self {
            sandbox: sandbox.into(),
            launch_id: crate::name::random_hex(8),
            image: image.into(),
            ..Self::default()
        }
    }

    /// The host's command line, the default one spelled out.
    pub fn host_command(&self) -> Vec<String> {
        if !self.host.is_empty() {
            return self.host.clone();
        }
        let mut command = self.profile.host();
        if let Some(server) = &self.server {
            command.extend(["--server".to_owned(), server.clone()]);
        }
        command
    }

    /// How `podcradle-init` gets into the host's container: never
    /// [`Inject::Auto`].
    pub fn inject(&self) -> Inject {
        let baked =
            self.supervisor_image.is_none() || self.baked_image.as_ref() == Some(&self.image);
        match self.inject {
            Inject::Auto if baked => Inject::Baked,
            Inject::Auto => Inject::Copy,
            spelled_out => spelled_out,
        }
    }

    /// Identity the host reports.
    pub fn host_id(&self) -> &str {
        or(&self.host_id, &self.sandbox)
    }

    /// Name the host reports.
    pub fn host_name(&self) -> &str {
        or(&self.host_name, &self.sandbox)
    }

    /// Absolute path of the workspace in both containers.
    pub fn workspace(&self) -> String {
        let base = format!("{}/workspace", self.home.trim_end_matches('/'));
        self.repo
            .as_ref()
            .map_or_else(|| base.clone(), |repo| format!("{base}/{}", repo.dir()))
    }

    /// The session it belongs to: a shared one, or its own of the same name.
    pub fn session_name(&self) -> &str {
        self.session.as_deref().unwrap_or(&self.sandbox)
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

fn or<'a>(given: &'a str, otherwise: &'a str) -> &'a str {
    if given.is_empty() { otherwise } else { given }
}

fn any_or<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::deserialize(from)?.filter(|arch| arch != "any"))
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
mod properties;

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

    #[test]
    fn the_clones_directory_is_the_one_git_would_choose() {
        for (url, dir) in [
            ("https://git.example/team/repo.git", "repo"),
            ("https://git.example/team/repo/", "repo"),
            ("git@git.example:repo", "repo"),
        ] {
            let url = url.to_owned();
            assert_eq!(
                Repo {
                    url,
                    ..Repo::default()
                }
                .dir(),
                dir
            );
        }
    }
}
