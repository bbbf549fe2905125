//! The code the supervisor ends with, and what it says of a host that could
//! not be executed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use podcradle_tests::pidns::{Running, Subject, write_program};
use serde_json::{Value, json};

crate::cases![
    every_exit_code_is_the_hosts,
    death_by_any_signal_is_128_plus_its_number,
    death_by_a_real_time_signal_is_128_plus_its_number: "QEMU gives real-time signals other numbers than the kernel outside, and which depends on its version",
    a_core_dump_does_not_leak_into_the_code,
    abort_is_134_and_not_a_fault_of_ours,
    a_mapped_code_becomes_0_and_the_report_keeps_the_truth,
    exit_137_and_sigkill_differ_in_the_report_alone,
    a_missing_command_is_127,
    a_command_that_path_does_not_have_is_127,
    an_empty_command_is_127,
    a_directory_is_126,
    a_file_without_the_x_bit_is_126,
    a_missing_interpreter_is_127_and_is_named,
    a_script_without_an_interpreter_line_runs_under_sh,
    an_elf_of_a_foreign_machine_is_126,
    the_path_walk_goes_on_behind_a_file_it_may_not_execute,
    the_path_walk_remembers_a_refusal_when_nothing_better_comes,
    a_loop_of_links_is_126_or_127_and_never_0,
];

fn kind(report: &Value) -> &Value {
    &report["end"]["kind"]
}

fn every_exit_code_is_the_hosts(t: &Subject) -> Outcome {
    for code in 0..=255 {
        let script = format!("exit {code}");
        let mut run = t.with_script(&[], &script).start()?;
        ensure!(run.code()? == code, "exit {code} became {}", run.code()?);
        let report = run.report()?;
        ensure!(report["exitCode"] == code, "exit {code}: {report}");
        ensure!(report["end"]["code"] == code, "exit {code}: {report}");
        ensure!(kind(&report) == "exit", "exit {code}: {report}");
    }
    Ok(())
}

/// Every signal whose default action ends a process.
fn deadly() -> impl Iterator<Item = i32> {
    let harmless = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    (1..=31).filter(move |signal| !harmless.contains(signal))
}

fn death_by_any_signal_is_128_plus_its_number(t: &Subject) -> Outcome {
    dies(t, deadly())
}

fn death_by_a_real_time_signal_is_128_plus_its_number(t: &Subject) -> Outcome {
    dies(t, 34..=64)
}

fn dies(t: &Subject, signals: impl Iterator<Item = i32>) -> Outcome {
    for signal in signals {
        let number = signal.to_string();
        let host = t.with_testhost(&[], &["die", &number]);
        let mut run = host.limit(libc::RLIMIT_CORE, 0).start()?;
        ensure!(
            run.code()? == 128 + signal,
            "signal {signal}: {}",
            run.code()?
        );
        let end = run.report()?["end"].clone();
        let right = json!({"kind": "signal", "signal": signal, "core": false});
        ensure!(end == right, "signal {signal}: {end}");
    }
    Ok(())
}

fn a_core_dump_does_not_leak_into_the_code(t: &Subject) -> Outcome {
    for signal in [libc::SIGQUIT, libc::SIGSEGV, libc::SIGABRT, libc::SIGXCPU] {
        let number = signal.to_string();
        let host = t.with_testhost(&[], &["die", &number]);
        let mut run = host.limit(libc::RLIMIT_CORE, libc::RLIM_INFINITY).start()?;
        ensure!(
            run.code()? == 128 + signal,
            "signal {signal}: {}",
            run.code()?
        );
        let end = run.report()?["end"].clone();
        ensure!(end["signal"] == signal, "signal {signal}: {end}");
        // Whether a core is written is the machine's business (core_pattern);
        // where it lies in the working directory the report must say so.
        let dumped = fs::read_dir(run.folder())?
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("core"));
        ensure!(
            !dumped || end["core"] == true,
            "signal {signal} dumped: {end}"
        );
    }
    Ok(())
}

fn abort_is_134_and_not_a_fault_of_ours(t: &Subject) -> Outcome {
    let mut run = t.with_testhost(&[], &["abort"]).start()?;
    // `code` fails when the supervisor itself died of a signal.
    ensure!(run.code()? == 134, "{}", run.code()?);
    Ok(())
}

fn a_mapped_code_becomes_0_and_the_report_keeps_the_truth(t: &Subject) -> Outcome {
    let flags = ["-e", "143", "-e", "3"];
    let mut run = t.with_script(&flags, "kill -TERM $$").start()?;
    ensure!(run.code()? == 0, "{}", run.code()?);
    let report = run.report()?;
    ensure!(report["end"]["signal"] == 15, "{report}");
    let mut run = t.with_script(&flags, "exit 3").start()?;
    ensure!(run.code()? == 0, "{}", run.code()?);
    ensure!(run.report()?["end"]["code"] == 3, "{}", run.report()?);
    let mut run = t.with_script(&flags, "exit 4").start()?;
    ensure!(run.code()? == 4, "{}", run.code()?);
    Ok(())
}

fn exit_137_and_sigkill_differ_in_the_report_alone(t: &Subject) -> Outcome {
    let mut exited = t.with_script(&[], "exit 137").start()?;
    let mut killed = t.with_script(&[], "kill -KILL $$").start()?;
    ensure!(exited.code()? == 137 && killed.code()? == 137, "not 137");
    ensure!(kind(&exited.report()?) == "exit", "{}", exited.report()?);
    ensure!(kind(&killed.report()?) == "signal", "{}", killed.report()?);
    Ok(())
}

/// A host that cannot be executed: the code, one line that names the file, and
/// a report of the same code.
fn refused(run: &mut Running, code: i32, named: &str) -> Outcome {
    let got = run.code()?;
    let stderr = run.stderr()?;
    ensure!(got == code, "exit {got} instead of {code}: {stderr}");
    ensure!(stderr.lines().count() == 1, "not one line: {stderr:?}");
    ensure!(
        stderr.contains(named),
        "{named:?} is not named in {stderr:?}"
    );
    let report = run.report()?;
    ensure!(report["exitCode"] == code, "{report}");
    ensure!(kind(&report) == "exec", "{report}");
    Ok(())
}

fn file(at: &Path, name: &str, content: &[u8], mode: u32) -> Outcome {
    let path = at.join(name);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    write_program(&path, content)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn a_missing_command_is_127(t: &Subject) -> Outcome {
    refused(&mut t.init(&[], &["/nope"]).start()?, 127, "/nope")
}

fn a_command_that_path_does_not_have_is_127(t: &Subject) -> Outcome {
    refused(
        &mut t.init(&[], &["no-such-host"]).start()?,
        127,
        "no-such-host",
    )
}

fn an_empty_command_is_127(t: &Subject) -> Outcome {
    refused(&mut t.init(&[], &[""]).start()?, 127, "")
}

fn a_directory_is_126(t: &Subject) -> Outcome {
    refused(&mut t.init(&[], &["/usr"]).start()?, 126, "/usr")
}

fn a_file_without_the_x_bit_is_126(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["./plain"]);
    file(setup.folder()?, "plain", b"#!/bin/sh\nexit 0\n", 0o644)?;
    refused(&mut setup.start()?, 126, "plain")
}

fn a_missing_interpreter_is_127_and_is_named(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["./script"]);
    file(
        setup.folder()?,
        "script",
        b"#!/nope/interpreter -x\n",
        0o755,
    )?;
    refused(&mut setup.start()?, 127, "/nope/interpreter")
}

fn a_script_without_an_interpreter_line_runs_under_sh(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["./script", "a b", "c"]);
    file(
        setup.folder()?,
        "script",
        b"echo \"$# $1\"\nexit 9\n",
        0o755,
    )?;
    let mut run = setup.start()?;
    ensure!(run.line()? == "2 a b", "the arguments were changed");
    ensure!(run.code()? == 9, "{}", run.code()?);
    Ok(())
}

fn an_elf_of_a_foreign_machine_is_126(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["./foreign"]);
    // A complete header of a machine that no kernel and no emulator knows.
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    header.extend([0; 8]);
    header.extend([2, 0, 0xef, 0xbe, 1, 0, 0, 0]);
    header.extend([0; 40]);
    file(setup.folder()?, "foreign", &header, 0o755)?;
    refused(&mut setup.start()?, 126, "foreign")
}

fn the_path_walk_goes_on_behind_a_file_it_may_not_execute(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["podcradle-walk"]);
    let folder = setup.folder()?.to_owned();
    file(&folder, "a/podcradle-walk", b"#!/bin/sh\nexit 1\n", 0o644)?;
    file(&folder, "b/podcradle-walk", b"#!/bin/sh\nexit 12\n", 0o755)?;
    let at = folder.display();
    let mut run = setup.env(format!("PATH={at}/nope:{at}/a:{at}/b")).start()?;
    ensure!(run.code()? == 12, "{}: {}", run.code()?, run.stderr()?);
    Ok(())
}

fn the_path_walk_remembers_a_refusal_when_nothing_better_comes(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["podcradle-walk"]);
    let folder = setup.folder()?.to_owned();
    file(&folder, "a/podcradle-walk", b"#!/bin/sh\nexit 1\n", 0o644)?;
    let at = folder.display();
    let path = format!("PATH={at}/a:{at}/nope");
    refused(&mut setup.env(path).start()?, 126, "podcradle-walk")
}

fn a_loop_of_links_is_126_or_127_and_never_0(t: &Subject) -> Outcome {
    let mut setup = t.init(&[], &["./loop"]);
    std::os::unix::fs::symlink("loop", setup.folder()?.join("loop"))?;
    let mut run = setup.start()?;
    let code = run.code()?;
    ensure!([126, 127].contains(&code), "{code}: {}", run.stderr()?);
    Ok(())
}
