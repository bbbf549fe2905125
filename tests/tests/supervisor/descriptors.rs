//! Descriptors: the host gets what was inherited, the supervisor keeps none of
//! it open, so that whoever is at the other end sees the host's own closing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use podcradle_tests::pidns::{Setup, Stream, Subject, eventually};

crate::cases![
    what_the_host_closes_is_closed,
    with_a_restart_what_no_host_is_given_is_closed,
    what_the_host_stops_reading_breaks_the_pipe,
    what_the_host_stops_writing_ends,
    inherited_descriptors_reach_the_host,
    with_close_fds_the_host_gets_the_standard_ones_alone,
    with_keep_fd_it_gets_that_one_too,
    the_listen_pid_becomes_the_hosts,
    a_listen_pid_of_somebody_else_stays,
    without_standard_descriptors_it_still_works,
    it_keeps_nothing_but_its_error_output,
];

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

fn what_the_host_closes_is_closed(t: &Subject) -> Outcome {
    let (reader, writer) = pipe()?;
    let script = "exec 3>&-; echo closed; exec sleep 1000";
    let mut run = t.with_script(&[], script).descriptor(writer, 3).start()?;
    ensure!(run.line()? == "closed", "no host");
    ensure!(
        Stream::new(reader).rest()?.is_empty(),
        "something was written"
    );
    ensure!(run.alive(), "the supervisor is gone");
    Ok(())
}

/// With a restart the next host is to have what the first had; under
/// `--close-fds` that is not this one.
fn with_a_restart_what_no_host_is_given_is_closed(t: &Subject) -> Outcome {
    let (reader, writer) = pipe()?;
    let flags = ["--restart", "on-failure", "--close-fds"];
    let run = t.with_script(&flags, "exec sleep 1000");
    let run = run.descriptor(writer, 3).start()?;
    ensure!(
        Stream::new(reader).rest()?.is_empty(),
        "something was written"
    );
    ensure!(run.alive(), "the supervisor is gone");
    Ok(())
}

fn what_the_host_stops_reading_breaks_the_pipe(t: &Subject) -> Outcome {
    let (reader, writer) = pipe()?;
    let script = "exec 0<&-; echo closed; exec sleep 1000";
    let mut run = t.with_script(&[], script).descriptor(reader, 0).start()?;
    ensure!(run.line()? == "closed", "no host");
    // The supervisor closes its copy after the fork, perhaps after that line.
    let mut writer = File::from(writer);
    let broken = || writer.write_all(b"x").err().map(|error| error.kind());
    let kind = eventually("a broken pipe", broken)?;
    ensure!(kind == io::ErrorKind::BrokenPipe, "{kind:?}");
    ensure!(run.alive(), "the supervisor is gone");
    Ok(())
}

fn what_the_host_stops_writing_ends(t: &Subject) -> Outcome {
    let script = "exec 1>&-; exec sleep 1000";
    let mut run = t.with_script(&[], script).start()?;
    ensure!(run.out.rest()?.is_empty(), "something was written");
    ensure!(run.alive(), "the supervisor is gone");
    Ok(())
}

/// What the host has open, with 3 and 7 inherited.
fn open(t: &Subject, flags: &[&str]) -> Result<String, podcradle_tests::harness::Stop> {
    let (reader, writer) = pipe()?;
    let setup = t.with_testhost(flags, &["descriptors"]);
    let mut run = setup.descriptor(reader, 3).descriptor(writer, 7).start()?;
    let line = run.line()?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    Ok(line)
}

fn inherited_descriptors_reach_the_host(t: &Subject) -> Outcome {
    let open = open(t, &[])?;
    ensure!(open == "0 1 2 3 7", "{open}");
    Ok(())
}

fn with_close_fds_the_host_gets_the_standard_ones_alone(t: &Subject) -> Outcome {
    let open = open(t, &["--close-fds"])?;
    ensure!(open == "0 1 2", "{open}");
    Ok(())
}

fn with_keep_fd_it_gets_that_one_too(t: &Subject) -> Outcome {
    let both = open(t, &["--close-fds", "--keep-fd", "7", "--keep-fd", "3"])?;
    ensure!(both == "0 1 2 3 7", "{both}");
    let one = open(t, &["--close-fds", "--keep-fd", "7"])?;
    ensure!(one == "0 1 2 7", "{one}");
    Ok(())
}

fn the_listen_pid_becomes_the_hosts(t: &Subject) -> Outcome {
    let (reader, _writer) = pipe()?;
    let script = r#"[ "$LISTEN_PID" = $$ ] && [ "$LISTEN_FDS" = 1 ]"#;
    let setup = t
        .with_script(&[], script)
        .env("LISTEN_PID=1")
        .env("LISTEN_FDS=1");
    let mut run = setup.descriptor(reader, 3).start()?;
    ensure!(run.code()? == 0, "the host is not the one meant");
    Ok(())
}

fn a_listen_pid_of_somebody_else_stays(t: &Subject) -> Outcome {
    let script = r#"[ "$LISTEN_PID" = 4711 ] && [ "$LISTEN_FDS" = 1 ]"#;
    let setup = t
        .with_script(&[], script)
        .env("LISTEN_PID=4711")
        .env("LISTEN_FDS=1");
    let mut run = setup.start()?;
    ensure!(run.code()? == 0, "it was changed");
    Ok(())
}

fn without_standard_descriptors_it_still_works(t: &Subject) -> Outcome {
    let setup = t.with_testhost(&[], &["descriptors"]);
    let mut run = setup.closed_stdio().start()?;
    // The test host cannot print there; what it does not have it fails on.
    let code = run.code()?;
    ensure!(code == 99 || code == 0, "exit {code}");
    ensure!(run.report()?["exitCode"] == code, "{}", run.report()?);
    let mut run = t.with_script(&[], "exit 6").closed_stdio().start()?;
    ensure!(run.code()? == 6, "exit {}", run.code()?);
    // Nothing of ours lands where the host's own would be: the report is whole.
    let mut run = t.init(&[], &["/nope"]).closed_stdio().start()?;
    ensure!(run.code()? == 127, "exit {}", run.code()?);
    run.report()?;
    let mut run = t
        .with_script(&[], "cat <&0; exit 7")
        .closed_input()
        .start()?;
    ensure!(run.code()? == 7, "exit {}", run.code()?);
    Ok(())
}

fn it_keeps_nothing_but_its_error_output(t: &Subject) -> Outcome {
    let (reader, writer) = pipe()?;
    let setup: Setup = t.init(&[], &["sleep", "1000"]);
    let run = setup.descriptor(reader, 3).descriptor(writer, 9).start()?;
    run.find("the host", |p| p.command == "sleep 1000")?;
    let folder = format!("/proc/{}/fd", run.pid);
    // An emulator has descriptors of its own, so look for what was handed over.
    let kept = || {
        let links = std::fs::read_dir(&folder).ok()?.flatten();
        let links: Vec<_> = links
            .filter(|entry| entry.file_name() != "2")
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|link| link.to_string_lossy().starts_with("pipe:"))
            .collect();
        links.is_empty().then_some(())
    };
    eventually("the closing of what was inherited", kept)?;
    let mut text = String::new();
    File::open(format!("/proc/{}/fdinfo/2", run.pid))?.read_to_string(&mut text)?;
    ensure!(!text.is_empty(), "its error output is shut");
    Ok(())
}
