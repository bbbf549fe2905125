//! How `podcradle-init` gets into a container whose image does not have it.

use podcradle_tests::e2e::{Actor, Arch, Cluster, Stage, bare};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use serde_json::Value;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("copied_into_an_image_that_has_no_shell", copied),
    ("mounted_into_an_image_that_has_no_shell", mounted),
    ("auto_copies_unless_the_image_is_the_baked_one", auto),
];

fn copied(arch: Arch) -> Outcome {
    let pod = without_shell(arch, "copy")?;
    let copy = &pod["spec"]["initContainers"][0];
    ensure!(
        copy["name"] == "podcradle-init" && copy["image"] == Cluster::supervisor(arch),
        "the first init container: {copy:#}"
    );
    Ok(())
}

fn mounted(arch: Arch) -> Outcome {
    let pod = without_shell(arch, "image-volume")?;
    let init = pod["spec"]["initContainers"].as_array().map(Vec::len);
    ensure!(init == Some(1), "only workspace-prep: {:#}", pod["spec"]);
    Ok(())
}

/// A sandbox from an image of one program, with podcradle-init brought along;
/// returns its Pod.
fn without_shell(arch: Arch, way: &str) -> Result<Value, Stop> {
    let actor = Actor::new(arch)?;
    let bed = actor.cluster.bed.as_ref().map_err(skip)?;
    let image = bare::load(bed, arch, actor.folder())?;
    let supervisor = Cluster::supervisor(arch);
    let options = [
        &["--image", image.as_str(), "--inject", way][..],
        &["--supervisor-image", &supervisor],
    ];
    let host = [bare::HOST, "--heartbeat", "0.2"];
    let stage = Stage::set_with(actor, way, &options.concat(), &host)?;
    ensure!(
        stage.says["pid1"] == "podcradle-init" && stage.says["arch"] == arch.machine(),
        "the host says {}",
        stage.says
    );
    let orphans = stage.orphans("leave", 20)?;
    ensure!(orphans["exitCode"] == 0, "leaving orphans: {orphans}");
    let shell = stage.order("shell", &["/bin/sh", "-c", "true"])?;
    ensure!(shell["exitCode"] != 0, "there is a shell: {shell}");
    // What the next container runs as its PID 1 is out of the host's reach.
    let program = "/podcradle/podcradle-init";
    let over = stage.order("over", &[program, "--copy-to", "/podcradle"])?;
    ensure!(
        over["exitCode"] == 125 && over.to_string().contains("/podcradle"),
        "writing over podcradle-init: {over}"
    );
    let pod = stage.actor.cluster.admin.one("pod", &stage.name)?;
    stage.actor.run(&["delete", &stage.name])?;
    Ok(pod)
}

fn auto(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let (image, supervisor) = (Cluster::image(arch), Cluster::supervisor(arch));
    let names = |baked: &[&str]| -> Result<Vec<String>, Stop> {
        let name = actor.reserve("auto")?;
        let launch = actor.launch(&name);
        let launch = launch.option(&["--supervisor-image", &supervisor]);
        launch.option(baked).host(&["sleep", "1000"]).run()?;
        let pod = actor.cluster.admin.one("pod", &name)?;
        let init = pod["spec"]["initContainers"].as_array();
        let names = init.into_iter().flatten();
        let names = names.filter_map(|container| container["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    };
    let copied = names(&[])?;
    ensure!(copied == ["podcradle-init", "workspace-prep"], "{copied:?}");
    let baked = names(&["--baked-image", &image])?;
    ensure!(baked == ["workspace-prep"], "{baked:?}");
    Ok(())
}
