//! What a spec asks the cluster for, and what a launch waits for: on a real
//! scheduler and a real kubelet.

use podcradle_tests::e2e::git::Repository;
use podcradle_tests::e2e::registry::Registry;
use podcradle_tests::e2e::{Actor, Arch, Cluster, Running, WATCHDOG, actor, hexadecimal, native};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};
use podcradle_tests::testserver::digest;
use serde_json::json;

use crate::Test;
use crate::failures::gone;
use crate::manifest::Own;

pub const TESTS: &[(&str, Test)] = &[
    ("a_pod_is_placed_as_it_is_asked_for", placed),
    (
        "a_private_repository_is_cloned_with_the_secret_s_token",
        private_clone,
    ),
    ("an_image_is_pulled_with_the_secret_s_password", pulled),
    (
        "a_launch_that_waits_for_nothing_leaves_a_pod_without_a_node",
        no_wait,
    ),
    ("a_host_that_is_started_need_not_be_ready", started),
    (
        "a_host_with_a_startup_probe_is_ready_once_it_has_passed",
        startup,
    ),
];

fn placed(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("placed")?;
    let class = |kind: &str, group: &str, key: &str, value| {
        let metadata = json!({ "name": name });
        json!({ "apiVersion": group, "kind": kind, "metadata": metadata, key: value })
    };
    let admin = &actor.cluster.admin;
    let classes = [
        class("PriorityClass", "scheduling.k8s.io/v1", "value", json!(7)),
        class("RuntimeClass", "node.k8s.io/v1", "handler", json!("runc")),
    ];
    let _own = Own::create(admin, &classes)?;
    let toleration = json!({
        "key": "podcradle.test/taint", "operator": "Exists", "effect": "NoSchedule",
    });
    let term = json!({ "key": "kubernetes.io/hostname", "operator": "Exists" });
    let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [term] }] });
    let affinity = json!({
        "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms },
    });
    let done = actor
        .launch(&name)
        .option(&["--priority-class", &name, "--runtime-class", &name])
        .option(&["--toleration", "podcradle.test/taint:NoSchedule"])
        .option(&["--affinity", &affinity.to_string()])
        .option(&[
            "--ephemeral-storage-limit",
            "64Mi",
            "--host-name",
            "somebody",
        ])
        .host(&[
            "sh",
            "-c",
            "echo \"I am $PODCRADLE_HOST_NAME\"; exec sleep 1000",
        ])
        .run()?;
    ensure!(done["hostName"] == "somebody", "launched: {done}");
    let pod = admin.one("pod", &name)?;
    let spec = &pod["spec"];
    let tolerations = spec["tolerations"].as_array();
    ensure!(
        tolerations.is_some_and(|all| all.contains(&toleration)),
        "tolerations: {tolerations:?}"
    );
    ensure!(
        // The number is admission's, from the class.
        spec["priority"] == 7 && spec["priorityClassName"] == *name,
        "priority: {}",
        spec["priority"]
    );
    ensure!(
        spec["affinity"] == affinity && spec["runtimeClassName"] == *name,
        "{spec:#}"
    );
    for container in [&spec["initContainers"][0], &spec["containers"][0]] {
        let limit = &container["resources"]["limits"]["ephemeral-storage"];
        ensure!(limit == "64Mi", "{}", container["resources"]);
    }
    let logs = Running::start(&mut actor.podcradle(&["logs", "-f", &name]))?;
    logs.wait_for_stdout("I am somebody", WATCHDOG)?;
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn private_clone(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let (_, token) = actor.token()?;
    let repository = Repository::private(actor.cluster.address, &token)?;
    let name = actor.reserve("private")?;
    let secret = |label: &str, token: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": format!("{label}-{name}") },
            "stringData": { "GIT_TOKEN": token, "GIT_SSL_NO_VERIFY": "1", "COLOUR": "teal" },
        })
    };
    let secrets = [secret("right", &token), secret("wrong", "another-token")];
    let _own = Own::create(&actor.cluster.admin, &secrets)?;
    let launch = |label: &str| {
        actor
            .launch(&name)
            .option(&["--repo", &repository.url()])
            .option(&["--credentials-secret", &format!("{label}-{name}")])
    };
    let error = launch("wrong").try_run()?.with_code(6)?.json()?["error"].clone();
    ensure!(
        error["reason"] == "InitFailed"
            && error["message"]
                .to_string()
                .contains("Authentication failed")
            && error["hint"].to_string().contains("--credentials-secret"),
        "{error:#}"
    );
    gone(&actor, &name)?;
    let script = "cat README.md; echo \"colour $COLOUR\"; \
        printf %s \"$GIT_TOKEN\" | sha256sum; exec sleep 1000";
    launch("right").host(&["sh", "-c", script]).run()?;
    let logs = Running::start(&mut actor.podcradle(&["logs", "-f", &name]))?;
    let said = logs.wait_for_stdout(&hexadecimal(&digest(&token)), WATCHDOG)?;
    for line in ["hello from main", "colour teal"] {
        ensure!(said.lines().any(|one| one == line), "no {line} in {said}");
    }
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn pulled(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    actor.cluster.registry.as_ref().map_err(skip)?;
    // Of this machine's own architecture: it is the node's, which pulls.
    let (image, archive) = Cluster::busybox_archive(native())?;
    let registry = Registry::locked(&archive, &image)?;
    let name = actor.reserve("pulled")?;
    let secrets = [("right", true), ("wrong", false)];
    let secrets =
        secrets.map(|(label, right)| registry.pull_secret(&format!("{label}-{name}"), right));
    let _own = Own::create(&actor.cluster.admin, &secrets)?;
    let launch = |label: &str| {
        actor::Launch::of(&actor, &registry.image("busybox"))
            .option(&["--sandbox", &name, "--inject", "copy"])
            .option(&["--supervisor-image", &Cluster::supervisor(arch)])
            .option(&["--image-pull-secret", &format!("{label}-{name}")])
            .host(&["sleep", "1000"])
    };
    let error = launch("wrong").try_run()?.with_code(6)?.json()?["error"].clone();
    ensure!(
        error["reason"] == "ImagePull"
            && error["message"]
                .to_string()
                .contains("not with the one there is"),
        "{error:#}"
    );
    gone(&actor, &name)?;
    launch("right").run()?;
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn no_wait(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("no-wait")?;
    let options = [
        "--wait",
        "none",
        "--node-selector",
        "podcradle.test/nowhere=x",
    ];
    let done = actor.launch(&name).option(&options).run()?;
    ensure!(done["timings"]["startedMs"].is_null(), "launched: {done}");
    let pod = actor.cluster.admin.one("pod", &name)?;
    ensure!(
        pod["spec"]["nodeName"].is_null() && pod["spec"]["schedulingGates"][0].is_null(),
        "it is on its way to a node: {pod:#}"
    );
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn started(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("started")?;
    let probe = json!({ "exec": { "command": ["false"] } });
    let host = json!({ "name": "host", "readinessProbe": probe });
    let overlay = json!({ "spec": { "containers": [host] } }).to_string();
    let done = actor
        .launch(&name)
        .option(&["--wait", "started", "--overlay", &overlay])
        .host(&["sleep", "1000"])
        .run()?;
    ensure!(done["timings"]["startedMs"].is_u64(), "launched: {done}");
    let pod = actor.cluster.admin.one("pod", &name)?;
    let host = &pod["status"]["containerStatuses"][0];
    ensure!(
        host["state"]["running"].is_object() && host["ready"] == false,
        "the kubelet says {host:#}"
    );
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn startup(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("startup")?;
    let test = json!({ "command": ["test", "-e", "up"] });
    let probe = json!({ "exec": test, "periodSeconds": 1, "failureThreshold": 1000 });
    let host = json!({ "name": "host", "startupProbe": probe });
    let overlay = json!({ "spec": { "containers": [host] } }).to_string();
    let launch = actor
        .launch(&name)
        .option(&["--overlay", &overlay, "--start-timeout", "4m"])
        .host(&["sh", "-c", "sleep 3; touch up; exec sleep 1000"])
        .start()?;
    launch.wait_for_stderr("the host runs but is not ready", WATCHDOG)?;
    launch.wait(WATCHDOG)?.with_code(0)?;
    let pod = actor.cluster.admin.one("pod", &name)?;
    let host = &pod["status"]["containerStatuses"][0];
    ensure!(
        host["started"] == true && host["ready"] == true,
        "the kubelet says {host:#}"
    );
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}
