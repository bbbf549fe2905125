//! Names: taken ones, deleted ones, other people's.

use podcradle_tests::e2e::{Actor, Arch, Cluster, Error, WATCHDOG, actor};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use serde_json::{Value, json};

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("a_taken_name_is_refused_and_its_sandbox_untouched", taken),
    (
        "the_same_launch_id_is_not_a_second_sandbox",
        foreign_launch_id,
    ),
    ("deleting_twice_is_fine", twice),
    ("what_is_not_ours_is_neither_adopted_nor_deleted", foreign),
    ("what_is_being_deleted_under_the_name_is_waited_for", going),
    ("a_label_makes_a_name", label),
    ("many_are_deleted_in_one_go", many),
];

const SLEEP: [&str; 2] = ["sleep", "1000"];

/// What tells one incarnation of a sandbox from another.
fn uids(actor: &Actor, name: &str) -> Result<[Value; 2], Error> {
    let admin = &actor.cluster.admin;
    let [service, pod] = [admin.one("service", name)?, admin.one("pod", name)?];
    Ok([&service, &pod].map(|object| object["metadata"]["uid"].clone()))
}

fn taken(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("taken")?;
    actor.launch(&name).host(&SLEEP).run()?;
    let before = uids(&actor, &name)?;
    let again = actor.launch(&name).host(&SLEEP).try_run()?.with_code(5)?;
    let said = format!("{}{}", again.stdout, again.stderr);
    ensure!(
        said.contains(&name) && said.contains("taken"),
        "not said that the name is taken: {said}"
    );
    ensure!(uids(&actor, &name)? == before, "the first one was touched");
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn foreign_launch_id(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let reserved = actor.json(&["reserve", "again"])?;
    let name = reserved["sandbox"].as_str().unwrap_or_default();
    let id = reserved["launchId"].as_str().unwrap_or_default();
    ensure!(!name.is_empty() && !id.is_empty(), "reserved: {reserved}");
    actor.own(name);
    let launch = actor.launch(name).option(&["--launch-id", id]).host(&SLEEP);
    let launched = launch.run()?;
    ensure!(launched["launchId"] == id, "launched: {launched}");
    let before = uids(&actor, name)?;
    // Whatever the answer, there is one sandbox, the first.
    launch.try_run()?;
    ensure!(uids(&actor, name)? == before, "the first one was replaced");
    actor.run(&["delete", name])?;
    gone(&actor, name)
}

fn twice(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("delete-twice")?;
    actor.launch(&name).host(&SLEEP).run()?;
    actor.run(&["delete", &name])?;
    gone(&actor, &name)?;
    let again = actor.try_run(&["delete", &name])?.with_code(5)?;
    ensure!(again.stderr.contains(&name), "deleted: {}", again.stderr);
    actor.run(&["delete", "--ignore-not-found", &name])?;
    let status = actor.try_run(&["status", &name])?.with_code(5)?;
    ensure!(
        status.stderr.contains(&name),
        "status of what is gone: {}",
        status.stderr
    );
    Ok(())
}

fn foreign(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("foreign")?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    });
    let made = actor.cluster.admin.create(&service)?;
    let launched = actor.launch(&name).host(&SLEEP).try_run()?;
    launched.with_code(5)?;
    let deleted = actor.try_run(&["delete", &name])?;
    ensure!(
        deleted.code == 5 && deleted.stderr.contains(&name),
        "deleting someone else's: {}: {}",
        deleted.code,
        deleted.stderr
    );
    let now = actor.cluster.admin.one("service", &name)?;
    ensure!(
        now["metadata"]["uid"] == made["metadata"]["uid"]
            && now["metadata"]["annotations"] == made["metadata"]["annotations"]
            && now["metadata"]["labels"] == made["metadata"]["labels"],
        "someone else's Service was touched: {now:#}"
    );
    let list = actor.run(&["list"])?;
    ensure!(!list.stdout.contains(&name), "listed: {}", list.stdout);
    Ok(())
}

/// Somebody else's, that are on their way out and held by a finalizer.
fn going(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    let service = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
    let safe = json!({
        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
        "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" },
    });
    let pod = json!({
        "schedulingGates": [{ "name": "podcradle.test/never" }],
        "containers": [{ "name": "a", "image": "a:1", "securityContext": safe }],
    });
    for (kind, resource, spec) in [("Service", "services", service), ("Pod", "pods", pod)] {
        let name = actor.reserve("going")?;
        let uid = admin.create(&json!({
            "apiVersion": "v1", "kind": kind, "spec": spec,
            "metadata": { "name": name, "finalizers": ["podcradle.test/holds"] },
        }))?["metadata"]["uid"]
            .clone();
        let object = format!("{resource}/{name}");
        admin.run(&["delete", &object, "--wait=false"])?;
        let launch = actor.launch(&name).host(&SLEEP).start()?;
        let waits = format!("{resource} {name} of before is still being deleted");
        launch.wait_for_stderr(&waits, WATCHDOG)?;
        let free = r#"{"metadata":{"finalizers":null}}"#;
        admin.run(&["patch", &object, "--type=merge", "--patch", free])?;
        launch.wait(WATCHDOG)?.with_code(0)?;
        let now = admin.one(kind, &name)?;
        ensure!(now["metadata"]["uid"] != uid, "it is the {kind} of before");
        actor.run(&["delete", &name])?;
        gone(&actor, &name)?;
    }
    Ok(())
}

fn label(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let image = Cluster::image(arch);
    let launched = actor::Launch::of(&actor, &image)
        .option(&["--name", "labelled"])
        .host(&SLEEP)
        .run()?;
    let name = launched["sandbox"].as_str().unwrap_or_default();
    actor.own(name);
    let suffix = name.strip_prefix("podcradle-labelled-").unwrap_or_default();
    ensure!(
        suffix.len() == 6 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "the name is {name:?}"
    );
    actor.run(&["delete", name])?;
    gone(&actor, name)
}

fn many(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let names = [actor.reserve("many")?, actor.reserve("many")?];
    for name in &names {
        actor.launch(name).host(&SLEEP).run()?;
    }
    actor.run(&["delete", &names[0], &names[1]])?;
    for name in &names {
        gone(&actor, name)?;
    }
    Ok(())
}
