//! The Pod's volumes, and what the host's container mounts of them.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, KeyToPath, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{inject, secret_name};
use crate::spec::{Mount, SandboxSpec, TOKEN_KEY, TOKEN_MOUNT, TokenDelivery};

const HOME_VOLUME: &str = "home";
/// The volume with the token's Secret.
pub(super) const TOKEN_VOLUME: &str = "token";

/// Readable to the owner and, by fsGroup, to the host; to nobody else.
const SECRET_MODE: i32 = 0o440;

/// All volumes of the Pod.
pub(super) fn volumes(spec: &SandboxSpec, generation: u32) -> Vec<Volume> {
    let mut volumes = vec![Volume {
        name: HOME_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: spec.home_size_limit.clone().map(Quantity),
            medium: None,
        }),
        ..Volume::default()
    }];
    if spec.token_delivery == TokenDelivery::File {
        volumes.push(token_volume(spec, generation));
    }
    volumes.extend(inject::volume(spec));
    let mounts = spec.mounts.iter().enumerate();
    volumes.extend(mounts.map(|(index, mount)| mounted(spec, index, mount)));
    volumes
}

/// What the host's container mounts, HOME and `podcradle-init` included.
pub(super) fn host_mounts(spec: &SandboxSpec) -> Vec<VolumeMount> {
    let mut mounts = prep_mounts(spec);
    if spec.token_delivery == TokenDelivery::File {
        mounts.push(VolumeMount {
            name: TOKEN_VOLUME.to_owned(),
            mount_path: TOKEN_MOUNT.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
    for (index, mount) in spec.mounts.iter().enumerate() {
        mounts.push(VolumeMount {
            name: mount_name(index),
            mount_path: mount.path.clone(),
            read_only: (!writable(mount)).then_some(true),
            ..VolumeMount::default()
        });
    }
    mounts
}

/// What workspace-prep mounts: HOME and `podcradle-init`.
pub(super) fn prep_mounts(spec: &SandboxSpec) -> Vec<VolumeMount> {
    let home = VolumeMount {
        name: HOME_VOLUME.to_owned(),
        mount_path: spec.home.clone(),
        ..VolumeMount::default()
    };
    std::iter::once(home).chain(inject::mount(spec)).collect()
}

fn token_volume(spec: &SandboxSpec, generation: u32) -> Volume {
    Volume {
        name: TOKEN_VOLUME.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret_name(&spec.sandbox, generation)),
            default_mode: Some(SECRET_MODE),
            items: Some(vec![KeyToPath {
                key: TOKEN_KEY.to_owned(),
                path: TOKEN_KEY.to_owned(),
                mode: None,
            }]),
            optional: Some(false),
        }),
        ..Volume::default()
    }
}

fn mounted(spec: &SandboxSpec, index: usize, mount: &Mount) -> Volume {
    // The kubelet mounts a claim once for the whole Pod: one read-only volume
    // of it would make all of them so.
    let written = |claim: &str| {
        let mut mounts = spec.mounts.iter();
        mounts.any(|other| writable(other) && other.claim.as_deref() == Some(claim))
    };
    Volume {
        name: mount_name(index),
        persistent_volume_claim: mount.claim.as_ref().map(|claim| {
            PersistentVolumeClaimVolumeSource {
                claim_name: claim.clone(),
                read_only: (!written(claim)).then_some(true),
            }
        }),
        secret: mount.secret.as_ref().map(|secret| SecretVolumeSource {
            secret_name: Some(secret.clone()),
            default_mode: Some(SECRET_MODE),
            optional: Some(false),
            items: None,
        }),
        ..Volume::default()
    }
}

/// A Secret is never written to through its mount, whatever is asked for.
fn writable(mount: &Mount) -> bool {
    mount.writable && mount.claim.is_some()
}

fn mount_name(index: usize) -> String {
    format!("mount-{index}")
}
