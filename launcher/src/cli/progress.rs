//! What launches go through, on stderr: one live line a sandbox on a terminal,
//! plain lines otherwise, or JSON, one object a line.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use podcradle_launcher::{LaunchEvent, Outcome};
use serde_json::{Value, json};

use super::say::{self, printable, say};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Live lines on a terminal, plain ones elsewhere
    Auto,
    /// A line for each step
    Plain,
    /// A JSON object a line, of all that is said there
    Json,
    /// Nothing
    None,
}

/// How often a live line's clock moves.
const TICK: Duration = Duration::from_millis(250);

/// Where progress goes.
pub struct Progress {
    names: Vec<String>,
    how: How,
}

enum How {
    Silent,
    Plain,
    Json,
    Live(MultiProgress, HashMap<usize, ProgressBar>),
}

impl Progress {
    /// For the sandboxes of these names, in the order of the launch.
    pub fn new(form: Form, names: Vec<String>) -> Self {
        let how = match form {
            Form::None => How::Silent,
            Form::Json => How::Json,
            Form::Auto if std::io::stderr().is_terminal() => {
                How::Live(MultiProgress::new(), HashMap::new())
            }
            Form::Auto | Form::Plain => How::Plain,
        };
        Self { names, how }
    }

    /// One of them has come a step further.
    pub fn say(&mut self, which: usize, event: &LaunchEvent) {
        // A generated name that was taken has got another suffix.
        if let LaunchEvent::Created {
            kind: "service",
            name,
        } = event
            && let Some(known) = self.names.get_mut(which)
        {
            known.clone_from(name);
        }
        match &mut self.how {
            How::Silent => {}
            How::Json => self.json(which, fields(event)),
            How::Plain => self.line(which, &text(event)),
            How::Live(all, lines) => {
                let name = self.names.get(which).cloned().unwrap_or_default();
                let line = lines.entry(which).or_insert_with(|| live_line(all));
                line.set_prefix(name);
                line.set_message(printable(&text(event)).into_owned());
            }
        }
    }

    /// One of them is done, well or not.
    pub fn done(&mut self, which: usize, outcome: &Outcome) {
        let (word, reason) = match outcome {
            Outcome::Launched(launched) => {
                if let Some(name) = self.names.get_mut(which) {
                    name.clone_from(&launched.sandbox);
                }
                ("launched", None)
            }
            Outcome::Failed(failure) => {
                if let Some(name) = self.names.get_mut(which) {
                    name.clone_from(&failure.sandbox);
                }
                ("failed", Some(failure.reason))
            }
        };
        match &mut self.how {
            How::Json => {
                let mut event = match outcome {
                    Outcome::Launched(_) => json!({}),
                    // All of it: nothing is said of it later.
                    Outcome::Failed(failure) => json!(failure),
                };
                event["event"] = word.into();
                self.json(which, event);
            }
            How::Live(_, lines) => {
                if let Some(line) = lines.remove(&which) {
                    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                    line.finish_with_message(format!("{word}{reason}"));
                }
            }
            // What it came to is said by the result.
            How::Silent | How::Plain => {}
        }
    }

    /// Says something that is not of one of them.
    pub fn note(&self, line: &str) {
        match &self.how {
            How::Live(all, _) => {
                let _ = all.println(format!("podcradle: {}", printable(line)));
            }
            _ => say(line),
        }
    }

    /// Returns when the live lines are to be drawn again; never without any.
    pub async fn tick(&self) {
        match &self.how {
            How::Live(..) => tokio::time::sleep(TICK).await,
            _ => std::future::pending().await,
        }
    }

    /// Draws the live lines again.
    pub fn draw(&self) {
        if let How::Live(_, lines) = &self.how {
            lines.values().for_each(ProgressBar::tick);
        }
    }

    fn line(&self, which: usize, text: &str) {
        let name = self.names.get(which).filter(|_| self.names.len() > 1);
        let name = name.map_or_else(String::new, |name| format!("{name}: "));
        say(&format!("{name}{text}"));
    }

    fn json(&self, which: usize, mut event: Value) {
        event["sandbox"] = json!(self.names.get(which));
        say::object(event);
    }
}

fn live_line(all: &MultiProgress) -> ProgressBar {
    let line = all.add(ProgressBar::new_spinner());
    // The template is a constant that the unit test draws.
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        line.set_style(style);
    }
    line
}

const TEMPLATE: &str = "{spinner} {prefix} [{elapsed}] {wide_msg}";

fn text(event: &LaunchEvent) -> String {
    match event {
        LaunchEvent::Created { kind, name } => format!("{kind} {name} created"),
        LaunchEvent::Adopted { name, .. } => {
            format!("{name} was begun before with this launch id: going on")
        }
        LaunchEvent::GateRemoved => "gate removed".to_owned(),
        LaunchEvent::Waiting { why, .. } => format!("waiting: {why}"),
        LaunchEvent::Ready => "host runs".to_owned(),
        other => format!("{other:?}"),
    }
}

fn fields(event: &LaunchEvent) -> Value {
    match event {
        LaunchEvent::Created { kind, name } => {
            json!({ "event": "created", "kind": kind, "name": name })
        }
        LaunchEvent::Adopted { name, differs } => {
            let mut event = json!({ "event": "adopted", "name": name });
            if !differs.is_empty() {
                event["differs"] = json!(differs);
            }
            event
        }
        LaunchEvent::GateRemoved => json!({ "event": "gateRemoved" }),
        LaunchEvent::Waiting { stage, why } => {
            let stage = format!("{stage:?}").to_lowercase();
            json!({ "event": "waiting", "stage": stage, "why": why })
        }
        LaunchEvent::Ready => json!({ "event": "ready" }),
        other => json!({ "event": format!("{other:?}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_of_a_live_line_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
