//! What the supervisor does about what happens: `step(policy, state, event) → state, actions`.
//!
//! In: one event with its time. Out: the next state and the actions to carry out, in order.
//! Pure: no system call, no clock. It must never leave `Done`, never act on a host that has
//! been reaped, and never leave a timer unset that its schedule needs.

use crate::policy::{MILLI, Nanos, Policy, Suspend};
use crate::reap::End;
use crate::signals::{CHLD, KILL, STOP, SignalSet};

/// After SIGKILL: how long we wait for a host (or the rest) to be gone before going on without.
pub const KILL_WAIT: Nanos = 1_000 * MILLI;
/// The first pause before a restart; each further one doubles it.
pub const BACKOFF_FIRST: Nanos = 1_000 * MILLI;
/// The longest pause before a restart.
pub const BACKOFF_MOST: Nanos = 30_000 * MILLI;
/// A run this long resets the back-off and the count of restarts.
pub const HEALTHY: Nanos = 60_000 * MILLI;
/// The shortest and longest pause between two looks at what is left, while draining.
pub const PROBE: (Nanos, Nanos) = (MILLI, 50 * MILLI);

/// Where the supervisor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A host is about to be spawned.
    Starting,
    /// It runs.
    Running,
    /// It runs and was asked to stop.
    Stopping,
    /// It was sent SIGKILL.
    Killing,
    /// It is gone; what is left has been looked for, and told to stop if there was any.
    Draining,
    /// What is left has been sent SIGKILL.
    Reclaiming,
    /// It failed and will be started again.
    Backoff,
    /// Over.
    Done,
}

/// Who asked for the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The signal as received.
    pub signal: u8,
    /// The sender; 0 when it is the kernel or outside our namespace.
    pub pid: i32,
    /// The sender's user.
    pub uid: u32,
}

/// What a drain came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Drain {
    /// Processes found when it began.
    pub left: u32,
    /// Processes still there when SIGKILL was sent.
    pub killed: u32,
    /// Whether its time ran out.
    pub expired: bool,
}

/// All that is remembered from event to event.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own for the report"
)]
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Where we stand.
    pub phase: Phase,
    /// The host, while it has not been reaped.
    pub host: Option<i32>,
    /// How the last host ended.
    pub end: Option<End>,
    /// The first stop request.
    pub stop: Option<Stop>,
    /// Whether the stop found no host, in the pause before a restart.
    pub stopped_between: bool,
    /// Whether the grace ran out.
    pub grace_expired: bool,
    /// Whether a host outlived its SIGKILL (or we may not send one).
    pub unkillable: bool,
    /// The last drain.
    pub drain: Option<Drain>,
    /// Restarts in all.
    pub restarts: u32,
    /// Children reaped that were not the host.
    pub orphans: u64,
    deadline: Option<Nanos>,
    probe_at: Option<Nanos>,
    probe_pause: Nanos,
    started: Nanos,
    in_a_row: u32,
    backoff: Nanos,
    again: bool,
}

impl State {
    /// Before anything has happened.
    pub const fn new() -> State {
        State {
            phase: Phase::Starting,
            host: None,
            end: None,
            stop: None,
            stopped_between: false,
            grace_expired: false,
            unkillable: false,
            drain: None,
            restarts: 0,
            orphans: 0,
            deadline: None,
            probe_at: None,
            probe_pause: PROBE.0,
            started: 0,
            in_a_row: 0,
            backoff: BACKOFF_FIRST,
            again: false,
        }
    }

    /// When `Event::Timer` is due; `None`: only an event can bring us on.
    pub fn next_timer(&self) -> Option<Nanos> {
        match (self.deadline, self.probe_at) {
            (Some(a), Some(b)) => Some(if a < b { a } else { b }),
            (a, b) => a.or(b),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The host was spawned.
    Spawned(i32),
    /// A signal was sent to us.
    Signal(Stop),
    /// The host has ended and been reaped.
    HostEnded(End),
    /// The host was stopped by this signal.
    HostStopped(u8),
    /// That many children that are not the host were reaped.
    Reaped(u64),
    /// SIGKILL could not be sent to the host.
    KillRefused,
    /// The answer to `Action::Probe`: how many processes are left.
    Left(u32),
    /// The other answer: nothing can tell what is left.
    Unseen,
    /// The time `next_timer` gave has come.
    Timer,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Spawn the host; the answer is `Spawned`.
    Spawn,
    /// Send this to the host (or its group).
    Forward(u8),
    /// Send SIGKILL to the host (and its group, where signals go to that).
    KillHost,
    /// Stop ourselves as this signal would.
    Suspend(u8),
    /// Count what is left; the answer is `Left`.
    Probe,
    /// Send SIGTERM and SIGCONT to all that is left.
    TerminateRest,
    /// Send SIGKILL to all that is left.
    KillRest,
    /// Write the report and exit with this code.
    Exit(u8),
}

/// At most three actions, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Actions([Option<Action>; 3]);

impl Actions {
    /// The actions, first to last.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        self.0.iter().flatten().copied()
    }
}

const NOTHING: Actions = Actions([None; 3]);

const fn one(action: Action) -> Actions {
    Actions([Some(action), None, None])
}

const fn two(first: Action, second: Action) -> Actions {
    Actions([Some(first), Some(second), None])
}

/// The first state and actions.
pub fn begin() -> (State, Actions) {
    (State::new(), one(Action::Spawn))
}

/// The next state, and what to do, after `event` at the time `now`.
pub fn step(policy: &Policy, state: State, event: Event, now: Nanos) -> (State, Actions) {
    let mut next = state;
    if state.phase == Phase::Done {
        return (next, NOTHING);
    }
    let actions = match event {
        Event::Spawned(pid) => next.spawned(pid, now),
        Event::Signal(sent) => next.signalled(policy, sent, now),
        Event::HostEnded(end) if state.host.is_some() => next.host_ended(policy, end, now),
        Event::HostStopped(signal) => next.host_stopped(policy, signal),
        Event::Reaped(count) => next.reaped(count, now),
        Event::KillRefused if state.phase == Phase::Killing => next.give_up(policy, now),
        Event::Left(count) => next.left(policy, count, now),
        Event::Unseen if matches!(state.phase, Phase::Draining | Phase::Reclaiming) => {
            next.go_on(policy, now)
        }
        Event::Timer => next.timer(policy, now),
        Event::HostEnded(_) | Event::KillRefused | Event::Unseen => NOTHING,
    };
    (next, actions)
}

fn forward(policy: &Policy, signal: u8) -> Actions {
    let stops_us = policy.suspend == Suspend::OnSignal && SignalSet::JOB_STOPS.has(signal);
    match policy.rewrite.of(signal) {
        0 => NOTHING,
        to if stops_us => two(Action::Forward(to), Action::Suspend(STOP)),
        to => one(Action::Forward(to)),
    }
}

impl State {
    fn spawned(&mut self, pid: i32, now: Nanos) -> Actions {
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
            self.host = Some(pid);
            self.started = now;
        }
        NOTHING
    }

    fn signalled(&mut self, policy: &Policy, sent: Stop, now: Nanos) -> Actions {
        if sent.signal == CHLD {
            return NOTHING;
        }
        let stops = policy.is_stop(sent.signal);
        match self.phase {
            Phase::Running | Phase::Stopping => {
                if stops && self.stop.is_none() {
                    self.stop = Some(sent);
                    self.phase = Phase::Stopping;
                    self.deadline = policy.grace.map(|grace| now.saturating_add(grace));
                }
                forward(policy, sent.signal)
            }
            // A stop while no host lives ends the schedule of restarts.
            Phase::Backoff if stops => {
                self.stopped_while_away(sent);
                self.done(policy)
            }
            Phase::Draining | Phase::Reclaiming if stops && self.again => {
                self.stopped_while_away(sent);
                NOTHING
            }
            _ => NOTHING,
        }
    }

    fn stopped_while_away(&mut self, sent: Stop) {
        self.stop = Some(sent);
        self.stopped_between = true;
        self.again = false;
    }

    fn host_stopped(&self, policy: &Policy, signal: u8) -> Actions {
        // Once a stop was asked for we must stay awake for its schedule.
        let along = policy.suspend == Suspend::WithHost && self.phase == Phase::Running;
        if along && SignalSet::JOB_STOPS.has(signal) {
            one(Action::Suspend(signal))
        } else {
            NOTHING
        }
    }

    fn host_ended(&mut self, policy: &Policy, end: End, now: Nanos) -> Actions {
        self.host = None;
        self.end = Some(end);
        self.deadline = None;
        if now.saturating_sub(self.started) >= HEALTHY {
            self.in_a_row = 0;
            self.backoff = BACKOFF_FIRST;
        }
        let code = end.code();
        let failed = policy.map(code) != 0 && !policy.no_restart.has(code) && end.was_executed();
        let most = policy.restart.unwrap_or(0);
        self.again = failed && self.stop.is_none() && self.in_a_row < most;
        self.drain_or_go_on(policy, now)
    }

    /// The host outlives its SIGKILL: in the kernel's hands, or not ours to kill.
    fn give_up(&mut self, policy: &Policy, now: Nanos) -> Actions {
        self.unkillable = true;
        self.host_ended(
            policy,
            End::Signal {
                signal: KILL,
                core: false,
            },
            now,
        )
    }

    fn drain_or_go_on(&mut self, policy: &Policy, now: Nanos) -> Actions {
        if policy.drain == 0 {
            return self.go_on(policy, now);
        }
        self.phase = Phase::Draining;
        self.drain = None;
        self.deadline = Some(now.saturating_add(policy.drain));
        self.probe_pause = PROBE.0;
        one(Action::Probe)
    }

    fn left(&mut self, policy: &Policy, count: u32, now: Nanos) -> Actions {
        if !matches!(self.phase, Phase::Draining | Phase::Reclaiming) {
            return NOTHING;
        }
        let first = self.drain.is_none();
        let drain = self.drain.get_or_insert(Drain {
            left: count,
            ..Drain::default()
        });
        if count == 0 {
            return self.go_on(policy, now);
        }
        if drain.expired && self.phase == Phase::Draining {
            // Counted just now, at the end of the drain's time.
            drain.killed = count;
            self.phase = Phase::Reclaiming;
            self.deadline = Some(now.saturating_add(KILL_WAIT));
            self.probe_pause = PROBE.0;
            if policy.pid1 && !self.again {
                // Our own end is theirs: the kernel waits for all of them.
                let _ = self.go_on(policy, now);
                return two(Action::KillRest, Action::Exit(self.exit_code(policy)));
            }
        }
        self.probe_at = Some(now.saturating_add(self.probe_pause));
        let doubled = self.probe_pause.wrapping_mul(2);
        self.probe_pause = if doubled > PROBE.1 { PROBE.1 } else { doubled };
        match self.phase {
            // Sent again at each look: what forks meanwhile must not get away.
            Phase::Reclaiming => one(Action::KillRest),
            _ if first => one(Action::TerminateRest),
            _ => NOTHING,
        }
    }

    fn reaped(&mut self, count: u64, now: Nanos) -> Actions {
        self.orphans = self.orphans.wrapping_add(count);
        // Look again soon, but not once for every child of a large crowd.
        if let Some(at) = self.probe_at {
            let soon = now.saturating_add(PROBE.0);
            self.probe_at = Some(if at < soon { at } else { soon });
        }
        NOTHING
    }

    fn timer(&mut self, policy: &Policy, now: Nanos) -> Actions {
        let due = self.deadline.is_some_and(|deadline| now >= deadline);
        match self.phase {
            Phase::Stopping if due => {
                self.grace_expired = true;
                self.phase = Phase::Killing;
                self.deadline = Some(now.saturating_add(KILL_WAIT));
                one(Action::KillHost)
            }
            Phase::Killing if due => self.give_up(policy, now),
            Phase::Draining if due => {
                self.deadline = None;
                if let Some(drain) = &mut self.drain {
                    drain.expired = true;
                }
                one(Action::Probe)
            }
            Phase::Reclaiming if due => self.go_on(policy, now),
            Phase::Backoff if due => {
                self.deadline = None;
                self.phase = Phase::Starting;
                self.restarts = self.restarts.wrapping_add(1);
                self.in_a_row = self.in_a_row.wrapping_add(1);
                one(Action::Spawn)
            }
            Phase::Draining | Phase::Reclaiming => {
                if self.probe_at.is_some_and(|at| now >= at) {
                    self.probe_at = None;
                    return one(Action::Probe);
                }
                NOTHING
            }
            _ => NOTHING,
        }
    }

    /// The host and, with a drain, what it left are gone: start again, or end.
    fn go_on(&mut self, policy: &Policy, now: Nanos) -> Actions {
        self.probe_at = None;
        if !self.again {
            return self.done(policy);
        }
        self.phase = Phase::Backoff;
        self.deadline = Some(now.saturating_add(self.backoff));
        let doubled = self.backoff.wrapping_mul(2);
        self.backoff = if doubled > BACKOFF_MOST {
            BACKOFF_MOST
        } else {
            doubled
        };
        NOTHING
    }

    fn done(&mut self, policy: &Policy) -> Actions {
        self.phase = Phase::Done;
        self.deadline = None;
        self.probe_at = None;
        one(Action::Exit(self.exit_code(policy)))
    }

    /// The code we exit with as things stand.
    pub fn exit_code(&self, policy: &Policy) -> u8 {
        let stopped = self.stop.filter(|_| self.stopped_between);
        let code = match (stopped, self.end) {
            (Some(stop), _) => 128_u8.wrapping_add(stop.signal),
            (None, Some(end)) => end.code(),
            (None, None) => 125,
        };
        policy.map(code)
    }
}
