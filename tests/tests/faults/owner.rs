//! Owners: their Leases are made first, renewed apart from everything else, and
//! an owner that is dead launches nothing.

use podcradle_launcher::token::Token;
use podcradle_launcher::{Reason, SandboxSpec, name};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::json;

use super::many;
use super::support::{Bed, NAME, failed, launched, spec, wait};

pub fn add(suite: &mut Suite) {
    suite.test("an_owner_is_made_before_its_first_session", made_first);
    suite.test("an_owner_that_is_there_is_renewed_once", renewed);
    suite.test("an_owner_is_renewed_once_for_many_launches", once_for_many);
    suite.test(
        "an_owner_that_cannot_be_made_ends_all_its_launches",
        refused,
    );
    suite.test(
        "a_lease_that_was_written_meanwhile_is_deleted_as_it_is_now",
        written,
    );
    suite.test(
        "a_process_that_renews_its_owner_writes_no_lease_a_launch",
        apart,
    );
    suite.test("an_owner_that_is_dropped_takes_its_lease_along", dropped);
    suite.test("an_owner_that_was_dropped_ends_no_later_launch", || {
        let bed = Bed::well()?;
        let first = wait(bed.launcher.own("team-a"))??;
        let second = wait(bed.launcher.own("team-a"))??;
        // The earlier one is not what launches live by any more.
        drop(first);
        bed.api.script(|_, _| Fault::None);
        launched(bed.launch_spec(owned("team-a"))?)?;
        let calls = bed.api.calls();
        ensure!(!calls.contains(&"POST leases".to_owned()), "{calls:?}");
        drop(second);
        bed.api.remove("services", NAME);
        bed.api.collect();
        bed.api.collect();
        launched(bed.launch_spec(owned("team-a"))?)?;
        Ok(())
    });
    suite.test("a_lease_that_is_gone_ends_what_is_being_launched", lost);
    suite.test("a_lease_of_that_name_that_is_another_is_lost_too", replaced);
}

fn owned(by: &str) -> SandboxSpec {
    SandboxSpec {
        owner: Some(by.to_owned()),
        ..spec()
    }
}

fn made_first() -> Outcome {
    let bed = Bed::well()?;
    let done = launched(bed.launch_spec(owned("team-a"))?)?;
    ensure!(
        done.owner.as_deref() == Some("team-a") && done.expires.is_none(),
        "{done:?}"
    );
    let calls = bed.api.calls();
    ensure!(
        calls[..2] == ["POST leases", "POST services"] && calls.len() == 7,
        "calls: {calls:?}"
    );
    let anchor = bed.api.object("services", NAME);
    let annotations = &anchor["metadata"]["annotations"];
    ensure!(
        annotations["podcradle.dev/owner"] == "team-a"
            && annotations["podcradle.dev/expires"].is_null(),
        "{annotations}"
    );
    Ok(())
}

fn renewed() -> Outcome {
    let bed = Bed::well()?;
    let before = "2026-01-01T00:00:00.000000Z";
    bed.api.put(
        "leases",
        json!({ "metadata": { "name": "team-a" }, "spec": { "renewTime": before } }),
    );
    launched(bed.launch_spec(owned("team-a"))?)?;
    let calls = bed.api.calls();
    ensure!(
        calls[..3] == ["POST leases", "PATCH leases", "POST services"],
        "calls: {calls:?}"
    );
    let lease = bed.api.object("leases", "team-a");
    ensure!(lease["spec"]["renewTime"] != before, "{lease}");
    Ok(())
}

/// So many launches under one owner.
fn many_owned(bed: &Bed) -> Result<Vec<podcradle_launcher::Outcome>, Stop> {
    let wanted = (0..20).map(|n| {
        let spec = SandboxSpec {
            sandbox: format!("podcradle-faults-{n}"),
            launch_id: format!("id-{n}"),
            ..owned("team-a")
        };
        (spec, Token::random(), false)
    });
    many::all(bed.launcher.launch_many(wanted.collect(), 20)?)
}

fn once_for_many() -> Outcome {
    let bed = Bed::well()?;
    let before = json!({ "metadata": { "name": "team-a" } });
    bed.api.put("leases", before);
    for outcome in many_owned(&bed)? {
        launched(outcome)?;
    }
    launched(bed.launch_spec(owned("team-a"))?)?;
    let calls = bed.api.calls();
    let leases: Vec<_> = calls.iter().filter(|c| c.ends_with("leases")).collect();
    ensure!(leases == ["POST leases", "PATCH leases"], "{leases:?}");
    ensure!(
        calls[0] == "POST leases" && calls[1] == "PATCH leases",
        "{calls:?}"
    );
    Ok(())
}

fn refused() -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(|_, seen| match seen.resource.as_str() {
        "leases" => Fault::Refuse(403),
        _ => Fault::None,
    });
    for outcome in many_owned(&bed)? {
        let failure = failed(outcome)?;
        ensure!(failure.reason == Reason::Policy, "{failure:?}");
    }
    let left = bed.api.objects();
    ensure!(left.is_empty(), "{left:?}");
    // It may be possible later.
    bed.api.script(|_, _| Fault::None);
    launched(bed.launch_spec(owned("team-a"))?)?;
    Ok(())
}

fn written() -> Outcome {
    let bed = Bed::well()?;
    let owner = wait(bed.launcher.attach(&name::of_process()))??;
    let lease = owner.name().to_owned();
    bed.api.change("leases", &lease, |lease| {
        lease["spec"]["leaseTransitions"] = json!(1);
    });
    drop(owner);
    bed.shut_down()?;
    let (left, calls) = (bed.api.objects(), bed.api.calls());
    ensure!(left.is_empty(), "{left:?}");
    let expected = [
        "POST leases",
        "DELETE leases",
        "PATCH leases",
        "DELETE leases",
    ];
    ensure!(calls == expected, "{calls:?}");
    Ok(())
}

fn apart() -> Outcome {
    let bed = Bed::well()?;
    let owner = wait(bed.launcher.own("team-a"))??;
    bed.api.script(|_, _| Fault::None);
    launched(bed.launch_spec(owned(owner.name()))?)?;
    let calls = bed.api.calls();
    ensure!(
        !calls.iter().any(|call| call.ends_with("leases")),
        "calls: {calls:?}"
    );
    Ok(())
}

fn dropped() -> Outcome {
    let bed = Bed::well()?;
    let lease = name::of_process();
    let attached = wait(bed.launcher.attach(&lease))??;
    let deployment = wait(bed.launcher.own("team-a"))??;
    ensure!(attached.name() == lease, "its name");
    ensure!(bed.api.objects().len() == 2, "{:?}", bed.api.objects());
    drop((attached, deployment));
    bed.shut_down()?;
    // The one of a deployment is that of other processes too.
    let left = bed.api.objects();
    ensure!(left == ["leases/team-a"], "{left:?}");
    Ok(())
}

fn lost() -> Outcome {
    ends(|bed, name| bed.api.remove("leases", name))
}

fn replaced() -> Outcome {
    ends(|bed, name| {
        bed.api.remove("leases", name);
        bed.api
            .put("leases", json!({ "metadata": { "name": name } }));
    })
}

/// A launch that waits for a node, while its owner's Lease goes.
fn ends(go: impl FnOnce(&Bed, &str)) -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let mut owner = wait(bed.launcher.attach(&name::of_process()))??;
    let launch = bed.launcher.launch(owned(owner.name()), Token::random())?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 1)?;
    go(&bed, owner.name());
    let failure = failed(wait(launch)?)?;
    ensure!(failure.reason == Reason::OwnerLost, "{failure:?}");
    ensure!(failure.cleaned_up, "{failure:?}");
    let why = wait(owner.lost())?;
    ensure!(why.contains(owner.name()), "{why}");
    // Whoever launches under it now is told the same, and makes nothing.
    let again = failed(bed.launch_spec(owned(owner.name()))?)?;
    ensure!(again.reason == Reason::OwnerLost, "{again:?}");
    let left = bed.api.objects();
    let ours = |o: &&String| !o.starts_with("leases/");
    ensure!(!left.iter().any(|o| ours(&o)), "{left:?}");
    Ok(())
}
