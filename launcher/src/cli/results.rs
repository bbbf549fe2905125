//! What launches came to, printed: one sandbox as it is, many as a table or an
//! array in the order they were asked for.

use podcradle_launcher::{Failure, Launched, Outcome};
use serde_json::{Value, json};

use super::args::Output;
use super::exit::{self, Failed};
use super::output;
use super::say::{self, say};

/// The result of a launch of one.
pub fn one(outcome: &Outcome, format: Output, signal: Option<i32>) -> Result<(), Failed> {
    match outcome {
        Outcome::Launched(done) => {
            launched(done, format).map_err(|failed| untold(&[done.as_ref()], failed))
        }
        Outcome::Failed(failure) => failed(failure, format, signal),
    }
}

/// Stdout took no result, and nobody else knows what these are called.
fn untold(launched: &[&Launched], failed: Failed) -> Failed {
    launched.iter().fold(failed, |failed, launched| {
        let (name, namespace) = (&launched.sandbox, &launched.namespace);
        failed.and(Failed::unexpected(format!(
            "{name} was launched and stays; delete it with: podcradle -n {namespace} delete {name}"
        )))
    })
}

/// That there is none, and why.
pub fn failed(failure: &Failure, format: Output, signal: Option<i32>) -> Result<(), Failed> {
    let printed = match format {
        Output::Json | Output::Yaml => output::data(format, &json!({ "error": failure })),
        _ => Ok(()),
    };
    evidence(failure, "");
    let line = format!("{} ({})", failure.message, failure.hint);
    let told = Failed::told(exit::of_failure(failure, signal), line);
    Err(match printed {
        Ok(()) => told,
        Err(unprinted) => told.and(unprinted),
    })
}

/// Says of what was launched before, by another spec, that it is as it was.
pub fn as_before(outcomes: &[Outcome]) {
    for outcome in outcomes {
        let Outcome::Launched(launched) = outcome else {
            continue;
        };
        if !launched.differs.is_empty() {
            let (name, differs) = (&launched.sandbox, launched.differs.join(", "));
            say(&format!(
                "{name} was launched before with this launch id and stays as it is: this launch asks for another {differs}; delete it to launch it anew"
            ));
        }
    }
}

/// A sandbox that was launched.
pub fn launched(launched: &Launched, format: Output) -> Result<(), Failed> {
    match format {
        Output::Json | Output::Yaml => output::data(format, launched),
        Output::Name => output::print(&format!("{}\n", launched.sandbox)),
        Output::Table | Output::Wide => {
            let mut row = vec![
                launched.sandbox.clone(),
                launched.workspace.clone(),
                lives_until(launched),
            ];
            let mut heading = vec!["SANDBOX", "WORKSPACE", "EXPIRES"];
            if format == Output::Wide {
                heading.extend(WIDE);
                row.extend(wide(launched));
            }
            output::print(&output::table(&heading, &[row]))
        }
    }
}

/// What a wide table says more of a sandbox that was launched.
const WIDE: [&str; 3] = ["HOST ID", "POD UID", "LAUNCH ID"];

fn wide(launched: &Launched) -> [String; 3] {
    [&launched.host_id, &launched.pod_uid, &launched.launch_id].map(Clone::clone)
}

fn lives_until(launched: &Launched) -> String {
    launched.owner.clone().map_or_else(
        || output::until(launched.expires.as_deref()),
        |owner| format!("with {owner}"),
    )
}

/// The results of a launch of many.
pub fn many(outcomes: &[Outcome], format: Output, signal: Option<i32>) -> Result<(), Failed> {
    let mut codes = Vec::new();
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Launched(done) => {
                codes.push(0);
                let mut row = vec![
                    done.sandbox.clone(),
                    "launched".to_owned(),
                    lives_until(done),
                ];
                if format == Output::Wide {
                    row.extend(wide(done));
                }
                rows.push(row);
                values.push(json!(done));
            }
            Outcome::Failed(failure) => {
                let name = &failure.sandbox;
                codes.push(exit::of_failure(failure, signal));
                rows.push(vec![
                    name.clone(),
                    failure.reason.to_string(),
                    "-".to_owned(),
                ]);
                values.push(json!({ "sandbox": name, "error": failure }));
                evidence(failure, &format!("{name}: "));
                if !say::is_json() {
                    say::error(&format!("{name}: {} ({})", failure.message, failure.hint));
                }
            }
        }
    }
    let printed = match format {
        Output::Json | Output::Yaml => output::data(format, &Value::Array(values)),
        Output::Name => {
            let launched = rows.iter().filter(|row| row[1] == "launched");
            let names = launched.fold(String::new(), |text, row| text + &row[0] + "\n");
            output::print(&names)
        }
        Output::Table | Output::Wide => {
            let mut heading = vec!["SANDBOX", "RESULT", "EXPIRES"];
            if format == Output::Wide {
                heading.extend(WIDE);
            }
            output::print(&output::table(&heading, &rows))
        }
    };
    printed.map_err(|failed| {
        let launched = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Launched(done) => Some(done.as_ref()),
            Outcome::Failed(_) => None,
        });
        untold(&launched.collect::<Vec<_>>(), failed)
    })?;
    let failed = codes.iter().filter(|code| **code != 0).count();
    match exit::of_many(&codes, signal) {
        0 => Ok(()),
        code => Err(Failed::told(
            code,
            format!("{failed} of {} sandboxes were not launched", codes.len()),
        )),
    }
}

/// For people; programs have had all of it with the event.
fn evidence(failure: &Failure, whose: &str) {
    if say::is_json() {
        return;
    }
    for event in &failure.events {
        say(&format!("{whose}event: {event}"));
    }
    for line in failure.log.iter().flat_map(|log| log.lines()) {
        say(&format!("{whose}log: {line}"));
    }
    for unread in &failure.unread {
        say(&format!("{whose}could not be read: {unread}"));
    }
    for left in &failure.left {
        say(&format!("{whose}may be left behind: {left}"));
    }
}
