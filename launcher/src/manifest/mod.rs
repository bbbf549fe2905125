//! Spec → objects, without I/O. The token is in the Secret alone; the Pod
//! names it. Every object has one owner, whose uid an API server returned.

mod admitted;
mod pod;
mod record;
mod secret;
mod service;

pub use admitted::check as check_admitted;
pub use pod::pod;
pub use record::{MAX_RECORD, Operation, Record};
pub use secret::{secret, secret_name};
pub use service::service;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::spec::SandboxSpec;

/// Who manages our objects: the value of [`MANAGED_BY`].
pub const MANAGER: &str = "podcradle";
/// Standard label that marks an object as ours.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label: the session an object belongs to.
pub const SESSION: &str = "podcradle.dev/session";
/// Label: the sandbox an object belongs to.
pub const SANDBOX: &str = "podcradle.dev/sandbox";
/// Label: which Pod of the sandbox, counted from 1.
pub const GENERATION: &str = "podcradle.dev/generation";
/// Label: the caller's idempotency key.
pub const LAUNCH_ID: &str = "podcradle.dev/launch-id";
/// Annotation of the anchor: when the session expires, RFC 3339.
pub const EXPIRES: &str = "podcradle.dev/expires";
/// Annotation of the anchor: the [`Record`].
pub const RECORD: &str = "podcradle.dev/record";
/// The scheduling gate that holds a Pod back until its Secret exists.
pub const TOKEN_GATE: &str = "podcradle.dev/token";
/// The container that runs the host.
pub const HOST_CONTAINER: &str = "host";
/// The init container that makes the workspace.
pub const PREP_CONTAINER: &str = "workspace-prep";

/// An object of ours that the API server has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// The uid the API server gave it.
    pub uid: String,
}

/// The labels every object of a sandbox carries.
pub fn labels(spec: &SandboxSpec, generation: u32) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MANAGED_BY.to_owned(), MANAGER.to_owned()),
        (SESSION.to_owned(), spec.sandbox.clone()),
        (SANDBOX.to_owned(), spec.sandbox.clone()),
        (GENERATION.to_owned(), generation.to_string()),
        (LAUNCH_ID.to_owned(), spec.launch_id.clone()),
    ])
}

fn owner_reference(kind: &str, owner: &Owner) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}
