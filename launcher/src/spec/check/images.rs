//! Images, and how `podcradle-init` gets into the host's container.

use super::Checks;
use crate::spec::{Inject, Profile, SandboxSpec};

const RULE: &str = "must be an image reference such as registry.example/team/host:1.2, in lower case and without blanks";

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    if spec.image.is_empty() {
        let more = match spec.profile {
            Profile::Default => "",
            Profile::Omnigent => " or OMNIGENT_KUBERNETES_HOST_IMAGE",
        };
        let rule = format!(
            "no default image is published; give --image, PODCRADLE_IMAGE{more}, or image in the spec file or under sandbox in the configuration"
        );
        c.refuse("image", "", rule);
    } else {
        c.require(is_reference(&spec.image), "image", &spec.image, RULE);
    }
    for (field, image) in [
        ("prepImage", &spec.prep_image),
        ("supervisorImage", &spec.supervisor_image),
        ("bakedImage", &spec.baked_image),
    ] {
        if let Some(image) = image {
            c.require(is_reference(image), field, image, RULE);
        }
    }
    if let Some(policy) = &spec.image_pull_policy {
        let known = ["Always", "IfNotPresent", "Never"].contains(&policy.as_str());
        let rule = "must be Always, IfNotPresent or Never";
        c.require(known, "imagePullPolicy", policy, rule);
    }
    injection(spec, c);
}

fn injection(spec: &SandboxSpec, c: &mut Checks) {
    let way = match spec.inject() {
        Inject::Copy => "copy",
        Inject::ImageVolume => "image-volume",
        Inject::Auto | Inject::Baked => return,
    };
    let rule = format!(
        "with inject {way} podcradle-init comes from an image of its own; give supervisorImage"
    );
    c.require(spec.supervisor_image.is_some(), "inject", way, &rule);
    let rule = format!(
        "with inject {way} the host's command must be spelled out, behind -- or as host in a file: podcradle cannot see an image's own entrypoint"
    );
    let known = !spec.host.is_empty() || spec.profile.knows_host();
    c.require(known, "host", "", &rule);
}

fn is_reference(image: &str) -> bool {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let tag_at = name
        .rfind(':')
        .filter(|at| !name[*at..].contains('/'))
        .unwrap_or(name.len());
    let path = &name[..tag_at];
    !path.is_empty()
        && image.bytes().all(|b| b.is_ascii_graphic())
        && !repository_part(path)
            .bytes()
            .any(|b| b.is_ascii_uppercase())
        && !path.starts_with(['/', '-', '.', ':'])
        && !path.ends_with('/')
        && !name.ends_with(':')
}

/// The reference without a registry's host name, which may be upper case.
fn repository_part(path: &str) -> &str {
    match path.split_once('/') {
        Some((registry, rest)) if registry.contains(['.', ':']) || registry == "localhost" => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};
    use super::*;

    #[test]
    fn image_references_are_checked() {
        for good in [
            "a",
            "a:1",
            "r:5000/a/b:1",
            "r.example/a@sha256:00",
            "r/a:1@sha256:00",
        ] {
            assert_eq!(problems(|s| s.image = good.into()).len(), 0, "{good}");
        }
        for bad in ["", "a b", "UPPER", "a:", "/a", "a/", "-a", ":1"] {
            assert_eq!(problems(|s| s.image = bad.into()).len(), 1, "{bad}");
            assert_ne!(
                problems(|s| s.prep_image = Some(bad.into())).len(),
                0,
                "{bad}"
            );
        }
    }

    #[test]
    fn a_missing_image_says_where_one_may_be_named() {
        for place in ["--image", "PODCRADLE_IMAGE", "configuration"] {
            refused("image", place, |s| s.image.clear());
        }
    }

    #[test]
    fn auto_trusts_the_baked_image_and_copies_into_others() {
        let mut spec = SandboxSpec::new("a", "image:1");
        assert_eq!(spec.inject(), Inject::Baked);
        spec.supervisor_image = Some("supervisor:1".into());
        assert_eq!(spec.inject(), Inject::Copy);
        spec.baked_image = Some("image:1".into());
        assert_eq!(spec.inject(), Inject::Baked);
        spec.inject = Inject::ImageVolume;
        assert_eq!(spec.inject(), Inject::ImageVolume);
    }

    #[test]
    fn a_supervisor_from_elsewhere_needs_its_image_and_the_hosts_command() {
        for inject in [Inject::Copy, Inject::ImageVolume] {
            refused("inject", "supervisorImage", |s| {
                s.inject = inject;
                s.host = vec!["agent".into()];
            });
            refused("host", "cannot see an image's own entrypoint", |s| {
                s.inject = inject;
                s.supervisor_image = Some("i".into());
            });
        }
        // Omnigent's host is known by its name.
        let found = problems(|s| {
            *s = SandboxSpec {
                sandbox: s.sandbox.clone(),
                launch_id: s.launch_id.clone(),
                image: s.image.clone(),
                supervisor_image: Some("i".into()),
                ..SandboxSpec::of_profile(Profile::Omnigent)
            }
        });
        assert_eq!(found, Vec::<String>::new());
    }
}
