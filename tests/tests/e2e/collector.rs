//! Why the tree is as it is: what the cluster's garbage collector takes, and
//! what it leaves, shown on bare objects without the launcher.

use podcradle_tests::e2e::{Actor, Arch, Cluster};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use serde_json::{Value, json};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    (
        "an_owned_pod_goes_with_its_service_and_a_bare_one_stays",
        with_owner,
    ),
    ("a_pod_whose_owner_does_not_exist_goes", absent_owner),
];

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    })
}

fn pod(arch: Arch, name: &str, owner: Option<(&str, &Value)>) -> Value {
    let owners = owner.map(|(name, uid)| {
        json!([{
            "apiVersion": "v1", "kind": "Service", "name": name, "uid": uid,
            "controller": false, "blockOwnerDeletion": false,
        }])
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "serviceAccountName": "podcradle-sandbox",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1_000_660_000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "host", "image": Cluster::image(arch), "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/podcradle-init", "--", "sleep", "1000"],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    })
}

fn with_owner(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    let (owned, bare) = (actor.reserve("owned")?, actor.reserve("bare")?);
    let anchor = admin.create(&service(&owned))?;
    let uid = &anchor["metadata"]["uid"];
    admin.create(&pod(arch, &owned, Some((&owned, uid))))?;
    admin.create(&pod(arch, &bare, None))?;
    for name in [&owned, &bare] {
        admin.wait_for("pod", name, "--for=jsonpath={.status.phase}=Running")?;
    }
    admin.run(&["delete", "service", &owned])?;
    let took = admin.wait_gone("pod", &owned)?;
    println!(
        "measured: {}: owned Pod gone {took:?} after its Service",
        arch.name()
    );
    let stays = admin.one("pod", &bare)?;
    ensure!(
        stays["metadata"].get("deletionTimestamp").is_none(),
        "the bare Pod is being deleted"
    );
    Ok(())
}

fn absent_owner(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    let name = actor.reserve("absent")?;
    let nobody = json!("00000000-0000-4000-8000-000000000000");
    let made = admin.create(&pod(arch, &name, Some((&name, &nobody))))?;
    ensure!(made["metadata"]["uid"].is_string(), "made: {made:#}");
    let took = admin.wait_gone("pod", &name)?;
    println!(
        "measured: {}: Pod of an absent owner gone after {took:?}",
        arch.name()
    );
    Ok(())
}
