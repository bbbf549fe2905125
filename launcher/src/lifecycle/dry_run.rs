//! dry run: what the API server would say to a launch. It validates and admits
//! each object as it would a real one, and stores none.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::stop;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{self, Tree};
use crate::outcome::Failure;

/// What it says to one object.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It would take it: this is the object as it would be. Of a Secret without
    /// its data.
    Accepted(Value),
    /// It would refuse it.
    Refused(Error),
    /// It would take it changed in what keeps the sandbox in: how a launch ends
    /// there.
    Changed(Box<Failure>),
}

/// Asks about every object of a launch. Their owners do not exist, so they are
/// sent without.
pub async fn dry_run(cluster: Cluster, tree: Tree, timeout: Duration) -> Vec<Answer> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    let tree = tree.without_owners();
    let mut answers = Vec::new();
    if let Some(service) = &tree.service {
        answers.push(ask(&cluster, "services", service, deadline).await);
    }
    if let Some(policy) = &tree.network_policy {
        answers.push(ask(&cluster, "networkpolicies", policy, deadline).await);
    }
    let pod = match cluster.would_create("pods", &tree.pod, deadline).await {
        Ok(pod) => match manifest::check_admitted(&tree.pod, &pod) {
            Ok(()) => Answer::Accepted(json!(pod)),
            Err(changes) => Answer::Changed(Box::new(stop::changed(&changes))),
        },
        Err(error) => Answer::Refused(error),
    };
    answers.push(pod);
    let secret = cluster.would_create("secrets", &tree.secret, deadline);
    answers.push(secret.await.map_or_else(Answer::Refused, |secret| {
        Answer::Accepted(manifest::redacted(json!(secret)))
    }));
    answers
}

async fn ask<K>(cluster: &Cluster, resource: &'static str, object: &K, by: Deadline) -> Answer
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let asked = cluster.would_create(resource, object, by).await;
    asked.map_or_else(Answer::Refused, |object| Answer::Accepted(json!(object)))
}
