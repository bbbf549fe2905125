//! What a spec asks for is what a real API server takes.

use podcradle_tests::e2e::kubectl::Kubectl;
use podcradle_tests::e2e::{
    Actor, Arch, NAMESPACE, Result as Fixture, Running, WATCHDOG, repository,
};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use serde_json::{Value, json};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("every_example_is_accepted_as_restricted", examples),
    ("render_prints_it_and_the_server_looks_at_it", render),
    ("an_overlay_that_weakens_is_refused_at_once", unsafe_overlay),
    ("a_network_policy_belongs_to_the_session", network_policy),
    ("the_profile_s_objects_are_found_again", omnigent),
];

/// Objects of a test's own; dropping it takes them away.
pub struct Own<'a> {
    admin: &'a Kubectl,
    names: Vec<String>,
}

impl<'a> Own<'a> {
    pub fn create(admin: &'a Kubectl, objects: &[Value]) -> Fixture<Self> {
        let mut own = Own {
            admin,
            names: Vec::new(),
        };
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            own.names.push(format!("{kind}/{name}"));
            admin.create(object)?;
        }
        Ok(own)
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        for name in self.names.iter().rev() {
            // What a failed test said counts more than what tidying up says.
            let _ =
                self.admin
                    .try_run(&["delete", name, "--ignore-not-found=true", "--wait=false"]);
        }
    }
}

/// The launcher's own snapshots: what is reviewed is what is accepted.
fn examples(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    // Admission wants these to exist; both runs of the suite make their own.
    let own = |name: &str| format!("{name}-{}", arch.name());
    let named = |kind: &str, group: &str, more: Value| {
        let mut object = json!({
            "apiVersion": group, "kind": kind, "metadata": {"name": own("podcradle-test")},
        });
        if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        object
    };
    let account = json!({"metadata": {"name": own("omnigent-runner")}});
    let _own = Own::create(
        admin,
        &[
            named("PriorityClass", "scheduling.k8s.io/v1", json!({"value": 1})),
            named("RuntimeClass", "node.k8s.io/v1", json!({"handler": "runc"})),
            named("ServiceAccount", "v1", account),
        ],
    )?;
    let folder = repository().join("launcher/src/manifest/snapshots");
    let mut seen = 0;
    for file in std::fs::read_dir(&folder)? {
        let file = file?.path();
        let text = std::fs::read_to_string(&file)?
            .replace(
                "\"podcradle-test\"",
                &format!("{:?}", own("podcradle-test")),
            )
            .replace(
                "\"omnigent-runner\"",
                &format!("{:?}", own("omnigent-runner")),
            );
        let list: Value = serde_json::from_str(&text)?;
        for object in list["items"].as_array().into_iter().flatten() {
            let asked = admin.try_send(&["create", "--dry-run=server"], object)?;
            ensure!(
                asked.code == 0 && !asked.stderr.contains("Warning"),
                "{}: {}: {}",
                file.display(),
                object["kind"],
                asked.stderr
            );
            seen += 1;
        }
    }
    ensure!(seen >= 3 * 5, "{seen} objects in {}", folder.display());
    Ok(())
}

fn render(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("render")?;
    let options = ["--sandbox", &name, "--image", "i:1", "--network-policy"];
    // By itself it needs no cluster at all.
    let mut alone = actor.podcradle(&[&["render"], &options[..]].concat());
    alone.env("KUBECONFIG", "/dev/null").env_remove("HOME");
    let rendered = Running::start(&mut alone)?.wait(WATCHDOG)?.with_code(0)?;
    for text in [
        "kind: Service",
        "kind: NetworkPolicy",
        "kind: Pod",
        "token: \"[redacted]\"",
        &format!("uid: <uid of Service {name}>"),
    ] {
        ensure!(
            rendered.stdout.contains(text),
            "no {text:?} in {}",
            rendered.stdout
        );
    }
    let looked = actor.json(&[&["render", "--dry-run=server"], &options[..]].concat())?;
    let kinds: Vec<_> = looked["items"].as_array().into_iter().flatten().collect();
    let kinds: Vec<_> = kinds.iter().filter_map(|o| o["kind"].as_str()).collect();
    ensure!(
        kinds == ["Service", "NetworkPolicy", "Pod", "Secret"],
        "the server looked at {kinds:?}"
    );
    ensure!(
        looked["items"][2]["spec"]["schedulerName"].is_string(),
        "not as the API server has it: {:#}",
        looked["items"][2]
    );
    ensure!(
        looked["items"][3]["data"].is_null(),
        "the Secret is shown with its data"
    );
    let bad = r#"{"spec": {"hostNetwork": true}}"#;
    let weak = ["--allow-unsafe-overlay", "--overlay", bad];
    let refused = [&["launch", "--dry-run=server"], &options[..], &weak].concat();
    let refused = actor.try_run(&refused)?.with_code(4)?;
    ensure!(
        refused.stderr.contains("violates PodSecurity")
            && refused.stderr.contains("overlay.spec.hostNetwork"),
        "refused by {}",
        refused.stderr
    );
    let left = actor.cluster.admin.left_of(&name)?;
    ensure!(left.is_empty(), "a dry run made {left:?}");
    Ok(())
}

fn unsafe_overlay(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("unsafe")?;
    let overlay = json!({"spec": {
        "hostPID": true,
        "containers": [{"name": "host", "securityContext": {"privileged": true}}],
    }});
    let overlay = overlay.to_string();
    let launch = actor.launch(&name).option(&["--overlay", &overlay]);
    let refused = launch.try_run()?.with_code(2)?;
    for field in ["hostPID", "containers[host].securityContext.privileged"] {
        let line = format!("podcradle: --overlay: overlay.spec.{field} \"true\": must not be true");
        ensure!(
            refused.stderr.contains(&line),
            "no {line:?} in {}",
            refused.stderr
        );
    }
    let left = actor.cluster.admin.left_of(&name)?;
    ensure!(left.is_empty(), "something was made: {left:?}");
    Ok(())
}

fn network_policy(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    let name = actor.reserve("policy")?;
    actor
        .launch(&name)
        .option(&["--network-policy", "--egress", "0.0.0.0/0"])
        .host(&["sleep", "1000"])
        .run()?;
    let service = admin.one("service", &name)?;
    let policy = admin.one("networkpolicy", &name)?;
    let owners = &policy["metadata"]["ownerReferences"];
    ensure!(
        owners.as_array().map(Vec::len) == Some(1)
            && owners[0]["uid"] == service["metadata"]["uid"],
        "its owner: {owners}"
    );
    let spec = &policy["spec"];
    ensure!(
        spec["podSelector"]["matchLabels"]["podcradle.dev/session"] == *name
            && spec["ingress"].is_null()
            && spec["policyTypes"] == json!(["Ingress", "Egress"]),
        "{spec:#}"
    );
    let metadata = [
        "169.254.169.254/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
    ];
    let range = json!({"cidr": "0.0.0.0/0", "except": metadata});
    let rules = spec["egress"].as_array().into_iter().flatten();
    let found = rules.filter(|rule| rule["to"][0]["ipBlock"] == range);
    ensure!(found.count() == 1, "egress: {:#}", spec["egress"]);
    // Admission orders by time to the second; the resource version is exact.
    let version = |object: &Value| -> Option<u64> {
        object["metadata"]["resourceVersion"].as_str()?.parse().ok()
    };
    let pod = admin.one("pod", &name)?;
    ensure!(
        version(&policy).is_some() && version(&policy) < version(&pod),
        "the policy is not older than the Pod"
    );
    actor.run(&["delete", &name])?;
    admin.wait_gone("networkpolicy", &name)?;
    Ok(())
}

/// Objects that carry the labels of another manager are ours by their session.
fn omnigent(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("omnigent")?;
    actor
        .launch(&name)
        .option(&[
            "--profile",
            "omnigent",
            "--namespace",
            NAMESPACE,
            "--arch",
            "any",
        ])
        .option(&["--service-account", "podcradle-sandbox"])
        .host(&["sleep", "1000"])
        .run()?;
    let pod = actor.cluster.admin.one("pod", &name)?;
    let labels = &pod["metadata"]["labels"];
    ensure!(
        labels["app.kubernetes.io/managed-by"] == "omnigent"
            && labels["omnigent.ai/role"] == "sandbox-host",
        "{labels:#}"
    );
    let list = actor.run(&["list"])?.stdout;
    ensure!(list.contains(&name), "list does not name it: {list}");
    let status = actor.json(&["status", &name])?;
    ensure!(status["state"] == "Running", "status: {status}");
    actor.run(&["delete", &name])?;
    let left = actor.cluster.admin.find("pod", &name)?;
    ensure!(left.is_none(), "the Pod is still there");
    Ok(())
}
