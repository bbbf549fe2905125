//! What a launch asks of the API server, counted by the API server.

use std::collections::BTreeMap;

use podcradle_tests::e2e::{Actor, Arch, audit};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[(
    "a_launch_is_four_writes_one_hand_over_and_one_watch",
    launch,
)];

fn launch(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let log = actor.cluster.audit.as_ref().map_err(skip)?;
    let name = actor.reserve("calls")?;
    actor.launch(&name).host(&["sleep", "1000"]).run()?;
    let requests = audit::requests(log, &actor.credential)?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in &requests {
        *counts.entry(request.short()).or_default() += 1;
    }
    let expected = [
        ("create pods", 1),
        ("create secrets", 1),
        ("create services", 1),
        ("patch pods", 1),
        ("patch services", 1),
        ("watch pods", 1),
    ];
    let expected = expected.map(|(call, count)| (call.to_owned(), count));
    ensure!(
        counts == BTreeMap::from(expected),
        "the API server counted {counts:#?}"
    );
    // The tree is made from its root, and the gate goes last.
    let order: Vec<_> = requests.iter().map(audit::Request::short).collect();
    let place = |call: &str| order.iter().position(|other| other == call);
    let ordered = [
        "create services",
        "create pods",
        "create secrets",
        "patch pods",
        "patch services",
    ];
    let places: Vec<_> = ordered.iter().map(|call| place(call)).collect();
    ensure!(places.is_sorted(), "in this order: {order:?}");
    Ok(())
}
