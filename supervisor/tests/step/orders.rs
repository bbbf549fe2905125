//! Over random orders of events, what must hold in any of them.

use podcradle_init::policy::{MILLI, Nanos, Policy, Suspend};
use podcradle_init::reap::End;
use podcradle_init::step::{Action, Event, KILL_WAIT, PROBE, Phase};
use proptest::prelude::*;

use super::bench::{Bench, exit, policy, sent};

/// Up to so many of them, and not only whole ones.
fn milliseconds(most: u64) -> impl Strategy<Value = Nanos> {
    0..most * MILLI
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let times = (
        prop::option::of(milliseconds(20_000)),
        prop_oneof![Just(0), milliseconds(20_000)],
    );
    (
        times,
        prop::option::of(0..5_u32),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|((grace, drain), restart, pid1, along)| Policy {
            grace,
            drain,
            restart,
            pid1,
            suspend: if along && !pid1 {
                Suspend::WithHost
            } else {
                Suspend::Never
            },
            ..policy()
        })
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..=64_u8).prop_map(sent),
        2 => Just(sent(15)),
        2 => any::<u8>().prop_map(exit),
        1 => (1..=64_u8).prop_map(|signal| Event::HostEnded(End::Signal { signal, core: false })),
        1 => (1..=31_u8).prop_map(Event::HostStopped),
        2 => (1..1_000_u64).prop_map(Event::Reaped),
        1 => Just(Event::KillRefused),
        1 => (0..9_u32).prop_map(Event::Left),
        1 => Just(Event::Unseen),
        1 => Just(Event::Spawned(99)),
        4 => Just(Event::Timer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: one exit at most, nothing after it, no action on
    /// a host that is gone (asserted in `feed`), every orphan counted once.
    #[test]
    fn any_order_of_events_keeps_the_invariants(
        policy in any_policy(),
        killable in any::<bool>(),
        events in prop::collection::vec((any_event(), milliseconds(3_000), 0..3_u32), 0..60),
    ) {
        let mut bench = Bench::new(policy);
        bench.killable = killable;
        let mut orphans = 0;
        for (event, pause, left) in events {
            bench.now += pause;
            bench.left = left;
            let over = bench.exit().is_some();
            if let Event::Reaped(count) = event && !over {
                orphans += count;
            }
            let actions = bench.feed(event);
            prop_assert!(!over || actions.is_empty(), "{:?} after the exit", actions);
            prop_assert_eq!(bench.state.orphans, orphans);
            prop_assert_eq!(bench.exit().is_some(), bench.state.phase == Phase::Done);
            let waits = bench.state.next_timer().is_some();
            let idle = matches!(bench.state.phase, Phase::Running | Phase::Done)
                || (bench.state.phase == Phase::Stopping && policy.grace.is_none());
            prop_assert_eq!(waits, !idle, "a timer in {:?}", bench.state.phase);
        }
    }

    /// Once a stop was asked for, with a grace, the end comes within the schedule even when
    /// neither the host nor anything else ever dies.
    #[test]
    fn nothing_outlives_the_schedule(
        policy in any_policy(),
        grace in milliseconds(20_000),
        before in prop::collection::vec((any_event(), milliseconds(3_000)), 0..30),
    ) {
        let mut bench = Bench::new(Policy { grace: Some(grace), restart: None, ..policy });
        bench.left = 3;
        bench.killable = false;
        for (event, pause) in before {
            if !matches!(event, Event::Left(_)) {
                bench.feed(event);
                bench.now += pause;
            }
        }
        bench.feed(sent(15));
        let asked = bench.now;
        bench.until(|action| matches!(action, Action::Exit(_)));
        prop_assert!(bench.exit().is_some());
        let most = grace + KILL_WAIT + policy.drain + KILL_WAIT + PROBE.1;
        prop_assert!(bench.now <= asked + most, "{} ns", bench.now - asked);
    }

    /// The host's own end decides the code, whatever was sent around it.
    #[test]
    fn the_hosts_code_is_never_lost(
        policy in any_policy(),
        before in prop::collection::vec(1..=64_u8, 0..20),
        after in prop::collection::vec(1..=64_u8, 0..20),
        code in any::<u8>(),
    ) {
        let mut bench = Bench::new(Policy { restart: None, ..policy });
        bench.left = 1;
        for signal in before {
            bench.feed(sent(signal));
        }
        bench.feed(exit(code));
        for signal in after {
            bench.feed(sent(signal));
        }
        bench.until(|action| matches!(action, Action::Exit(_)));
        prop_assert_eq!(bench.exit(), Some(code));
    }
}
