//! What the API server refuses, and in whose name.

use podcradle_tests::e2e::account::Account;
use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::place::Place;
use podcradle_tests::e2e::webhook::{Hooked, Webhook};
use podcradle_tests::e2e::{Arch, Ended, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use serde_json::json;

use super::support::{Expected, Row, says};
use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("a_quota_that_is_used_up", quota),
    ("a_quota_that_frees_up", quota_frees),
    ("an_overlay_that_only_the_server_knows_to_be_wrong", overlay),
    ("a_limit_range", limit_range),
    ("a_name_that_the_cluster_does_not_know", missing),
    ("pod_security", pod_security),
    ("an_admission_policy", policy),
    ("an_admission_policy_that_changes_the_pod", changed),
    ("a_webhook_that_refuses", webhook),
    ("a_webhook_that_does_not_answer", hanging_webhook),
    ("a_namespace_that_is_not_there", no_namespace),
    ("a_namespace_that_is_being_deleted", terminating),
    ("credentials_that_are_not_accepted", unauthorized),
];

/// A launch in this namespace.
pub fn launch_in(row: &Row, place: &str, options: &[&str]) -> Result<Ended, Stop> {
    let launch = row.launch().option(&["-n", place]).option(options);
    Ok(launch.host(&["sleep", "1000"]).try_run()?)
}

pub fn nothing_in(place: &Place) -> Outcome {
    let left = place.kubectl(&["get", "services,pods", "--output=name"])?;
    let left: Vec<_> = left.lines().collect();
    ensure!(left.is_empty(), "left in {}: {left:?}", place.name);
    Ok(())
}

/// A quota that leaves room for so many Pods.
fn few_pods(place: &Place, pods: &str) -> Outcome {
    place.create(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few-pods" },
        "spec": { "hard": { "pods": pods } },
    }))?;
    // In force once the quota's own controller has counted.
    let counted = format!("--for=jsonpath={{.status.hard.pods}}={pods}");
    place.kubectl(&["wait", "resourcequota/few-pods", &counted, "--timeout=60s"])?;
    Ok(())
}

fn quota(arch: Arch) -> Outcome {
    let row = Row::new(arch, "quota")?;
    let place = Place::make(&row.actor, &row.name)?;
    few_pods(&place, "0")?;
    // Whichever ends first.
    for budget in ["--timeout", "--schedule-timeout"] {
        let ended = launch_in(&row, &place.name, &[budget, "4s"])?;
        let expected = Expected {
            code: 4,
            reason: "Quota",
            message: &["exceeded quota: few-pods", "limited: pods=0", &place.name],
            hint: "have the quota raised",
        };
        row.is_refused(ended, &expected)?;
        nothing_in(&place)?;
    }
    Ok(())
}

fn quota_frees(arch: Arch) -> Outcome {
    let row = Row::new(arch, "quota-frees")?;
    let place = Place::make(&row.actor, &row.name)?;
    few_pods(&place, "0")?;
    let launch = row.launch().option(&["-n", &place.name]);
    let launch = launch.host(&["sleep", "1000"]).start()?;
    launch.wait_for_stderr("exceeded quota: few-pods", WATCHDOG)?;
    let more = r#"{"spec":{"hard":{"pods":"1"}}}"#;
    place.kubectl(&["patch", "resourcequota", "few-pods", "--patch", more])?;
    let done = launch.wait(WATCHDOG)?.with_code(0)?.json()?;
    ensure!(done["generation"] == 1, "launched: {done}");
    row.actor.run(&["-n", &place.name, "delete", &row.name])?;
    nothing_in(&place)
}

/// What is right by its type, and wrong all the same.
fn overlay(arch: Arch) -> Outcome {
    let aliases = json!({ "hostAliases": [{ "ip": "nowhere", "hostnames": ["a"] }] });
    let limits = json!({ "limits": { "example.com/things": "many" } });
    let limits = json!({ "containers": [{ "name": "host", "resources": limits }] });
    for (fixture, spec, code, says) in [
        ("overlay-invalid", aliases, 422, "hostAliases"),
        ("overlay-unparsable", limits, 400, "quantit"),
    ] {
        let row = Row::new(arch, fixture)?;
        let overlay = json!({ "spec": spec }).to_string();
        let expected = Expected {
            code: 2,
            reason: "Invalid",
            message: &[says],
            hint: "what the message names",
        };
        let ended = row.launch().option(&["--overlay", &overlay]).try_run()?;
        row.is_refused(ended, &expected)?;
        let status = row.middle.refusals();
        ensure!(status[0]["code"] == code, "refused with {status:?}");
        gone(&row.actor, &row.name)?;
    }
    Ok(())
}

fn limit_range(arch: Arch) -> Outcome {
    let row = Row::new(arch, "limit-range")?;
    let place = Place::make(&row.actor, &row.name)?;
    place.create(&json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "small" },
        "spec": { "limits": [{ "type": "Container", "max": { "memory": "1Gi" } }] },
    }))?;
    let ended = launch_in(&row, &place.name, &[])?;
    let expected = Expected {
        code: 4,
        reason: "Policy",
        message: &["maximum memory usage per Container is 1Gi"],
        hint: "--memory-limit",
    };
    row.is_refused(ended, &expected)?;
    nothing_in(&place)
}

/// What admission plug-ins of Kubernetes' own look up for a Pod.
fn missing(arch: Arch) -> Outcome {
    for flag in ["--runtime-class", "--priority-class", "--service-account"] {
        let row = Row::new(arch, "missing")?;
        let ended = row.launch().option(&[flag, "nowhere"]).try_run()?;
        let expected = Expected {
            code: 2,
            reason: "Invalid",
            message: &[flag, "nowhere", "not exist"],
            hint: "create it, or name another one",
        };
        row.is_refused(ended, &expected)?;
        gone(&row.actor, &row.name)?;
    }
    Ok(())
}

fn pod_security(arch: Arch) -> Outcome {
    let row = Row::new(arch, "pod-security")?;
    let place = Place::make(&row.actor, &row.name)?;
    // A volume that `restricted` does not allow, added by an admission plug-in.
    let volume = r#"[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{
        name: "host", hostPath: Object.spec.volumes.hostPath{path: "/"}
    }}]"#;
    let Some(_policy) = Policy::patch(&row.actor, &place.name, &row.name, volume)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let ended = launch_in(&row, &place.name, &[])?;
    let expected = Expected {
        code: 4,
        reason: "Policy",
        message: &["violates PodSecurity \"restricted:latest\"", "hostPath"],
        hint: "Pod Security",
    };
    row.is_refused(ended, &expected)?;
    nothing_in(&place)
}

fn policy(arch: Arch) -> Outcome {
    let row = Row::new(arch, "admission-policy")?;
    let why = "sandboxes are launched on weekdays alone";
    let Some(_policy) = Policy::refuse(&row.actor, &row.name, why)? else {
        return Err(skip("the cluster has no ValidatingAdmissionPolicy"));
    };
    let expected = Expected {
        code: 4,
        reason: "Policy",
        message: &["ValidatingAdmissionPolicy", why],
        hint: "whoever runs the cluster",
    };
    row.is_refused(row.launch().try_run()?, &expected).map(drop)
}

/// What keeps the sandbox in is taken away, in a namespace that would let it run.
fn changed(arch: Arch) -> Outcome {
    for (what, patch) in [
        (
            "securityContext",
            r#"[JSONPatch{op: "remove", path: "/spec/containers/0/securityContext"}]"#,
        ),
        (
            "podcradle.dev/token",
            r#"[JSONPatch{op: "remove", path: "/spec/schedulingGates"}]"#,
        ),
    ] {
        let row = Row::new(arch, "admission-changes")?;
        let place = Place::make(&row.actor, &row.name)?;
        let anything = "pod-security.kubernetes.io/enforce=privileged";
        let admin = &row.actor.cluster.admin;
        admin.run(&["label", "namespace", &place.name, anything, "--overwrite"])?;
        let Some(_policy) = Policy::patch(&row.actor, &place.name, &row.name, patch)? else {
            return Err(skip("the cluster has no MutatingAdmissionPolicy"));
        };
        let ended = launch_in(&row, &place.name, &[])?;
        let expected = Expected {
            code: 4,
            reason: "AdmissionChanged",
            message: &["an admission plug-in of the cluster changed the Pod", what],
            hint: "the Pod was not run",
        };
        says(ended, &expected)?;
        place.kubectl(&["wait", "--for=delete", "--all", "--timeout=60s", "pods"])?;
        nothing_in(&place)?;
    }
    Ok(())
}

fn webhook(arch: Arch) -> Outcome {
    let row = Row::new(arch, "webhook-refuses")?;
    row.actor.cluster.audit.as_ref().map_err(skip)?;
    let _hook = Hooked::start(&row.actor, &row.name, Webhook::Refuses)?;
    let expected = Expected {
        code: 4,
        reason: "Policy",
        message: &[
            "hook.podcradle.test",
            "images must come from the vetted registry",
        ],
        hint: "whoever runs the cluster",
    };
    row.is_refused(row.launch().try_run()?, &expected).map(drop)
}

fn hanging_webhook(arch: Arch) -> Outcome {
    let row = Row::new(arch, "webhook-hangs")?;
    row.actor.cluster.audit.as_ref().map_err(skip)?;
    let _hook = Hooked::start(&row.actor, &row.name, Webhook::Hangs)?;
    let expected = Expected {
        code: 4,
        reason: "Policy",
        message: &["hook.podcradle.test", "does not answer"],
        hint: "whoever runs the cluster",
    };
    let launch = row.launch().option(&["--timeout", "5s"]);
    row.is_refused(launch.try_run()?, &expected).map(drop)
}

fn no_namespace(arch: Arch) -> Outcome {
    let row = Row::new(arch, "namespace-missing")?;
    let account = Account::everywhere(&row.actor)?;
    row.middle.go_as(&row.actor, &account.token)?;
    let ended = launch_in(&row, "podcradle-nowhere", &[])?;
    let expected = Expected {
        code: 5,
        reason: "Namespace",
        message: &["namespaces \"podcradle-nowhere\" not found"],
        hint: "-n",
    };
    row.is_refused(ended, &expected).map(drop)
}

fn terminating(arch: Arch) -> Outcome {
    let row = Row::new(arch, "namespace-terminating")?;
    let place = Place::make(&row.actor, &row.name)?;
    // Its roles go first when a namespace goes; what holds it is this.
    let account = Account::everywhere(&row.actor)?;
    row.middle.go_as(&row.actor, &account.token)?;
    place.create(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "holds", "finalizers": ["podcradle.test/holds"] },
    }))?;
    place.kubectl(&["delete", "namespace", &place.name, "--wait=false"])?;
    let ended = launch_in(&row, &place.name, &[]);
    let free = r#"{"metadata":{"finalizers":null}}"#;
    place.kubectl(&[
        "patch",
        "configmap",
        "holds",
        "--type=merge",
        "--patch",
        free,
    ])?;
    let expected = Expected {
        code: 5,
        reason: "Namespace",
        message: &["because it is being terminated"],
        hint: "-n",
    };
    row.is_refused(ended?, &expected).map(drop)
}

fn unauthorized(arch: Arch) -> Outcome {
    let row = Row::new(arch, "credentials-refused")?;
    row.middle.go_as(&row.actor, "no.such.token")?;
    let expected = Expected {
        code: 3,
        reason: "Unauthorized",
        message: &["does not accept the credentials"],
        hint: "renew the credentials",
    };
    row.is_refused(row.launch().try_run()?, &expected).map(drop)
}
