//! The credential helper, asked by the machine's own git as the image's would.

use std::io::Write;
use std::process::{Command, Stdio};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Suite};

use crate::root;

pub fn add(suite: &mut Suite) {
    suite.test(
        "credential::token_and_name_come_from_the_environment",
        || {
            asked(
                "https",
                &[("GIT_TOKEN", "t0ken"), ("GIT_USERNAME", "me")],
                Some("me"),
            )
        },
    );
    suite.test("credential::a_name_is_given_when_none_is_set", || {
        asked("https", &[("GIT_TOKEN", "t0ken")], Some("x-access-token"))
    });
    suite.test("credential::nothing_is_answered_over_http", || {
        asked("http", &[("GIT_TOKEN", "t0ken")], None)
    });
    suite.test("credential::nothing_is_answered_without_a_token", || {
        asked("https", &[("GIT_USERNAME", "me")], None)
    });
}

/// What `git credential fill` finds, given only our helper and nobody to ask.
fn asked(protocol: &str, environment: &[(&str, &str)], name: Option<&str>) -> Outcome {
    let helper = root().join("images/sandbox/files/git-credential-environment");
    let home = tempfile::tempdir()?;
    let mut git = Command::new("git")
        .args(["-c", "credential.helper="])
        .args(["-c", &format!("credential.helper={}", helper.display())])
        .args(["credential", "fill"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("GIT_TERMINAL_PROMPT", "0")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = git.stdin.take() {
        write!(input, "protocol={protocol}\nhost=git.example\n\n")?;
    }
    let answer = String::from_utf8(git.wait_with_output()?.stdout)?;
    match name {
        Some(name) => {
            ensure!(answer.contains("password=t0ken\n"), "{answer}");
            ensure!(answer.contains(&format!("username={name}\n")), "{answer}");
        }
        None => ensure!(!answer.contains("password="), "{answer}"),
    }
    Ok(())
}
