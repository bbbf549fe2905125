//! A token that the caller gives once there is a Pod, by the Pod's uid: whatever
//! becomes of the asking, a launch ends well or leaves nothing behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use podcradle_launcher::{Reason, SandboxSpec, Token, TokenSource};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::json;
use tokio::sync::mpsc;

use super::many;
use super::support::{Bed, NAME, failed, launched, spec, wait};

pub fn add(suite: &mut Suite) {
    suite.test(
        "a_callback_is_given_the_uid_of_the_pod_and_gives_its_token",
        given,
    );
    suite.test("a_callback_is_asked_once_for_each_of_many", many_given);
    suite.test("a_callback_is_not_asked_for_a_pod_that_runs", not_asked);
    suite.test(
        "a_callback_is_asked_anew_for_a_pod_that_is_made_anew",
        asked_anew,
    );
    suite.test("a_callback_that_fails_ends_the_launch", || {
        refused("no such sandbox", |_| async {
            Err("no such sandbox".into())
        })
    });
    suite.test("a_callback_that_panics_ends_the_launch", || {
        refused("panicked", |_| async {
            // Without the hook's text among the results.
            std::panic::resume_unwind(Box::new("a bug of the caller's"))
        })
    });
    suite.test(
        "a_callback_that_panics_before_it_waits_ends_the_launch",
        || {
            refused("panicked", |_| -> std::future::Ready<_> {
                std::panic::resume_unwind(Box::new("a bug of the caller's"))
            })
        },
    );
    suite.test(
        "a_token_of_a_callback_that_the_spec_holds_ends_the_launch",
        || {
            // Part of every Pod.
            refused("holds the token", |_| async {
                Ok(Token::read("the test", &b"localhost/image:1"[..])?)
            })
        },
    );
    suite.test("a_callback_that_hangs_ends_with_its_launch", hangs);
    suite.test("a_callback_has_the_time_of_its_launch", late);
    suite.test(
        "a_token_of_a_callback_is_taken_out_of_what_is_told",
        redacted,
    );
}

fn token_of(uid: &str) -> String {
    format!("token-of-{uid}")
}

type Asked = Arc<Mutex<Vec<String>>>;

/// A callback that works, and whom it was asked for.
fn works() -> (TokenSource, Asked) {
    let asked = Asked::default();
    let told = Arc::clone(&asked);
    let source = TokenSource::callback(move |uid| {
        if let Ok(mut told) = told.lock() {
            told.push(uid.clone());
        }
        async move { Ok(Token::read("the test", token_of(&uid).as_bytes())?) }
    });
    (source, asked)
}

fn uids(asked: &Asked) -> Result<Vec<String>, Stop> {
    Ok(asked.lock().map_err(|_| "poisoned")?.clone())
}

/// The token in a sandbox' Secret is the one that was given for its Pod.
fn is_in_secret(bed: &Bed, sandbox: &str, generation: u32) -> Outcome {
    let pod = bed.api.object("pods", sandbox);
    let uid = pod["metadata"]["uid"].as_str().ok_or("no Pod")?;
    let name = format!("{sandbox}-g{generation}-token");
    let secret = bed.api.object("secrets", &name);
    let encoded = base64::engine::general_purpose::STANDARD.encode(token_of(uid));
    ensure!(secret["data"]["token"] == encoded, "{secret}");
    Ok(())
}

fn given() -> Outcome {
    let bed = Bed::well()?;
    let (source, asked) = works();
    let done = launched(wait(bed.launcher.launch(spec(), source)?)?)?;
    ensure!(uids(&asked)? == [done.pod_uid], "{:?}", uids(&asked)?);
    is_in_secret(&bed, NAME, 1)
}

fn many_given() -> Outcome {
    let bed = Bed::well()?;
    let (source, asked) = works();
    let wanted = (0..3)
        .map(|n| {
            let mut spec = spec();
            spec.sandbox = format!("podcradle-faults-{n}");
            spec.launch_id = format!("id-{n}");
            (spec, source.clone(), false)
        })
        .collect();
    let mut found = Vec::new();
    for outcome in many::all(bed.launcher.launch_many(wanted, 3)?)? {
        let done = launched(outcome)?;
        is_in_secret(&bed, &done.sandbox, 1)?;
        found.push(done.pod_uid);
    }
    let mut asked = uids(&asked)?;
    asked.sort();
    found.sort();
    ensure!(asked == found, "{asked:?}, {found:?}");
    Ok(())
}

/// With one launch id for all launches.
fn same() -> SandboxSpec {
    SandboxSpec {
        launch_id: "the-same".to_owned(),
        ..spec()
    }
}

fn not_asked() -> Outcome {
    let bed = Bed::well()?;
    let (source, asked) = works();
    let first = launched(wait(bed.launcher.launch(same(), source.clone())?)?)?;
    let again = launched(wait(bed.launcher.launch(same(), source)?)?)?;
    ensure!(again.adopted, "{again:?}");
    ensure!(uids(&asked)? == [first.pod_uid], "{:?}", uids(&asked)?);
    Ok(())
}

/// The process that asked first is killed before its Secret is made.
fn asked_anew() -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(|_, seen| match seen.resource.as_str() {
        "secrets" if seen.verb == "POST" => Fault::Silent,
        _ => Fault::None,
    });
    let (source, asked) = works();
    let stuck = bed.launcher.launch(same(), source.clone())?;
    bed.api.wait_for(|api| api.calls("POST secrets") == 1)?;
    bed.api.script(|_, _| Fault::None);
    let another = bed.another()?;
    let done = launched(wait(another.launch(same(), source)?)?)?;
    let asked = uids(&asked)?;
    ensure!(
        asked.len() == 2 && asked[0] != asked[1] && asked[1] == done.pod_uid,
        "{asked:?}"
    );
    is_in_secret(&bed, NAME, 2)?;
    drop(stuck);
    Ok(())
}

fn refused<F, G>(says: &str, give: F) -> Outcome
where
    F: Fn(String) -> G + Send + Sync + 'static,
    G: Future<Output = Result<Token, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let bed = Bed::well()?;
    let source = TokenSource::callback(give);
    let failure = failed(wait(bed.launcher.launch(spec(), source)?)?)?;
    ensure!(failure.reason == Reason::Token, "{failure:?}");
    ensure!(failure.message.contains(says), "{failure:?}");
    ensure!(failure.cleaned_up, "{failure:?}");
    let (left, calls) = (bed.api.objects(), bed.api.calls());
    ensure!(left.is_empty(), "left: {left:?}");
    ensure!(!calls.contains(&"POST secrets".to_owned()), "{calls:?}");
    // The launcher's thread goes on.
    launched(bed.launch()?)?;
    Ok(())
}

/// When something is told.
type When = mpsc::UnboundedReceiver<()>;

/// A callback that never ends: when it is asked, and when it is dropped.
fn endless() -> (TokenSource, When, When) {
    struct Told(mpsc::UnboundedSender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (asked, begun) = mpsc::unbounded_channel();
    let (dropped, seen) = mpsc::unbounded_channel();
    let source = TokenSource::callback(move |_| {
        let _ = asked.send(());
        let told = Told(dropped.clone());
        async move {
            let _told = told;
            std::future::pending().await
        }
    });
    (source, begun, seen)
}

fn hangs() -> Outcome {
    let bed = Bed::well()?;
    let (source, mut begun, mut dropped) = endless();
    let mut launch = bed.launcher.launch(spec(), source)?;
    wait(begun.recv())?.ok_or("it was not asked")?;
    launch.cancel();
    let failure = failed(wait(launch)?)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up,
        "{failure:?}"
    );
    wait(dropped.recv())?.ok_or("it goes on")?;
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

fn late() -> Outcome {
    let bed = Bed::well()?;
    let (source, _, mut dropped) = endless();
    let mut spec = spec();
    spec.budgets.total = Duration::from_secs(1);
    let failure = failed(wait(bed.launcher.launch(spec, source)?)?)?;
    ensure!(
        failure.reason == Reason::TimedOut && failure.cleaned_up,
        "{failure:?}"
    );
    ensure!(failure.message.contains("callback"), "{failure:?}");
    wait(dropped.recv())?.ok_or("it goes on")?;
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

/// A kubelet that quotes it.
fn redacted() -> Outcome {
    const TOKEN: &str = "given-for-one-pod-alone";
    let done = json!({ "terminated": { "exitCode": 0 } });
    let refused = json!({ "waiting": {
        "reason": "InvalidImageName", "message": format!("cannot run {TOKEN}"),
    } });
    let bed = Bed::new(vec![status(&done, &refused)])?;
    let source =
        TokenSource::callback(|_| async { Ok(Token::read("the test", TOKEN.as_bytes())?) });
    let failure = failed(wait(bed.launcher.launch(spec(), source)?)?)?;
    ensure!(
        failure.message.contains("cannot run [redacted]"),
        "{failure:?}"
    );
    ensure!(!format!("{failure:?}").contains(TOKEN), "{failure:?}");
    Ok(())
}
