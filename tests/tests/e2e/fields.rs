//! What a spec asks for is what a real kubelet runs.

use std::path::{Path, PathBuf};

use podcradle_tests::e2e::{
    Actor, Arch, NAMESPACE, Result as Fixture, Running, WATCHDOG, hexadecimal,
};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use podcradle_tests::testserver::digest;
use serde_json::{Value, json};

use crate::Test;
use crate::manifest::Own;

pub const TESTS: &[(&str, Test)] = &[
    ("a_login_shell_finds_the_host_by_its_profile", login_shell),
    ("a_failed_host_is_restarted_in_its_container", restart),
    ("secrets_and_claims_are_mounted", mounts),
    ("a_token_by_key_reference", secret_key_ref),
    ("an_overlay_adds_a_probe_and_a_variable", overlay),
];

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
