//! The containers that run on the caller's images. No text of the caller
//! reaches a shell, and none is expanded by the kubelet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvFromSource, EnvVar, EnvVarSource, ResourceRequirements,
    SecretEnvSource, SecretKeySelector, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::inject::init_path;
use super::volumes::{host_mounts, prep_mounts};
use super::{HOST_CONTAINER, PREP_CONTAINER, secret_name};
use crate::spec::{SandboxSpec, TOKEN_FILE, TOKEN_KEY, TokenDelivery};

/// What a login shell runs: its arguments, as they are.
const LOGIN: [&str; 4] = ["bash", "-lc", r#"exec "$@""#, "bash"];
/// Exit codes that a restart does not cure: a refused token, and a stop that
/// the host was asked for by somebody else.
const NO_RESTART: [&str; 2] = ["78", "143"];

/// The host's container.
pub(super) fn host(spec: &SandboxSpec, generation: u32) -> Container {
    let mut env = base_env(spec);
    env.push(env_var(&spec.env_name("HOST_ID"), spec.host_id()));
    env.push(env_var(&spec.env_name("HOST_NAME"), spec.host_name()));
    if let Some(server) = &spec.server {
        env.push(env_var(&spec.env_name("SERVER"), server));
    }
    if spec.token_delivery == TokenDelivery::SecretKeyRef {
        env.push(token_env(spec, generation));
    }
    env.extend(spec.env.iter().map(|(name, value)| env_var(name, value)));
    Container {
        command: Some(host_command(spec)),
        args: Some(host_args(spec)),
        env: Some(env),
        working_dir: Some(spec.workspace()),
        volume_mounts: Some(host_mounts(spec)),
        ..container(spec, HOST_CONTAINER, &spec.image)
    }
}

/// `podcradle-init` with all its flags: the image's own entrypoint is not used.
fn host_command(spec: &SandboxSpec) -> Vec<String> {
    let mut command = vec![
        literal(&init_path(spec)),
        "--grace".to_owned(),
        spec.grace.to_string(),
        "--drain".to_owned(),
        spec.drain.to_string(),
        "--close-fds".to_owned(),
        "--no-new-privs".to_owned(),
    ];
    if spec.token_delivery == TokenDelivery::File {
        let token = format!("{}={TOKEN_FILE}", spec.env_name("HOST_TOKEN"));
        command.extend(["--env-from-file".to_owned(), token]);
    }
    if let Some(restart) = &spec.restart {
        let max = restart
            .max
            .map_or_else(String::new, |max| format!(":{max}"));
        command.extend(["--restart".to_owned(), format!("on-failure{max}")]);
        for code in NO_RESTART {
            command.extend(["--no-restart".to_owned(), code.to_owned()]);
        }
    }
    command.push("--".to_owned());
    command
}

fn host_args(spec: &SandboxSpec) -> Vec<String> {
    let login = LOGIN.iter().filter(|_| spec.login_shell);
    let host = spec.host_command();
    login
        .map(|word| literal(word))
        .chain(host.iter().map(|argument| literal(argument)))
        .collect()
}

/// Makes the workspace, and clones into it when a repository is asked for:
/// `podcradle-init` itself makes the directory, so the image needs no shell.
pub(super) fn workspace_prep(spec: &SandboxSpec) -> Container {
    let base = format!("{}/workspace", spec.home.trim_end_matches('/'));
    let command = vec![
        literal(&init_path(spec)),
        "--prepare".to_owned(),
        literal(&base),
        "--".to_owned(),
    ];
    let mut args = Vec::new();
    if let Some(repo) = &spec.repo {
        args.extend(["git", "clone"].map(str::to_owned));
        if let Some(branch) = &repo.branch {
            args.extend([
                "--branch".to_owned(),
                literal(branch),
                "--single-branch".to_owned(),
            ]);
        }
        args.extend([
            "--".to_owned(),
            literal(&repo.url),
            literal(&spec.workspace()),
        ]);
    }
    let mut env = base_env(spec);
    // A missing credential must fail the clone, not wait for someone to type.
    env.push(env_var("GIT_TERMINAL_PROMPT", "0"));
    Container {
        command: Some(command),
        args: (!args.is_empty()).then_some(args),
        env: Some(env),
        working_dir: Some(spec.home.clone()),
        volume_mounts: Some(prep_mounts(spec)),
        ..container(
            spec,
            PREP_CONTAINER,
            spec.prep_image.as_ref().unwrap_or(&spec.image),
        )
    }
}

/// What workspace-prep and host have in common.
fn container(spec: &SandboxSpec, name: &str, image: &str) -> Container {
    let quantities = |cpu: &str, memory: &str, storage: &Option<String>| {
        let mut all = BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]);
        if let Some(storage) = storage {
            all.insert("ephemeral-storage".to_owned(), Quantity(storage.clone()));
        }
        Some(all)
    };
    let r = &spec.resources;
    Container {
        env_from: spec.credentials_secret.as_ref().map(|secret| {
            vec![EnvFromSource {
                secret_ref: Some(SecretEnvSource {
                    name: secret.clone(),
                    optional: Some(false),
                }),
                ..EnvFromSource::default()
            }]
        }),
        resources: Some(ResourceRequirements {
            requests: quantities(
                &r.cpu_request,
                &r.memory_request,
                &r.ephemeral_storage_request,
            ),
            limits: quantities(&r.cpu_limit, &r.memory_limit, &r.ephemeral_storage_limit),
            ..ResourceRequirements::default()
        }),
        ..secured(spec, name, image)
    }
}

/// A container within Pod Security `restricted`, whatever it runs.
pub(super) fn secured(spec: &SandboxSpec, name: &str, image: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: spec.image_pull_policy.clone(),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            privileged: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    }
}

fn base_env(spec: &SandboxSpec) -> Vec<EnvVar> {
    vec![env_var("HOME", &spec.home), env_var("IS_SANDBOX", "1")]
}

/// The token by the kubelet's hand: every process of the container sees it.
fn token_env(spec: &SandboxSpec, generation: u32) -> EnvVar {
    EnvVar {
        name: spec.env_name("HOST_TOKEN"),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret_name(&spec.sandbox, generation),
                key: TOKEN_KEY.to_owned(),
                optional: Some(false),
            }),
            ..EnvVarSource::default()
        }),
    }
}

fn env_var(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(literal(value)),
        value_from: None,
    }
}

/// Text that the kubelet leaves as it is: it expands `$(NAME)` in arguments
/// and values, and reads `$$` as `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
