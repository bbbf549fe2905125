//! The termination report: one line of valid JSON for every way to end, and
//! never a reason to hang or to change the code.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Running, Setup, Subject, kill, parse_report};
use serde_json::{Value, json};

crate::cases![
    it_is_one_line_below_a_kilobyte,
    it_has_every_field_and_the_schema_knows_them_all,
    the_schema_refuses_what_is_no_report,
    it_holds_what_was_there_no_more_afterwards,
    it_is_written_when_the_supervisor_itself_refuses,
    any_bytes_in_the_arguments_leave_it_valid,
    it_goes_to_the_kubelets_file_by_default,
    it_is_not_made_where_the_kubelet_made_none,
    it_is_written_as_another_user_on_a_read_only_root,
    a_path_that_cannot_be_written_changes_nothing,
    a_full_disk_changes_nothing,
    a_fifo_without_a_reader_does_not_hang_it,
    a_symlink_is_not_followed,
    a_file_size_limit_changes_nothing,
    uptime_and_restarts_are_counted,
];

fn script(t: &Subject, log: &Path, script: &str) -> Setup {
    let flags = ["--termination-log".as_ref(), log.as_os_str()];
    Setup::new(t)
        .no_report_flag()
        .args(flags)
        .args(["--", "sh", "-c", script])
}

fn it_is_one_line_below_a_kilobyte(t: &Subject) -> Outcome {
    let flags = ["--grace", "9", "--drain", "9", "-v"];
    let long = "x".repeat(4000);
    let setup = t.init(&flags, &["sh", "-c", "kill -TERM 1; sleep 9 & wait"]);
    let mut run = setup.arg(&long).arg(&long).start()?;
    run.code()?;
    run.report()?;
    let length = run.report_bytes()?.len();
    ensure!(length < 1024, "{length} bytes");
    Ok(())
}

fn it_has_every_field_and_the_schema_knows_them_all(t: &Subject) -> Outcome {
    let flags = ["--grace", "9", "--drain", "9"];
    let mut run = t
        .with_script(&flags, "sleep 1000 & kill -TERM 1; wait")
        .start()?;
    ensure!(run.code()? == 143, "exit {}", run.code()?);
    let report = run.report()?;
    let known = properties()?;
    let fields = report.as_object().ok_or("not an object")?;
    for name in [
        "v",
        "exitCode",
        "end",
        "stop",
        "graceExpired",
        "drain",
        "restarts",
        "orphans",
        "uptimeMs",
    ] {
        ensure!(fields.contains_key(name), "{name} is missing in {report}");
    }
    for name in fields.keys() {
        ensure!(known.contains(name), "{name} is not in the schema");
    }
    ensure!(report["v"] == 1, "{report}");
    ensure!(report["exitCode"] == 143, "{report}");
    ensure!(report["drain"]["killed"].is_u64(), "{report}");
    Ok(())
}

fn properties() -> Result<Vec<String>, Stop> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../supervisor/report.schema.json"
    );
    let text = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let schema: Value = serde_json::from_slice(&text)?;
    let properties = schema["properties"]
        .as_object()
        .ok_or("a schema without properties")?;
    Ok(properties.keys().cloned().collect())
}

/// Every report that a test reads is held against the schema; that tells something only
/// if the schema can say no.
fn the_schema_refuses_what_is_no_report(t: &Subject) -> Outcome {
    let mut run = t.with_script(&[], "exit 3").start()?;
    run.code()?;
    let good = run.report()?;
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut bad = good.clone();
        change(&mut bad);
        parse_report(format!("{bad}\n").as_bytes()).is_err()
    };
    ensure!(!refused(&|_| {}), "{good} was refused");
    ensure!(
        refused(&|report| report["exitCode"] = json!(256)),
        "code 256"
    );
    ensure!(refused(&|report| report["v"] = json!(2)), "version 2");
    ensure!(
        refused(&|report| report["end"]["kind"] = json!("fire")),
        "an end by fire"
    );
    ensure!(
        refused(&|report| report["orphans"] = json!("none")),
        "a word for a number"
    );
    ensure!(
        refused(&|report| report["end"] = json!({"kind": "signal"})),
        "no signal"
    );
    Ok(())
}

fn it_holds_what_was_there_no_more_afterwards(t: &Subject) -> Outcome {
    let mut setup = t.with_script(&[], "exit 3");
    // An earlier, longer content, as a container that restarts leaves.
    let log = setup.folder()?.join("termination-log");
    fs::write(&log, format!("{}\n", "old ".repeat(500)))?;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666))?;
    let mut run = setup.start()?;
    ensure!(run.code()? == 3, "exit {}", run.code()?);
    ensure!(run.report()?["exitCode"] == 3, "{}", run.report()?);
    Ok(())
}

fn it_is_written_when_the_supervisor_itself_refuses(t: &Subject) -> Outcome {
    let flags = ["--env-from-file", "TOKEN=/nope/token"];
    let mut run = t.init(&flags, &["true"]).start()?;
    ensure!(run.code()? == 125, "exit {}", run.code()?);
    let report = run.report()?;
    ensure!(report["end"]["kind"] == "setup", "{report}");
    ensure!(report["exitCode"] == 125, "{report}");
    let message = report["end"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("/nope/token"), "{report}");
    Ok(())
}

fn any_bytes_in_the_arguments_leave_it_valid(t: &Subject) -> Outcome {
    let long = [b'\xff'; 4000];
    let names: [&[u8]; 5] = [
        b"/nope/\xff\xfe\x80",
        b"/nope/\"\\\n\t\x01\x7f",
        b"/nope/\xe2\x82",
        b"/nope/\xed\xa0\x80",
        &long,
    ];
    for name in names {
        let setup = t.init(&[], &[]).arg("--").arg(OsStr::from_bytes(name));
        let mut run = setup.start()?;
        let code = run.code()?;
        ensure!(code == 127 || code == 126, "exit {code}");
        ensure!(run.report()?["end"]["kind"] == "exec", "{}", run.report()?);
        ensure!(run.stderr()?.lines().count() == 1, "{:?}", run.stderr()?);
    }
    Ok(())
}

/// Starts with a /dev that holds `null` and, when asked, the kubelet's file.
fn with_dev(t: &Subject, file: bool) -> Result<(Running, std::path::PathBuf), Stop> {
    let mut setup = Setup::new(t)
        .no_report_flag()
        .args(["--", "sh", "-c", "exit 4"]);
    let folder = setup.folder()?.to_owned();
    let dev = folder.join("dev");
    fs::create_dir(&dev)?;
    fs::write(dev.join("null"), "")?;
    if file {
        fs::write(dev.join("termination-log"), "")?;
    }
    setup = setup.bind("/dev/null".as_ref(), &dev.join("null"));
    if file {
        // A bind mount of its own, as the kubelet makes it: a rename is refused.
        fs::write(folder.join("kubelets"), "")?;
        setup = setup.bind(&folder.join("kubelets"), &dev.join("termination-log"));
    }
    Ok((setup.bind(&dev, "/dev".as_ref()).start()?, folder))
}

fn it_goes_to_the_kubelets_file_by_default(t: &Subject) -> Outcome {
    let (mut run, folder) = with_dev(t, true)?;
    ensure!(run.code()? == 4, "exit {}: {}", run.code()?, run.stderr()?);
    let report: Value = serde_json::from_slice(&fs::read(folder.join("kubelets"))?)?;
    ensure!(report["exitCode"] == 4, "{report}");
    Ok(())
}

fn it_is_not_made_where_the_kubelet_made_none(t: &Subject) -> Outcome {
    let (mut run, folder) = with_dev(t, false)?;
    ensure!(run.code()? == 4, "exit {}: {}", run.code()?, run.stderr()?);
    ensure!(run.stderr()?.is_empty(), "{}", run.stderr()?);
    ensure!(
        !folder.join("dev/termination-log").exists(),
        "a file was made"
    );
    Ok(())
}

fn it_is_written_as_another_user_on_a_read_only_root(t: &Subject) -> Outcome {
    let mut setup = t.with_script(&[], "touch here 2>&- && exit 99; exit 5");
    let log = setup.folder()?.join("termination-log");
    fs::write(&log, "")?;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666))?;
    let mut run = setup.bind(&log, &log).read_only_root().user(1001).start()?;
    ensure!(run.code()? == 5, "exit {}: {}", run.code()?, run.stderr()?);
    ensure!(run.report()?["exitCode"] == 5, "{}", run.report()?);
    Ok(())
}

fn a_path_that_cannot_be_written_changes_nothing(t: &Subject) -> Outcome {
    for path in [
        "/",
        "/nope/log",
        "/dev/full",
        "/dev/null",
        "/proc/version",
        "",
    ] {
        let mut run = script(t, path.as_ref(), "exit 6").start()?;
        ensure!(run.code()? == 6, "{path}: exit {}", run.code()?);
    }
    let mut setup = Setup::new(t).no_report_flag();
    let log = setup.folder()?.join("log");
    fs::write(&log, "as it was")?;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o444))?;
    let setup = setup.args(["--termination-log".as_ref(), log.as_os_str()]);
    let mut run = setup
        .args(["--", "sh", "-c", "exit 6"])
        .user(1001)
        .start()?;
    ensure!(run.code()? == 6, "read-only: exit {}", run.code()?);
    ensure!(fs::read(&log)? == b"as it was", "it was written");
    Ok(())
}

fn a_full_disk_changes_nothing(t: &Subject) -> Outcome {
    let script = r#": >disk/log; while echo full >>disk/full; do :; done 2>/dev/null
        "$@" --termination-log disk/log -- sh -c 'exit 6'; echo "code $?""#;
    let mut setup = Setup::shell(t, script);
    let disk = setup.folder()?.join("disk");
    fs::create_dir(&disk)?;
    let mut run = setup.small_disk(&disk, 16 * 1024).start()?;
    ensure!(run.line()? == "code 6", "{}", run.stderr()?);
    run.code()?;
    let stderr = run.stderr()?;
    ensure!(stderr.lines().count() == 1, "{stderr:?}");
    ensure!(stderr.contains("disk/log"), "{stderr:?}");
    Ok(())
}

fn a_fifo_without_a_reader_does_not_hang_it(t: &Subject) -> Outcome {
    let mut setup = Setup::new(t).no_report_flag();
    let fifo = setup.folder()?.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(made.success(), "no fifo");
    let setup = setup.args(["--termination-log".as_ref(), fifo.as_os_str()]);
    let mut run = setup.args(["--", "sh", "-c", "exit 7"]).start()?;
    ensure!(run.code()? == 7, "exit {}", run.code()?);
    Ok(())
}

fn a_symlink_is_not_followed(t: &Subject) -> Outcome {
    let mut setup = Setup::new(t).no_report_flag();
    let folder = setup.folder()?.to_owned();
    fs::write(folder.join("precious"), "as it was")?;
    std::os::unix::fs::symlink("precious", folder.join("link"))?;
    let setup = setup.args(["--termination-log", "link"]);
    let mut run = setup.args(["--", "sh", "-c", "exit 8"]).start()?;
    ensure!(run.code()? == 8, "exit {}", run.code()?);
    ensure!(
        fs::read(folder.join("precious"))? == b"as it was",
        "it was followed"
    );
    Ok(())
}

fn a_file_size_limit_changes_nothing(t: &Subject) -> Outcome {
    for limit in [0, 16] {
        let setup = t
            .with_script(&[], "exit 9")
            .limit(libc::RLIMIT_FSIZE, limit);
        let mut run = setup.start()?;
        ensure!(run.code()? == 9, "limit {limit}: exit {}", run.code()?);
    }
    Ok(())
}

fn uptime_and_restarts_are_counted(t: &Subject) -> Outcome {
    let flags = ["--restart", "on-failure:1"];
    let mut run = t.with_script(&flags, "exit 1").start()?;
    ensure!(run.code()? == 1, "exit {}", run.code()?);
    let report = run.report()?;
    ensure!(report["restarts"] == 1, "{report}");
    ensure!(report["uptimeMs"].as_u64() >= Some(1000), "{report}");
    // Who killed the host directly asked nobody for a stop.
    let mut run = t.init(&[], &["sleep", "1000"]).start()?;
    let host = run.host()?;
    kill(host.pid, libc::SIGKILL)?;
    ensure!(run.code()? == 137, "exit {}", run.code()?);
    let report = run.report()?;
    ensure!(report.get("stop").is_none(), "{report}");
    ensure!(
        report["end"] == json!({"kind": "signal", "signal": 9, "core": false}),
        "{report}"
    );
    Ok(())
}
