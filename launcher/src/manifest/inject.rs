//! How `podcradle-init` gets into the containers: it is in their image, or the
//! supervisor's image brings it, copied by an init container or mounted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, ImageVolumeSource, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::COPY_CONTAINER;
use super::containers::secured;
use crate::spec::{COPIED_INIT, Inject, SandboxSpec};

/// The volume that holds it when the image does not.
pub(super) const INIT_VOLUME: &str = "podcradle";

/// Path of `podcradle-init` in workspace-prep and host.
pub(super) fn init_path(spec: &SandboxSpec) -> String {
    let dir = match spec.inject() {
        Inject::Copy | Inject::ImageVolume => COPIED_INIT,
        Inject::Auto | Inject::Baked => &spec.init_dir,
    };
    format!("{}/podcradle-init", dir.trim_end_matches('/'))
}

/// The volume that holds it, unless the image does.
pub(super) fn volume(spec: &SandboxSpec) -> Option<Volume> {
    let volume = Volume {
        name: INIT_VOLUME.to_owned(),
        ..Volume::default()
    };
    match spec.inject() {
        Inject::Auto | Inject::Baked => None,
        Inject::Copy => Some(Volume {
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..volume
        }),
        Inject::ImageVolume => Some(Volume {
            image: Some(ImageVolumeSource {
                reference: spec.supervisor_image.clone(),
                pull_policy: spec.image_pull_policy.clone(),
            }),
            ..volume
        }),
    }
}

/// Its mount in workspace-prep and host. Nothing in there can change what the
/// next container runs as its PID 1.
pub(super) fn mount(spec: &SandboxSpec) -> Option<VolumeMount> {
    volume(spec).map(|volume| VolumeMount {
        name: volume.name,
        mount_path: COPIED_INIT.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    })
}

/// The init container that copies it, before all others.
pub(super) fn copy(spec: &SandboxSpec) -> Option<Container> {
    if spec.inject() != Inject::Copy {
        return None;
    }
    let quantities = |cpu: &str, memory: &str| {
        Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]))
    };
    Some(Container {
        command: Some(vec![
            "/podcradle-init".to_owned(),
            "--copy-to".to_owned(),
            COPIED_INIT.to_owned(),
        ]),
        resources: Some(ResourceRequirements {
            requests: quantities("10m", "16Mi"),
            limits: quantities("100m", "64Mi"),
            ..ResourceRequirements::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: INIT_VOLUME.to_owned(),
            mount_path: COPIED_INIT.to_owned(),
            ..VolumeMount::default()
        }]),
        ..secured(
            spec,
            COPY_CONTAINER,
            spec.supervisor_image.as_deref().unwrap_or_default(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(inject: Inject) -> SandboxSpec {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "image:1");
        spec.inject = inject;
        spec.supervisor_image = Some("supervisor:1".into());
        spec
    }

    #[test]
    fn auto_copies_into_every_image_but_the_baked_one() {
        let mut spec = spec(Inject::Auto);
        assert_eq!(spec.inject(), Inject::Copy);
        spec.baked_image = Some("image:1".into());
        assert_eq!(spec.inject(), Inject::Baked);
        spec.image = "another".into();
        assert_eq!(spec.inject(), Inject::Copy);
        spec.supervisor_image = None;
        assert_eq!(spec.inject(), Inject::Baked);
    }

    #[test]
    fn only_the_copying_container_may_write_where_pid_1_lies() {
        let spec = spec(Inject::Copy);
        assert_eq!(mount(&spec).unwrap().read_only, Some(true));
        let copy = copy(&spec).unwrap();
        assert_eq!(copy.image.as_deref(), Some("supervisor:1"));
        assert_eq!(copy.volume_mounts.unwrap()[0].read_only, None);
        assert_eq!(init_path(&spec), "/podcradle/podcradle-init");
    }
}
