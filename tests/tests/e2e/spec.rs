//! What a sandbox is to be: flags, variables, files and profiles, down to the
//! running host.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use podcradle_tests::e2e::place::Place;
use podcradle_tests::e2e::stage::{HOST, serve};
use podcradle_tests::e2e::{Actor, Arch, Cluster, NAMESPACE, Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};
use podcradle_tests::testserver::{Order, digest};
use serde_json::{Value, json};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("flag_variable_and_files_meet_in_one_pod", layers),
    ("all_that_is_wrong_with_a_file_is_said_at_once", wrong),
    (
        "an_environment_of_omnigents_launcher_launches_its_host",
        omnigent,
    ),
    ("omnigents_own_defaults_are_enough", omnigent_alone),
];

/// Runs a command to its success and returns what it printed.
fn json_of(mut command: Command) -> Result<Value, podcradle_tests::harness::Stop> {
    Ok(Running::start(&mut command)?
        .wait(WATCHDOG)?
        .with_code(0)?
        .json()?)
}

fn layers(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("layers")?;
    let config = actor.folder().join("config.yaml");
    let file = actor.folder().join("spec.yaml");
    let of_config = json!({
        "namespace": NAMESPACE,
        "sandbox": {
            "image": Cluster::image(arch), "imagePullPolicy": "IfNotPresent",
            "resources": {"cpuRequest": "10m", "memoryRequest": "16Mi", "memoryLimit": "1Gi"},
            "labels": {"team": "of-config", "app.kubernetes.io/part-of": "tests"},
        },
    });
    let of_file = "
host: [host, --server, 'http://192.0.2.1:1']
env: [PLACE]
labels: {team: of-file}
resources: {cpuLimit: 1, memoryRequest: 24Mi}
";
    std::fs::write(&config, of_config.to_string())?;
    std::fs::write(&file, of_file)?;
    let (config, file) = (config.display().to_string(), file.display().to_string());
    let podcradle = |verb: &str| {
        let mut command = actor.podcradle(&[verb, "--sandbox", &name, "-f", &file]);
        command.args(["--memory-limit", "512Mi", "--env", "LANG", "-o", "json"]);
        command.env("PODCRADLE_CONFIG", &config);
        command.env("PODCRADLE_MEMORY_REQUEST", "32Mi");
        command.env("LANG", "C.UTF-8").env("PLACE", "here");
        command
    };

    let shown = json_of(podcradle("config"))?;
    ensure!(
        !shown.to_string().contains("C.UTF-8"),
        "config shows the value of a variable: {shown}"
    );
    let fields = &shown["sandboxes"][0];
    for (field, value, kind, origin) in [
        (
            "resources.memoryLimit",
            json!("512Mi"),
            "flag",
            "--memory-limit",
        ),
        (
            "resources.memoryRequest",
            json!("32Mi"),
            "variable",
            "PODCRADLE_MEMORY_REQUEST",
        ),
        ("resources.cpuLimit", json!(1), "file", &*file),
        ("resources.cpuRequest", json!("10m"), "config", &*config),
        ("labels.team", json!("of-file"), "file", &*file),
    ] {
        let expected = json!({"value": value, "from": {"kind": kind, "name": origin}});
        ensure!(fields[field] == expected, "{field}: {}", fields[field]);
    }

    json_of(podcradle("launch"))?;
    let pod = actor.cluster.admin.one("pod", &name)?;
    let host = &pod["spec"]["containers"][0];
    let resources = json!({
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"cpu": "1", "memory": "512Mi"},
    });
    ensure!(
        host["resources"] == resources,
        "resources: {}",
        host["resources"]
    );
    let labels = &pod["metadata"]["labels"];
    ensure!(
        labels["team"] == "of-file" && labels["app.kubernetes.io/part-of"] == "tests",
        "labels: {labels}"
    );
    let env = host["env"].as_array().cloned().unwrap_or_default();
    for (name, value) in [("LANG", "C.UTF-8"), ("PLACE", "here")] {
        let variable = json!({"name": name, "value": value});
        ensure!(env.contains(&variable), "no {variable} in {env:?}");
    }
    actor.run(&["delete", &name])?;
    Ok(())
}

fn wrong(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let file = actor.folder().join("spec.yaml");
    std::fs::write(
        &file,
        "image: 5\nresources: {cpuLimt: 1}\n---\nttl: never\nimage: a\n",
    )?;
    let file = file.display().to_string();
    let ended = actor
        .try_run(&["launch", "-f", &file, "--memory-limit", "lots"])?
        .with_code(2)?;
    let lines: Vec<_> = ended.stderr.lines().collect();
    let flag = "podcradle: --memory-limit \"lots\": must be a quantity";
    for start in [
        format!("podcradle: {file}[0]: image \"5\": must be text"),
        format!(
            "podcradle: {file}[0]: resources.cpuLimt \"cpuLimt\": unknown key; did you mean cpuLimit?"
        ),
        format!("podcradle: {file}[1]: ttl \"never\": must be a time"),
        flag.to_owned(),
    ] {
        let found = lines.iter().filter(|line| line.starts_with(&start)).count();
        ensure!(found == 1, "{found} times {start:?} in {lines:#?}");
    }
    Ok(())
}

fn omnigent(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let server = serve(&actor)?;
    let name = actor.reserve("omnigent")?;
    let (file, token) = actor.token()?;
    server.expect(&name, digest(&token));
    let mut command = actor.podcradle(&["launch", "--sandbox", &name]);
    command
        .args(["--server", &server.url(), "--cpu-request", "10m"])
        .args([
            "--memory-request",
            "32Mi",
            "--image-pull-policy",
            "IfNotPresent",
        ])
        .args(["--token-file", &file.to_string_lossy(), "-o", "json"]);
    // What it was configured with before; here is no cluster but by that.
    command
        .env_remove("KUBECONFIG")
        .env("OMNIGENT_KUBERNETES_KUBECONFIG", actor.kubeconfig())
        .env("OMNIGENT_KUBERNETES_HOST_IMAGE", Cluster::image(arch))
        .env("OMNIGENT_KUBERNETES_NAMESPACE", NAMESPACE)
        .env("OMNIGENT_KUBERNETES_SERVICE_ACCOUNT", "podcradle-sandbox")
        .env("OMNIGENT_KUBERNETES_SANDBOX_ENV", "LANG, PLACE")
        .env("LANG", "C.UTF-8")
        .env("PLACE", "here")
        .env("PODCRADLE_PROFILE", "omnigent");
    if std::env::consts::ARCH != "x86_64" {
        // The node is none that omnigent's images were made for.
        command.env("PODCRADLE_ARCH", "any");
    }
    // The reference host stands in for omnigent's own program.
    command
        .arg("--")
        .args(HOST)
        .args(["--env-prefix", "OMNIGENT"]);
    let launched = json_of(command)?;
    ensure!(
        launched["workspace"] == "/home/omnigent/workspace",
        "launched: {launched}"
    );
    server.wait_for_dial_in(&name, WATCHDOG)?;
    server.order(&name, vec![Order::run("env", &["env"])]);
    let env = server.wait_for_order(&name, "env", WATCHDOG)?;
    let env = env["stdout"].as_str().unwrap_or_default();
    let id = format!("OMNIGENT_HOST_ID={name}");
    for line in [
        "HOME=/home/omnigent",
        "IS_SANDBOX=1",
        "LANG=C.UTF-8",
        "PLACE=here",
        &id,
    ] {
        ensure!(env.lines().any(|one| one == line), "no {line} in {env}");
    }
    ensure!(!env.contains("PODCRADLE_"), "podcradle's own names: {env}");

    let pod = actor.cluster.admin.one("pod", &name)?;
    let labels = &pod["metadata"]["labels"];
    ensure!(
        labels["app.kubernetes.io/managed-by"] == "omnigent"
            && labels["omnigent.ai/role"] == "sandbox-host",
        "labels: {labels}"
    );
    let args = &pod["spec"]["containers"][0]["args"];
    ensure!(
        args[0] == "bash" && args[1] == "-lc",
        "no login shell: {args}"
    );
    actor.run(&["delete", &name])?;
    Ok(())
}

/// The profile's namespace is one for all: one test at a time.
static OMNIGENT: Mutex<()> = Mutex::new(());

/// With nothing said but what omnigent's own launcher was told by its variables:
/// namespace, account, command and credentials are the profile's.
fn omnigent_alone(arch: Arch) -> Outcome {
    const PLACE: &str = "omnigent-sandboxes";
    let _one = OMNIGENT.lock().unwrap_or_else(PoisonError::into_inner);
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    if admin.find("namespace", PLACE)?.is_some() {
        return Err(skip(format!("the cluster has a namespace {PLACE} already")));
    }
    let place = Place::make(&actor, PLACE)?;
    let map = |name: &str, key: &str, text: &str| {
        let metadata = json!({ "name": name });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { key: text } })
    };
    // What stands in for omnigent, where only a login shell finds it.
    let stub = "#!/bin/sh\necho \"omnigent got $* with $A_CREDENTIAL in $HOME\"\nexec sleep 1000\n";
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "omnigent-runner" } }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "of-a-user" },
            "stringData": { "A_CREDENTIAL": "a-word" },
        }),
        map("profile", "tools.sh", "PATH=$PATH:/opt/tools\n"),
        map("tools", "omnigent", stub),
    ] {
        place.create(&object)?;
    }
    let volume =
        |name: &str| json!({ "name": name, "configMap": { "name": name, "defaultMode": 0o555 } });
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let mounts = [
        mount("profile", "/etc/profile.d"),
        mount("tools", "/opt/tools"),
    ];
    let overlay = json!({ "spec": {
        "volumes": [volume("profile"), volume("tools")],
        "containers": [{ "name": "host", "volumeMounts": mounts }],
    } });
    let podcradle = |args: &[&str]| {
        let mut command = actor.podcradle(args);
        command
            .env_remove("KUBECONFIG")
            .env("OMNIGENT_KUBERNETES_KUBECONFIG", actor.kubeconfig())
            .env("OMNIGENT_KUBERNETES_HOST_IMAGE", Cluster::image(arch))
            .env("OMNIGENT_KUBERNETES_SECRET", "of-a-user")
            .env("PODCRADLE_PROFILE", "omnigent")
            .env("PODCRADLE_IMAGE_PULL_POLICY", "IfNotPresent")
            .env("PODCRADLE_CPU_REQUEST", "10m")
            .env("PODCRADLE_MEMORY_REQUEST", "32Mi");
        if std::env::consts::ARCH != "x86_64" {
            command.env("PODCRADLE_ARCH", "any");
        }
        command
    };
    let server = "http://192.0.2.1:8000";
    let overlay = overlay.to_string();
    let launch = [
        "launch",
        "--server",
        server,
        "--overlay",
        &overlay,
        "-o",
        "json",
    ];
    let done = json_of(podcradle(&launch))?;
    ensure!(done["namespace"] == PLACE, "launched: {done}");
    let name = done["sandbox"].as_str().unwrap_or_default();
    let logs = Running::start(&mut podcradle(&["logs", "-f", name]))?;
    let said = format!("omnigent got host --server {server} with a-word in /home/omnigent\n");
    logs.wait_for_stdout(&said, WATCHDOG)?;
    let account = [
        "get",
        "pod",
        name,
        "--output=jsonpath={.spec.serviceAccountName}",
    ];
    let account = place.kubectl(&account)?;
    ensure!(account == "omnigent-runner", "its account is {account}");
    let delete = Running::start(&mut podcradle(&["delete", name]))?;
    delete.wait(WATCHDOG)?.with_code(0)?;
    drop(place);
    admin.wait_gone("namespace", PLACE)?;
    Ok(())
}
