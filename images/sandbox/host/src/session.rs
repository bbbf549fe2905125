//! The host's life: dial in, beat, obey, leave. One thread speaks to the
//! server, one waits for signals, one per order carries it out; the main
//! thread listens to all three, so that a stop is never held up by a server
//! that does not answer.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Plan;
use crate::client::{Answer, Client, Failure};
use crate::exit::Exit;
use crate::orders::{Done, Order, What};
use crate::surroundings::Surroundings;

/// How long a goodbye may hold up a stop.
const GOODBYE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

enum Event {
    Stop(Signal),
    Refused(Failure),
    Answered(Answer),
    Done(Done),
}

/// Lives until a signal or a refusal.
pub fn run(plan: Plan) -> Exit {
    let surroundings = Surroundings::look();
    println!(
        "host: started {surroundings} id={} name={}",
        plan.id, plan.name
    );
    let (events, inbox) = channel();
    if let Err(error) = watch_signals(events.clone()) {
        eprintln!("host: cannot watch for signals: {error}");
        return Exit::System;
    }
    let client = Client::new(&plan);
    let (finished, to_report) = channel();
    let speaker = Speaker {
        client: client.clone(),
        name: plan.name.clone(),
        surroundings,
        heartbeat: plan.heartbeat,
        events: events.clone(),
    };
    thread::spawn(move || speaker.speak(&to_report));
    Listener {
        plan,
        client,
        events,
        finished,
    }
    .listen(&inbox)
}

/// SIGTERM and SIGINT become events. The thread lives as long as the process.
fn watch_signals(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::spawn(move || {
        for number in &mut signals {
            if let Ok(signal) = Signal::try_from(number) {
                let _ = events.send(Event::Stop(signal));
            }
        }
    });
    Ok(())
}

/// The main thread's half: prints, obeys, ends.
struct Listener {
    plan: Plan,
    client: Client,
    events: Sender<Event>,
    finished: Sender<Done>,
}

impl Listener {
    fn listen(mut self, inbox: &Receiver<Event>) -> Exit {
        // `events` is also held here, so the channel cannot close under us.
        while let Ok(event) = inbox.recv() {
            match event {
                Event::Answered(answer) => self.obey(answer),
                Event::Done(done) => {
                    println!(
                        "host: order {} done: {}",
                        done.id,
                        self.plan.token.redact(&done.to_string())
                    );
                    let _ = self.finished.send(done);
                }
                Event::Refused(failure) => {
                    eprintln!("host: {failure}; exit {}", Exit::Refused.code());
                    return Exit::Refused;
                }
                Event::Stop(signal) => return self.leave(signal),
            }
        }
        Exit::System
    }

    fn obey(&mut self, answer: Answer) {
        if let Some(message) = answer.message {
            println!("host: server says: {}", self.plan.token.redact(&message));
        }
        let own = self.plan.orphans.take().map(|orphans| Order {
            id: "--orphans".to_owned(),
            what: What::Orphans {
                count: orphans.count,
                lifetime_ms: u64::try_from(orphans.lifetime.as_millis()).unwrap_or(u64::MAX),
            },
        });
        for order in own.into_iter().chain(answer.orders) {
            let line = format!("order {}: {}", order.id, order.what);
            println!("host: {}", self.plan.token.redact(&line));
            let (events, variable) = (self.events.clone(), self.plan.token_variable.clone());
            thread::spawn(move || {
                let _ = events.send(Event::Done(order.carry_out(&variable)));
            });
        }
    }

    fn leave(self, signal: Signal) -> Exit {
        println!("host: {signal}: saying goodbye");
        if let Err(failure) = self.client.goodbye(signal.as_str(), GOODBYE) {
            println!("host: goodbye not heard: {failure}");
        }
        if self.plan.exit_zero_on_term && signal == Signal::SIGTERM {
            return Exit::Done;
        }
        Exit::Signalled(signal)
    }
}

/// The speaking thread's half: dials in until it is heard, then beats.
struct Speaker {
    client: Client,
    name: String,
    surroundings: Surroundings,
    heartbeat: Duration,
    events: Sender<Event>,
}

impl Speaker {
    fn speak(self, to_report: &Receiver<Done>) {
        let mut beat = 0;
        let mut unreported: Vec<Done> = Vec::new();
        while self.dial_in() {
            while self.pause(to_report, &mut unreported) {
                beat += 1;
                match self.client.heartbeat(beat, &unreported) {
                    Ok(answer) => {
                        unreported.clear();
                        self.tell(Event::Answered(answer));
                    }
                    Err(failure @ Failure::Refused(_)) => {
                        return self.tell(Event::Refused(failure));
                    }
                    Err(failure @ Failure::Unknown) => {
                        println!("host: heartbeat {beat}: {failure}; dialling in again");
                        break;
                    }
                    Err(failure) => println!("host: heartbeat {beat}: {failure}"),
                }
            }
        }
    }

    /// Dials in, with growing pauses, until it is heard (true) or refused.
    fn dial_in(&self) -> bool {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.client.dial_in(&self.name, &self.surroundings) {
                Ok(answer) => {
                    println!("host: dialled in");
                    self.tell(Event::Answered(answer));
                    return true;
                }
                Err(failure @ Failure::Refused(_)) => {
                    self.tell(Event::Refused(failure));
                    return false;
                }
                Err(failure) => println!("host: dial-in: {failure}; again in {pause:?}"),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the next beat; an order that is done makes it come at once.
    fn pause(&self, to_report: &Receiver<Done>, unreported: &mut Vec<Done>) -> bool {
        match to_report.recv_timeout(self.heartbeat) {
            Ok(done) => {
                unreported.push(done);
                unreported.extend(to_report.try_iter());
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    fn tell(&self, event: Event) {
        // Fails only when the listener has ended, and the process with it.
        let _ = self.events.send(event);
    }
}
