//! The objects, with what an API server adds: uid, resource version, creation
//! time, and the checks of uid and resource version on a delete.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What an API server keeps in etcd.
#[derive(Default)]
pub struct Store {
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    uids: u64,
    deletions: Vec<(String, u64, Value)>,
}

impl Store {
    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    /// `resource/name` of all there is.
    pub fn names(&self) -> Vec<String> {
        self.objects
            .keys()
            .map(|(resource, name)| format!("{resource}/{name}"))
            .collect()
    }

    /// One object.
    pub fn get(&self, resource: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(resource.to_owned(), name.to_owned()))
    }

    /// All of a resource.
    pub fn list(&self, resource: &str) -> Value {
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|((r, _), _)| r == resource)
            .map(|(_, object)| object.clone())
            .collect();
        let kind = if resource == "pods" {
            "PodList"
        } else {
            "List"
        };
        json!({
            "kind": kind, "apiVersion": "v1",
            "metadata": { "resourceVersion": self.version.to_string() }, "items": items,
        })
    }

    /// Creates an object; `None` when the name is taken.
    pub fn create(&mut self, resource: &str, object: Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str()?.to_owned();
        (!self.objects.contains_key(&(resource.to_owned(), name)))
            .then(|| self.put(resource, object))
    }

    /// Puts an object there; the watch's event.
    pub fn put(&mut self, resource: &str, mut object: Value) -> Value {
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.stamp(&mut object);
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.objects
            .insert((resource.to_owned(), name), object.clone());
        json!({ "type": "ADDED", "object": object })
    }

    /// Changes an object; the watch's event.
    pub fn change(
        &mut self,
        resource: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<Value> {
        let mut object = self.get(resource, name)?.clone();
        change(&mut object);
        self.stamp(&mut object);
        self.objects
            .insert((resource.to_owned(), name.to_owned()), object.clone());
        Some(json!({ "type": "MODIFIED", "object": object }))
    }

    /// What the collector would delete: objects whose owner is not there.
    pub fn orphans(&self) -> Vec<(String, String)> {
        let uids: Vec<_> = self
            .objects
            .values()
            .map(|object| object["metadata"]["uid"].clone())
            .collect();
        let orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().all(|owner| !uids.contains(&owner["uid"])))
        };
        self.objects
            .iter()
            .filter(|(_, object)| orphan(object))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Deletes an object if the preconditions hold; the watch's event.
    ///
    /// # Errors
    /// The HTTP status that refuses it.
    pub fn delete(
        &mut self,
        resource: &str,
        name: &str,
        preconditions: &Value,
    ) -> Result<Value, u16> {
        let object = self.get(resource, name).ok_or(404u16)?;
        for key in ["uid", "resourceVersion"] {
            if preconditions[key].is_string() && preconditions[key] != object["metadata"][key] {
                return Err(409);
            }
        }
        let key = (resource.to_owned(), name.to_owned());
        let mut object = self.objects.remove(&key).ok_or(404u16)?;
        self.stamp(&mut object);
        let event = json!({ "type": "DELETED", "object": object });
        let past = (resource.to_owned(), self.version, event.clone());
        self.deletions.push(past);
        Ok(event)
    }

    /// The events of what was deleted after this version.
    pub fn deleted_since(&self, resource: &str, version: u64) -> Vec<Value> {
        self.deletions
            .iter()
            .filter(|(of, at, _)| of == resource && *at > version)
            .map(|(_, _, event)| event.clone())
            .collect()
    }
}
