//! How `podcradle-init` gets into a container whose image does not have it, and
//! runs there for a user whom no image knows.

use podcradle_tests::e2e::stage::HOST;
use podcradle_tests::e2e::{Actor, Arch, Cluster, Stage, bare, repository};
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::{ensure, testbed};
use serde_json::Value;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("copied_into_an_image_that_has_no_shell", copied),
    ("mounted_into_an_image_that_has_no_shell", mounted),
    ("auto_copies_unless_the_image_is_the_baked_one", auto),
    ("copied_into_busybox", busybox),
    (
        "an_image_that_was_loaded_anew_is_the_one_mounted",
        loaded_anew,
    ),
    ("a_user_without_a_passwd_entry_runs", stranger),
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
    let bed = actor.cluster.testbed.as_ref().map_err(skip)?;
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

/// An image that nobody made for this, with its own shell as the host.
fn busybox(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let image = actor.cluster.busybox(arch)?;
    let name = actor.reserve("busybox")?;
    // A shell in between leaves its child to PID 1; one that is not reaped
    // stays in /proc and keeps the loop going until the watchdog ends the test.
    let script = "echo pid1 $(cat /proc/1/comm) on $(uname -m)
        orphan=$(sh -c 'sleep 1000 >/dev/null & echo $!')
        echo its parent: $(grep PPid: /proc/$orphan/status)
        kill $orphan
        while [ -e /proc/$orphan ]; do :; done
        echo reaped
        exit 42";
    let launched = actor
        .launch(&name)
        .option(&["--image", &image, "--inject", "copy"])
        .option(&["--supervisor-image", &Cluster::supervisor(arch)])
        .host(&["sh", "-c", script])
        .try_run()?;
    // Whether the launcher saw the host run before it ended is a race that both
    // ways are right answers to.
    let (report, log) = if launched.code == 0 {
        crate::stop::ended(&actor.cluster.admin, &name)?;
        let report = actor.json(&["status", &name])?["report"].clone();
        (report, actor.run(&["logs", &name])?.stdout)
    } else {
        let error = launched.with_code(6)?.json()?["error"].clone();
        let log = error["log"].as_str().unwrap_or_default().to_owned();
        (error["report"].clone(), log)
    };
    let lines = [
        format!("pid1 podcradle-init on {}", arch.machine()),
        "its parent: PPid: 1".to_owned(),
        "reaped".to_owned(),
    ];
    for line in &lines {
        ensure!(log.lines().any(|said| said == line), "no {line:?}: {log}");
    }
    ensure!(
        report["exitCode"] == 42 && report["end"]["code"] == 42,
        "report: {report}"
    );
    let orphans = report["orphans"].as_u64();
    ensure!(orphans.is_some_and(|count| count >= 1), "report: {report}");
    Ok(())
}

/// The next build of an image under the same name, as `make images` brings it.
fn loaded_anew(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let bed = actor.cluster.testbed.as_ref().map_err(skip)?;
    let layout = testbed::Layout::new(bed)?;
    let program = format!("out/stage/supervisor/{}/podcradle-init", arch.name());
    let mut program = std::fs::read(repository().join(program))?;
    let image = format!("podcradle.test/supervisor-{}:again", arch.name());
    let archive = actor.folder().join("supervisor.tar");
    let platform = format!("linux/{}", arch.name());
    let options = ["--inject", "image-volume", "--supervisor-image", &image];
    for _ in 0..2 {
        let file = ("podcradle-init", program.as_slice());
        testbed::of_one_program(&archive, &image, arch.name(), file)?;
        testbed::load(&layout, std::slice::from_ref(&archive), Some(&platform))?;
        let stage = Stage::set_with(Actor::new(arch)?, "anew", &options, &HOST)?;
        let size = ["stat", "-c", "%s", "/podcradle/podcradle-init"];
        let size = stage.order("size", &size)?;
        let right = format!("{}\n", program.len());
        ensure!(size["stdout"] == right, "not {right:?}: {size}");
        stage.actor.run(&["delete", &stage.name])?;
        // Nothing that an ELF program's headers speak of: it runs as before.
        program.push(0);
    }
    Ok(())
}

fn stranger(arch: Arch) -> Outcome {
    let stage = Stage::set(arch, "stranger", &["--run-as", "4242"])?;
    ensure!(stage.says["pid1"] == "podcradle-init", "{}", stage.says);
    let id = stage.order("id", &["id", "-u"])?;
    ensure!(id["stdout"] == "4242\n", "{id}");
    let whoami = stage.order("whoami", &["whoami"])?;
    ensure!(whoami["exitCode"] == 1, "it has a name: {whoami}");
    let script = "git init -q here && cd here && git config user.name x && git config user.email x@y.test \
        && git commit -q --allow-empty -m 'by nobody' && git log --format=%s";
    let git = stage.order("git", &["sh", "-c", script])?;
    ensure!(git["stdout"] == "by nobody\n", "{git}");
    Ok(())
}
