//! Launches that fail: at once, with the cause in the words of whoever knows
//! it, and with nothing left.

use podcradle_tests::e2e::git::Repository;
use podcradle_tests::e2e::{Actor, Arch, Cluster, Ended};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use serde_json::Value;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("a_repository_that_is_not_there", no_repository),
    ("a_branch_that_is_not_there", no_branch),
    ("an_image_without_git", no_git),
    ("keep_on_failure_keeps_the_pod_and_not_its_token", keep),
    (
        "a_failure_says_for_people_what_it_says_for_programs",
        for_people,
    ),
];

/// The error of a launch that failed by verdict, and had cleaned up.
fn verdict(actor: &Actor, name: &str, ended: Ended) -> Result<Value, Stop> {
    let error = ended.with_code(6)?.json()?["error"].clone();
    ensure!(error["cleanedUp"] == true, "not cleaned up: {error}");
    gone(actor, name)?;
    Ok(error)
}

/// The launcher says so when everything is deleted; a Pod then still has its
/// grace, and its Secret follows by the cluster's collector.
pub fn gone(actor: &Actor, name: &str) -> Outcome {
    let admin = &actor.cluster.admin;
    let service = admin.find("service", name)?;
    ensure!(service.is_none(), "the Service is still there");
    if let Some(pod) = admin.find("pod", name)? {
        ensure!(
            pod["metadata"]["deletionTimestamp"].is_string(),
            "nobody deleted the Pod"
        );
    }
    admin.wait_gone("pod", name)?;
    admin.wait_gone("secret", &format!("{name}-g1-token"))?;
    let left = admin.left_of(name)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

fn says(error: &Value, texts: &[&str]) -> Outcome {
    let whole = error.to_string();
    for text in texts {
        ensure!(whole.contains(text), "no {text:?} in {error:#}");
    }
    Ok(())
}

fn no_repository(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let repository = Repository::serve(actor.cluster.address)?;
    let name = actor.reserve("no-repo")?;
    let url = repository.missing_url();
    let ended = actor.launch(&name).option(&["--repo", &url]).try_run()?;
    let error = verdict(&actor, &name, ended)?;
    ensure!(error["reason"] == "InitFailed", "reason: {error:#}");
    says(&error, &["fatal: repository", &url, "not found"])
}

fn no_branch(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let repository = Repository::serve(actor.cluster.address)?;
    let name = actor.reserve("no-branch")?;
    let ended = actor
        .launch(&name)
        .option(&["--repo", &repository.url(), "--branch", "nowhere"])
        .try_run()?;
    let error = verdict(&actor, &name, ended)?;
    ensure!(error["reason"] == "InitFailed", "reason: {error:#}");
    says(&error, &["Remote branch nowhere not found"])
}

fn keep(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let repository = Repository::serve(actor.cluster.address)?;
    let name = actor.reserve("keep")?;
    let begun = jiff::Timestamp::now();
    let ended = actor
        .launch(&name)
        .option(&["--repo", &repository.missing_url(), "--keep-on-failure"])
        .try_run()?;
    let error = ended.with_code(6)?.json()?["error"].clone();
    ensure!(
        error["cleanedUp"] == false,
        "kept, yet cleaned up: {error:#}"
    );
    let admin = &actor.cluster.admin;
    admin.one("pod", &name)?;
    admin.wait_gone("secret", &format!("{name}-g1-token"))?;
    let service = admin.one("service", &name)?;
    let metadata = &service["metadata"];
    let expires = metadata["annotations"]["podcradle.dev/expires"].as_str();
    let expires: jiff::Timestamp = expires.unwrap_or_default().parse()?;
    // An hour from the failure, which came while the launch ran.
    let failed = expires - jiff::SignedDuration::from_hours(1);
    ensure!(
        begun <= failed && failed <= jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1),
        "launched at {begun}, kept until {expires}"
    );
    let logs = actor.run(&["logs", "-c", "workspace-prep", &name])?;
    ensure!(logs.stdout.contains("fatal:"), "logs: {}", logs.stdout);
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

/// The supervisor's image holds podcradle-init alone, so there is no git in it.
fn no_git(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let bare = Cluster::image(arch).replace("/sandbox:", "/supervisor:");
    if bare == Cluster::image(arch) {
        return Err(skip(format!(
            "{bare} is not this repository's sandbox image"
        )));
    }
    let repository = Repository::serve(actor.cluster.address)?;
    let name = actor.reserve("no-git")?;
    let ended = actor
        .launch(&name)
        .option(&["--prep-image", &bare, "--init-dir", "/"])
        .option(&["--repo", &repository.url()])
        .try_run()?;
    let error = verdict(&actor, &name, ended)?;
    ensure!(error["reason"] == "InitFailed", "reason: {error:#}");
    ensure!(error["report"]["exitCode"] == 127, "report: {error:#}");
    says(&error, &["git", "--prep-image"])
}

fn for_people(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let repository = Repository::serve(actor.cluster.address)?;
    let name = actor.reserve("people")?;
    let url = repository.missing_url();
    let ended = actor
        .launch(&name)
        .option(&["--repo", &url, "-o", "table"])
        .try_run()?
        .with_code(6)?;
    ensure!(
        ended.stdout.is_empty(),
        "a failure is no result: {}",
        ended.stdout
    );
    for text in [name.as_str(), "workspace-prep", "fatal: repository", &url] {
        let stderr = &ended.stderr;
        ensure!(stderr.contains(text), "no {text:?} in {stderr}");
    }
    gone(&actor, &name)
}
