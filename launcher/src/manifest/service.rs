//! The anchor: a headless Service without a selector. Deleting it is the one
//! commit point of a session's teardown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{EXPIRES, RECORD, Record, labels};

/// The anchor of a session that is being launched.
pub fn service(record: &Record, expires: Timestamp) -> Service {
    let spec = &record.spec;
    let mut labels = labels(spec, record.generation);
    // Kube-proxy before 1.34 skips headless Services by this label alone.
    labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
    Service {
        metadata: ObjectMeta {
            name: Some(spec.sandbox.clone()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([
                (RECORD.to_owned(), record.to_annotation()),
                (EXPIRES.to_owned(), expires.to_string()),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
