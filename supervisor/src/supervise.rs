//! The loop: waits for signals, feeds `step`, carries out its actions, and ends us.
//!
//! In: a plan. Out: an exit code and a report. One call waits, `rt_sigtimedwait` on every
//! signal with the next timer as its time-out: no handler, no descriptor, no poll.

use nix::errno::Errno;

use crate::args::{Complaint, Plan, first};
use crate::flags::Persona;
use crate::policy::{MILLI, Suspend};
use crate::reap::{self, Change, End};
use crate::report::{self, Report};
use crate::signals::{self, CONT, KILL, STOP, SignalSet, TERM};
use crate::spawn::{self, Given};
use crate::step::{self, Action, Actions, Event, State, Stop};
use crate::sys::memory::{Arena, ExecNote};
use crate::sys::{self, Taken, file};
use crate::text::Text;
use crate::{descriptors, errors, foreground, log, oom, search, shutdown};

/// A supervisor at work.
pub struct Supervisor<'a> {
    plan: &'a Plan<'a>,
    given: Given,
    note: &'static ExecNote,
    state: State,
    began: u64,
    oom_before: Option<u64>,
    message: Complaint,
    /// The last host, whose group may outlive it.
    group: i32,
    has_terminal: bool,
    warned: bool,
}

impl<'a> Supervisor<'a> {
    /// A supervisor that has not started anything yet.
    pub fn new(plan: &'a Plan<'a>, given: Given, note: &'static ExecNote, began: u64) -> Self {
        Supervisor {
            plan,
            given,
            note,
            state: State::new(),
            began,
            oom_before: None,
            message: Complaint::new(),
            group: 0,
            has_terminal: false,
            warned: false,
        }
    }

    /// Runs to the end of the host and beyond. Exits the process.
    pub fn run(mut self) -> ! {
        let (state, actions) = step::begin();
        self.state = state;
        self.perform(actions);
        // With a restart the next host is to have them, too.
        if self.plan.policy.restart.is_none() {
            descriptors::let_go(self.plan.persona != Persona::Podcradle);
        } else if self.plan.close_fds {
            // What it is not given, nobody needs.
            descriptors::close_above_2(&self.plan.kept);
        }
        let mut more = false;
        loop {
            let taken = sys::take_signal(SignalSet::ALL.bits(), self.wait(more));
            // Reaping comes first: SIGCHLD may be stuck behind a flood of others, and what is
            // dead must not be signalled.
            more = self.reap();
            // What SIGCHLD stands for has just been done.
            if let Ok(taken) = taken
                && taken.signal != libc::SIGCHLD
            {
                self.signal(taken);
            }
            if self
                .state
                .next_timer()
                .is_some_and(|at| sys::monotonic_nanos() >= at)
            {
                self.handle(Event::Timer);
            }
        }
    }

    /// How long to wait for a signal, in nanoseconds; `None`: until there is one.
    fn wait(&self, more: bool) -> Option<u64> {
        if more {
            return Some(0);
        }
        let timer = self.state.next_timer()?;
        Some(timer.saturating_sub(sys::monotonic_nanos()))
    }

    fn handle(&mut self, event: Event) {
        let (state, actions) =
            step::step(&self.plan.policy, self.state, event, sys::monotonic_nanos());
        self.state = state;
        self.perform(actions);
    }

    fn perform(&mut self, actions: Actions) {
        for action in actions.iter() {
            match action {
                Action::Spawn => self.spawn(),
                Action::Forward(signal) => self.forward(signal),
                Action::KillHost => self.kill_host(),
                Action::Suspend(signal) => self.suspend(signal),
                Action::Probe => {
                    let exact = self.state.drain.is_none_or(|drain| drain.expired);
                    let event = if let Some(left) = shutdown::count(self.plan.policy.pid1, exact) {
                        Event::Left(left)
                    } else {
                        if self.plan.verbosity > 0 {
                            log::line(b"nothing is drained: no /proc shows what is left");
                        }
                        Event::Unseen
                    };
                    self.handle(event);
                }
                Action::TerminateRest => shutdown::signal(self.plan.policy.pid1, &[TERM, CONT]),
                Action::KillRest => shutdown::signal(self.plan.policy.pid1, &[KILL]),
                Action::Exit(code) => self.exit(code),
            }
        }
    }

    #[inline(never)]
    fn spawn(&mut self) {
        if self.plan.own_session {
            foreground::abandon();
        } else {
            // On a restart, too: we took it back when the last host ended.
            self.has_terminal = foreground::is(sys::getpgrp());
        }
        let first_host = self.group == 0;
        let mut oom_before = self.oom_before;
        let last = |room: &mut [u8]| {
            // While nothing of the host has run: it may hit its limit at once.
            if first_host {
                oom_before = oom::kills(self.plan.cgroup_root, room);
            }
        };
        let spawned = spawn::spawn(self.plan, self.given, self.has_terminal, self.note, last);
        self.oom_before = oom_before;
        match spawned {
            Ok(pid) => {
                self.group = pid;
                if self.plan.verbosity > 0 {
                    let mut line = Complaint::new();
                    line.push(b"started ")
                        .push(first(self.plan.host))
                        .push(b" as pid ")
                        .signed(pid);
                    log::line(line.as_bytes());
                }
                self.handle(Event::Spawned(pid));
            }
            Err(complaint) => {
                log::line(complaint.as_bytes());
                self.message = complaint;
                self.state.end = None;
                self.exit(self.plan.persona.own_error());
            }
        }
    }

    /// Takes what is dead; tells whether there may be more. The number at a time is limited,
    /// so that whoever makes orphans without end holds up neither the timers nor the host's end.
    fn reap(&mut self) -> bool {
        const AT_A_TIME: u64 = 4096;
        if self.plan.own_session && self.state.host.is_some_and(sys::has_ended) {
            // dumb-init's way: before the pid is given back, its group is told to stop.
            let _ = sys::kill(self.group.wrapping_neg(), i32::from(TERM));
        }
        let stops_too = self.plan.policy.suspend == Suspend::WithHost;
        let mut others = 0_u64;
        let mut ended = None;
        while others < AT_A_TIME
            && let Some((pid, change)) = reap::next(stops_too)
        {
            let host = self.state.host == Some(pid);
            match change {
                Change::Ended(end) if host => ended = Some(end),
                Change::Ended(_) => {
                    others = others.wrapping_add(1);
                    self.say_reaped(pid);
                }
                Change::Stopped(signal) if host => self.handle(Event::HostStopped(signal)),
                Change::Stopped(_) => {}
            }
        }
        // Those that died with the host are counted before its end may be ours.
        if others > 0 {
            self.handle(Event::Reaped(others));
        }
        if let Some(end) = ended {
            self.host_ended(end);
        }
        others == AT_A_TIME
    }

    fn say_reaped(&self, pid: i32) {
        if self.plan.warn_on_reap {
            let mut line = Text::<64>::new();
            line.push(b"reaped orphan with pid ").signed(pid);
            log::line(line.as_bytes());
        }
    }

    #[inline(never)]
    fn host_ended(&mut self, end: End) {
        let mut end = end;
        if let Some((errno, line)) = search::failure(first(self.plan.host), self.note) {
            log::line(line.as_bytes());
            self.message = line;
            end = End::Exec {
                errno: errno as i32,
                code: search::exit_code(errno),
            };
        } else if self.plan.verbosity > 0 {
            let mut line = Text::<64>::new();
            line.push(b"host ended with code ")
                .number(u64::from(end.code()));
            log::line(line.as_bytes());
        }
        if self.has_terminal {
            foreground::take_back(self.group);
        }
        self.handle(Event::HostEnded(end));
    }

    fn signal(&mut self, taken: Taken) {
        let Ok(signal) = u8::try_from(taken.signal) else {
            return;
        };
        // A fault of our own that the kernel reports late is no business of the host, nor is a
        // line of ours that nobody reads or that finds no room.
        if SignalSet::FAULTS.has(signal) && taken.code > 0
            || SignalSet::WRITE_FAULTS.has(signal) && taken.pid == sys::getpid()
        {
            return;
        }
        let sent = Stop {
            signal,
            pid: taken.pid,
            uid: taken.uid,
        };
        self.handle(Event::Signal(sent));
    }

    fn target(&self) -> Option<i32> {
        self.state.host.map(|pid| {
            if self.plan.to_group {
                pid.wrapping_neg()
            } else {
                pid
            }
        })
    }

    #[inline(never)]
    fn forward(&mut self, signal: u8) {
        let Some(target) = self.target() else {
            return;
        };
        if signal == CONT && !self.plan.policy.pid1 && !self.plan.own_session {
            // The shell above may have put us in the foreground: that is the host's place.
            self.has_terminal |= foreground::pass(sys::getpgrp(), self.group);
        }
        let mut sent = sys::kill(target, i32::from(signal));
        if sent == Err(Errno::ESRCH) {
            // A host that moved to another group left ours empty; it still has to be reached.
            sent = sys::kill(target.wrapping_abs(), i32::from(signal));
        }
        if let Err(errno) = sent {
            if self.warned {
                return;
            }
            self.warned = true;
            let mut line = Text::<160>::new();
            line.push(b"cannot send ");
            signals::describe(&mut line, signal);
            line.push(b" to the host: ")
                .push(errors::text(errno))
                .push(b" (said once)");
            log::line(line.as_bytes());
        } else if self.plan.verbosity > 1 {
            let mut line = Text::<64>::new();
            line.push(b"sent ");
            signals::describe(&mut line, signal);
            line.push(b" to the host");
            log::line(line.as_bytes());
        }
    }

    #[inline(never)]
    fn kill_host(&mut self) {
        let Some(host) = self.state.host else {
            return;
        };
        if self.plan.verbosity > 0 {
            log::line(b"the grace ran out: killing the host");
        }
        if self.plan.to_group {
            let _ = sys::kill(host.wrapping_neg(), i32::from(KILL));
        }
        if let Err(errno) = sys::kill(host, i32::from(KILL)) {
            let mut line = Text::<160>::new();
            line.push(b"cannot kill the host: ")
                .push(errors::text(errno));
            log::line(line.as_bytes());
            self.handle(Event::KillRefused);
        }
    }

    /// Stops us as `signal` would, and goes on when we are continued.
    #[inline(never)]
    fn suspend(&mut self, signal: u8) {
        let own = sys::getpid();
        if signal == STOP {
            let _ = sys::kill(own, i32::from(STOP));
            return;
        }
        // A terminal stops the whole job: the shell wants to see all of it stopped.
        let whole_job = foreground::pass(self.group, sys::getpgrp());
        // Its default action, not SIGSTOP: the kernel then leaves us awake when nobody is
        // there to continue us, and a starter that ignores it has its way.
        let _ = sys::set_mask(SignalSet::ALL.without(signal).bits());
        let _ = sys::kill(if whole_job { 0 } else { own }, i32::from(signal));
        let _ = sys::set_mask(SignalSet::ALL.bits());
        if sys::take_signal(SignalSet::of(&[CONT]).bits(), Some(0)).is_ok() {
            self.has_terminal |= foreground::pass(sys::getpgrp(), self.group);
            let _ = sys::kill(self.group.wrapping_neg(), i32::from(CONT));
        } else if whole_job {
            foreground::pass(sys::getpgrp(), self.group);
        }
    }

    #[inline(never)]
    fn exit(&self, code: u8) -> ! {
        // A mapping of its own: the stack of PID 1 stays small.
        let arena = Arena::new(oom::ROOM);
        let room = arena.as_ref().map(|arena| arena.bytes(oom::ROOM));
        let after = match room {
            Ok(Ok(room)) => oom::kills(self.plan.cgroup_root, room),
            _ => None,
        };
        let oom_kills = match (self.oom_before, after) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        let report = Report {
            exit_code: code,
            state: &self.state,
            message: self.message.as_bytes(),
            oom_kills,
            uptime_ms: sys::monotonic_nanos().saturating_sub(self.began) / MILLI,
            host: first(self.plan.host),
        };
        write_report(&report, self.plan);
        if self.has_terminal {
            foreground::take_back(self.group);
        }
        sys::exit(code)
    }
}

/// Writes the report of an end, whatever kind of.
#[inline(never)]
pub fn write_report(report: &Report<'_>, plan: &Plan<'_>) {
    if let Err(errno) = report::write(report.line().as_bytes(), plan.termination_log) {
        let mut line = Complaint::new();
        let path = plan
            .termination_log
            .map_or(&b""[..], |path| path.to_bytes());
        let path = path.get(..300).unwrap_or(path);
        line.push(b"--termination-log: ")
            .push(path)
            .push(b": no report: ");
        line.push(if errno == nix::errno::Errno::EINVAL {
            b"not a regular file"
        } else {
            errors::text(errno)
        });
        log::line(line.as_bytes());
    }
}

/// Holds a namespace open: reaps, and ends at SIGTERM or SIGINT.
pub fn pause() -> ! {
    let _ = file::change_dir(c"/");
    descriptors::close_above_2(&crate::args::Kept::default());
    loop {
        let taken = sys::take_signal(SignalSet::ALL.bits(), None);
        while reap::next(false).is_some() {}
        if let Ok(taken) = taken
            && matches!(taken.signal, libc::SIGTERM | libc::SIGINT)
        {
            sys::exit(0);
        }
    }
}
