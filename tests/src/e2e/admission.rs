//! Admission policies of the API server for the Pod of one name: they change
//! it, or refuse it, as clusters in the field do. One of them adds a probe that
//! always fails, the only sure way to have something happen *before* a host is
//! ready, since a host without a probe is ready when it runs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::{Actor, Ended, Error, NAMESPACE, Result, WATCHDOG};

/// A policy in force; dropping it takes it away.
pub struct Policy<'a> {
    admin: &'a Kubectl,
    kind: &'static str,
    name: String,
}

/// A JSON patch of a Pod, as CEL: nothing else may set a command, a list.
const NEVER_READY: &str = r#"[JSONPatch{
    op: "add", path: "/spec/containers/0/readinessProbe",
    value: Object.spec.containers.readinessProbe{
        exec: Object.spec.containers.readinessProbe.exec{command: ["false"]}
    }
}]"#;

impl<'a> Policy<'a> {
    /// Whoever creates this Pod gets one that is never ready.
    pub fn never_ready(actor: &'a Actor, pod: &str) -> Result<Option<Self>> {
        Self::patch(actor, NAMESPACE, pod, NEVER_READY)
    }

    /// Whoever creates this Pod gets it with the patch. `None` where the
    /// cluster's API has no such policies.
    pub fn patch(
        actor: &'a Actor,
        namespace: &str,
        pod: &str,
        patch: &str,
    ) -> Result<Option<Self>> {
        let spec = json!({
            "matchConstraints": matches(),
            "matchConditions": of_name(pod),
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": patch } }],
        });
        let before = pod_of(pod)["spec"].clone();
        let changed = move |answer: &Ended| {
            // The patch may be one that the namespace then refuses.
            answer.code != 0
                || answer
                    .json()
                    .is_ok_and(|made| differs(&before, &made["spec"], patch))
        };
        let policy = Self::make(actor, "mutatingadmissionpolicy", pod, &spec, &json!({}))?;
        policy.map_or(Ok(None), |policy| {
            policy.wait(namespace, pod, changed).map(Some)
        })
    }

    /// Nobody may create this Pod; the API server says why.
    pub fn refuse(actor: &'a Actor, pod: &str, why: &str) -> Result<Option<Self>> {
        let spec = json!({
            "matchConstraints": matches(),
            "matchConditions": of_name(pod),
            "failurePolicy": "Fail",
            "validations": [{ "expression": "false", "message": why }],
        });
        let binding = json!({ "validationActions": ["Deny"] });
        let policy = Self::make(actor, "validatingadmissionpolicy", pod, &spec, &binding)?;
        let refused = |answer: &Ended| answer.code != 0;
        policy.map_or(Ok(None), |policy| {
            policy.wait(NAMESPACE, pod, refused).map(Some)
        })
    }

    fn make(
        actor: &'a Actor,
        kind: &'static str,
        pod: &str,
        spec: &Value,
        binding: &Value,
    ) -> Result<Option<Self>> {
        let name = format!("{pod}-policy");
        let title = match kind {
            "mutatingadmissionpolicy" => "MutatingAdmissionPolicy",
            _ => "ValidatingAdmissionPolicy",
        };
        let mut binding = binding.clone();
        binding["policyName"] = json!(name);
        let admin = &actor.cluster.admin;
        for (kind, spec) in [
            (title.to_owned(), spec),
            (format!("{title}Binding"), &binding),
        ] {
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": { "name": name }, "spec": spec,
            });
            let made = admin.try_send(&["create"], &object)?;
            if made.stderr.contains("no matches for kind") {
                return Ok(None);
            }
            made.with_code(0)?;
        }
        Ok(Some(Policy { admin, kind, name }))
    }

    /// Admission learns of a policy by a watch of its own, which nobody can
    /// wait on: ask it, without creating anything.
    fn wait(self, namespace: &str, pod: &str, there: impl Fn(&Ended) -> bool) -> Result<Self> {
        let end = Instant::now() + WATCHDOG;
        let args = [
            "create",
            "--namespace",
            namespace,
            "--dry-run=server",
            "--output=json",
        ];
        loop {
            let answer = self.admin.try_send(&args, &pod_of(pod))?;
            if there(&answer) {
                return Ok(self);
            }
            if Instant::now() > end {
                return Err(Error::Watchdog {
                    what: format!("policy {} in force", self.name),
                    watchdog: WATCHDOG,
                    so_far: answer.stdout,
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Policy<'_> {
    fn drop(&mut self) {
        for kind in [format!("{}binding", self.kind), self.kind.to_owned()] {
            // What a failed test said counts more than what tidying up says.
            let _ = self
                .admin
                .try_run(&["delete", &kind, &self.name, "--ignore-not-found=true"]);
        }
    }
}

fn matches() -> Value {
    json!({ "resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
    }]})
}

fn of_name(pod: &str) -> Value {
    json!([{ "name": "this-pod", "expression": format!("object.metadata.name == {pod:?}") }])
}

/// Whether the first field that the patch is about is there now.
fn differs(before: &Value, now: &Value, patch: &str) -> bool {
    let path = patch.split("path: \"/spec").nth(1).unwrap_or_default();
    let path = path.split('"').next().unwrap_or_default();
    let path = path.trim_end_matches("/-");
    before.pointer(path) != now.pointer(path)
}

/// A Pod that the namespace would take.
fn pod_of(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "serviceAccountName": "podcradle-sandbox",
            "automountServiceAccountToken": false,
            "schedulingGates": [{ "name": "podcradle.dev/probe" }],
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "volumes": [{ "name": "home", "emptyDir": {} }],
            "containers": [{
                "name": "host", "image": "image",
                "resources": { "limits": { "memory": "64Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_seen_by_the_field_it_is_about() {
        let before = pod_of("a")["spec"].clone();
        assert!(!differs(&before, &before, NEVER_READY));
        let mut now = before.clone();
        now["containers"][0]["readinessProbe"] = json!({ "exec": {} });
        assert!(differs(&before, &now, NEVER_READY));
        let gate = r#"[JSONPatch{op: "add", path: "/spec/schedulingGates/-", value: 1}]"#;
        assert!(!differs(&before, &now, gate));
    }
}
