//! A namespace of the test's own with the launcher's rights of `deploy/`, or
//! with fewer, so that quotas and missing rights hurt nobody else.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::{Actor, Error, Result, WATCHDOG, repository};

/// A namespace; dropping it deletes it.
pub struct Place<'a> {
    /// Its name.
    pub name: String,
    admin: &'a Kubectl,
}

impl<'a> Place<'a> {
    /// A namespace like the one of `deploy/`.
    pub fn make(actor: &'a Actor, name: &str) -> Result<Self> {
        let admin = &actor.cluster.admin;
        let place = Place {
            name: name.to_owned(),
            admin,
        };
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        admin.create(&json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        }))?;
        place.create(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "podcradle-sandbox" },
        }))?;
        for mut object in shipped(admin)? {
            object["metadata"]["namespace"] = json!(name);
            place.create(&object)?;
        }
        place.wait_for_right(actor, "create", "services", true)?;
        Ok(place)
    }

    /// Creates an object in it.
    pub fn create(&self, object: &Value) -> Result<Value> {
        self.admin.create_in(&self.name, object)
    }

    /// kubectl in it.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let args = [args, &["--namespace", &self.name]].concat();
        self.admin.run(&args)
    }

    /// From now on the launcher has every right of `deploy/` here but this one.
    pub fn all_but(&self, actor: &Actor, verb: &str, resource: &str) -> Result<()> {
        let mut role = shipped(self.admin)?.remove(0);
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        let mut left = Vec::new();
        for rule in rules {
            for of in strings(&rule["resources"]) {
                let verbs: Vec<_> = strings(&rule["verbs"])
                    .into_iter()
                    .filter(|v| of != resource || v != verb)
                    .collect();
                if !verbs.is_empty() {
                    let groups = &rule["apiGroups"];
                    left.push(json!({ "apiGroups": groups, "resources": [of], "verbs": verbs }));
                }
            }
        }
        role["rules"] = json!(left);
        role["metadata"]["namespace"] = json!(self.name);
        let args = ["replace", "--namespace", &self.name];
        self.admin.try_send(&args, &role)?.with_code(0)?;
        self.wait_for_right(actor, verb, resource, false)
    }

    /// The API server learns of a right by a watch of its own: ask it.
    fn wait_for_right(&self, actor: &Actor, verb: &str, resource: &str, want: bool) -> Result<()> {
        let kubectl = self.admin.with_kubeconfig(actor.kubeconfig());
        let end = Instant::now() + WATCHDOG;
        loop {
            let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
            let sub = format!("--subresource={sub}");
            let args = [
                "auth",
                "can-i",
                verb,
                resource,
                &sub,
                "--namespace",
                &self.name,
            ];
            let answer = kubectl.try_run(&args)?;
            if answer.stdout.trim() == if want { "yes" } else { "no" } {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Error::Watchdog {
                    what: format!("{verb} {resource} in {} to be {want}", self.name),
                    watchdog: WATCHDOG,
                    so_far: format!("{}{}", answer.stdout, answer.stderr),
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let _ = self
            .admin
            .try_run(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}

/// Role and binding of `deploy/role.yaml`, in this order.
fn shipped(admin: &Kubectl) -> Result<Vec<Value>> {
    let file = repository().join("deploy/role.yaml").display().to_string();
    let args = [
        "create",
        "--dry-run=client",
        "--output=json",
        "--filename",
        &file,
    ];
    let ended = admin.try_run(
        &["--namespace=podcradle-sandboxes"]
            .iter()
            .chain(&args)
            .copied()
            .collect::<Vec<_>>(),
    )?;
    let printed = ended.with_code(0)?.stdout;
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let mut all: Vec<Value> = objects
        .collect::<std::result::Result<_, _>>()
        .map_err(|source| Error::Json {
            what: file.clone(),
            source,
            text: printed.clone(),
        })?;
    if let Some(items) = all
        .first()
        .and_then(|list| list["items"].as_array().cloned())
    {
        all = items;
    }
    all.sort_by_key(|object| object["kind"] != "Role");
    Ok(all)
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
