//! Bad input: exit 125, one line that names the flag and the value, no host.

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Setup, Subject};

crate::cases![
    without_a_host_it_refuses,
    an_unknown_flag_names_its_nearest_neighbour,
    a_missing_value_names_its_flag,
    a_number_out_of_range_names_flag_and_value,
    an_unknown_signal_names_flag_and_value,
    a_malformed_value_names_flag_and_value,
    what_follows_the_host_belongs_to_it,
    a_value_may_follow_an_equals_sign,
    help_and_version_go_to_standard_output,
];

/// The one line of a refusal; fails when a host was started all the same.
fn refusal(t: &Subject, flags: &[&str]) -> Result<String, Stop> {
    let mut setup = Setup::new(t).args(flags);
    let marker = setup.folder()?.join("started");
    let mut run = setup.start()?;
    let code = run.code()?;
    let stderr = run.stderr()?;
    ensure!(code == 125, "{flags:?}: exit {code}: {stderr}");
    ensure!(stderr.lines().count() == 1, "{flags:?}: {stderr:?}");
    ensure!(run.out.rest()?.is_empty(), "{flags:?} wrote to its output");
    ensure!(!marker.exists(), "{flags:?}: a host was started");
    Ok(stderr)
}

const HOST: [&str; 3] = ["--", "touch", "started"];

fn names(t: &Subject, flags: &[&str], words: &[&str]) -> Outcome {
    let all: Vec<&str> = flags.iter().chain(&HOST).copied().collect();
    let line = refusal(t, &all)?;
    for word in words {
        ensure!(
            line.contains(word),
            "{flags:?}: {word:?} is not named in {line:?}"
        );
    }
    Ok(())
}

fn without_a_host_it_refuses(t: &Subject) -> Outcome {
    for flags in [
        &[][..],
        &["--"][..],
        &["--grace", "3"][..],
        &["-v", "--"][..],
    ] {
        refusal(t, flags)?;
    }
    Ok(())
}

fn an_unknown_flag_names_its_nearest_neighbour(t: &Subject) -> Outcome {
    names(t, &["--grase", "3"], &["--grase", "--grace"])?;
    names(t, &["--drian=3"], &["--drian", "--drain"])?;
    names(t, &["--no-new-priv"], &["--no-new-priv", "--no-new-privs"])?;
    names(t, &["-x"], &["-x"])
}

fn a_missing_value_names_its_flag(t: &Subject) -> Outcome {
    let flags = [
        "--grace",
        "--drain",
        "-e",
        "-p",
        "--rewrite",
        "--restart",
        "--no-restart",
        "--stop-signal",
        "--no-stop-signal",
        "--keep-fd",
        "--env-from-file",
        "--termination-log",
        "--copy-to",
        "--prepare",
    ];
    for flag in flags {
        let line = refusal(t, &[flag])?;
        ensure!(line.contains(flag), "{flag} is not named in {line:?}");
    }
    Ok(())
}

fn a_number_out_of_range_names_flag_and_value(t: &Subject) -> Outcome {
    let cases = [
        ("-e", "256"),
        ("-e", "-1"),
        ("-e", "x"),
        ("-e", ""),
        ("-e", "99999999999999999999"),
        ("--grace", "-1"),
        ("--grace", "soon"),
        ("--grace", "99999999999999999999"),
        ("--grace", ""),
        ("--drain", "-0.5"),
        ("--drain", "5s5"),
        ("--no-restart", "256"),
        ("--keep-fd", "-3"),
        ("--keep-fd", "99999999999"),
        ("--restart", "on-failure:x"),
        ("--restart", "on-failure:-1"),
    ];
    for (flag, value) in cases {
        names(t, &[flag, value], &[flag, value])?;
    }
    Ok(())
}

fn an_unknown_signal_names_flag_and_value(t: &Subject) -> Outcome {
    let cases = [
        ("-p", "NOPE"),
        ("-p", "65"),
        ("--stop-signal", "SIGNOPE"),
        ("--stop-signal", "0"),
        ("--no-stop-signal", "70"),
        ("--rewrite", "NOPE:15"),
        ("--rewrite", "15:NOPE"),
        ("--rewrite", "65:15"),
        ("--rewrite", "15:65"),
        ("--rewrite", "0:15"),
    ];
    for (flag, value) in cases {
        names(t, &[flag, value], &[flag, value])?;
    }
    Ok(())
}

fn a_malformed_value_names_flag_and_value(t: &Subject) -> Outcome {
    let cases = [
        ("--rewrite", "15"),
        ("--rewrite", ":"),
        ("--restart", "always"),
        ("--restart", "on-failure:"),
        ("--env-from-file", "TOKEN"),
        ("--env-from-file", "=/etc/hostname"),
    ];
    for (flag, value) in cases {
        names(t, &[flag, value], &[flag, value])?;
    }
    Ok(())
}

fn what_follows_the_host_belongs_to_it(t: &Subject) -> Outcome {
    // With and without the two dashes; the host's own flags are not ours.
    for words in [
        &["--", "sh", "-c", "exit 7", "-x", "--grace"][..],
        &["sh", "-c", "exit 7", "--nope"][..],
    ] {
        let mut run = Setup::new(t).args(words).start()?;
        ensure!(
            run.code()? == 7,
            "{words:?}: exit {}: {}",
            run.code()?,
            run.stderr()?
        );
    }
    let mut run = Setup::new(t).args(["--", "echo", "--", "-e"]).start()?;
    ensure!(run.line()? == "-- -e", "the second dashes were taken");
    Ok(())
}

fn a_value_may_follow_an_equals_sign(t: &Subject) -> Outcome {
    let flags = [
        "--grace=3",
        "--drain=0",
        "--restart=on-failure:1",
        "--no-restart=7",
    ];
    let mut run = t.with_script(&flags, "exit 7").start()?;
    ensure!(run.code()? == 7, "exit {}: {}", run.code()?, run.stderr()?);
    Ok(())
}

fn help_and_version_go_to_standard_output(t: &Subject) -> Outcome {
    for (flag, word) in [
        ("-h", "--grace"),
        ("--help", "--drain"),
        ("--version", "podcradle-init"),
    ] {
        let mut run = Setup::new(t).no_report_flag().arg(flag).start()?;
        let text = run.out.rest()?;
        ensure!(run.code()? == 0, "{flag}: exit {}", run.code()?);
        ensure!(text.contains(word), "{flag}: no {word} in {text:?}");
    }
    Ok(())
}
