//! An answer that is lost after the write: never a second object, never an
//! object of someone else's taken or deleted.

use podcradle_launcher::Reason;
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::json;

use super::support::{Bed, NAME, failed, launched};

pub const WHOLE: [&str; 3] = [
    "pods/podcradle-faults-000000",
    "secrets/podcradle-faults-000000-g1-token",
    "services/podcradle-faults-000000",
];

pub fn add(suite: &mut Suite) {
    for resource in ["services", "pods", "secrets"] {
        for code in [500, 502, 504] {
            suite.test(
                format!("a_{code}_after_the_write_of_{resource}_is_resolved"),
                move || lost_answer(resource, Fault::DoneButSay(code)),
            );
            suite.test(
                format!("a_{code}_before_the_write_of_{resource}_is_tried_again"),
                move || lost_answer(resource, Fault::Refuse(code)),
            );
        }
    }
    suite.test(
        "a_gate_whose_removal_lost_its_answer_counts_as_removed",
        || {
            let bed = Bed::well()?;
            bed.api
                .script(once("PATCH", "pods", Fault::DoneButSay(500)));
            launched(bed.launch()?)?;
            ensure!(bed.api.objects() == WHOLE, "left: {:?}", bed.api.objects());
            Ok(())
        },
    );
    for resource in ["services", "pods"] {
        suite.test(
            format!("{resource}_that_may_have_been_made_are_deleted_whatever_came_last"),
            move || refused_in_the_end(resource),
        );
    }
    suite.test("a_name_of_someone_elses_is_refused_and_left_alone", taken);
    suite.test("a_name_that_is_taken_while_the_answer_is_lost_is_left_alone", || {
        let bed = Bed::well()?;
        bed.api.put("services", json!({ "metadata": { "name": NAME, "labels": { "podcradle.dev/launch-id": "other" } } }));
        bed.api.script(once("POST", "services", Fault::DoneButSay(500)));
        let failure = failed(bed.launch()?)?;
        ensure!(failure.reason == Reason::NameTaken, "{failure:?}");
        ensure!(bed.api.objects() == [format!("services/{NAME}")], "left: {:?}", bed.api.objects());
        Ok(())
    });
}

/// The first such request meets the fault, all others none.
pub fn once(
    verb: &'static str,
    resource: &'static str,
    fault: Fault,
) -> impl FnMut(usize, &podcradle_tests::fakeapi::Seen) -> Fault + Send {
    let mut met = false;
    move |_, seen| {
        if met || seen.verb != verb || seen.resource != resource {
            return Fault::None;
        }
        met = true;
        fault
    }
}

fn lost_answer(resource: &'static str, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(once("POST", resource, fault));
    let done = launched(bed.launch()?)?;
    ensure!(done.sandbox == NAME, "{done:?}");
    ensure!(
        bed.api.objects() == WHOLE,
        "there are: {:?}",
        bed.api.objects()
    );
    Ok(())
}

/// Made, but the answer is lost, and so is the read; then it is refused for good.
fn refused_in_the_end(resource: &'static str) -> Outcome {
    let bed = Bed::well()?;
    let mut met = 0;
    bed.api.script(move |_, seen| {
        let faults = [
            ("POST", Fault::DoneButSay(504)),
            ("GET", Fault::Refuse(500)),
            ("POST", Fault::Refuse(403)),
        ];
        match faults.get(met) {
            Some((verb, fault)) if seen.verb == *verb && seen.resource == resource => {
                met += 1;
                *fault
            }
            _ => Fault::None,
        }
    });
    let failure = failed(bed.launch()?)?;
    ensure!(failure.reason == Reason::Policy, "{failure:?}");
    ensure!(failure.cleaned_up, "{failure:?}");
    let left = bed.api.objects();
    ensure!(left.is_empty(), "said to be clean, but there is {left:?}");
    Ok(())
}

fn taken() -> Outcome {
    let bed = Bed::well()?;
    bed.api
        .put("services", json!({ "metadata": { "name": NAME } }));
    let failure = failed(bed.launch()?)?;
    ensure!(failure.reason == Reason::NameTaken, "{failure:?}");
    ensure!(
        bed.api.objects() == [format!("services/{NAME}")],
        "left: {:?}",
        bed.api.objects()
    );
    ensure!(
        bed.api.calls() == ["POST services", "GET services"],
        "calls: {:?}",
        bed.api.calls()
    );
    Ok(())
}
