//! A sandbox whose host never becomes ready: the API server itself adds a probe
//! that always fails to the Pod of that name. The only sure way to have a host
//! end *before* it is ready, since one without a probe is ready when it runs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::{Actor, Error, Result, WATCHDOG};

/// The policy; dropping it takes it away.
pub struct NeverReady<'a> {
    admin: &'a Kubectl,
    policy: String,
}

impl<'a> NeverReady<'a> {
    /// Makes the policy for the Pod of this name and waits until it is in force.
    /// `None` where the cluster's API has no such policies.
    pub fn make(actor: &'a Actor, pod: &str) -> Result<Option<Self>> {
        let admin = &actor.cluster.admin;
        let policy = format!("{pod}-never-ready");
        for object in objects(&policy, pod) {
            let made = admin.try_send(&["create"], &object)?;
            if made.stderr.contains("no matches for kind") {
                return Ok(None);
            }
            made.with_code(0)?;
        }
        let made = NeverReady { admin, policy };
        made.wait(pod)?;
        Ok(Some(made))
    }

    /// Admission learns of a policy by a watch of its own, which nobody can
    /// wait on: ask it, without creating anything.
    fn wait(&self, pod: &str) -> Result<()> {
        let end = Instant::now() + WATCHDOG;
        loop {
            let args = ["create", "--dry-run=server", "--output=json"];
            let answer = self
                .admin
                .try_send(&args, &probe(pod))?
                .with_code(0)?
                .json()?;
            if answer["spec"]["containers"][0]["readinessProbe"].is_object() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Error::Watchdog {
                    what: format!("policy {} in force", self.policy),
                    watchdog: WATCHDOG,
                    so_far: answer["spec"].to_string(),
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for NeverReady<'_> {
    fn drop(&mut self) {
        for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
            // What a failed test said counts more than what tidying up says.
            let _ = self
                .admin
                .try_run(&["delete", kind, &self.policy, "--ignore-not-found=true"]);
        }
    }
}

fn objects(policy: &str, pod: &str) -> [Value; 2] {
    // By patch: an apply configuration may not set a command, which is a list.
    let expression = r#"[JSONPatch{
        op: "add", path: "/spec/containers/0/readinessProbe",
        value: Object.spec.containers.readinessProbe{
            exec: Object.spec.containers.readinessProbe.exec{command: ["false"]}
        }
    }]"#;
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": policy},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "matchConditions": [{
                    "name": "this-pod", "expression": format!("object.metadata.name == {pod:?}"),
                }],
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [{
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": expression},
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": policy},
            "spec": {"policyName": policy},
        }),
    ]
}

/// A Pod that the namespace would take.
fn probe(pod: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
        "spec": {
            "serviceAccountName": "podcradle-sandbox",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "host", "image": "image",
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    })
}
