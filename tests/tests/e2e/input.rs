//! Bad input: one clear line, the documented exit code, nothing created.

use podcradle_tests::e2e::{Actor, Arch, Cluster, Running, WATCHDOG, actor, audit};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("what_is_wrong_is_named_before_the_first_call", wrong),
    ("a_kubeconfig_that_is_not_there", no_kubeconfig),
    ("a_server_that_is_not_there", unreachable),
    ("a_credential_that_is_refused", refused),
    ("a_namespace_without_rights_names_the_manifest", forbidden),
];

/// What is given to `launch`, and what its one line must name.
const WRONG: &[(&[&str], &[&str])] = &[
    (&["--cpu-request", "lots"], &["--cpu-request", "lots"]),
    (&["--memory-limit", "4Gb"], &["--memory-limit", "4Gb"]),
    (&["--cpu-request", "3", "--cpu-limit", "2"], &["cpu"]),
    (&["--sandbox", "Not_A_Name"], &["Not_A_Name"]),
    (
        &["--sandbox", "1-starts-with-a-digit"],
        &["1-starts-with-a-digit"],
    ),
    (&["--name", "under_score"], &["under_score"]),
    (&["--ttl", "yesterday"], &["--ttl", "yesterday"]),
    (&["--env", "PODCRADLE_E2E_UNSET"], &["PODCRADLE_E2E_UNSET"]),
    (&["--env", "A_SECRET_TOKEN"], &["A_SECRET_TOKEN"]),
    (&["--server", "ftp://server"], &["--server", "ftp://server"]),
    (&["--repo", "http://user:word@server/x.git"], &["--repo"]),
    (
        &["--repo", "http://server/x.git", "--repo-dir", "../up"],
        &["--repo-dir", "../up"],
    ),
    (
        &["--node-selector", "no-value"],
        &["--node-selector", "no-value"],
    ),
    (&["--image-pull-policy", "Perhaps"], &["Perhaps"]),
    (&["--token-file", "/nowhere/at/all"], &["/nowhere/at/all"]),
    (&["--imagee", "x"], &["--imagee", "--image"]),
    (&["--timeout", "soon"], &["--timeout", "soon"]),
];

fn wrong(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let mut problems = Vec::new();
    for (options, named) in WRONG {
        let mut args = vec!["launch", "--image", "localhost/image:tag"];
        if !options.contains(&"--sandbox") && !options.contains(&"--name") {
            args.extend(["--name", "wrong"]);
        }
        args.extend(*options);
        let mut command = actor.podcradle(&args);
        command.env("A_SECRET_TOKEN", "x");
        let ended = Running::start(&mut command)?.wait(WATCHDOG)?;
        let stderr = ended.stderr.trim_end();
        let said = plain(stderr);
        let unnamed: Vec<_> = named
            .iter()
            .filter(|text| !said.contains(&plain(text)))
            .collect();
        if ended.code != 2 || stderr.lines().count() != 1 || !unnamed.is_empty() {
            problems.push(format!(
                "{options:?}: exit {}, does not name {unnamed:?}: {stderr:?}",
                ended.code
            ));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    let log = actor.cluster.audit.as_ref().map_err(skip)?;
    let asked = audit::requests(log, &actor.credential)?;
    ensure!(
        asked.is_empty(),
        "the API server was asked: {:?}",
        asked.iter().map(audit::Request::short).collect::<Vec<_>>()
    );
    Ok(())
}

/// A flag and the field of a spec that it sets are one thing to a reader:
/// `--cpu-request`, `resources.cpuRequest`.
fn plain(text: &str) -> String {
    text.replace('-', "").to_lowercase()
}

/// One line on standard error that holds these texts.
fn one_line(stderr: &str, texts: &[&str]) -> Outcome {
    let stderr = stderr.trim_end();
    ensure!(stderr.lines().count() == 1, "not one line: {stderr}");
    for text in texts {
        ensure!(stderr.contains(text), "no {text:?} in {stderr:?}");
    }
    Ok(())
}

fn no_kubeconfig(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let missing = actor.folder().join("nowhere").display().to_string();
    let ended = actor
        .try_run(&["list", "--kubeconfig", &missing])?
        .with_code(2)?;
    one_line(&ended.stderr, &[&missing])?;
    let broken = actor.folder().join("broken");
    std::fs::write(&broken, "this: [is no kubeconfig")?;
    let broken = broken.display().to_string();
    let ended = actor
        .try_run(&["list", "--kubeconfig", &broken])?
        .with_code(2)?;
    one_line(&ended.stderr, &[&broken])
}

fn unreachable(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    actor.go_through(closed)?;
    let ended = actor.try_run(&["list"])?.with_code(3)?;
    one_line(&ended.stderr, &[&closed.to_string()])?;
    let ended = actor::Launch::of(&actor, &Cluster::image(arch))
        .option(&["--name", "unreachable", "-o", "table"])
        .try_run()?
        .with_code(3)?;
    ensure!(
        ended.stderr.contains(&closed.to_string()),
        "does not name the address: {}",
        ended.stderr
    );
    Ok(())
}

fn refused(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    actor
        .cluster
        .kubeconfig(actor.kubeconfig(), "no.such.token", None)?;
    let ended = actor.try_run(&["list"])?.with_code(3)?;
    one_line(&ended.stderr, &["credential"])
}

fn forbidden(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let ended = actor.try_run(&["-n", "default", "list"])?.with_code(4)?;
    one_line(&ended.stderr, &["list", "services", "default", "deploy"])
}
