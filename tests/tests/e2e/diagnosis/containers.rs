//! Containers that the runtime does not make or start, and those that a kubelet
//! starts again and again where an overlay lets it.

use podcradle_tests::e2e::Arch;
use podcradle_tests::e2e::git::Repository;
use podcradle_tests::harness::{Outcome, skip};
use podcradle_tests::{ensure, testbed};
use serde_json::{Value, json};

use super::support::{Expected, Row};
use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("a_container_that_the_runtime_does_not_make", not_made),
    ("an_image_volume_that_cannot_be_mounted", not_mounted),
    (
        "a_container_that_does_not_start_again_and_again",
        not_started,
    ),
    ("a_clone_that_fails_again_and_again", clone_crashes),
];

const ALWAYS: &str = r#"{"spec":{"restartPolicy":"Always"}}"#;

fn not_made(arch: Arch) -> Outcome {
    let row = Row::new(arch, "create-error")?;
    let profile = json!({ "type": "Localhost", "localhostProfile": "podcradle-nowhere.json" });
    let host = json!({ "name": "host", "securityContext": { "seccompProfile": profile } });
    let overlay = json!({ "spec": { "containers": [host] } }).to_string();
    let expected = Expected {
        code: 6,
        reason: "ContainerConfig",
        message: &["container host cannot be set up", "podcradle-nowhere.json"],
        hint: "change the spec",
    };
    let launch = row
        .launch()
        .option(&["--allow-unsafe-overlay", "--overlay", &overlay]);
    row.fails(launch.host(&["sleep", "1000"]).try_run()?, &expected)
        .map(drop)
}

fn not_mounted(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-volume-mount")?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    let image = json!({ "reference": testbed::BUSYBOX, "pullPolicy": "IfNotPresent" });
    let mount = json!({ "name": "extra", "mountPath": "/extra", "subPath": "podcradle-nowhere" });
    let overlay = json!({ "spec": {
        "volumes": [{ "name": "extra", "image": image }],
        "containers": [{ "name": "host", "volumeMounts": [mount] }],
    } });
    let expected = Expected {
        code: 6,
        reason: "ContainerConfig",
        message: &[
            "container host cannot be set up",
            "ImageVolumeMountFailed",
            "podcradle-nowhere",
        ],
        hint: "change the spec",
    };
    let launch = row.launch().option(&["--overlay", &overlay.to_string()]);
    row.fails(launch.host(&["sleep", "1000"]).try_run()?, &expected)
        .map(drop)
}

fn not_started(arch: Arch) -> Outcome {
    let row = Row::new(arch, "run-error")?;
    let expected = Expected {
        code: 6,
        reason: "StartError",
        message: &["workspace-prep", "/nowhere/podcradle-init", "no such file"],
        hint: "--init-dir",
    };
    let launch = row
        .launch()
        .option(&["--init-dir", "/nowhere", "--overlay", ALWAYS]);
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn clone_crashes(arch: Arch) -> Outcome {
    let row = Row::new(arch, "clone-crashes")?;
    let repository = Repository::serve(row.actor.cluster.address)?;
    let url = repository.missing_url();
    let options = ["--repo", &url, "--overlay", ALWAYS, "--keep-on-failure"];
    let ended = row.launch().option(&options).try_run()?.with_code(6)?;
    row.keep_pods()?;
    let error: Value = ended.json()?["error"].clone();
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(
        error["reason"] == "InitFailed" && message.contains("(instance "),
        "{error:#}"
    );
    let log = error["log"].as_str().unwrap_or_default();
    ensure!(log.contains("fatal: repository"), "log: {error:#}");
    let pod = row.held_back("initContainerStatuses", "clone-crash-loop")?;
    let last = &pod["status"]["initContainerStatuses"][0]["lastState"];
    ensure!(last["terminated"]["exitCode"] == 128, "held back: {pod:#}");
    row.actor.run(&["delete", &row.name])?;
    gone(&row.actor, &row.name)
}
