//! All objects of a launch before there is any: for a look at them, and for
//! the API server's opinion.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::{EXPIRES, Owner, Record, network_policy, pod, secret, service, with_record};
use crate::spec::{Problems, SandboxSpec, TOKEN_KEY};
use crate::token::Token;

/// What stands for the token.
const REDACTED: &str = "[redacted]";

/// The objects of one launch. The uids of their owners are not known yet:
/// placeholders name whose they will be.
#[derive(Clone)]
pub struct Tree {
    /// The anchor; none in a shared session, which has one already.
    pub service: Option<Service>,
    /// When the spec asks for one.
    pub network_policy: Option<NetworkPolicy>,
    /// The sandbox.
    pub pod: Pod,
    /// With a token that no launch will use.
    pub secret: Secret,
}

impl Tree {
    /// The objects that a launch of this spec makes.
    ///
    /// # Errors
    /// All that is wrong with the overlay.
    pub fn of(spec: &SandboxSpec) -> Result<Self, Problems> {
        let owner = |kind: &str, name: &str| Owner {
            name: name.to_owned(),
            uid: format!("<uid of {kind} {name}>"),
        };
        let record = Record::launching(spec, 1, "");
        let generation = record.generation;
        let expires = Timestamp::UNIX_EPOCH;
        let shared = spec.session.is_some();
        let anchor = owner("Service", spec.session_name());
        let mut pod = pod(spec, generation, &anchor)?;
        if shared {
            pod = with_record(pod, &record, expires);
        }
        let of_pod = owner("Pod", &spec.sandbox);
        Ok(Self {
            service: (!shared).then(|| service(&record, expires)),
            network_policy: network_policy(spec, generation, &anchor),
            pod,
            secret: secret(spec, generation, &of_pod, &Token::random()),
        })
    }

    /// The same without owners, which an API server takes by uid alone.
    #[must_use]
    pub fn without_owners(mut self) -> Self {
        if let Some(policy) = &mut self.network_policy {
            policy.metadata.owner_references = None;
        }
        self.pod.metadata.owner_references = None;
        self.secret.metadata.owner_references = None;
        self
    }

    /// All that is readable to more than the kubelet.
    pub(super) fn without_secret(&self) -> Value {
        json!([self.service, self.network_policy, self.pod])
    }

    /// The objects as they may be shown, in the order they are made.
    pub fn shown(&self) -> Vec<Value> {
        let service = self.service.as_ref().map(|service| json!(service));
        let policy = self.network_policy.as_ref().map(|policy| json!(policy));
        let mut objects: Vec<_> = service.into_iter().chain(policy).collect();
        objects.push(json!(self.pod));
        for object in &mut objects {
            let annotations = object.pointer_mut("/metadata/annotations");
            if let Some(expires) = annotations.and_then(|all| all.get_mut(EXPIRES)) {
                *expires = json!("<when the launch's time is up>");
            }
        }
        objects.push(redacted(json!(self.secret)));
        objects
    }
}

/// The token's Secret without the token.
pub(crate) fn redacted(mut secret: Value) -> Value {
    if let Some(secret) = secret.as_object_mut() {
        secret.remove("data");
        secret.insert("stringData".to_owned(), json!({ TOKEN_KEY: REDACTED }));
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::snapshots;

    #[test]
    fn what_is_shown_holds_no_token_and_says_whose_uids_are_missing() {
        for (name, spec) in snapshots::examples() {
            let tree = Tree::of(&spec).unwrap();
            let token = tree.secret.data.clone().unwrap();
            let token = String::from_utf8(token[TOKEN_KEY].0.clone()).unwrap();
            let shown = tree.shown();
            let last = shown.last().unwrap();
            assert_eq!(last["stringData"][TOKEN_KEY], REDACTED, "{name}");
            let text = json!(shown).to_string();
            let data = json!(tree.secret)["data"][TOKEN_KEY].clone();
            let encoded = data.as_str().unwrap_or_default();
            assert!(!text.contains(&token) && !text.contains(encoded), "{name}");
            let anchor = format!("<uid of Service {}>", spec.session_name());
            let owners = text.matches(&anchor).count();
            let holder = &shown[0];
            assert_eq!(holder["kind"] == "Pod", spec.session.is_some(), "{name}");
            assert_eq!(
                holder["metadata"]["annotations"][EXPIRES], "<when the launch's time is up>",
                "{name}"
            );
            let policies = usize::from(spec.network_policy.is_some());
            assert_eq!(owners, 1 + policies, "{name}");
        }
    }
}
