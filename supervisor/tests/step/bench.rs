//! A supervisor without a system, and what may happen to it.

use podcradle_init::policy::{CodeSet, MILLI, Nanos, Policy, Suspend};
use podcradle_init::reap::End;
use podcradle_init::signals::{Rewrite, SignalSet};
use podcradle_init::step::{Action, Event, State, Stop, begin, step};

pub const HOST: i32 = 7;

pub fn policy() -> Policy {
    Policy {
        grace: None,
        drain: 0,
        restart: None,
        no_restart: CodeSet::default(),
        success: CodeSet::default(),
        stop: SignalSet::STOP_REQUESTS,
        rewrite: Rewrite::none(),
        pid1: true,
        suspend: Suspend::Never,
    }
}

pub fn sent(signal: u8) -> Event {
    Event::Signal(Stop {
        signal,
        pid: 3,
        uid: 0,
    })
}

pub fn exit(code: u8) -> Event {
    Event::HostEnded(End::Exit { code })
}

/// A supervisor without a system: feeds events, collects actions, moves the clock.
pub struct Bench {
    pub policy: Policy,
    pub state: State,
    pub now: Nanos,
    /// What a look at the rest finds.
    pub left: u32,
    /// Whether SIGKILL works on what is left.
    pub killable: bool,
    pub done: Vec<Action>,
}

impl Bench {
    pub fn new(policy: Policy) -> Bench {
        let (state, actions) = begin();
        let mut bench = Bench {
            policy,
            state,
            now: 1_000_000 * MILLI,
            left: 0,
            killable: true,
            done: vec![],
        };
        let actions: Vec<Action> = actions.iter().collect();
        bench.carry_out(&actions);
        bench
    }

    pub fn feed(&mut self, event: Event) -> Vec<Action> {
        let before = self.done.len();
        let (state, actions) = step(&self.policy, self.state, event, self.now);
        let host = self.state.host;
        self.state = state;
        let actions: Vec<Action> = actions.iter().collect();
        for action in &actions {
            if matches!(action, Action::Forward(_) | Action::KillHost) {
                assert!(
                    host.is_some() && state.host.is_some(),
                    "{action:?} without a host"
                );
            }
        }
        self.carry_out(&actions);
        self.done[before..].to_vec()
    }

    pub fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            self.done.push(*action);
            match action {
                Action::Spawn => drop(self.feed(Event::Spawned(HOST))),
                Action::Probe => drop(self.feed(Event::Left(self.left))),
                Action::KillRest if self.killable => self.left = 0,
                _ => {}
            }
        }
    }

    /// Lets the timers fire, until one has made `wanted` happen or none is set.
    pub fn until(&mut self, wanted: impl Fn(&Action) -> bool) -> Option<Nanos> {
        for _ in 0..100_000 {
            self.now = self.state.next_timer()?.max(self.now);
            if self.feed(Event::Timer).iter().any(&wanted) {
                return Some(self.now);
            }
        }
        panic!("timers without end");
    }

    pub fn exit(&self) -> Option<u8> {
        let exits: Vec<u8> = self
            .done
            .iter()
            .filter_map(|action| match action {
                Action::Exit(code) => Some(*code),
                _ => None,
            })
            .collect();
        assert!(exits.len() <= 1, "{:?}", self.done);
        exits.first().copied()
    }
}
