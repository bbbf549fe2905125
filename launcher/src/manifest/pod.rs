//! The sandbox's Pod: gated, owned by the anchor, within Pod Security
//! `restricted`. No text of the caller reaches a shell, and none is expanded
//! by the kubelet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, KeyToPath, Pod, PodOS,
    PodSchedulingGate, PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile,
    SecretEnvSource, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    HOST_CONTAINER, Owner, PREP_CONTAINER, TOKEN_GATE, labels, owner_reference, secret_name,
};
use crate::spec::{SandboxSpec, TOKEN_FILE, TOKEN_KEY, TOKEN_MOUNT};

const HOME_VOLUME: &str = "home";
const TOKEN_VOLUME: &str = "token";

/// The Pod of one generation, owned by `anchor`, held back by our gate.
pub fn pod(spec: &SandboxSpec, generation: u32, anchor: &Owner) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(spec.sandbox.clone()),
            labels: Some(labels(spec, generation)),
            owner_references: Some(vec![owner_reference("Service", anchor)]),
            ..ObjectMeta::default()
        },
        spec: Some(pod_spec(spec, generation)),
        ..Pod::default()
    }
}

fn pod_spec(spec: &SandboxSpec, generation: u32) -> PodSpec {
    PodSpec {
        scheduling_gates: Some(vec![PodSchedulingGate {
            name: TOKEN_GATE.to_owned(),
        }]),
        restart_policy: Some("Never".to_owned()),
        service_account_name: Some(spec.service_account.clone()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        os: Some(PodOS {
            name: "linux".to_owned(),
        }),
        node_selector: (!spec.node_selector.is_empty()).then(|| spec.node_selector.clone()),
        termination_grace_period_seconds: Some(spec.termination_grace_period.into()),
        active_deadline_seconds: i64::try_from(spec.max_lifetime.as_secs()).ok(),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(spec.run_as),
            run_as_group: Some(spec.run_as),
            fs_group: Some(spec.run_as),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        volumes: Some(vec![
            Volume {
                name: HOME_VOLUME.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            },
            token_volume(spec, generation),
        ]),
        init_containers: Some(vec![workspace_prep(spec)]),
        containers: vec![host(spec)],
        ..PodSpec::default()
    }
}

fn token_volume(spec: &SandboxSpec, generation: u32) -> Volume {
    Volume {
        name: TOKEN_VOLUME.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret_name(&spec.sandbox, generation)),
            default_mode: Some(0o440),
            items: Some(vec![KeyToPath {
                key: TOKEN_KEY.to_owned(),
                path: TOKEN_KEY.to_owned(),
                mode: None,
            }]),
            optional: Some(false),
        }),
        ..Volume::default()
    }
}

fn host(spec: &SandboxSpec) -> Container {
    let mut command = vec![
        init_path(spec),
        "--grace".to_owned(),
        spec.grace.to_string(),
        "--drain".to_owned(),
        spec.drain.to_string(),
        "--close-fds".to_owned(),
        "--no-new-privs".to_owned(),
        "--env-from-file".to_owned(),
        format!("{}={TOKEN_FILE}", spec.env_name("HOST_TOKEN")),
    ];
    command.push("--".to_owned());
    let mut env = base_env(spec);
    env.push(env_var(&spec.env_name("HOST_ID"), spec.host_id()));
    env.push(env_var(&spec.env_name("HOST_NAME"), spec.host_name()));
    if let Some(server) = &spec.server {
        env.push(env_var(&spec.env_name("SERVER"), server));
    }
    env.extend(spec.env.iter().map(|(name, value)| env_var(name, value)));
    Container {
        command: Some(command),
        args: Some(spec.host_command().iter().map(|a| literal(a)).collect()),
        env: Some(env),
        working_dir: Some(spec.workspace()),
        volume_mounts: Some(vec![
            home_mount(spec),
            VolumeMount {
                name: TOKEN_VOLUME.to_owned(),
                mount_path: TOKEN_MOUNT.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            },
        ]),
        ..container(spec, HOST_CONTAINER, &spec.image)
    }
}

/// Makes the workspace, and clones into it when a repository is asked for:
/// `podcradle-init` itself makes the directory, so the image needs no shell.
fn workspace_prep(spec: &SandboxSpec) -> Container {
    let base = format!("{}/workspace", spec.home);
    let command = vec![
        init_path(spec),
        "--prepare".to_owned(),
        base,
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
        volume_mounts: Some(vec![home_mount(spec)]),
        ..container(
            spec,
            PREP_CONTAINER,
            spec.prep_image.as_ref().unwrap_or(&spec.image),
        )
    }
}

/// What both containers have in common.
fn container(spec: &SandboxSpec, name: &str, image: &str) -> Container {
    let quantities = |cpu: &str, memory: &str| {
        Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]))
    };
    let r = &spec.resources;
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: spec.image_pull_policy.clone(),
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
            requests: quantities(&r.cpu_request, &r.memory_request),
            limits: quantities(&r.cpu_limit, &r.memory_limit),
            ..ResourceRequirements::default()
        }),
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

fn init_path(spec: &SandboxSpec) -> String {
    format!("{}/podcradle-init", spec.init_dir.trim_end_matches('/'))
}

fn home_mount(spec: &SandboxSpec) -> VolumeMount {
    VolumeMount {
        name: HOME_VOLUME.to_owned(),
        mount_path: spec.home.clone(),
        ..VolumeMount::default()
    }
}

fn base_env(spec: &SandboxSpec) -> Vec<EnvVar> {
    vec![env_var("HOME", &spec.home), env_var("IS_SANDBOX", "1")]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Repo;

    fn anchor() -> Owner {
        Owner {
            name: "podcradle-a-000000".into(),
            uid: "uid-1".into(),
        }
    }

    fn example() -> SandboxSpec {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "image:1");
        spec.launch_id = "0123456789abcdef".into();
        spec.server = Some("http://server:8080".into());
        spec.repo = Some(Repo {
            url: "https://git.example/$(HOME)".into(),
            branch: Some("main".into()),
            dir: "r".into(),
        });
        spec.env.insert("COST".into(), "$5".into());
        spec
    }

    #[test]
    fn the_pod_has_one_owner_and_neither_controls_nor_blocks() {
        let pod = pod(&example(), 1, &anchor());
        let owners = pod.metadata.owner_references.unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[0].uid, "uid-1");
        assert_eq!(
            (owners[0].controller, owners[0].block_owner_deletion),
            (Some(false), Some(false))
        );
    }

    #[test]
    fn a_clone_is_arguments_and_nothing_is_expanded_by_the_kubelet() {
        let spec = pod(&example(), 1, &anchor()).spec.unwrap();
        let prep = &spec.init_containers.unwrap()[0];
        assert_eq!(
            prep.command.as_deref().unwrap(),
            [
                "/usr/local/bin/podcradle-init",
                "--prepare",
                "/home/sandbox/workspace",
                "--"
            ]
        );
        assert_eq!(
            prep.args.as_deref().unwrap(),
            [
                "git",
                "clone",
                "--branch",
                "main",
                "--single-branch",
                "--",
                "https://git.example/$$(HOME)",
                "/home/sandbox/workspace/r"
            ]
        );
        let env = spec.containers[0].env.as_ref().unwrap();
        assert!(
            env.iter()
                .any(|e| e.name == "COST" && e.value.as_deref() == Some("$$5"))
        );
    }

    #[test]
    fn the_init_container_gets_neither_token_nor_its_mount() {
        let spec = pod(&example(), 1, &anchor()).spec.unwrap();
        let prep = serde_json::to_string(&spec.init_containers.unwrap()[0]).unwrap();
        assert!(!prep.contains("token") && !prep.contains("TOKEN"), "{prep}");
    }

    #[test]
    fn the_pod_as_a_whole_is_as_last_reviewed() {
        let pod = serde_json::to_string_pretty(&pod(&example(), 1, &anchor())).unwrap() + "\n";
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/manifest/pod.snapshot.json"
        );
        if std::env::var_os("PODCRADLE_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, &pod).unwrap();
        }
        assert_eq!(
            pod,
            std::fs::read_to_string(path).unwrap(),
            "set PODCRADLE_UPDATE_SNAPSHOTS=1 to accept"
        );
    }
}
