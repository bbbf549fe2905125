//! A caller that goes away, at every single request of a launch, with the
//! request done or not done: nothing is left.

use podcradle_launcher::spec::Wait;
use podcradle_launcher::token::Token;
use podcradle_launcher::{Launch, LaunchEvent, Reason};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::json;
use tokio::sync::mpsc;

use super::support::{Bed, NAME, failed, launched, spec, wait};

/// Service, Pod, Secret, gate, watch, hand-over.
pub const REQUESTS: usize = 6;

pub fn add(suite: &mut Suite) {
    suite.test("a_launch_makes_six_requests", || {
        let bed = Bed::well()?;
        launched(bed.launch()?)?;
        let expected = [
            "POST services",
            "POST pods",
            "POST secrets",
            "PATCH pods",
            "WATCH pods",
            "PATCH services",
        ];
        ensure!(bed.api.calls() == expected, "calls: {:?}", bed.api.calls());
        Ok(())
    });
    for nth in 0..REQUESTS {
        for (word, fault) in [("done", Fault::DoneButSilent), ("not_done", Fault::Silent)] {
            suite.test(
                format!("a_launch_dropped_at_request_{nth}_{word}_leaves_nothing"),
                move || dropped(nth, fault),
            );
            suite.test(
                format!("a_launch_cancelled_at_request_{nth}_{word}_leaves_nothing"),
                move || cancelled(nth, fault),
            );
        }
    }
    suite.test("a_shutdown_cancels_what_is_under_way", || {
        let bed = Bed::new(Vec::new())?;
        let mut launch = bed.launcher.launch(spec(), Token::random())?;
        let mut events = launch.events().ok_or("no events")?;
        wait(async {
            while events.recv().await.ok_or("ended")? != LaunchEvent::GateRemoved {}
            Ok::<_, &str>(())
        })??;
        bed.shut_down()?;
        ensure!(
            bed.api.objects().is_empty(),
            "left: {:?}",
            bed.api.objects()
        );
        ensure!(
            failed(wait(launch)?)?.reason == Reason::Cancelled,
            "another reason"
        );
        Ok(())
    });
    suite.test("every_caller_of_a_shutdown_waits_for_its_end", || {
        let bed = Bed::new(Vec::new())?;
        let launch = bed.launcher.launch(spec(), Token::random())?;
        bed.api.wait_for(|api| api.calls("PATCH pods") == 1)?;
        let left = || async {
            bed.launcher.shutdown().await;
            bed.api.objects()
        };
        let left = wait(async { tokio::join!(left(), left(), left()) })?;
        ensure!(
            left == (vec![], vec![], vec![]),
            "there was still something: {left:?}"
        );
        drop(launch);
        Ok(())
    });
    add_waits(suite);
    add_unread(suite);
    suite.test("a_caller_that_panics_leaves_nothing", panics);
    suite.test(
        "a_launcher_dropped_without_a_shutdown_leaves_nothing",
        || {
            let Bed { api, launcher, .. } = Bed::new(Vec::new())?;
            let launch = launcher.launch(spec(), Token::random())?;
            api.wait_for(|api| api.calls("PATCH pods") == 1)?;
            drop(launcher);
            // The launch itself is still held: it is the launcher that is gone.
            let failure = failed(wait(launch)?)?;
            ensure!(failure.reason == Reason::Cancelled, "{failure:?}");
            ensure!(api.objects().is_empty(), "left: {:?}", api.objects());
            Ok(())
        },
    );
    suite.test("a_launch_outlives_the_runtime_that_dropped_it", || {
        let bed = Bed::new(Vec::new())?;
        let launch = bed.launcher.launch(spec(), Token::random())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let task = runtime.spawn(launch);
        drop(runtime);
        drop(task);
        bed.shut_down()?;
        ensure!(
            bed.api.objects().is_empty(),
            "left: {:?}",
            bed.api.objects()
        );
        Ok(())
    });
}

/// Launches that went well, whose caller has not read so.
fn add_unread(suite: &mut Suite) {
    suite.test(
        "a_sandbox_whose_launch_is_dropped_unread_is_deleted",
        || {
            unread(|bed, launch| {
                drop(launch);
                bed.api.wait_for(|api| api.calls("DELETE secrets") == 1)?;
                bed.shut_down()
            })
        },
    );
    suite.test(
        "a_sandbox_whose_launch_is_cancelled_unread_is_deleted",
        || {
            unread(|_, mut launch| {
                launch.cancel();
                taken_back(launch)
            })
        },
    );
    suite.test(
        "a_sandbox_whose_launch_is_unread_at_a_shutdown_is_deleted",
        || {
            unread(|bed, launch| {
                bed.shut_down()?;
                ensure!(
                    bed.api.objects().is_empty(),
                    "left: {:?}",
                    bed.api.objects()
                );
                taken_back(launch)
            })
        },
    );
    suite.test("a_sandbox_that_was_read_outlives_its_launch", || {
        let bed = Bed::well()?;
        let mut launch = bed.launcher.launch(spec(), Token::random())?;
        launched(wait(&mut launch)?)?;
        launch.cancel();
        drop(launch);
        bed.shut_down()?;
        ensure!(bed.api.objects().len() == 3, "{:?}", bed.api.objects());
        Ok(())
    });
}

/// Launches, and does this once all is done but the reading.
fn unread(go: impl Fn(&Bed, Launch) -> Outcome) -> Outcome {
    // Just before and just after the outcome is sent are two cases.
    for _ in 0..20 {
        let bed = Bed::well()?;
        let mut launch = bed.launcher.launch(spec(), Token::random())?;
        let mut events = launch.events().ok_or("no events")?;
        wait(async { while events.recv().await.is_some() {} })?;
        go(&bed, launch)?;
        let left = bed.api.objects();
        ensure!(left.is_empty(), "left: {left:?}");
    }
    Ok(())
}

fn taken_back(launch: Launch) -> Outcome {
    let failure = failed(wait(launch)?)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up && failure.sandbox == NAME,
        "{failure:?}"
    );
    Ok(())
}

/// What a launch waits for, when the spec says.
fn add_waits(suite: &mut Suite) {
    suite.test("a_launch_that_waits_for_nothing_opens_no_watch", || {
        let bed = Bed::new(Vec::new())?;
        let mut spec = spec();
        spec.wait = Wait::None;
        let mut launch = bed.launcher.launch(spec, Token::random())?;
        let mut events = launch.events().ok_or("no events")?;
        let done = launched(wait(launch)?)?;
        let calls = bed.api.calls();
        ensure!(
            calls.len() == 5 && !calls.contains(&"WATCH pods".to_owned()),
            "calls: {calls:?}"
        );
        // Nobody has looked at the host, so nobody says that it runs.
        ensure!(done.timings.started_ms.is_none(), "{done:?}");
        while let Some(event) = wait(events.recv())? {
            ensure!(event != LaunchEvent::Ready, "said to be ready");
        }
        Ok(())
    });
    suite.test("a_launch_may_wait_for_a_host_that_is_started_only", || {
        let bed = probed()?;
        let mut spec = spec();
        spec.wait = Wait::Started;
        launched(bed.launch_spec(spec)?)?;
        // The same Pod is not ready, and its budget says so.
        let bed = probed()?;
        let mut spec = super::support::spec();
        spec.budgets.start = std::time::Duration::from_secs(1);
        let failure = failed(bed.launch_spec(spec)?)?;
        ensure!(failure.reason == Reason::TimedOut, "{failure:?}");
        Ok(())
    });
}

/// A caller that holds a launch under way, and panics.
fn panics() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 1)?;
    let caller = std::thread::spawn(move || {
        let _held = launch;
        // Without the hook's text among the results.
        std::panic::resume_unwind(Box::new("a bug of the caller's"));
    });
    ensure!(caller.join().is_err(), "it did not panic");
    bed.api.wait_for(|api| api.calls("DELETE secrets") == 1)?;
    bed.shut_down()?;
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

/// A host that runs, and has a probe that it does not pass.
fn probed() -> Result<Bed, podcradle_tests::harness::Stop> {
    let bed = Bed::well()?;
    bed.api.admission(|resource, object| {
        if resource == "pods" {
            object["spec"]["containers"][0]["readinessProbe"] = json!({ "periodSeconds": 1 });
        }
    });
    Ok(bed)
}

/// Holds request `at` and tells when it came in.
pub fn hold(bed: &Bed, at: usize, fault: Fault) -> mpsc::UnboundedReceiver<()> {
    let (told, came_in) = mpsc::unbounded_channel();
    bed.api.script(move |nth, _| {
        if nth != at {
            return Fault::None;
        }
        let _ = told.send(());
        fault
    });
    came_in
}

fn dropped(nth: usize, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    let mut held = hold(&bed, nth, fault);
    let launch = bed.launcher.launch(spec(), Token::random())?;
    wait(held.recv())?.ok_or("the request never came")?;
    drop(launch);
    bed.shut_down()?;
    left_clean(&bed, nth)
}

fn cancelled(nth: usize, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    let mut held = hold(&bed, nth, fault);
    let mut launch = bed.launcher.launch(spec(), Token::random())?;
    wait(held.recv())?.ok_or("the request never came")?;
    launch.cancel();
    let failure = failed(wait(launch)?)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up,
        "{failure:?}"
    );
    left_clean(&bed, nth)
}

/// A Secret whose answer never came has a uid nobody knows: its Pod is gone,
/// so the cluster's collector takes it (shown on a real one).
fn left_clean(bed: &Bed, nth: usize) -> Outcome {
    let left = bed.api.objects();
    let may_be = |o: &String| o.starts_with("secrets/") && nth == 2;
    ensure!(left.iter().all(may_be), "left: {left:?}");
    Ok(())
}
