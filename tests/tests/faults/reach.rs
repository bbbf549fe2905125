//! How the program gets to its API server at all: exec plugins that take their
//! time, and an address that nobody answers at.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use podcradle_tests::e2e::proxy::Tunnel;
use podcradle_tests::e2e::{Ended, Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, going_well};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::ambiguous::once;
use super::program::program;
use super::support::{Bed, NAME, launched};

/// Longer than a try of a call may take: nothing but the time itself shows that
/// it does not count.
const SLOW: Duration = Duration::from_secs(12);
/// How long an address that does not answer is tried.
const REACH: Duration = Duration::from_secs(5);
/// A time that no token of these tests lives to see.
const LATER: &str = "2999-01-01T00:00:00Z";

pub fn add(suite: &mut Suite) {
    suite.test("an_exec_plugin_that_is_slow_is_waited_for", slow);
    suite.test(
        "a_token_that_expires_in_the_middle_is_renewed_however_slowly",
        expiring,
    );
    suite.test("a_token_that_cannot_be_renewed_ends_the_launch", no_more);
    suite.test(
        "an_exec_plugin_that_never_ends_has_the_time_of_all",
        hanging,
    );
    suite.test(
        "a_certificate_that_does_not_verify_is_told_as_one",
        untrusted,
    );
    suite.test("an_address_that_never_answers_is_given_up", unanswered);
    suite.test(
        "a_context_is_kept_when_another_becomes_the_current_one",
        switched,
    );
}

/// Credentials that are read again are those of the same cluster.
fn switched() -> Outcome {
    let (bed, other) = (Bed::well()?, Bed::well()?);
    let read = |bed: &Bed| -> Result<Value, Stop> {
        Ok(serde_json::from_str(&std::fs::read_to_string(
            bed.kubeconfig(),
        )?)?)
    };
    let (mut both, there) = (read(&bed)?, read(&other)?);
    let mut cluster = there["clusters"][0].clone();
    cluster["name"] = json!("other");
    let context = json!({ "name": "other", "context": { "cluster": "other", "user": "fake", "namespace": "ns" } });
    for (list, one) in [("clusters", cluster), ("contexts", context)] {
        both[list].as_array_mut().ok_or("no list")?.push(one);
    }
    both["current-context"] = json!("other");
    std::fs::write(bed.kubeconfig(), both.to_string())?;
    bed.api.script(once("POST", "services", Fault::Refuse(401)));
    launched(bed.launch()?)?;
    let elsewhere = other.api.calls();
    ensure!(elsewhere.is_empty(), "asked another cluster: {elsewhere:?}");
    Ok(())
}

/// An exec plugin that waits for the test each time it is asked.
struct Plugin {
    asked: File,
    answers: File,
}

impl Plugin {
    /// Puts one before the fake, into the kubeconfig of `bed`.
    fn of(bed: &Bed, folder: &Path) -> Result<Self, Stop> {
        let fifo = |name: &str| -> Result<File, Stop> {
            let path = folder.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // For both, so that neither side waits for the other to open it.
            Ok(File::options().read(true).write(true).open(&path)?)
        };
        let (asked, answers) = (fifo("asked")?, fifo("answers")?);
        let program = folder.join("plugin");
        let script = r#"echo > asked
read -r until < answers
[ "$until" = never ] && { echo the vault is sealed >&2; exit 3; }
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"%s"}}' "$until""#;
        let script = format!("#!/bin/sh\ncd '{}'\n{script}\n", folder.display());
        std::fs::write(&program, script)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700))?;
        let file = bed.kubeconfig();
        let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(file)?)?;
        kubeconfig["users"][0]["user"] = json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": program,
        }});
        std::fs::write(file, kubeconfig.to_string())?;
        Ok(Self { asked, answers })
    }

    /// Waits until it is asked.
    fn wait(&self) -> Outcome {
        ensure!(self.is_asked(WATCHDOG)?, "the plugin is not asked");
        let mut line = [0];
        (&self.asked).read_exact(&mut line)?;
        Ok(())
    }

    /// Whether it is asked within this time.
    fn is_asked(&self, time: Duration) -> Result<bool, Stop> {
        let time = Timespec::try_from(time)?;
        let mut fds = [PollFd::new(&self.asked, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&time))? > 0)
    }

    /// Lets it answer with a token that is good until then, or with none.
    fn answer(&self, until: &str) -> Outcome {
        Ok(writeln!(&self.answers, "{until}")?)
    }
}

fn launch(bed: &Bed) -> Result<Command, Stop> {
    let mut command = program(bed)?;
    command.args(["--sandbox", NAME, "-o", "json"]);
    Ok(command)
}

fn all_went_well(bed: &Bed, plugin: &Plugin, ended: Ended) -> Outcome {
    ended.with_code(0)?;
    ensure!(
        bed.api.objects().len() == 3,
        "there are: {:?}",
        bed.api.objects()
    );
    let again = plugin.is_asked(Duration::ZERO)?;
    ensure!(!again, "the plugin was asked once more than was needed");
    let mut calls = bed.api.calls();
    calls.sort();
    let all = calls.len();
    calls.dedup();
    ensure!(calls.len() == all, "something was asked twice: {calls:?}");
    Ok(())
}

fn slow() -> Outcome {
    let bed = Bed::well()?;
    let dir = tempfile::tempdir()?;
    let plugin = Plugin::of(&bed, dir.path())?;
    let running = Running::start(&mut launch(&bed)?)?;
    plugin.wait()?;
    std::thread::sleep(SLOW);
    plugin.answer(LATER)?;
    all_went_well(&bed, &plugin, running.wait(WATCHDOG)?)
}

/// Between the gate's removal and the hand-over.
fn expiring() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let dir = tempfile::tempdir()?;
    let plugin = Plugin::of(&bed, dir.path())?;
    let running = Running::start(&mut launch(&bed)?)?;
    plugin.wait()?;
    let until = Timestamp::now() + SignedDuration::from_secs(10);
    plugin.answer(&until.to_string())?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    let left = until.duration_since(Timestamp::now());
    std::thread::sleep(left.try_into().unwrap_or_default());
    bed.api.run_all(going_well());
    plugin.wait()?;
    std::thread::sleep(SLOW);
    plugin.answer(LATER)?;
    all_went_well(&bed, &plugin, running.wait(WATCHDOG)?)
}

fn no_more() -> Outcome {
    let bed = Bed::well()?;
    let dir = tempfile::tempdir()?;
    let plugin = Plugin::of(&bed, dir.path())?;
    plugin.answer("2001-01-01T00:00:00Z")?;
    plugin.answer("never")?;
    let running = Running::start(&mut launch(&bed)?)?;
    let ended = running.wait(WATCHDOG)?.with_code(3)?;
    let error = &ended.json()?["error"];
    ensure!(
        error["reason"] == "Unauthorized" && error["cleanedUp"] == true,
        "{error:#}"
    );
    let message = error["message"].as_str().unwrap_or_default();
    for part in ["exec plugin", "the vault is sealed"] {
        ensure!(message.contains(part), "no {part:?} in {message}");
    }
    ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
    Ok(())
}

/// An address at which the kernel drops each SYN, as the backlog is full.
fn silent() -> Result<(TcpListener, Vec<TcpStream>, SocketAddr), Stop> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    rustix::net::listen(&listener, 0)?;
    let at = listener.local_addr()?;
    let mut waiting = Vec::new();
    loop {
        match TcpStream::connect_timeout(&at, Duration::from_millis(300)) {
            Ok(one) => waiting.push(one),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok((listener, waiting, at))
}

fn unanswered() -> Outcome {
    let bed = Bed::well()?;
    let (_listener, _waiting, at) = silent()?;
    let file = bed.kubeconfig();
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let server = format!("http://{at}");
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
    std::fs::write(file, kubeconfig.to_string())?;
    // Ten times what it is to take; its own time is a quarter of an hour.
    let ended = Running::start(&mut launch(&bed)?)?.wait(10 * REACH)?;
    let ended = ended.with_code(3)?;
    ensure!(ended.took >= REACH, "given up after {:?}", ended.took);
    let error = &ended.json()?["error"];
    ensure!(
        error["reason"] == "Unreachable" && error["cleanedUp"] == true,
        "{error:#}"
    );
    let message = error["message"].as_str().unwrap_or_default();
    for part in [server.as_str(), "no connection within 5s"] {
        ensure!(message.contains(part), "no {part:?} in {message}");
    }
    Ok(())
}

fn hanging() -> Outcome {
    let bed = Bed::well()?;
    let dir = tempfile::tempdir()?;
    let plugin = Plugin::of(&bed, dir.path())?;
    let mut command = launch(&bed)?;
    command.args(["--timeout", "2s"]);
    let running = Running::start(&mut command)?;
    plugin.wait()?;
    // Ten times its time, and less than the plugin's own.
    let ended = running.wait(Duration::from_secs(20))?.with_code(7)?;
    let error = &ended.json()?["error"];
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(
        error["reason"] == "TimedOut" && message.contains("no credentials within 2s"),
        "{error:#}"
    );
    ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
    Ok(())
}

fn untrusted() -> Outcome {
    let bed = Bed::well()?;
    let (tls, _certificate) = Tunnel::behind_tls()?;
    let file = bed.kubeconfig();
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let server = format!("https://{}", tls.address());
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
    std::fs::write(file, kubeconfig.to_string())?;
    let ended = Running::start(&mut launch(&bed)?)?.wait(WATCHDOG)?;
    let error = &ended.with_code(3)?.json()?["error"];
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    let told = text("message");
    ensure!(
        told.contains("invalid peer certificate") && told.contains(&server),
        "{error:#}"
    );
    ensure!(
        !told.contains("no answer") && text("hint").contains("certificate-authority"),
        "{error:#}"
    );
    Ok(())
}
