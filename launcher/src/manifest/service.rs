//! The anchor: a headless Service without a selector. Deleting it is the one
//! commit point of a session's teardown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Record, labels};

/// The anchor of a sandbox of its own session that is being launched.
pub fn service(record: &Record, expires: Timestamp) -> Service {
    let spec = &record.spec;
    let labels = labels(spec, record.generation);
    anchor(&spec.sandbox, labels, record.annotations(expires))
}

pub(super) fn anchor(
    name: &str,
    mut labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
) -> Service {
    // Kube-proxy before 1.34 skips headless Services by this label alone.
    labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
    Service {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
