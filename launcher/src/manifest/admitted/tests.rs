use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use serde_json::json;

use super::{Container, Labels, Pod, PodSpec, SELinuxOptions, check};
use crate::manifest::{Owner, pod};
use crate::spec::{Inject, Mount, SandboxSpec, TokenDelivery};

fn sent() -> Pod {
    let owner = Owner {
        name: "a".into(),
        uid: "u".into(),
    };
    let mut spec = SandboxSpec::new("a", "i");
    spec.launch_id = "b".into();
    spec.host_users = Some(false);
    spec.runtime_class = Some("gvisor".into());
    spec.labels.insert("team".into(), "a".into());
    spec.inject = Inject::ImageVolume;
    spec.supervisor_image = Some("s".into());
    spec.home_size_limit = Some("1024Mi".into());
    spec.mounts = vec![Mount {
        path: "/data".into(),
        claim: Some("data".into()),
        secret: None,
        writable: false,
    }];
    pod(&spec, 1, &owner).unwrap()
}

fn after(change: impl FnOnce(&mut Pod)) -> Vec<String> {
    let mut admitted = sent();
    change(&mut admitted);
    check(&sent(), &admitted).err().unwrap_or_default()
}

#[test]
fn an_injected_sidecar_and_another_gate_are_allowed() {
    let found = after(|p| {
        let spec = p.spec.as_mut().unwrap();
        spec.containers.push(Container {
            name: "proxy".into(),
            ..Container::default()
        });
        spec.scheduling_gates.as_mut().unwrap().push(
            k8s_openapi::api::core::v1::PodSchedulingGate {
                name: "kueue.x-k8s.io/admission".into(),
            },
        );
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_label_of_selinux_may_be_added_and_confinement_not_taken_away() {
    for (options, allowed) in [
        (json!({ "level": "s0:c26,c5" }), true),
        (json!({ "level": "s0:c1", "type": "container_t" }), true),
        (json!({ "type": "spc_t" }), false),
        (json!({ "user": "system_u" }), false),
    ] {
        let options: SELinuxOptions = serde_json::from_value(options).unwrap();
        let found = after(|p| {
            let spec = p.spec.as_mut().unwrap();
            let whole = spec.security_context.as_mut().unwrap();
            whole.se_linux_options = Some(options.clone());
            let host = spec.containers[0].security_context.as_mut().unwrap();
            host.se_linux_options = Some(options.clone());
        });
        let expected = if allowed { 0 } else { 2 };
        assert_eq!(found.len(), expected, "{options:?}: {found:?}");
    }
    let found = after(|p| {
        let spec = p.spec.as_mut().unwrap();
        let host = spec.containers[0].security_context.as_mut().unwrap();
        host.se_linux_options = Some(SELinuxOptions::default());
        host.allow_privilege_escalation = Some(true);
    });
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn what_keeps_the_sandbox_in_may_not_be_taken_away() {
    let spec = |p: &mut Pod, f: fn(&mut PodSpec)| f(p.spec.as_mut().unwrap());
    for (name, change) in [
        (
            "securityContext",
            (|s: &mut PodSpec| s.containers[0].security_context = None) as fn(&mut PodSpec),
        ),
        ("spec.securityContext", |s| s.security_context = None),
        ("command", |s| s.containers[0].command = None),
        ("volumes", |s| {
            s.volumes.as_mut().unwrap().pop();
        }),
        ("hostPID", |s| s.host_pid = Some(true)),
        ("spec.hostUsers", |s| s.host_users = None),
        ("shareProcessNamespace", |s| {
            s.share_process_namespace = Some(true);
        }),
        ("serviceAccountName", |s| {
            s.service_account_name = Some("admin".into());
        }),
        ("schedulingGates", |s| s.scheduling_gates = None),
        ("runtimeClassName", |s| s.runtime_class_name = None),
        ("runtimeClassName", |s| {
            s.runtime_class_name = Some("runc".into());
        }),
        ("activeDeadlineSeconds", |s| {
            s.active_deadline_seconds = None;
        }),
        ("activeDeadlineSeconds", |s| {
            *s.active_deadline_seconds.as_mut().unwrap() += 1;
        }),
        ("volumeMounts", |s| {
            s.containers[0].volume_mounts.as_mut().unwrap().pop();
        }),
    ] {
        let found = after(|p| spec(p, change));
        assert!(
            found.len() == 1 && found[0].contains(name),
            "{name}: {found:?}"
        );
    }
    assert_eq!(after(|p| p.metadata.owner_references = None).len(), 1);
    let session = "podcradle.dev/session";
    for change in [
        (|labels| drop(labels.remove("podcradle.dev/session"))) as fn(&mut Labels),
        |labels| drop(labels.insert("podcradle.dev/session".into(), "b".into())),
    ] {
        let found = after(|p| change(p.metadata.labels.as_mut().unwrap()));
        assert!(found.len() == 1 && found[0].contains(session), "{found:?}");
    }
}

#[test]
fn what_holds_the_sandbox_tighter_or_is_not_ours_is_allowed() {
    let mut sent = sent();
    let mut admitted = sent.clone();
    sent.spec.as_mut().unwrap().runtime_class_name = None;
    admitted.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    admitted.metadata.labels.as_mut().unwrap().remove("team");
    assert_eq!(check(&sent, &admitted), Ok(()));
}

fn volume<'a>(pod: &'a mut Pod, name: &str) -> &'a mut Volume {
    let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
    volumes.iter_mut().find(|v| v.name == name).unwrap()
}

#[test]
fn what_the_api_server_fills_in_or_writes_another_way_is_no_change() {
    let found = after(|p| {
        let image = volume(p, "podcradle").image.as_mut().unwrap();
        image.pull_policy = Some("IfNotPresent".into());
        let home = volume(p, "home").empty_dir.as_mut().unwrap();
        home.size_limit = Some(Quantity("1Gi".into()));
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_volume_that_became_another_is_named() {
    for (name, change) in [
        (
            "home",
            (|v: &mut Volume| v.empty_dir.as_mut().unwrap().size_limit = None) as fn(&mut Volume),
        ),
        ("home", |v| v.empty_dir = None),
        ("token", |v| {
            v.secret.as_mut().unwrap().secret_name = Some("other".into());
        }),
        ("podcradle", |v| {
            v.image.as_mut().unwrap().reference = Some("evil".into());
        }),
        ("mount-0", |v| {
            v.persistent_volume_claim.as_mut().unwrap().read_only = None;
        }),
    ] {
        let found = after(|p| change(volume(p, name)));
        assert!(
            found.len() == 1 && found[0].contains(&format!("spec.volumes {name} ")),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn a_token_that_would_come_from_elsewhere_is_named() {
    let owner = Owner {
        name: "a".into(),
        uid: "u".into(),
    };
    let mut spec = SandboxSpec::new("a", "i");
    spec.token_delivery = TokenDelivery::SecretKeyRef;
    let sent = pod(&spec, 1, &owner).unwrap();
    let mut admitted = sent.clone();
    let env = admitted.spec.as_mut().unwrap().containers[0].env.as_mut();
    for variable in env.unwrap() {
        if let Some(from) = &mut variable.value_from {
            from.secret_key_ref.as_mut().unwrap().name = "other".into();
        }
    }
    let found = check(&sent, &admitted).unwrap_err();
    assert!(
        found.len() == 1 && found[0].contains("PODCRADLE_HOST_TOKEN"),
        "{found:?}"
    );
}
