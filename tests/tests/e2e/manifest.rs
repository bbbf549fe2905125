//! What a spec asks for is what a real API server takes and a real kubelet
//! runs.

use std::path::{Path, PathBuf};

use podcradle_tests::e2e::kubectl::Kubectl;
use podcradle_tests::e2e::{
    Actor, Arch, NAMESPACE, Result as Fixture, Running, WATCHDOG, hexadecimal, repository,
};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use podcradle_tests::testserver::digest;
use serde_json::{Value, json};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("every_example_is_accepted_as_restricted", examples),
    ("render_prints_it_and_the_server_looks_at_it", render),
    ("a_login_shell_finds_the_host_by_its_profile", login_shell),
    ("a_failed_host_is_restarted_in_its_container", restart),
    ("secrets_and_claims_are_mounted", mounts),
    ("a_token_by_key_reference", secret_key_ref),
    ("an_overlay_adds_a_probe_and_a_variable", overlay),
    ("an_overlay_that_weakens_is_refused_at_once", unsafe_overlay),
    ("a_network_policy_belongs_to_the_session", network_policy),
    ("the_profile_s_objects_are_found_again", omnigent),
];

/// Objects of a test's own; dropping it takes them away.
struct Own<'a> {
    admin: &'a Kubectl,
    names: Vec<String>,
}

impl<'a> Own<'a> {
    fn create(admin: &'a Kubectl, objects: &[Value]) -> Fixture<Self> {
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

/// The log of a sandbox, once it holds this text.
fn log(actor: &Actor, name: &str, text: &str) -> Fixture<String> {
    let logs = Running::start(&mut actor.podcradle(&["logs", "-f", name]))?;
    logs.wait_for_stdout(text, WATCHDOG)
}

fn file(actor: &Actor, name: &str, content: &Value) -> std::io::Result<PathBuf> {
    let path = actor.folder().join(name);
    std::fs::write(&path, content.to_string())?;
    Ok(path)
}

fn login_shell(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("login-shell")?;
    let map = |suffix: &str, key: &str, text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{name}-{suffix}")}, "data": {key: text},
        })
    };
    let script = "#!/bin/sh\nprintf 'agent got <%s> <%s>\\n' \"$1\" \"$2\"\nexec sleep 1000\n";
    let _own = Own::create(
        &actor.cluster.admin,
        &[
            map("profile", "tools.sh", "PATH=$PATH:/opt/tools\n"),
            map("tools", "agent", script),
        ],
    )?;
    // The image's profile is made by an overlay: nothing else is in its PATH.
    let volume = |suffix: &str| {
        let config = json!({"name": format!("{name}-{suffix}"), "defaultMode": 0o555});
        json!({"name": suffix, "configMap": config})
    };
    let overlay = json!({"spec": {
        "volumes": [volume("profile"), volume("tools")],
        "containers": [{"name": "host", "volumeMounts": [
            {"name": "profile", "mountPath": "/etc/profile.d"},
            {"name": "tools", "mountPath": "/opt/tools"},
        ]}],
    }});
    let overlay = file(&actor, "overlay.yaml", &overlay)?;
    actor
        .launch(&name)
        .option(&["--login-shell", "--overlay", &overlay.to_string_lossy()])
        .host(&["agent", "two words", "$(id) $HOME"])
        .run()?;
    log(&actor, &name, "agent got <two words> <$(id) $HOME>")?;
    Ok(())
}

fn restart(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("restart")?;
    let script = "if [ -e ran ]; then echo once more; exec sleep 1000; fi; touch ran; exit 3";
    actor
        .launch(&name)
        .option(&["--restart", "on-failure:2"])
        .host(&["sh", "-c", script])
        .run()?;
    log(&actor, &name, "once more")?;
    let pod = actor.cluster.admin.one("pod", &name)?;
    let status = &pod["status"]["containerStatuses"][0];
    ensure!(
        status["restartCount"] == 0 && status["state"]["running"].is_object(),
        "the kubelet saw {status:#}"
    );
    Ok(())
}

fn mounts(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("mounts")?;
    let disk = actor.folder().join("disk");
    std::fs::create_dir(&disk)?;
    open_to_all(&disk)?;
    let volume = format!("{name}-volume");
    let _own = Own::create(
        &actor.cluster.admin,
        &[
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {
                    "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteMany"],
                    "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
                    "hostPath": {"path": disk, "type": "Directory"},
                    "claimRef": {"namespace": NAMESPACE, "name": name},
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteMany"], "storageClassName": "",
                    "volumeName": volume, "resources": {"requests": {"storage": "1Mi"}},
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{name}-extra")},
                "stringData": {"key": "a certificate\n"},
            }),
        ],
    )?;
    let script = "cat /certificates/key; stat -Lc %a /certificates/key; \
        echo written >/data/file; cat /again/file; \
        echo x >/again/file; echo $?; echo x >/certificates/key; echo $?; \
        echo end; exec sleep 1000";
    actor
        .launch(&name)
        .option(&["--mount", &format!("claim={name},path=/data,writable")])
        .option(&["--mount", &format!("claim={name},path=/again")])
        .option(&[
            "--mount",
            &format!("secret={name}-extra,path=/certificates"),
        ])
        .host(&["bash", "-c", script])
        .run()?;
    let log = log(&actor, &name, "end\n")?;
    let lines: Vec<_> = log
        .lines()
        .filter(|line| !line.starts_with("bash: "))
        .collect();
    ensure!(
        lines == ["a certificate", "440", "written", "1", "1", "end"],
        "the host saw {log}"
    );
    ensure!(
        std::fs::read_to_string(disk.join("file"))? == "written\n",
        "nothing on the disk"
    );
    actor.run(&["delete", &name])?;
    Ok(())
}

fn open_to_all(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // The sandbox's user is nobody on this machine, and its way there is long.
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(path, all)?;
    let above = std::fs::Permissions::from_mode(0o755);
    path.parent()
        .map_or(Ok(()), |parent| std::fs::set_permissions(parent, above))
}

fn secret_key_ref(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("key-ref")?;
    let (file, token) = actor.token()?;
    let script = "ls -d /run/podcradle 2>/dev/null; \
        printf %s \"$PODCRADLE_HOST_TOKEN\" | sha256sum; exec sleep 1000";
    actor
        .launch(&name)
        .option(&["--token-file", &file.to_string_lossy()])
        .option(&["--token-delivery", "secret-key-ref"])
        .host(&["sh", "-c", script])
        .run()?;
    let expected = hexadecimal(&digest(&token));
    let log = log(&actor, &name, &expected)?;
    ensure!(!log.contains("/run"), "a file with the token too: {log}");
    let pod = actor.cluster.admin.one("pod", &name)?;
    ensure!(
        !pod.to_string().contains(&token),
        "the token is in the Pod itself"
    );
    Ok(())
}

fn overlay(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("overlay")?;
    let overlay = json!({
        "metadata": {"annotations": {"example.com/a": "b"}},
        "spec": {"containers": [{
            "name": "host",
            "env": [{"name": "COLOUR", "value": "ultramarine"}],
            "readinessProbe": {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1},
        }]},
    });
    let script = "echo \"colour $COLOUR\"; touch up; exec sleep 1000";
    actor
        .launch(&name)
        .option(&["--overlay", &overlay.to_string()])
        .host(&["sh", "-c", script])
        .run()?;
    let pod = actor.cluster.admin.one("pod", &name)?;
    ensure!(
        pod["metadata"]["annotations"]["example.com/a"] == "b"
            && pod["status"]["containerStatuses"][0]["ready"] == true
            && pod["spec"]["containers"][0]["readinessProbe"].is_object(),
        "{pod:#}"
    );
    log(&actor, &name, "colour ultramarine")?;
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
        let line = format!("podcradle: overlay.spec.{field} \"true\": must not be true");
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
    let range = json!({"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]});
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
