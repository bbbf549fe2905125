//! Images that cannot be had, or not for this node, and what is started of them.

use podcradle_tests::e2e::account::Account;
use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::registry::Registry;
use podcradle_tests::e2e::{Arch, Ended, native};
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::{ensure, testbed};

use super::support::{Expected, Row};
use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("an_image_that_is_not_there", not_found),
    ("an_image_behind_a_password", unauthorized),
    ("an_image_for_other_machines", platform),
    ("a_name_that_is_no_images", invalid_name),
    ("an_image_that_may_not_be_pulled", never_pulled),
    ("an_image_volume_that_cannot_be_pulled", image_volume),
    ("an_image_without_podcradle_init", start_error),
    ("a_supervisor_image_that_is_not_there", no_supervisor),
    ("a_supervisor_image_without_podcradle_init", bad_supervisor),
    ("a_credentials_secret_that_is_not_there", no_credentials),
];

fn not_found(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-not-found")?;
    let registry = row.actor.cluster.registry.as_ref().map_err(skip)?;
    let image = format!("{registry}/podcradle/nowhere:none");
    let expected = Expected {
        code: 6,
        reason: "ImagePull",
        message: &[&image, "not found"],
        hint: "--image",
    };
    let error = row.fails(row.of(&image).try_run()?, &expected)?;
    let events = error["events"].to_string();
    ensure!(events.contains("Failed to pull image"), "events: {error:#}");
    Ok(())
}

fn unauthorized(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-unauthorized")?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    let registry = Registry::private()?;
    let image = registry.image("private");
    let expected = Expected {
        code: 6,
        reason: "ImagePull",
        message: &[&image, "without a password"],
        hint: "--image-pull-secret",
    };
    row.fails(row.of(&image).try_run()?, &expected).map(drop)
}

fn platform(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-platform")?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    let registry = Registry::serve()?;
    let image = registry.image("foreign");
    let expected = Expected {
        code: 6,
        reason: "Platform",
        message: &[&image, "no variant for the node's architecture"],
        hint: "--arch",
    };
    let error = row.fails(row.of(&image).try_run()?, &expected)?;
    let unread = error["unread"].to_string();
    ensure!(
        unread.contains("get nodes ") && unread.contains("deploy/nodes"),
        "does not say who grants what was not read: {error:#}"
    );
    // With the right to read nodes the message names the architecture.
    let node = Row::new(arch, "image-platform-of")?;
    let account = Account::with_nodes(&node.actor)?;
    node.middle.go_as(&node.actor, &account.token)?;
    let error = node.of(&image).try_run()?.with_code(6)?.json()?["error"].clone();
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(message.contains(native().name()), "message: {message}");
    Ok(())
}

fn invalid_name(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-name")?;
    let expected = Expected {
        code: 6,
        reason: "ImageName",
        message: &["localhost/podcradle:a:b"],
        hint: "--image",
    };
    row.fails(row.of("localhost/podcradle:a:b").try_run()?, &expected)
        .map(drop)
}

fn never_pulled(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-never-pulled")?;
    let expected = Expected {
        code: 6,
        reason: "ImageName",
        message: &["localhost/podcradle/nowhere:1", "may not be pulled"],
        hint: "--image-pull-policy",
    };
    let launch = row
        .of("localhost/podcradle/nowhere:1")
        .option(&["--image-pull-policy", "Never"]);
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn image_volume(arch: Arch) -> Outcome {
    let row = Row::new(arch, "image-volume")?;
    let registry = row.actor.cluster.registry.as_ref().map_err(skip)?;
    let image = format!("{registry}/podcradle/nowhere:none");
    let volume = format!(
        r#"[JSONPatch{{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{{
            name: "extra", image: Object.spec.volumes.image{{reference: {image:?}}}
        }}}}, JSONPatch{{
            op: "add", path: "/spec/containers/0/volumeMounts/-",
            value: Object.spec.containers.volumeMounts{{name: "extra", mountPath: "/extra"}}
        }}]"#
    );
    let place = podcradle_tests::e2e::NAMESPACE;
    let Some(_policy) = Policy::patch(&row.actor, place, &row.name, &volume)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let expected = Expected {
        code: 6,
        reason: "ImagePull",
        message: &["the image of a volume", &image, "not found"],
        hint: "--supervisor-image",
    };
    row.fails(row.launch().try_run()?, &expected).map(drop)
}

fn start_error(arch: Arch) -> Outcome {
    let row = Row::new(arch, "start-error")?;
    let expected = Expected {
        code: 6,
        reason: "StartError",
        message: &["workspace-prep", "/nowhere/podcradle-init", "no such file"],
        hint: "--init-dir",
    };
    let launch = row.launch().option(&["--init-dir", "/nowhere"]);
    let error = row.fails(launch.try_run()?, &expected)?;
    ensure!(error["report"].is_null(), "a report of nobody: {error:#}");
    Ok(())
}

/// A launch that copies podcradle-init from this image.
fn copies(row: &Row, image: &str) -> Result<Ended, Stop> {
    let options = ["--inject", "copy", "--supervisor-image", image];
    let launch = row.launch().option(&options).host(&["sleep", "1000"]);
    Ok(launch.try_run()?)
}

fn no_supervisor(arch: Arch) -> Outcome {
    let row = Row::new(arch, "copy-image-not-found")?;
    let registry = row.actor.cluster.registry.as_ref().map_err(skip)?;
    let image = format!("{registry}/podcradle/nowhere:none");
    let expected = Expected {
        code: 6,
        reason: "ImagePull",
        message: &[&image, "not found"],
        hint: "--supervisor-image",
    };
    row.fails(copies(&row, &image)?, &expected).map(drop)
}

fn bad_supervisor(arch: Arch) -> Outcome {
    let row = Row::new(arch, "copy-start-error")?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    let expected = Expected {
        code: 6,
        reason: "StartError",
        message: &[
            "container podcradle-init",
            "/podcradle-init",
            "no such file",
        ],
        hint: "--supervisor-image",
    };
    row.fails(copies(&row, testbed::BUSYBOX)?, &expected)
        .map(drop)
}

fn no_credentials(arch: Arch) -> Outcome {
    let row = Row::new(arch, "config-error")?;
    let expected = Expected {
        code: 6,
        reason: "ContainerConfig",
        message: &["workspace-prep", "secret \"nowhere\" not found"],
        hint: "--credentials-secret",
    };
    let launch = row.launch().option(&["--credentials-secret", "nowhere"]);
    row.fails(launch.try_run()?, &expected).map(drop)
}
