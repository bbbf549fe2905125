//! The sandbox's Pod: gated, owned by the anchor, within Pod Security
//! `restricted`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    LocalObjectReference, Pod, PodOS, PodSchedulingGate, PodSecurityContext, PodSpec,
    SeccompProfile,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::containers::{host, workspace_prep};
use super::volumes::volumes;
use super::{Owner, Record, TOKEN_GATE, inject, labels, overlay, owner_reference};
use crate::spec::{Problem, Problems, SandboxSpec};

/// The Pod of one generation, owned by `anchor`, held back by our gate, with
/// the spec's overlay.
///
/// # Errors
/// All that is wrong with the overlay; none for a valid spec.
pub fn pod(spec: &SandboxSpec, generation: u32, anchor: &Owner) -> Result<Pod, Problems> {
    overlay::apply(spec, generation, plain(spec, generation, anchor)).map(|(pod, _)| pod)
}

/// The Pod of a launch into a shared session, which holds the record itself. The
/// overlay has no say in that.
#[must_use]
pub fn with_record(mut pod: Pod, record: &Record, expires: Timestamp) -> Pod {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.extend(record.annotations(expires));
    pod
}

/// Makes record and Pod for nobody, so that all that is wrong with the overlay
/// or too large is known before anything is created. A spec's own validation
/// asks this too.
///
/// # Errors
/// All that is wrong with the overlay, and that the record has no room.
pub fn check(spec: &SandboxSpec) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for found in [weakenings(spec).map(drop), Record::check(spec)] {
        problems.extend(found.err().into_iter().flat_map(|found| found.0));
    }
    Problems::of(problems)
}

/// What the overlay weakens, where `allowUnsafeOverlay` permits it: worth a
/// warning each.
///
/// # Errors
/// All that is wrong with the overlay.
pub fn weakenings(spec: &SandboxSpec) -> Result<Vec<Problem>, Problems> {
    let nobody = Owner {
        name: spec.sandbox.clone(),
        uid: String::new(),
    };
    overlay::apply(spec, 1, plain(spec, 1, &nobody)).map(|(_, weakenings)| weakenings)
}

/// The Pod without the overlay.
fn plain(spec: &SandboxSpec, generation: u32, anchor: &Owner) -> Pod {
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
        node_selector: some(node_selector(spec), BTreeMap::is_empty),
        tolerations: some(spec.tolerations.clone(), Vec::is_empty),
        affinity: spec.affinity.clone(),
        runtime_class_name: spec.runtime_class.clone(),
        priority_class_name: spec.priority_class.clone(),
        host_users: spec.host_users,
        image_pull_secrets: some(pull_secrets(spec), Vec::is_empty),
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
        volumes: Some(volumes(spec, generation)),
        init_containers: Some(
            inject::copy(spec)
                .into_iter()
                .chain([workspace_prep(spec)])
                .collect(),
        ),
        containers: vec![host(spec, generation)],
        ..PodSpec::default()
    }
}

fn node_selector(spec: &SandboxSpec) -> BTreeMap<String, String> {
    let mut selector = spec.node_selector.clone();
    if let Some(arch) = &spec.arch {
        selector.insert("kubernetes.io/arch".to_owned(), arch.clone());
    }
    selector
}

fn pull_secrets(spec: &SandboxSpec) -> Vec<LocalObjectReference> {
    let secrets = spec.image_pull_secrets.iter().cloned();
    secrets.map(|name| LocalObjectReference { name }).collect()
}

fn some<T>(list: T, is_empty: impl FnOnce(&T) -> bool) -> Option<T> {
    if is_empty(&list) { None } else { Some(list) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Container;

    use super::*;
    use crate::spec::{Mount, Profile, Repo, Restart, TokenDelivery};

    fn spec() -> SandboxSpec {
        SandboxSpec::new("podcradle-a-000000", "image:1")
    }

    fn made(change: impl FnOnce(&mut SandboxSpec)) -> Pod {
        let anchor = Owner {
            name: "podcradle-a-000000".into(),
            uid: "uid-1".into(),
        };
        let mut spec = spec();
        change(&mut spec);
        pod(&spec, 1, &anchor).unwrap()
    }

    fn host(change: impl FnOnce(&mut SandboxSpec)) -> Container {
        made(change).spec.unwrap().containers.remove(0)
    }

    fn prep(change: impl FnOnce(&mut SandboxSpec)) -> Container {
        let inits = made(change).spec.unwrap().init_containers.unwrap();
        inits.into_iter().last().unwrap()
    }

    #[test]
    fn the_pod_has_one_owner_and_neither_controls_nor_blocks() {
        let owners = made(|_| ()).metadata.owner_references.unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[0].uid, "uid-1");
        assert_eq!(
            (owners[0].controller, owners[0].block_owner_deletion),
            (Some(false), Some(false))
        );
    }

    #[test]
    fn a_clone_is_arguments_and_nothing_is_expanded_by_the_kubelet() {
        let clone = |spec: &mut SandboxSpec| {
            spec.repo = Some(Repo {
                url: "https://git.example/$(HOME)".into(),
                branch: Some("main".into()),
                dir: "r".into(),
            });
            spec.env.insert("COST".into(), "$5".into());
        };
        let args = prep(clone).args.unwrap().join(" ");
        assert_eq!(
            args,
            "git clone --branch main --single-branch -- \
             https://git.example/$$(HOME) /home/sandbox/workspace/r"
        );
        let env = host(clone).env.unwrap();
        let cost = env.iter().find(|e| e.name == "COST").unwrap();
        assert_eq!(cost.value.as_deref(), Some("$$5"));
    }

    #[test]
    fn the_init_container_gets_neither_token_nor_what_is_mounted_for_the_host() {
        for token_delivery in [TokenDelivery::File, TokenDelivery::SecretKeyRef] {
            let prep = prep(|spec| {
                spec.token_delivery = token_delivery;
                spec.mounts = vec![Mount {
                    path: "/data".into(),
                    claim: None,
                    secret: Some("certificates".into()),
                    writable: true,
                }];
            });
            let text = serde_json::to_string(&prep).unwrap().to_lowercase();
            assert!(!text.contains("token") && !text.contains("/data"), "{text}");
        }
    }

    #[test]
    fn a_claim_that_is_written_to_is_not_read_only_as_a_whole() {
        let mount = |path: &str, claim: &str, writable| Mount {
            path: path.into(),
            claim: Some(claim.into()),
            secret: None,
            writable,
        };
        let claims = |spec: &mut SandboxSpec| {
            spec.mounts = vec![
                mount("/a", "shared", true),
                mount("/b", "shared", false),
                mount("/c", "models", false),
            ];
        };
        let volumes = made(claims).spec.unwrap().volumes.unwrap();
        let sources = volumes
            .into_iter()
            .filter_map(|v| v.persistent_volume_claim);
        let read_only: Vec<_> = sources.map(|source| source.read_only).collect();
        assert_eq!(read_only, [None, None, Some(true)]);
        let mounts = host(claims).volume_mounts.unwrap();
        let mounts = mounts.iter().filter(|m| m.name.starts_with("mount-"));
        let read_only: Vec<_> = mounts.map(|mount| mount.read_only).collect();
        assert_eq!(read_only, [None, Some(true), Some(true)]);
    }

    #[test]
    fn by_key_reference_the_supervisor_is_not_told_of_a_file_that_is_not_there() {
        let by_key = |spec: &mut SandboxSpec| spec.token_delivery = TokenDelivery::SecretKeyRef;
        let host = host(by_key);
        assert!(
            !host
                .command
                .unwrap()
                .contains(&"--env-from-file".to_owned())
        );
        assert!(
            host.volume_mounts
                .unwrap()
                .iter()
                .all(|m| m.name != "token")
        );
        let volumes = made(by_key).spec.unwrap().volumes.unwrap();
        assert!(volumes.iter().all(|v| v.name != "token"));
    }

    #[test]
    fn a_login_shell_gets_the_host_as_arguments() {
        let args = host(|spec| {
            spec.login_shell = true;
            spec.host = vec!["agent".into(), "'; rm -rf $(HOME)".into()];
        });
        assert_eq!(
            args.args.unwrap(),
            [
                "bash",
                "-lc",
                r#"exec "$$@""#,
                "bash",
                "agent",
                "'; rm -rf $$(HOME)"
            ]
        );
    }

    #[test]
    fn a_restart_spares_a_refused_token_and_a_stop() {
        let command = |max| {
            host(|spec| spec.restart = Some(Restart { max }))
                .command
                .unwrap()
                .join(" ")
        };
        let flags = "--no-restart 78 --no-restart 143 --";
        assert!(command(None).ends_with(&format!("--restart on-failure {flags}")));
        assert!(command(Some(5)).ends_with(&format!("--restart on-failure:5 {flags}")));
    }

    #[test]
    fn the_profile_s_labels_and_ours_win_over_the_caller_s() {
        let labels = made(|spec| {
            spec.profile = Profile::Omnigent;
            spec.labels = [
                ("podcradle.dev/session".to_owned(), "stolen".to_owned()),
                ("team".to_owned(), "a".to_owned()),
            ]
            .into();
        });
        let labels = labels.metadata.labels.unwrap();
        let expected = [
            ("app.kubernetes.io/managed-by", "omnigent"),
            ("omnigent.ai/role", "sandbox-host"),
            ("podcradle.dev/session", "podcradle-a-000000"),
            ("team", "a"),
        ];
        for (key, value) in expected {
            assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
        }
    }
}
