//! `step` with an injected clock: the schedule to the nanosecond.

mod bench;
mod orders;

use podcradle_init::policy::{CodeSet, MILLI, Policy, Suspend};
use podcradle_init::reap::End;
use podcradle_init::signals::{Rewrite, SignalSet};
use podcradle_init::step::{Action, BACKOFF_MOST, Event, HEALTHY, KILL_WAIT, PROBE, step};

use bench::{Bench, exit, policy, sent};

#[test]
fn without_a_schedule_no_timer_is_ever_set() {
    let mut bench = Bench::new(policy());
    for event in [sent(10), sent(15), Event::Reaped(3), Event::HostStopped(19)] {
        bench.feed(event);
        assert_eq!(bench.state.next_timer(), None, "{event:?}");
    }
    bench.feed(exit(7));
    assert_eq!(bench.exit(), Some(7));
}

#[test]
fn the_grace_runs_from_the_first_stop_and_a_second_neither_restarts_nor_shortens_it() {
    let mut bench = Bench::new(Policy {
        grace: Some(2_000 * MILLI),
        ..policy()
    });
    let asked = bench.now;
    assert_eq!(bench.feed(sent(15)), [Action::Forward(15)]);
    for _ in 0..9 {
        bench.now += 200 * MILLI;
        assert_eq!(bench.feed(sent(15)), [Action::Forward(15)]);
        assert_eq!(bench.feed(sent(2)), [Action::Forward(2)]);
    }
    assert_eq!(
        bench.until(|action| *action == Action::KillHost),
        Some(asked + 2_000 * MILLI)
    );
    bench.feed(Event::HostEnded(End::Signal {
        signal: 9,
        core: false,
    }));
    assert_eq!(bench.exit(), Some(137));
    assert!(bench.state.grace_expired && !bench.state.unkillable);
    assert_eq!(bench.state.stop.map(|stop| stop.signal), Some(15));
}

#[test]
fn no_time_ends_a_nanosecond_too_soon() {
    for drain in [false, true] {
        let (grace, time) = (1_000 * MILLI, 1_000 * MILLI);
        let mut bench = Bench::new(Policy {
            grace: Some(grace),
            drain: if drain { time } else { 0 },
            ..policy()
        });
        // In the middle of a millisecond, whose end is not when the time is over.
        bench.now += 999_999;
        bench.left = 1;
        let over = bench.now + time;
        let (end, last) = if drain {
            (exit(0), Action::KillRest)
        } else {
            (sent(15), Action::KillHost)
        };
        bench.feed(end);
        bench.now = over - 1;
        assert!(!bench.feed(Event::Timer).contains(&last));
        bench.now = over;
        assert!(bench.feed(Event::Timer).contains(&last));
    }
}

#[test]
fn a_host_that_outlives_its_kill_ends_the_wait_all_the_same() {
    let mut bench = Bench::new(Policy {
        grace: Some(500 * MILLI),
        ..policy()
    });
    let asked = bench.now;
    bench.feed(sent(15));
    let end = bench.until(|action| matches!(action, Action::Exit(_)));
    assert_eq!(end, Some(asked + 500 * MILLI + KILL_WAIT));
    assert_eq!(bench.exit(), Some(137));
    assert!(bench.state.unkillable);
}

#[test]
fn a_refused_kill_ends_the_wait_at_once() {
    let mut bench = Bench::new(Policy {
        grace: Some(1_000 * MILLI),
        ..policy()
    });
    bench.feed(sent(15));
    bench.until(|action| *action == Action::KillHost);
    bench.feed(Event::KillRefused);
    assert_eq!(bench.exit(), Some(137));
}

#[test]
fn a_drain_ends_with_the_last_process_and_keeps_the_code() {
    let mut bench = Bench::new(Policy {
        drain: 30_000 * MILLI,
        ..policy()
    });
    bench.left = 2;
    let actions = bench.feed(exit(3));
    assert_eq!(actions, [Action::Probe, Action::TerminateRest]);
    bench.feed(sent(15));
    bench.now += 300 * MILLI;
    bench.left = 0;
    bench.feed(Event::Reaped(2));
    let end = bench
        .until(|action| matches!(action, Action::Exit(_)))
        .unwrap();
    assert!(end <= bench.now + PROBE.1);
    assert_eq!(bench.exit(), Some(3));
    let drain = bench.state.drain.unwrap();
    assert_eq!((drain.left, drain.killed, drain.expired), (2, 0, false));
    assert_eq!(bench.state.stop, None, "nobody stopped this host");
}

#[test]
fn a_drain_that_cannot_see_what_is_left_is_none() {
    let policy = Policy {
        drain: 30_000 * MILLI,
        pid1: false,
        ..policy()
    };
    let (state, actions) = step(&policy, Bench::new(policy).state, exit(3), 0);
    assert_eq!(actions.iter().collect::<Vec<_>>(), [Action::Probe]);
    let (state, actions) = step(&policy, state, Event::Unseen, 0);
    assert_eq!(actions.iter().collect::<Vec<_>>(), [Action::Exit(3)]);
    assert_eq!(state.drain, None);
}

#[test]
fn a_drain_that_runs_out_kills_what_is_left() {
    for pid1 in [true, false] {
        let mut bench = Bench::new(Policy {
            drain: 1_000 * MILLI,
            pid1,
            ..policy()
        });
        bench.left = 4;
        let started = bench.now;
        bench.feed(exit(0));
        assert_eq!(
            bench.until(|action| *action == Action::KillRest),
            Some(started + 1_000 * MILLI)
        );
        if !pid1 {
            assert_eq!(bench.exit(), None, "what was killed must be reaped");
            bench.until(|action| matches!(action, Action::Exit(_)));
        }
        assert_eq!(bench.exit(), Some(0));
        let drain = bench.state.drain.unwrap();
        assert_eq!((drain.left, drain.killed, drain.expired), (4, 4, true));
    }
}

#[test]
fn restarts_pause_one_two_four_seconds_and_stop_at_the_limit() {
    let mut bench = Bench::new(Policy {
        restart: Some(3),
        ..policy()
    });
    for pause in [1_000, 2_000, 4_000] {
        let ended = bench.now;
        bench.feed(exit(9));
        assert_eq!(
            bench.until(|action| *action == Action::Spawn),
            Some(ended + pause * MILLI)
        );
    }
    bench.feed(exit(9));
    assert_eq!((bench.exit(), bench.state.restarts), (Some(9), 3));
}

#[test]
fn a_minute_of_health_resets_pause_and_count_and_less_does_not() {
    for (alive, pause) in [(HEALTHY - 1, 2_000), (HEALTHY, 1_000)] {
        let mut bench = Bench::new(Policy {
            restart: Some(u32::MAX),
            ..policy()
        });
        bench.feed(exit(9));
        bench.until(|action| *action == Action::Spawn);
        bench.now += alive;
        let ended = bench.now;
        bench.feed(exit(9));
        assert_eq!(
            bench.until(|action| *action == Action::Spawn),
            Some(ended + pause * MILLI)
        );
    }
    let mut bench = Bench::new(Policy {
        restart: Some(u32::MAX),
        ..policy()
    });
    for _ in 0..20 {
        bench.feed(exit(9));
        bench.until(|action| *action == Action::Spawn);
    }
    let ended = bench.now;
    bench.feed(exit(9));
    assert_eq!(
        bench.until(|action| *action == Action::Spawn),
        Some(ended + BACKOFF_MOST)
    );
}

#[test]
fn some_ends_are_final() {
    let mut no_restart = CodeSet::default();
    no_restart.add(78);
    let mut success = CodeSet::default();
    success.add(143);
    let policy = Policy {
        restart: Some(u32::MAX),
        no_restart,
        success,
        ..policy()
    };
    let not_found = End::Exec {
        errno: 2,
        code: 127,
    };
    let terminated = End::Signal {
        signal: 15,
        core: false,
    };
    for (end, code) in [
        (End::Exit { code: 0 }, 0),
        (End::Exit { code: 78 }, 78),
        (terminated, 0),
        (not_found, 127),
    ] {
        let mut bench = Bench::new(policy);
        bench.feed(Event::HostEnded(end));
        assert_eq!(bench.exit(), Some(code), "{end:?}");
    }
    let mut bench = Bench::new(policy);
    bench.feed(sent(15));
    bench.feed(exit(9));
    assert_eq!(bench.exit(), Some(9), "a stop was asked for");
}

#[test]
fn a_stop_between_two_hosts_ends_at_once_and_other_signals_are_dropped() {
    let mut bench = Bench::new(Policy {
        restart: Some(u32::MAX),
        ..policy()
    });
    bench.feed(exit(9));
    for other in [1, 10, 17, 18, 40] {
        assert_eq!(bench.feed(sent(other)), []);
    }
    assert_eq!(bench.feed(sent(2)), [Action::Exit(130)]);
    assert!(bench.state.stopped_between);
    assert_eq!(bench.state.end.map(End::code), Some(9));
}

#[test]
fn a_stop_during_the_drain_before_a_restart_lets_the_drain_end_first() {
    let mut bench = Bench::new(Policy {
        restart: Some(u32::MAX),
        drain: 5_000 * MILLI,
        ..policy()
    });
    bench.left = 1;
    bench.feed(exit(9));
    assert_eq!(bench.feed(sent(15)), []);
    bench.left = 0;
    bench.until(|action| matches!(action, Action::Exit(_)));
    assert_eq!(bench.exit(), Some(143));
    assert_eq!(bench.state.restarts, 0);
}

#[test]
fn what_is_a_stop_follows_the_rewriting() {
    let mut rewrite = Rewrite::none();
    rewrite.set(1, 15);
    rewrite.set(3, 0);
    rewrite.set(15, 10);
    let stop = SignalSet::STOP_REQUESTS.without(2).with(12);
    let policy = Policy {
        rewrite,
        stop,
        ..policy()
    };
    for (signal, forwarded, stops) in [
        (1, Some(15), true),
        (2, Some(2), false),
        (3, None, false),
        (12, Some(12), true),
        (15, Some(10), true),
        (40, Some(40), false),
        (17, None, false),
    ] {
        let mut bench = Bench::new(policy);
        let expected: Vec<Action> = forwarded.map(Action::Forward).into_iter().collect();
        assert_eq!(bench.feed(sent(signal)), expected, "signal {signal}");
        assert_eq!(bench.state.stop.is_some(), stops, "signal {signal}");
    }
}

#[test]
fn we_stop_along_with_the_host_but_not_once_a_stop_was_asked_for() {
    let mut bench = Bench::new(Policy {
        suspend: Suspend::WithHost,
        ..policy()
    });
    assert_eq!(bench.feed(Event::HostStopped(20)), [Action::Suspend(20)]);
    assert_eq!(
        bench.feed(Event::HostStopped(19)),
        [],
        "SIGSTOP is no job control"
    );
    bench.feed(sent(15));
    assert_eq!(bench.feed(Event::HostStopped(20)), []);
}
