//! A caller that goes away, at every single request of a launch, with the
//! request done or not done: nothing is left.

use podcradle_launcher::token::Token;
use podcradle_launcher::{LaunchEvent, Reason};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Suite};
use tokio::sync::mpsc;

use super::support::{Bed, failed, spec, wait};

/// Service, Pod, Secret, gate, watch, hand-over.
pub const REQUESTS: usize = 6;

pub fn add(suite: &mut Suite) {
    suite.test("a_launch_makes_six_requests", || {
        let bed = Bed::well()?;
        super::support::launched(bed.launch()?)?;
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
    ensure!(
        bed.api
            .objects()
            .iter()
            .all(|o| o.starts_with("secrets/") && nth == 2),
        "left: {:?}",
        bed.api.objects()
    );
    Ok(())
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
    // A Secret whose answer never came has a uid nobody knows: its Pod is gone,
    // so the cluster's collector takes it (shown on a real one).
    ensure!(
        bed.api
            .objects()
            .iter()
            .all(|o| o.starts_with("secrets/") && nth == 2),
        "left: {:?}",
        bed.api.objects()
    );
    Ok(())
}
