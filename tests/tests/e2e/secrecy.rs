//! The token is where it belongs and nowhere else.

use std::collections::BTreeSet;

use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::git::Repository;
use podcradle_tests::e2e::{Actor, Arch, Ended, Running, Stage, WATCHDOG, stage};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::testserver::digest;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("the_token_is_in_no_spec_event_log_or_output", running),
    ("the_token_is_in_no_error_of_a_failed_launch", failed),
    (
        "the_token_is_in_no_argument_or_environment_of_the_launcher",
        arguments,
    ),
    ("the_token_is_in_no_audit_log", audited),
];

/// Names of the places whose text holds the token, plain or as base64.
fn found(token: &str, places: &[(&str, String)]) -> Vec<String> {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(token);
    // Without its last characters, which depend on what follows.
    let encoded = &encoded[..encoded.len() - 4];
    let holds = |text: &str| text.contains(token) || text.contains(encoded);
    let places = places.iter().filter(|(_, text)| holds(text));
    places.map(|(place, _)| (*place).to_owned()).collect()
}

fn running(arch: Arch) -> Outcome {
    let stage = Stage::set(arch, "secret", &[])?;
    let (actor, name, token) = (&stage.actor, &stage.name, &stage.token);
    let admin = &actor.cluster.admin;
    let secret = admin
        .one("secret", &format!("{name}-g1-token"))?
        .to_string();
    ensure!(
        !found(token, &[("secret", secret)]).is_empty(),
        "the token is not even in its Secret: the search finds nothing"
    );
    // The host has it; PID 1 has not, and neither has anybody's command line.
    let lines = stage.order(
        "look",
        &[
            "sh",
            "-c",
            "cat /proc/[0-9]*/cmdline; cat /proc/1/environ; true",
        ],
    )?;
    let said = stage.order("said", &["sh", "-c", "env"])?;
    let places = [
        ("pod", admin.get(&["pod", name])?.to_string()),
        ("service", admin.get(&["service", name])?.to_string()),
        ("events", admin.get(&["events"])?.to_string()),
        (
            "log of the host",
            admin.run(&["logs", name, "--all-containers"])?,
        ),
        ("result", stage.launched.to_string()),
        ("status", actor.run(&["status", name, "-o", "json"])?.stdout),
        ("list", actor.run(&["list", "-o", "json"])?.stdout),
        ("processes in the sandbox", lines.to_string()),
        ("environment of a command in the sandbox", said.to_string()),
    ];
    let found = found(token, &places);
    ensure!(found.is_empty(), "the token is in: {found:?}");
    Ok(())
}

fn failed(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let (file, token) = actor.token()?;
    let file = file.to_string_lossy().into_owned();
    let launch = |name: &str, host: &[&str]| -> Result<Ended, Stop> {
        let Some(_policy) = Policy::never_ready(&actor, name)? else {
            return Err(skip("the cluster has no MutatingAdmissionPolicy"));
        };
        let launch = actor
            .launch(name)
            .option(&["--token-file", &file, "-v"])
            .host(host);
        Ok(launch.try_run()?.with_code(6)?)
    };
    // A host that prints its own token into the log that the error quotes.
    let name = actor.reserve("secret-log")?;
    let script = r#"echo "my token is $PODCRADLE_HOST_TOKEN"; exit 3"#;
    let logged = launch(&name, &["sh", "-c", script])?;
    let error = logged.json()?["error"].clone();
    let log = error["log"].as_str().unwrap_or_default();
    ensure!(log.contains("my token is [redacted]"), "log: {error:#}");
    // As an argument it would be in the Pod's own text.
    let name = actor.reserve("secret-argument")?;
    let spoken = actor
        .launch(&name)
        .option(&["--token-file", &file, "-v"])
        .host(&["agent", &token])
        .try_run()?
        .with_code(2)?;
    ensure!(
        spoken
            .stderr
            .contains("host[1] \"[redacted]\": holds the token"),
        "refused by {}",
        spoken.stderr
    );
    let left = actor.cluster.admin.left_of(&name)?;
    ensure!(left.is_empty(), "made before it was refused: {left:?}");
    let repository = Repository::serve(actor.cluster.address)?;
    let name = actor.reserve("secret-failed")?;
    let refused = actor
        .launch(&name)
        .option(&["--token-file", &file, "-v"])
        .option(&["--repo", &repository.missing_url()])
        .try_run()?
        .with_code(6)?;
    let places: Vec<_> = [logged, spoken, refused]
        .into_iter()
        .flat_map(|ended| [("stdout", ended.stdout), ("stderr", ended.stderr)])
        .collect();
    let found = found(&token, &places);
    ensure!(found.is_empty(), "the token is in: {found:?}");
    Ok(())
}

/// Looks at the launcher all through its life, and at what it starts.
fn arguments(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let server = stage::serve(&actor)?;
    let name = actor.reserve("secret-args")?;
    let (file, token) = actor.token()?;
    server.expect(&name, digest(&token));
    let token_from_stdin = std::fs::File::open(&file)?;
    let mut command = actor
        .launch(&name)
        .option(&["--server", &server.url(), "--host-id", &name])
        .option(&["--token-file", "-"])
        .command();
    let running = Running::start_with(&mut command, token_from_stdin.into())?;
    let process = std::path::PathBuf::from(format!("/proc/{}", running.pid()));
    let looker = std::thread::spawn(move || {
        let mut seen = BTreeSet::new();
        // Empty at the very start, before the kernel has put it there, and again
        // at the end, until the process is reaped and has no files at all.
        while let Ok(line) = std::fs::read(process.join("cmdline")) {
            if line.is_empty() {
                if seen.is_empty() {
                    continue;
                }
                break;
            }
            seen.insert(line);
            seen.insert(std::fs::read(process.join("environ")).unwrap_or_default());
            std::thread::yield_now();
        }
        seen
    });
    running.wait(WATCHDOG)?.with_code(0)?;
    let seen = looker.join().map_err(|_| "the looking thread panicked")?;
    ensure!(!seen.is_empty(), "nothing was seen of the launcher");
    server.wait_for_dial_in(&name, WATCHDOG)?;
    let seen = seen
        .iter()
        .map(|line| String::from_utf8_lossy(line).into_owned());
    let seen = seen.collect::<Vec<_>>().join("\n");
    let found = found(&token, &[("the launcher's process", seen)]);
    ensure!(found.is_empty(), "the token is in: {found:?}");
    Ok(())
}

fn audited(arch: Arch) -> Outcome {
    let stage = Stage::set(arch, "secret-audit", &[])?;
    let log = stage.actor.cluster.audit.as_ref().map_err(skip)?;
    stage.actor.run(&["delete", &stage.name])?;
    let text = std::fs::read_to_string(log)?;
    ensure!(
        text.contains(&stage.name),
        "the audit log does not know the sandbox, so it proves nothing"
    );
    let found = found(&stage.token, &[("audit log", text)]);
    ensure!(found.is_empty(), "the token is in: {found:?}");
    Ok(())
}
