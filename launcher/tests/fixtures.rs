//! Every row of "Why a launch fails", replayed from what API servers and
//! kubelets showed (`fixtures/`): the same verdict, the same words.

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use podcradle_launcher::cluster::{Call, by_status};
use podcradle_launcher::watch::{Diagnosis, Fatal, Stage, Verdict};
use podcradle_launcher::{Failure, Reason};
use serde_json::Value;

const HOST: Option<&str> = Some("host");
const PREP: Option<&str> = Some("workspace-prep");

/// Fixture, reason, whose log, of which of several instances, message, hint.
type Row = (
    &'static str,
    Reason,
    Option<&'static str>,
    Option<i32>,
    &'static str,
    &'static str,
);

const FATAL: &[Row] = &[
    (
        "image-not-found",
        Reason::ImagePull,
        None,
        None,
        "not found",
        "--image",
    ),
    (
        "image-unauthorized",
        Reason::ImagePull,
        None,
        None,
        "no basic auth credentials",
        "--image-pull-secret",
    ),
    (
        "image-platform",
        Reason::Platform,
        None,
        None,
        "no variant for the node's architecture",
        "--arch",
    ),
    (
        "image-name",
        Reason::ImageName,
        None,
        None,
        "localhost/podcradle:a:b",
        "--image",
    ),
    (
        "image-never-pulled",
        Reason::ImageName,
        None,
        None,
        "may not be pulled",
        "--image-pull-policy",
    ),
    (
        "image-volume",
        Reason::ImagePull,
        None,
        None,
        "the image of a volume",
        "--supervisor-image",
    ),
    (
        "start-error",
        Reason::StartError,
        None,
        None,
        "no such file or directory",
        "--init-dir",
    ),
    (
        "copy-image-not-found",
        Reason::ImagePull,
        None,
        None,
        "not found",
        "--supervisor-image",
    ),
    (
        "copy-start-error",
        Reason::StartError,
        None,
        None,
        "container podcradle-init",
        "--supervisor-image",
    ),
    (
        "config-error",
        Reason::ContainerConfig,
        None,
        None,
        "secret \"nowhere\" not found",
        "--credentials-secret",
    ),
    (
        "clone-fails",
        Reason::InitFailed,
        PREP,
        None,
        "exit code 128",
        "--repo",
    ),
    (
        "clone-memory",
        Reason::OutOfMemory,
        PREP,
        None,
        "its limit of 48Mi",
        "--memory-limit",
    ),
    (
        "host-ends",
        Reason::HostEnded,
        HOST,
        None,
        "exited with code 9",
        "log",
    ),
    (
        "host-missing",
        Reason::HostEnded,
        HOST,
        None,
        "cannot execute no-such-host",
        "-- HOST",
    ),
    (
        "host-memory",
        Reason::OutOfMemory,
        HOST,
        None,
        "its limit of 64Mi",
        "--memory-limit",
    ),
    (
        "lifetime",
        Reason::LifetimeExceeded,
        None,
        None,
        "maximum lifetime",
        "--max-lifetime",
    ),
    (
        "deleted",
        Reason::DeletedBySomeone,
        None,
        None,
        "by someone else",
        "who deletes Pods",
    ),
    (
        "evicted",
        Reason::Evicted,
        None,
        None,
        "Eviction API",
        "launch again",
    ),
    (
        "disk",
        Reason::Evicted,
        None,
        None,
        "more disk than its limit",
        "--ephemeral-storage-limit",
    ),
    (
        "hand-written-node-lost",
        Reason::Evicted,
        None,
        None,
        "no fault of its host",
        "launch again",
    ),
    (
        "hand-written-preempted",
        Reason::Evicted,
        None,
        None,
        "higher priority",
        "--priority-class",
    ),
    (
        "hand-written-rejected",
        Reason::Evicted,
        None,
        None,
        "OutOfcpu",
        "launch again",
    ),
    (
        "hand-written-manifest-unknown",
        Reason::ImagePull,
        None,
        None,
        "manifest unknown",
        "--image",
    ),
    (
        "hand-written-cannot-run",
        Reason::StartError,
        None,
        None,
        "permission denied",
        "runtime",
    ),
    (
        "host-crashes",
        Reason::HostEnded,
        HOST,
        Some(1),
        "code 7",
        "log",
    ),
    (
        "crash-loop",
        Reason::HostEnded,
        HOST,
        Some(2),
        "keeps ending",
        "log",
    ),
    (
        "create-error",
        Reason::ContainerConfig,
        None,
        None,
        "podcradle-nowhere.json",
        "change the spec",
    ),
    (
        "image-volume-mount",
        Reason::ContainerConfig,
        None,
        None,
        "ImageVolumeMountFailed",
        "change the spec",
    ),
    (
        "run-error",
        Reason::StartError,
        None,
        None,
        "no such file or directory",
        "--init-dir",
    ),
    (
        "clone-crashes",
        Reason::InitFailed,
        PREP,
        Some(1),
        "exit code 128",
        "--repo",
    ),
    (
        "clone-crash-loop",
        Reason::InitFailed,
        PREP,
        Some(2),
        "keeps ending",
        "log",
    ),
    (
        "deleted-unscheduled",
        Reason::DeletedBySomeone,
        None,
        None,
        "by someone else",
        "who deletes Pods",
    ),
    (
        "home-disk",
        Reason::Evicted,
        None,
        None,
        "more disk than its limit",
        "--home-size-limit",
    ),
];

/// Fixture, stage, and what is said meanwhile, when time runs out.
const WAITING: &[(&str, Stage, &str)] = &[
    ("unschedulable", Stage::Schedule, "node(s) didn't match"),
    (
        "foreign-gate",
        Stage::Schedule,
        "scheduling gate queue.example/wait",
    ),
    (
        "pull-stalls",
        Stage::Pull,
        "workspace-prep: PodInitializing, image 127.0.0.1:",
    ),
    (
        "host-pull-stalls",
        Stage::Pull,
        "host: PodInitializing, image 127.0.0.1:",
    ),
    ("registry-refuses", Stage::Pull, "connection refused"),
    ("registry-fails", Stage::Pull, "503 Service Unavailable"),
    ("clone-hangs", Stage::Init, "workspace-prep runs"),
    (
        "never-ready",
        Stage::Start,
        "the host runs but is not ready",
    ),
];

/// Fixture, reason, message, hint.
const REFUSED: &[(&str, Reason, &str, &str)] = &[
    (
        "quota",
        Reason::Quota,
        "exceeded quota: few-pods",
        "quota raised",
    ),
    (
        "limit-range",
        Reason::Policy,
        "maximum memory usage per Container",
        "--memory-limit",
    ),
    (
        "pod-security",
        Reason::Policy,
        "violates PodSecurity",
        "Pod Security",
    ),
    (
        "admission-policy",
        Reason::Policy,
        "on weekdays alone",
        "runs the cluster",
    ),
    (
        "webhook-refuses",
        Reason::Policy,
        "denied the request",
        "runs the cluster",
    ),
    (
        "webhook-hangs",
        Reason::Policy,
        "does not answer",
        "runs the cluster",
    ),
    ("namespace-missing", Reason::Namespace, "not found", "-n"),
    (
        "namespace-terminating",
        Reason::Namespace,
        "being terminated",
        "-n",
    ),
    (
        "right-missing",
        Reason::Denied,
        "deploy/role.yaml",
        "deploy/",
    ),
    (
        "credentials-refused",
        Reason::Unauthorized,
        "credentials",
        "renew the credentials",
    ),
    (
        "overlay-invalid",
        Reason::Invalid,
        "hostAliases",
        "what the message names",
    ),
    (
        "overlay-unparsable",
        Reason::Invalid,
        "quantit",
        "what the message names",
    ),
    (
        "hand-written-scc",
        Reason::Policy,
        "security context constraint",
        "runs the cluster",
    ),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn fixture(name: &str) -> Value {
    let path = folder().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The verdicts on what a watch showed, up to the first that ends a launch.
fn last_verdict(name: &str) -> Verdict {
    let mut diagnosis = Diagnosis::default();
    let mut last = None;
    for event in fixture(name)["pods"].as_array().expect("pods") {
        let pod: Pod = serde_json::from_value(event["object"].clone()).expect("a Pod");
        let verdict = diagnosis.judge(&pod);
        assert_ne!(verdict, Verdict::Ready, "{name}: {pod:?}");
        let is_fatal = matches!(verdict, Verdict::Fatal(_));
        last = Some(verdict);
        if is_fatal {
            break;
        }
    }
    last.expect("a verdict")
}

#[test]
fn what_ends_a_launch_ends_it_with_its_reason() {
    for (name, reason, container, instance, message, hint) in FATAL {
        let Verdict::Fatal(fatal) = last_verdict(name) else {
            panic!("{name} is not fatal: {:?}", last_verdict(name));
        };
        let number = fatal.instance.as_ref().map(|instance| instance.number);
        assert_eq!(
            (fatal.reason, fatal.container, number),
            (*reason, *container, *instance),
            "{name}: {fatal:?}"
        );
        assert!(fatal.message.contains(message), "{name}: {}", fatal.message);
        assert!(fatal.hint.contains(hint), "{name}: {}", fatal.hint);
    }
}

#[test]
fn what_may_still_come_is_waited_for_and_named() {
    for (name, stage, why) in WAITING {
        let Verdict::Wait(found, text) = last_verdict(name) else {
            panic!("{name} is not waited for: {:?}", last_verdict(name));
        };
        assert_eq!(found, *stage, "{name}");
        assert!(text.contains(why), "{name}: {text}");
        let budget = std::time::Duration::from_secs(3);
        let spent = Fatal::stage_took_too_long(found, budget, &text);
        assert!(
            spent.message.contains(why) && spent.message.contains("budget of 3s"),
            "{spent:?}"
        );
    }
}

#[test]
fn what_is_refused_is_told_apart() {
    for (name, reason, message, hint) in REFUSED {
        let status: Status =
            serde_json::from_value(fixture(name)["status"].clone()).expect("a Status");
        let call = Call {
            verb: "create",
            resource: "pods",
            namespace: "ns".to_owned(),
            name: "podcradle-row".to_owned(),
        };
        let failure = Failure::from_error(&by_status(call, &status));
        assert_eq!(failure.reason, *reason, "{name}: {failure:?}");
        assert!(
            failure.message.contains(message),
            "{name}: {}",
            failure.message
        );
        assert!(failure.hint.contains(hint), "{name}: {}", failure.hint);
    }
}

#[test]
fn every_fixture_is_a_row_and_says_where_it_is_from() {
    let rows = FATAL
        .iter()
        .map(|row| row.0)
        .chain(WAITING.iter().map(|row| row.0))
        .chain(REFUSED.iter().map(|row| row.0));
    let rows: BTreeSet<_> = rows.map(str::to_owned).collect();
    let files = std::fs::read_dir(folder()).expect("fixtures");
    let files: BTreeSet<_> = files
        .filter_map(|file| {
            file.ok()?
                .file_name()
                .to_str()?
                .strip_suffix(".json")
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(rows, files);
    for name in rows {
        let is_recorded = fixture(&name)["recordedFrom"].is_string();
        assert_ne!(is_recorded, name.starts_with("hand-written-"), "{name}");
    }
}
