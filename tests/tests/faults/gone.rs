//! Somebody deletes what a launch has made, while it is under way.

use podcradle_launcher::Reason;
use podcradle_launcher::token::Token;
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, going_well};
use podcradle_tests::harness::{Outcome, Suite};

use super::ambiguous::once;
use super::support::{Bed, NAME, failed, spec, wait};

pub fn add(suite: &mut Suite) {
    suite.test("a_pod_that_goes_before_it_ran_ends_its_launch", pod);
    suite.test(
        "an_anchor_that_goes_before_the_hand_over_ends_its_launch",
        anchor,
    );
}

/// A watch that was opened late may show nothing of it but that it is gone.
fn pod() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    bed.api.remove("pods", NAME);
    let failure = failed(wait(launch)?)?;
    ensure!(failure.reason == Reason::DeletedBySomeone, "{failure:?}");
    ensure!(failure.cleaned_up, "{failure:?}");
    ensure!(
        bed.api.objects().is_empty(),
        "left: {:?}",
        bed.api.objects()
    );
    Ok(())
}

/// The collector is slow: its Pod is still there, and runs.
fn anchor() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    bed.api.script(once("PATCH", "services", Fault::Hold));
    let launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    bed.api.run_all(going_well());
    bed.api.wait_for(|api| api.calls("PATCH services") == 1)?;
    bed.api.remove("services", NAME);
    bed.api.release();
    let failure = failed(wait(launch)?)?;
    ensure!(failure.reason == Reason::DeletedBySomeone, "{failure:?}");
    ensure!(failure.cleaned_up, "{failure:?}");
    ensure!(
        bed.api.objects().is_empty(),
        "left: {:?}",
        bed.api.objects()
    );
    Ok(())
}
