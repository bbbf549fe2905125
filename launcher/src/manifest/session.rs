//! A shared session: an anchor without a sandbox of its own, by which it is
//! told from those that have one, and the policy of all its Pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{EXPIRES, LAUNCH_ID, MAKING, Owner, SESSION, network, profile_labels, service};
use crate::spec::SessionSpec;

/// The anchor of a shared session that is being made. `id` is that of its
/// creation, by which a lost answer is looked up.
pub fn session(spec: &SessionSpec, id: &str, expires: Timestamp) -> Service {
    let annotations = BTreeMap::from([
        (MAKING.to_owned(), String::new()),
        (EXPIRES.to_owned(), expires.to_string()),
    ]);
    service::anchor(&spec.session, labels(spec, id), annotations)
}

/// The policy of its Pods, owned by `anchor`; `None` when none is asked for.
pub fn session_policy(spec: &SessionSpec, id: &str, anchor: &Owner) -> Option<NetworkPolicy> {
    let wanted = spec.network_policy.as_ref()?;
    // No sandbox has said a server yet: its address is among the ranges.
    Some(network::policy(wanted, None, labels(spec, id), anchor))
}

fn labels(spec: &SessionSpec, id: &str) -> BTreeMap<String, String> {
    let ours = [(SESSION, spec.session.clone()), (LAUNCH_ID, id.to_owned())];
    let ours = ours.into_iter().chain(profile_labels(spec.profile));
    let mut labels = spec.labels.clone();
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    labels
}
