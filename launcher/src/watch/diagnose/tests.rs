//! The table of verdicts, from statuses of the shape a kubelet writes.

#![allow(
    clippy::needless_pass_by_value,
    reason = "statuses are written where they are used"
)]

use serde_json::json;

use super::*;

fn pod(status: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
        "spec": { "containers": [{ "name": "host" }] }, "status": status,
    }))
    .unwrap()
}

fn scheduled(init: serde_json::Value, host: serde_json::Value) -> Pod {
    let status = |name: &str, state| json!({ "name": name, "image": "i:1", "imageID": "", "ready": false, "restartCount": 0, "state": state });
    pod(json!({
        "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "True" }],
        "initContainerStatuses": [status("workspace-prep", init)],
        "containerStatuses": [status("host", host)],
    }))
}

fn waiting_for(reason: &str, message: &str) -> serde_json::Value {
    json!({ "waiting": { "reason": reason, "message": message } })
}

fn ended(code: i32, reason: &str, message: &str) -> serde_json::Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } })
}

fn fatal(pod: &Pod) -> Fatal {
    match Diagnosis::default().judge(pod) {
        Verdict::Fatal(fatal) => fatal,
        other => panic!("not fatal: {other:?}"),
    }
}

fn stage(pod: &Pod) -> Stage {
    match Diagnosis::default().judge(pod) {
        Verdict::Wait(stage, _) => stage,
        other => panic!("not waiting: {other:?}"),
    }
}

#[test]
fn each_part_of_a_launch_is_told_apart() {
    let unscheduled = pod(
        json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes" }] }),
    );
    assert_eq!(
        Diagnosis::default().judge(&unscheduled),
        Verdict::Wait(Stage::Schedule, "0/1 nodes".into())
    );
    let initializing = waiting_for("PodInitializing", "");
    assert_eq!(
        stage(&scheduled(initializing.clone(), initializing.clone())),
        Stage::Pull
    );
    assert_eq!(
        stage(&scheduled(json!({ "running": {} }), initializing.clone())),
        Stage::Init
    );
    assert_eq!(
        stage(&scheduled(ended(0, "Completed", ""), initializing)),
        Stage::Start
    );
    let running = scheduled(ended(0, "Completed", ""), json!({ "running": {} }));
    assert_eq!(Diagnosis::default().judge(&running), Verdict::Ready);
}

#[test]
fn an_image_of_the_hosts_own_is_pulled_after_workspace_prep() {
    let initializing = waiting_for("PodInitializing", "");
    let mut pod = scheduled(ended(0, "Completed", ""), initializing);
    let spec = |host: &str, prep: &str| {
        let spec = json!({
            "initContainers": [{ "name": "workspace-prep", "image": prep }],
            "containers": [{ "name": "host", "image": host }],
        });
        serde_json::from_value(spec).unwrap()
    };
    pod.spec = Some(spec("i:1", "i:1"));
    assert_eq!(stage(&pod), Stage::Start);
    pod.spec = Some(spec("i:1", "git:1"));
    let Verdict::Wait(Stage::Pull, why) = Diagnosis::default().judge(&pod) else {
        panic!("{:?}", Diagnosis::default().judge(&pod));
    };
    assert_eq!(why, "host: PodInitializing, image i:1");
}

/// A host of a Pod whose containers are started again.
fn restarted(restarts: i32, state: serde_json::Value, last: serde_json::Value) -> Pod {
    let mut pod = scheduled(ended(0, "Completed", ""), state);
    pod.spec.as_mut().unwrap().restart_policy = Some("Always".to_owned());
    let hosts = pod.status.as_mut().unwrap().container_statuses.as_mut();
    let host = &mut hosts.unwrap()[0];
    host.restart_count = restarts;
    host.last_state = serde_json::from_value(last).unwrap();
    pod
}

#[test]
fn instances_of_a_host_that_is_started_again_are_told_apart() {
    let crashed =
        |id| json!({ "terminated": { "exitCode": 7, "reason": "Error", "containerID": id } });
    let held = waiting_for("CrashLoopBackOff", "back-off 10s");
    for (pod, number, id) in [
        (restarted(0, crashed("c://1"), json!({})), 1, "c://1"),
        (restarted(1, crashed("c://2"), crashed("c://1")), 2, "c://2"),
        (restarted(1, held, crashed("c://2")), 2, "c://2"),
    ] {
        let found = fatal(&pod);
        assert_eq!(found.reason, Reason::HostEnded);
        assert!(
            found.message.contains(&format!("(instance {number} of")),
            "{found:?}"
        );
        let instance = found.instance.unwrap();
        assert_eq!((instance.number, instance.id.as_str()), (number, id));
    }
    // There is but one where nothing is started again.
    let once = fatal(&scheduled(ended(0, "Completed", ""), ended(7, "Error", "")));
    assert_eq!(once.instance, None);
    assert!(!once.message.contains("instance"), "{once:?}");
}

/// The verdict on the last of what a kubelet said of an image, one after the other.
fn after(said: &[(&str, &str)]) -> Verdict {
    let mut diagnosis = Diagnosis::default();
    let verdicts = said.iter().map(|(reason, message)| {
        let pod = scheduled(
            waiting_for(reason, message),
            waiting_for("PodInitializing", ""),
        );
        diagnosis.judge(&pod)
    });
    verdicts.last().unwrap()
}

#[test]
fn a_missing_image_is_fatal_once_a_second_pull_has_failed() {
    let pulled = ("ErrImagePull", "failed to resolve: i:1: not found");
    let held = ("ImagePullBackOff", "Back-off: i:1: not found");
    // One failed pull, however often the Pod changes meanwhile.
    for said in [
        &[pulled][..],
        &[pulled, pulled, pulled],
        &[pulled, held, held],
        &[held, held],
    ] {
        let verdict = after(said);
        assert!(
            matches!(verdict, Verdict::Wait(Stage::Pull, _)),
            "{said:?}: {verdict:?}"
        );
    }
    for said in [&[pulled, held, pulled][..], &[held, pulled]] {
        let verdict = after(said);
        assert!(
            matches!(&verdict, Verdict::Fatal(f) if f.reason == Reason::ImagePull),
            "{said:?}: {verdict:?}"
        );
    }
}

#[test]
fn a_registry_that_fails_is_waited_for() {
    let mut diagnosis = Diagnosis::default();
    let pod = scheduled(waiting_for("ErrImagePull", "connection refused"), json!({}));
    for _ in 0..5 {
        assert!(matches!(
            diagnosis.judge(&pod),
            Verdict::Wait(Stage::Pull, _)
        ));
    }
}

#[test]
fn a_wrong_architecture_is_told_before_not_found() {
    let text = "no match for platform in manifest: not found";
    assert_eq!(
        fatal(&scheduled(waiting_for("ErrImagePull", text), json!({}))).reason,
        Reason::Platform
    );
}

#[test]
fn a_missing_secret_is_fatal_but_a_cache_gets_a_grace() {
    let missing = waiting_for("CreateContainerConfigError", "secret \"x\" not found");
    assert_eq!(
        fatal(&scheduled(missing, json!({}))).reason,
        Reason::ContainerConfig
    );
    for reason in ["CreateContainerConfigError", "CreateContainerError"] {
        for (one, other) in [
            (
                "failed to sync secret cache",
                "failed to sync configmap cache",
            ),
            (
                "failed to sync secret cache: timed out waiting for the condition",
                "timed out waiting for the condition",
            ),
            (
                "context deadline exceeded",
                "rpc error: code = DeadlineExceeded desc = deadline exceeded",
            ),
        ] {
            let said = [(reason, one), (reason, other), (reason, one)];
            // The same again is no second time.
            for said in [&said[..2], &[said[0]; 5]] {
                assert!(matches!(after(said), Verdict::Wait(..)), "{said:?}");
            }
            let Verdict::Fatal(fatal) = after(&said) else {
                panic!("{said:?} is waited for");
            };
            assert_eq!(fatal.reason, Reason::ContainerConfig, "{said:?}");
        }
    }
}

/// A Pod whose `podcradle-init` is copied, before all else.
fn copying(state: serde_json::Value) -> Pod {
    let mut pod = scheduled(
        waiting_for("PodInitializing", ""),
        waiting_for("PodInitializing", ""),
    );
    let copy = json!({ "name": "podcradle-init", "image": "s:1", "imageID": "", "ready": false, "restartCount": 0, "state": state });
    let status = pod.status.as_mut().unwrap();
    let inits = status.init_container_statuses.as_mut().unwrap();
    inits.insert(0, serde_json::from_value(copy).unwrap());
    pod
}

#[test]
fn the_container_that_copies_podcradle_init_is_diagnosed_too() {
    for (state, reason) in [
        (
            waiting_for("ErrImagePull", "no match for platform in manifest"),
            Reason::Platform,
        ),
        (
            waiting_for("InvalidImageName", "could not parse"),
            Reason::ImageName,
        ),
        (ended(128, "StartError", "no such file"), Reason::StartError),
        (ended(137, "OOMKilled", ""), Reason::OutOfMemory),
        (ended(125, "Error", ""), Reason::InitFailed),
    ] {
        let found = fatal(&copying(state));
        assert_eq!(found.reason, reason, "{found:?}");
        assert!(found.hint.contains("--supervisor-image"), "{found:?}");
    }
    for text in ["s:1: not found", "s:1: pull access denied"] {
        let mut diagnosis = Diagnosis::default();
        let mut judge = |reason| diagnosis.judge(&copying(waiting_for(reason, text)));
        judge("ErrImagePull");
        judge("ImagePullBackOff");
        let Verdict::Fatal(found) = judge("ErrImagePull") else {
            panic!("not fatal: {text}");
        };
        assert_eq!(found.reason, Reason::ImagePull);
        assert!(found.hint.contains("--supervisor-image"), "{found:?}");
    }
    assert_eq!(stage(&copying(json!({ "running": {} }))), Stage::Init);
    assert_eq!(stage(&copying(ended(0, "Completed", ""))), Stage::Pull);
}

#[test]
fn a_failed_clone_and_a_missing_git_are_two_messages() {
    let clone = fatal(&scheduled(ended(128, "Error", ""), json!({})));
    assert_eq!(
        (clone.reason, clone.container),
        (Reason::InitFailed, Some("workspace-prep"))
    );
    let report =
        r#"{"v":1,"exitCode":127,"end":{"kind":"exec","errno":2,"message":"git: not found"}}"#;
    let missing = fatal(&scheduled(ended(127, "Error", report), json!({})));
    assert!(
        missing.message.contains("git: not found") && missing.hint.contains("--prep-image"),
        "{missing:?}"
    );
}

#[test]
fn a_host_that_ended_is_fatal_while_the_phase_still_says_running() {
    let report = r#"{"v":1,"exitCode":78,"end":{"kind":"exit","code":78}}"#;
    let mut pod = scheduled(ended(0, "Completed", ""), ended(78, "Error", report));
    pod.status.as_mut().unwrap().phase = Some("Running".into());
    let found = fatal(&pod);
    assert_eq!(found.reason, Reason::HostEnded);
    assert!(found.message.contains("code 78"), "{}", found.message);
    assert_eq!(found.report.unwrap().exit_code, 78);
    assert_eq!(
        fatal(&scheduled(
            ended(0, "Completed", ""),
            ended(0, "Completed", "")
        ))
        .reason,
        Reason::HostEnded
    );
}

#[test]
fn out_of_memory_is_told_even_with_exit_0() {
    assert_eq!(
        fatal(&scheduled(ended(0, "OOMKilled", ""), json!({}))).reason,
        Reason::OutOfMemory
    );
}

#[test]
fn a_runtime_that_cannot_start_is_quoted_and_leaves_no_report() {
    let found = fatal(&scheduled(
        ended(0, "Completed", ""),
        ended(128, "StartError", "exec: no such file"),
    ));
    assert_eq!(found.reason, Reason::StartError);
    assert!(found.message.contains("exec: no such file") && found.report.is_none());
}

#[test]
fn what_is_not_the_hosts_fault_is_said_so() {
    let evicted = pod(json!({ "phase": "Failed", "reason": "Evicted", "message": "low on disk" }));
    assert_eq!(fatal(&evicted).reason, Reason::Evicted);
    let disrupted = pod(
        json!({ "conditions": [{ "type": "DisruptionTarget", "status": "True", "message": "preempted" }] }),
    );
    assert_eq!(fatal(&disrupted).reason, Reason::Evicted);
    let expired = pod(json!({ "phase": "Failed", "reason": "DeadlineExceeded" }));
    assert_eq!(fatal(&expired).reason, Reason::LifetimeExceeded);
    let mut deleted = scheduled(json!({}), json!({}));
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(fatal(&deleted).reason, Reason::DeletedBySomeone);
}

#[test]
fn another_ones_gate_is_waited_for_and_named() {
    let mut pod = scheduled(json!({}), json!({}));
    pod.spec.as_mut().unwrap().scheduling_gates =
        serde_json::from_value(json!([{ "name": "queue.example/wait" }])).unwrap();
    assert!(
        matches!(Diagnosis::default().judge(&pod), Verdict::Wait(Stage::Schedule, why) if why.contains("queue.example/wait"))
    );
}

#[test]
fn a_gate_that_is_off_holds_nothing_back() {
    let gated = pod(json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }] }));
    assert_eq!(
        Diagnosis::default().judge(&gated),
        Verdict::Wait(Stage::Schedule, "no node yet".to_owned())
    );
}
