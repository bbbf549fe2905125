//! What the shipped manifests allow, and what they refuse.

use std::collections::BTreeSet;

use podcradle_tests::e2e::{Actor, Arch, Cluster, NAMESPACE, repository};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use serde_json::{Value, json};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("the_launcher_has_these_rights_and_no_others", rights),
    ("the_sandboxes_account_has_none", powerless),
    (
        "the_namespace_refuses_a_pod_that_is_not_restricted",
        restricted,
    ),
    ("the_launched_pod_is_restricted_and_owned", admitted),
    ("what_names_architectures_is_optional_and_valid", nodes),
];

/// `verb resource` of everything an identity may do in a namespace, beside what
/// Kubernetes gives to everybody who has a name: to ask about oneself.
fn may(actor: &Actor, of: &[&str], namespace: &str) -> Result<BTreeSet<String>, Stop> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let kubectl = if of.is_empty() {
        actor.cluster.admin.with_kubeconfig(actor.kubeconfig())
    } else {
        actor.cluster.admin.clone()
    };
    let args = [of, &["create", "--validate=false", "--output=json"]].concat();
    let review = kubectl.try_send(&args, &review)?.with_code(0)?.json()?;
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for rule in review["status"]["resourceRules"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let about_oneself = ["authentication.k8s.io", "authorization.k8s.io"];
        if list(&rule["apiGroups"])
            .iter()
            .all(|group| about_oneself.contains(&group.as_str()))
        {
            continue;
        }
        for resource in list(&rule["resources"]) {
            for verb in list(&rule["verbs"]) {
                all.insert(format!("{verb} {resource}"));
            }
        }
    }
    Ok(all)
}

fn rights(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let mut expected = BTreeSet::new();
    for verb in ["create", "get", "list", "watch", "patch", "delete"] {
        expected.insert(format!("{verb} services"));
        expected.insert(format!("{verb} pods"));
    }
    for right in [
        "get pods/log",
        "create secrets",
        "delete secrets",
        "list events",
        "create networkpolicies",
        "get networkpolicies",
        "create leases",
        "patch leases",
        "delete leases",
    ] {
        expected.insert(right.to_owned());
    }
    let found = may(&actor, &[], NAMESPACE)?;
    ensure!(found == expected, "the launcher may {found:?}");
    let elsewhere = may(&actor, &[], "default")?;
    ensure!(elsewhere.is_empty(), "elsewhere it may {elsewhere:?}");
    Ok(())
}

fn powerless(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let account = format!("--as=system:serviceaccount:{NAMESPACE}:podcradle-sandbox");
    let found = may(&actor, &[&account], NAMESPACE)?;
    ensure!(found.is_empty(), "a sandbox may {found:?}");
    Ok(())
}

fn restricted(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "not-restricted"},
        "spec": {"containers": [{"name": "c", "image": Cluster::image(arch)}]},
    });
    let refused = actor.cluster.admin.try_send(&["create"], &pod)?;
    ensure!(
        refused.code != 0 && refused.stderr.contains("violates PodSecurity \"restricted"),
        "exit {}: {}",
        refused.code,
        refused.stderr
    );
    Ok(())
}

fn admitted(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("admitted")?;
    actor.launch(&name).host(&["sleep", "1000"]).run()?;
    let admin = &actor.cluster.admin;
    let (service, pod) = (admin.one("service", &name)?, admin.one("pod", &name)?);
    let secret = admin.one("secret", &format!("{name}-g1-token"))?;
    let owner = |object: &Value, of: &Value| {
        let references = &object["metadata"]["ownerReferences"];
        references.as_array().map(Vec::len) == Some(1)
            && references[0]["uid"] == of["metadata"]["uid"]
            && references[0]["controller"] != true
            && references[0]["blockOwnerDeletion"] != true
    };
    ensure!(
        owner(&pod, &service),
        "the Pod's owner: {:#}",
        pod["metadata"]
    );
    ensure!(
        owner(&secret, &pod),
        "the Secret's: {:#}",
        secret["metadata"]
    );
    ensure!(secret["immutable"] == true, "the Secret can be changed");
    ensure!(
        service["spec"]["clusterIP"] == "None",
        "the anchor is not headless"
    );
    let spec = &pod["spec"];
    ensure!(
        spec["serviceAccountName"] == "podcradle-sandbox"
            && spec["automountServiceAccountToken"] == false
            && spec["restartPolicy"] == "Never"
            && spec["enableServiceLinks"] == false,
        "{spec:#}"
    );
    let containers = spec["initContainers"].as_array().into_iter().flatten();
    for container in containers.chain(spec["containers"].as_array().into_iter().flatten()) {
        let context = &container["securityContext"];
        ensure!(
            context["allowPrivilegeEscalation"] == false
                && context["capabilities"]["drop"] == json!(["ALL"]),
            "{}: {context}",
            container["name"]
        );
    }
    actor.run(&["delete", &name])?;
    Ok(())
}

/// Not applied: other tests show what a launcher without it says.
fn nodes(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let folder = repository().join("deploy/nodes").display().to_string();
    let admin = &actor.cluster.admin;
    let said = admin.run(&["apply", "-k", &folder, "--dry-run=server", "--output=name"])?;
    ensure!(
        said.lines().count() == 2 && said.contains("clusterrole") && said.contains("binding"),
        "{said}"
    );
    Ok(())
}
