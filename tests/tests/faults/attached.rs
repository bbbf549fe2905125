//! `launch --attach` of the program against the fake: what is wrong is said
//! before its Lease is made, and the Lease goes on every way out.

use std::io::Write as _;
use std::process::Stdio;

use podcradle_launcher::name;
use podcradle_tests::e2e::{Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Stop, Suite};
use rustix::process::Signal;

use super::ambiguous::once;
use super::program::{podcradle, program};
use super::support::{Bed, NAME, launched, spec, wait};

pub fn add(suite: &mut Suite) {
    suite.test("an_attached_launch_without_its_token_makes_nothing", || {
        let bed = Bed::well()?;
        let dir = tempfile::tempdir()?;
        let there = dir.path().join("there");
        std::fs::write(&there, "of before")?;
        let absent = dir.path().join("absent");
        for (option, path) in [("--token-out", &there), ("--token-file", &absent)] {
            let mut command = program(&bed)?;
            command.arg("--attach").arg(option).arg(path);
            Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
        }
        ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
        Ok(())
    });
    suite.test("an_attached_launch_of_many_makes_nothing", many_attached);
    suite.test("the_lease_of_an_attached_launch_has_room_too", crowded);
    suite.test("an_attached_launch_that_fails_leaves_no_lease", || {
        let bed = Bed::well()?;
        bed.api.script(once("POST", "services", Fault::Refuse(403)));
        let mut command = program(&bed)?;
        command.arg("--attach");
        Running::start(&mut command)?.wait(WATCHDOG)?.with_code(4)?;
        let left = bed.api.objects();
        ensure!(left.is_empty(), "{left:?}");
        let made = bed.api.calls().contains(&"POST leases".to_owned());
        ensure!(made, "there never was a Lease");
        Ok(())
    });
    suite.test("an_attached_launch_that_cannot_print_leaves_nothing", full);
    suite.test(
        "the_lease_of_a_process_that_was_killed_goes_with_its_sandbox",
        killed,
    );
}

/// This process ends as one host does.
fn many_attached() -> Outcome {
    let bed = Bed::well()?;
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(b"- {hostName: one}\n- {hostName: two}\n")?;
    let path = file.path().display().to_string();
    for many in [["--file", path.as_str()], ["--count", "2"]] {
        let mut command = program(&bed)?;
        command.arg("--attach").args(many);
        let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
        let said = &ended.stderr;
        ensure!(
            said.lines().count() == 1 && said.contains("--attach"),
            "{said}"
        );
    }
    ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
    Ok(())
}

/// The anchor's record of a launch that is as large as it may be takes the name
/// of no Lease.
fn crowded() -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(once("POST", "services", Fault::Refuse(403)));
    let ended = |argument: usize, option: &str| {
        let mut command = program(&bed)?;
        command.args([option, "--", &"x".repeat(argument)]);
        Ok::<_, Stop>(Running::start(&mut command)?.wait(WATCHDOG)?)
    };
    // `spec "12001 bytes": must be at most 11264 bytes …`
    let sizes = |said: &str| -> Option<(usize, usize)> {
        let (_, rest) = said.split_once("spec \"")?;
        let (size, rest) = rest.split_once(" bytes\": must be at most ")?;
        let (most, _) = rest.split_once(" bytes")?;
        Some((size.parse().ok()?, most.parse().ok()?))
    };
    let size = |argument: usize, option: &str| {
        let said = ended(argument, option)?.with_code(2)?.stderr;
        sizes(&said).ok_or(Stop::Failed(said))
    };
    let (alone, most) = size(12_000, "--dry-run=client")?;
    let fits = 12_000 + most - alone;
    ended(fits, "--dry-run=client")?.with_code(0)?;
    let (attached, _) = size(fits, "--attach")?;
    ensure!(attached > most, "with its Lease {attached} of {most}");
    let fits = fits + most - attached;
    ended(fits + 1, "--attach")?.with_code(2)?;
    ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
    // It has room, and comes as far as the API server.
    ended(fits, "--attach")?.with_code(4)?;
    Ok(())
}

/// A disk that is full takes no result.
fn full() -> Outcome {
    let bed = Bed::well()?;
    let mut command = program(&bed)?;
    command.args(["--attach", "-o", "json"]);
    command.stdout(std::fs::File::options().write(true).open("/dev/full")?);
    command.stderr(Stdio::piped()).stdin(Stdio::null());
    let ended = command.spawn()?.wait_with_output()?;
    ensure!(ended.status.code() == Some(1), "{ended:?}");
    bed.api.collect();
    let left = bed.api.objects();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

/// A deployment's stays, whatever it is called.
fn killed() -> Outcome {
    let leases = |bed: &Bed| {
        let mut all = bed.api.objects();
        all.retain(|object| object.starts_with("leases/"));
        all.len()
    };
    let delete = |bed: &Bed| {
        let mut command = podcradle(bed)?;
        command.args(["delete", NAME]);
        Ok::<_, Stop>(Running::start(&mut command)?.wait(WATCHDOG)?.with_code(0)?)
    };
    let bed = Bed::well()?;
    let mut command = program(&bed)?;
    command.args(["--attach", "--sandbox", NAME]);
    let running = Running::start(&mut command)?;
    bed.api
        .wait_for(|so_far| so_far.calls("PATCH services") > 0)?;
    running.signal(Signal::KILL)?;
    running.wait(WATCHDOG)?;
    ensure!(leases(&bed) == 1, "there is no Lease");
    delete(&bed)?;
    ensure!(leases(&bed) == 0, "left: {:?}", bed.api.objects());

    let bed = Bed::well()?;
    let mut command = program(&bed)?;
    command.args(["--owner", "podcradle-attach-0123", "--sandbox", NAME]);
    Running::start(&mut command)?.wait(WATCHDOG)?.with_code(0)?;
    delete(&bed)?;
    ensure!(leases(&bed) == 1, "left: {:?}", bed.api.objects());

    // A process that lives may have more under its Lease.
    let bed = Bed::well()?;
    let owner = wait(bed.launcher.attach(&name::of_process()))??;
    let mut spec = spec();
    spec.owner = Some(owner.name().to_owned());
    launched(bed.launch_spec(spec)?)?;
    delete(&bed)?;
    ensure!(leases(&bed) == 1, "left: {:?}", bed.api.objects());
    Ok(())
}
