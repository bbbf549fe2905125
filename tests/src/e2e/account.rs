//! An account with the launcher's rights of `deploy/` and some more, for a test
//! that wants them and must not give them to everybody else's launcher.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Actor, Error, NAMESPACE, Result, WATCHDOG};

const SYSTEM: &str = "podcradle-system";

/// The account; dropping it takes it away.
pub struct Account<'a> {
    actor: &'a Actor,
    name: String,
    /// What it is known by to the API server.
    pub token: String,
}

impl<'a> Account<'a> {
    /// One that may read nodes, which `deploy/` does not grant.
    pub fn with_nodes(actor: &'a Actor) -> Result<Self> {
        Self::make(actor, "get", &["nodes"])
    }

    /// One that may launch in every namespace.
    pub fn everywhere(actor: &'a Actor) -> Result<Self> {
        Self::make(actor, "*", &["services", "pods", "secrets"])
    }

    fn make(actor: &'a Actor, verb: &str, resources: &[&str]) -> Result<Self> {
        let (_, random) = actor.token()?;
        let name = format!("podcradle-e2e-{}", &random[..8]);
        let mut account = Account {
            actor,
            name: name.clone(),
            token: String::new(),
        };
        let rbac = "rbac.authorization.k8s.io";
        let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": SYSTEM }]);
        let admin = &actor.cluster.admin;
        admin.create_in(
            SYSTEM,
            &json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name },
            }),
        )?;
        admin.create_in(NAMESPACE, &json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "podcradle-launcher" },
            "subjects": subjects,
        }))?;
        admin.create(&json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": name },
            "rules": [{ "apiGroups": [""], "resources": resources, "verbs": [verb] }],
        }))?;
        admin.create(&json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
            "subjects": subjects,
        }))?;
        let token = admin.run(&["create", "token", &name, "--namespace", SYSTEM])?;
        token.trim().clone_into(&mut account.token);
        let verb = if verb == "*" { "create" } else { verb };
        account.wait(verb, resources[0])?;
        Ok(account)
    }

    /// The API server learns of a right by a watch of its own: ask it.
    fn wait(&self, verb: &str, resource: &str) -> Result<()> {
        let user = format!("system:serviceaccount:{SYSTEM}:{}", self.name);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": { "verb": verb, "resource": resource } },
        });
        let end = Instant::now() + WATCHDOG;
        loop {
            let answer: Value = self.actor.cluster.admin.create(&review)?;
            if answer["status"]["allowed"] == true {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Error::Watchdog {
                    what: format!("right of {user} to {verb} {resource}"),
                    watchdog: WATCHDOG,
                    so_far: answer["status"].to_string(),
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let admin = &self.actor.cluster.admin;
        for (namespace, kind) in [
            (SYSTEM, "clusterrolebinding"),
            (SYSTEM, "clusterrole"),
            (NAMESPACE, "rolebinding"),
            (SYSTEM, "serviceaccount"),
        ] {
            let args = ["delete", kind, &self.name, "--namespace", namespace];
            let _ = admin.try_run(&[&args[..], &["--ignore-not-found=true"]].concat());
        }
    }
}
