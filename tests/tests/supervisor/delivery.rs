//! Getting into a pod and giving the host what is its own: copying itself,
//! making the workspace, the token's file, and what others may not see.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Running, Setup, Subject, copy_program, eventually, kill};

crate::cases![
    it_copies_itself_byte_by_byte,
    it_copies_itself_over_an_older_copy,
    it_copies_itself_in_an_image_that_holds_nothing_else,
    a_copy_that_cannot_be_made_is_named,
    a_full_disk_leaves_no_half_copy,
    a_copy_that_comes_to_a_size_limit_is_not_left,
    it_makes_the_workspace_with_its_parents,
    a_workspace_that_is_there_is_fine,
    a_workspace_that_cannot_be_made_is_named,
    with_a_host_it_makes_the_workspace_first,
    a_secret_file_becomes_a_variable_of_the_host_alone,
    a_secret_file_replaces_an_inherited_variable,
    a_secret_file_that_is_missing_empty_or_unreadable_is_named,
    nobody_of_the_same_user_may_look_into_us,
    no_new_privs_is_set_when_asked_for,
    a_secret_file_that_cannot_be_a_variable_is_named,
    it_pauses_where_nothing_is_to_be_run,
    while_it_pauses_orphans_are_reaped,
];

fn alone(t: &Subject, flags: &[&str]) -> Result<Running, Stop> {
    Ok(Setup::new(t).no_report_flag().args(flags).start()?)
}

fn same(t: &Subject, copy: &Path) -> Outcome {
    ensure!(fs::read(copy)? == fs::read(&t.path)?, "the bytes differ");
    let mode = fs::metadata(copy)?.permissions().mode() & 0o7777;
    ensure!(mode == 0o555, "mode {mode:o}");
    let folder = copy.parent().ok_or("no folder")?;
    let names: Vec<_> = fs::read_dir(folder)?
        .flatten()
        .map(|e| e.file_name())
        .collect();
    ensure!(names.len() == 1, "something else was left: {names:?}");
    Ok(())
}

fn it_copies_itself_byte_by_byte(t: &Subject) -> Outcome {
    let mut setup = Setup::new(t).no_report_flag();
    let bin = setup.folder()?.join("bin");
    fs::create_dir(&bin)?;
    let mut run = setup.args(["--copy-to", "bin"]).start()?;
    ensure!(run.code()? == 0, "exit {}: {}", run.code()?, run.stderr()?);
    let copy = bin.join("podcradle-init");
    same(t, &copy)?;
    // And the copy works.
    let (file, argv) = t.called_at(&copy, "podcradle-init".as_ref());
    let setup = Setup::program(file, argv).profile(t).no_report_flag();
    let mut run = setup.args(["--", "sh", "-c", "exit 3"]).start()?;
    ensure!(run.code()? == 3, "exit {}: {}", run.code()?, run.stderr()?);
    Ok(())
}

fn it_copies_itself_over_an_older_copy(t: &Subject) -> Outcome {
    let mut setup = Setup::new(t).no_report_flag();
    let bin = setup.folder()?.join("bin");
    let copy = bin.join("podcradle-init");
    fs::create_dir(&bin)?;
    fs::write(&copy, "older")?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o555))?;
    let before = fs::metadata(&copy)?.ino();
    let mut run = setup.args(["--copy-to", "bin"]).start()?;
    ensure!(run.code()? == 0, "exit {}: {}", run.code()?, run.stderr()?);
    same(t, &copy)?;
    ensure!(
        fs::metadata(&copy)?.ino() != before,
        "it was overwritten in place, not replaced"
    );
    Ok(())
}

fn it_copies_itself_in_an_image_that_holds_nothing_else(t: &Subject) -> Outcome {
    let root = tempfile::tempdir()?;
    let inside = |name: &str| root.path().join(name);
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
    copy_program(&t.path, &inside("podcradle-init"))?;
    fs::create_dir(inside("out"))?;
    fs::set_permissions(inside("out"), fs::Permissions::from_mode(0o777))?;
    let binary = Path::new("/podcradle-init");
    let (file, argv) = match t.emulator() {
        None => (binary.to_owned(), vec!["/podcradle-init".into()]),
        Some(emulator) => {
            // The emulator has to be inside as well, as it is under binfmt.
            copy_program(emulator, &inside("emulator"))?;
            ("/emulator".into(), vec!["/emulator".into(), binary.into()])
        }
    };
    let volume = tempfile::tempdir()?;
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o777))?;
    let setup = Setup::program(file, argv)
        .profile(t)
        .no_report_flag()
        .shared_proc();
    let setup = setup.bind(volume.path(), &inside("out")).read_only_root();
    let mut run = setup
        .root(root.path())
        .user(1001)
        .args(["--copy-to", "/out"])
        .start()?;
    ensure!(run.code()? == 0, "exit {}: {}", run.code()?, run.stderr()?);
    same(t, &volume.path().join("podcradle-init"))
}

fn a_copy_that_cannot_be_made_is_named(t: &Subject) -> Outcome {
    let mut run = alone(t, &["--copy-to", "/proc/version/bin"])?;
    ensure!(run.code()? == 125, "exit {}", run.code()?);
    let stderr = run.stderr()?;
    ensure!(
        stderr.lines().count() == 1 && stderr.contains("/proc/version"),
        "{stderr:?}"
    );
    Ok(())
}

fn a_full_disk_leaves_no_half_copy(t: &Subject) -> Outcome {
    // As init of the namespace a shell, which can look at that disk afterwards.
    let script = r#""$@" --copy-to disk/bin; echo "code $?"; rmdir disk/bin && echo empty"#;
    let mut setup = Setup::shell(t, script);
    let disk = setup.folder()?.join("disk");
    fs::create_dir(&disk)?;
    let mut run = setup.small_disk(&disk, 16 * 1024).start()?;
    ensure!(run.line()? == "code 125", "{}", run.stderr()?);
    ensure!(run.line()? == "empty", "half a copy was left");
    let stderr = run.stderr()?;
    ensure!(stderr.lines().count() == 1, "{stderr:?}");
    let named = stderr.contains("disk/bin") && stderr.to_lowercase().contains("space");
    ensure!(named, "{stderr:?}");
    Ok(())
}

fn a_copy_that_comes_to_a_size_limit_is_not_left(t: &Subject) -> Outcome {
    let mut setup = Setup::new(t).no_report_flag();
    let bin = setup.folder()?.join("bin");
    fs::create_dir(&bin)?;
    // The write comes back short, as it may from any disk.
    let setup = setup
        .limit(libc::RLIMIT_FSIZE, 8192)
        .ignoring(&[libc::SIGXFSZ]);
    let mut run = setup.args(["--copy-to", "bin"]).start()?;
    ensure!(run.code()? == 125, "exit {}", run.code()?);
    ensure!(run.stderr()?.contains("bin"), "{:?}", run.stderr()?);
    ensure!(fs::read_dir(&bin)?.next().is_none(), "half a copy was left");
    Ok(())
}

fn it_makes_the_workspace_with_its_parents(t: &Subject) -> Outcome {
    for flags in [
        &["--prepare", "home/of/work"][..],
        &["--prepare", "home/of/work", "--"][..],
    ] {
        let mut run = alone(t, flags)?;
        ensure!(run.code()? == 0, "exit {}: {}", run.code()?, run.stderr()?);
        let made = fs::metadata(run.folder().join("home/of/work"))?;
        ensure!(made.is_dir(), "not a directory");
        ensure!(
            made.permissions().mode() & 0o777 == 0o755,
            "{:o}",
            made.permissions().mode()
        );
    }
    Ok(())
}

fn a_workspace_that_is_there_is_fine(t: &Subject) -> Outcome {
    let mut setup = Setup::new(t).no_report_flag();
    let work = setup.folder()?.join("work/inner");
    fs::create_dir_all(&work)?;
    fs::write(work.join("kept"), "kept")?;
    for path in ["work/inner", "work/inner/", "work//inner/../inner"] {
        let mut again = Setup::new(t).no_report_flag();
        let there = again.folder()?.join("work/inner");
        fs::create_dir_all(&there)?;
        let mut run = again.args(["--prepare", path]).start()?;
        ensure!(
            run.code()? == 0,
            "{path}: exit {}: {}",
            run.code()?,
            run.stderr()?
        );
    }
    let mut run = setup.args(["--prepare", "work/inner"]).start()?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    ensure!(fs::read(work.join("kept"))? == b"kept", "it was emptied");
    Ok(())
}

fn a_workspace_that_cannot_be_made_is_named(t: &Subject) -> Outcome {
    let mut run = alone(
        t,
        &[
            "--prepare",
            "/proc/version/work",
            "--",
            "sh",
            "-c",
            "touch ran",
        ],
    )?;
    ensure!(run.code()? == 125, "exit {}", run.code()?);
    let stderr = run.stderr()?;
    ensure!(
        stderr.lines().count() == 1 && stderr.contains("/proc/version"),
        "{stderr:?}"
    );
    ensure!(
        !run.folder().join("ran").exists(),
        "the host ran all the same"
    );
    Ok(())
}

fn with_a_host_it_makes_the_workspace_first(t: &Subject) -> Outcome {
    let flags = ["--prepare", "a/b", "--", "sh", "-c", "cd a/b && exit 9"];
    let mut run = alone(t, &flags)?;
    ensure!(run.code()? == 9, "exit {}: {}", run.code()?, run.stderr()?);
    Ok(())
}

/// A start whose TOKEN comes from a file of this content and mode.
fn with_secret(t: &Subject, content: &str, mode: u32, script: &str) -> Result<Setup, Stop> {
    let mut setup = t.init(&["--env-from-file", "TOKEN=token"], &["sh", "-c", script]);
    let file = setup.folder()?.join("token");
    fs::write(&file, content)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    Ok(setup)
}

fn a_secret_file_becomes_a_variable_of_the_host_alone(t: &Subject) -> Outcome {
    for content in ["s3cret and more\n", "s3cret and more"] {
        let script = r#"printf '<%s>\n' "$TOKEN"; tr '\0' '\n' </proc/1/environ | grep -c '^TOKEN='; read end"#;
        let mut run = with_secret(t, content, 0o400, script)?
            .piped_input()
            .start()?;
        ensure!(run.line()? == "<s3cret and more>", "not as it was");
        // Neither in our environment nor anywhere in our arguments.
        ensure!(run.line()? == "0", "it is in the supervisor's environment");
        let own = fs::read(format!("/proc/{}/cmdline", run.pid))?;
        let own = String::from_utf8_lossy(&own).into_owned();
        ensure!(!own.contains("s3cret"), "{own}");
        run.close_input();
        run.code()?;
        let report = run.report()?.to_string();
        ensure!(!report.contains("s3cret"), "{report}");
    }
    Ok(())
}

fn a_secret_file_replaces_an_inherited_variable(t: &Subject) -> Outcome {
    let flags = ["--env-from-file", "TOKEN=token"];
    // Not by a shell, which would tidy up: the list as the kernel was given it.
    let mut setup = t.init(&flags, &["cat", "/proc/self/environ"]);
    fs::write(setup.folder()?.join("token"), "new\n")?;
    let mut run = setup.env("TOKEN=old").env("TOKENS=other").start()?;
    let all = run.out.rest()?;
    let named: Vec<&str> = all
        .split('\0')
        .filter(|entry| entry.starts_with("TOKEN"))
        .collect();
    ensure!(
        named.contains(&"TOKENS=other"),
        "another was taken for it: {named:?}"
    );
    ensure!(
        named.contains(&"TOKEN=new") && named.len() == 2,
        "{named:?}"
    );
    Ok(())
}

fn a_secret_file_that_is_missing_empty_or_unreadable_is_named(t: &Subject) -> Outcome {
    let ran = "touch ran";
    let mut missing = with_secret(t, "x", 0o400, ran)?;
    fs::remove_file(missing.folder()?.join("token"))?;
    let mut directory = with_secret(t, "x", 0o400, ran)?;
    fs::remove_file(directory.folder()?.join("token"))?;
    fs::create_dir(directory.folder()?.join("token"))?;
    let starts = [
        ("missing", missing),
        ("a directory", directory),
        ("empty", with_secret(t, "", 0o400, ran)?),
        ("a newline alone", with_secret(t, "\n", 0o400, ran)?),
        ("unreadable", with_secret(t, "x", 0o400, ran)?.user(1001)),
    ];
    for (what, setup) in starts {
        let mut run = setup.start()?;
        let stderr = run.stderr()?;
        ensure!(run.code()? == 125, "{what}: exit {}: {stderr}", run.code()?);
        let stderr = run.stderr()?;
        ensure!(stderr.lines().count() == 1, "{what}: {stderr:?}");
        ensure!(stderr.contains("token"), "{what}: {stderr:?}");
        ensure!(!run.folder().join("ran").exists(), "{what}: the host ran");
    }
    Ok(())
}

/// The kernel takes 131,072 bytes for `TOKEN=`, the value and its NUL.
fn a_secret_file_that_cannot_be_a_variable_is_named(t: &Subject) -> Outcome {
    const MOST: usize = 131_072 - "TOKEN=".len() - 1;
    let script = r#"echo "${#TOKEN}""#;
    let mut run = with_secret(t, &"x".repeat(MOST), 0o400, script)?.start()?;
    let line = run
        .line()
        .map_err(|error| format!("the longest: {error}"))?;
    ensure!(line == MOST.to_string(), "the longest became {line}");
    let starts = [
        ("a NUL", "first\0second\n".to_owned(), "NUL"),
        ("too long by one", "x".repeat(MOST + 1), "131072"),
        ("far too long", "x".repeat(4 * MOST), "131072"),
    ];
    for (what, content, why) in starts {
        let mut run = with_secret(t, &content, 0o400, "touch ran")?.start()?;
        ensure!(run.code()? == 125, "{what}: exit {}", run.code()?);
        let stderr = run.stderr()?;
        ensure!(stderr.lines().count() == 1, "{what}: {stderr:?}");
        let named = stderr.contains("token") && stderr.contains(why);
        ensure!(named, "{what}: {stderr:?}");
        ensure!(!run.folder().join("ran").exists(), "{what}: the host ran");
    }
    Ok(())
}

fn nobody_of_the_same_user_may_look_into_us(t: &Subject) -> Outcome {
    let flags = ["--no-new-privs"];
    let setup = t.with_testhost(&flags, &["peek", "1"]);
    let mut run = setup.user(1001).start()?;
    let line = run.line()?;
    ensure!(line.starts_with("refused"), "{line}");
    // But the host itself is as debuggable as it was.
    let mut run = t
        .with_testhost(&flags, &["peek", "self"])
        .user(1001)
        .start()?;
    let line = run.line()?;
    ensure!(line.starts_with("read"), "{line}");
    Ok(())
}

fn no_new_privs_is_set_when_asked_for(t: &Subject) -> Outcome {
    let look = "grep NoNewPrivs: /proc/self/status";
    let mut run = t.with_script(&["--no-new-privs"], look).start()?;
    ensure!(run.line()?.ends_with('1'), "not set");
    let mut run = t.with_script(&[], look).start()?;
    ensure!(run.line()?.ends_with('0'), "set without being asked");
    Ok(())
}

fn it_pauses_where_nothing_is_to_be_run(t: &Subject) -> Outcome {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut run = alone(t, &["-P"])?;
        run.reaches(run.pid, 'S')?;
        let cwd = fs::read_link(format!("/proc/{}/cwd", run.pid))?;
        ensure!(cwd == Path::new("/"), "it holds on to {}", cwd.display());
        // Others are no reason to end.
        run.signal(libc::SIGHUP)?;
        run.signal(signal)?;
        ensure!(
            run.code()? == 0,
            "{signal}: exit {}: {}",
            run.code()?,
            run.stderr()?
        );
    }
    Ok(())
}

fn while_it_pauses_orphans_are_reaped(t: &Subject) -> Outcome {
    let run = alone(t, &["-P"])?;
    run.reaches(run.pid, 'S')?;
    let target = run.pid.to_string();
    // Comes in from outside, as a probe does, and leaves a process behind.
    let entered = Command::new("nsenter")
        .args(["--target", &target, "--pid", "--", "sh", "-c"])
        .arg("sleep 1000 &")
        .stdin(Stdio::null())
        .status()?;
    ensure!(entered.success(), "nsenter: {entered}");
    let orphan = run.find("the orphan", |p| {
        p.command == "sleep 1000" && p.parent == run.pid
    })?;
    kill(orphan.pid, libc::SIGKILL)?;
    let reaped = || (run.members().len() == 1).then_some(());
    eventually("its end", reaped)?;
    ensure!(run.alive(), "it ended along with it");
    Ok(())
}
