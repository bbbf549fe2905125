//! `podcradle launch`.

use std::path::Path;

use podcradle_launcher::token::Token;
use podcradle_launcher::{Failure, LaunchEvent, Launched, Outcome, Reason};
use serde_json::json;

use super::args::{Global, Launch, Output};
use super::exit::{self, Failed};
use super::{connect, output, render, signals, spec::specs_of};

pub async fn launch(global: &Global, args: Launch) -> Result<(), Failed> {
    if let Some(by) = args.dry_run {
        return render::render(global, &args.wanted, by).await;
    }
    // Valid before the first call and before any file is written.
    let mut specs = specs_of(global, &args.wanted)?;
    let (Some(named), true) = (specs.pop(), specs.is_empty()) else {
        return Err(Failed::input(
            "--file: many sandboxes at once are not launched yet",
        ));
    };
    render::check_overlay(&named.spec)?;
    let launcher = connect(global)?;
    let mut signals =
        signals::listen().map_err(|error| Failed::unexpected(format!("signals: {error}")))?;
    let (token, written) = token_of(&args, named.again)?;
    let begun = if named.generated {
        launcher.launch_generated(named.spec, token)
    } else {
        launcher.launch(named.spec, token)
    };
    let mut launching = begun.map_err(|problems| Failed::problems(&problems.to_string()))?;
    let mut events = launching.events();
    let mut signal = None;
    let outcome = loop {
        tokio::select! {
            outcome = &mut launching => break outcome,
            Some(number) = signals.recv(), if signal.is_none() => {
                signal = Some(number);
                eprintln!("podcradle: deleting what was made; once more to quit at once");
                launching.cancel();
            }
            Some(event) = next(&mut events) => say(&event),
        }
    };
    drain(&mut events);
    match outcome {
        Outcome::Launched(launched) => print_launched(&launched, global.output),
        Outcome::Failed(failure) => {
            // A token that no sandbox has is of no use to anybody.
            if let Some(path) = args.token_out.filter(|_| written && forgets(&failure)) {
                let _ = std::fs::remove_file(path);
            }
            Err(print_failure(&failure, global.output, signal)?)
        }
    }
}

async fn next(
    events: &mut Option<tokio::sync::mpsc::UnboundedReceiver<LaunchEvent>>,
) -> Option<LaunchEvent> {
    match events {
        Some(events) => events.recv().await,
        None => None,
    }
}

fn drain(events: &mut Option<tokio::sync::mpsc::UnboundedReceiver<LaunchEvent>>) {
    while let Some(event) = events.as_mut().and_then(|events| events.try_recv().ok()) {
        say(&event);
    }
}

fn say(event: &LaunchEvent) {
    match event {
        LaunchEvent::Created { kind, name } => eprintln!("podcradle: {kind} {name} created"),
        LaunchEvent::Adopted { name } => {
            eprintln!("podcradle: {name} was begun before with this launch id: going on");
        }
        LaunchEvent::GateRemoved => eprintln!("podcradle: gate removed"),
        LaunchEvent::Waiting { why, .. } => eprintln!("podcradle: waiting: {why}"),
        LaunchEvent::Ready => eprintln!("podcradle: host runs"),
    }
}

fn print_launched(launched: &Launched, format: Output) -> Result<(), Failed> {
    match format {
        Output::Json | Output::Yaml => output::data(format, launched),
        Output::Name => output::print(&format!("{}\n", launched.sandbox)),
        Output::Table => {
            let row = vec![
                launched.sandbox.clone(),
                launched.workspace.clone(),
                output::distance(launched.expires.as_deref()),
            ];
            output::print(&output::table(&["SANDBOX", "WORKSPACE", "EXPIRES"], &[row]))
        }
    }
}

fn print_failure(failure: &Failure, format: Output, signal: Option<i32>) -> Result<Failed, Failed> {
    if [Output::Json, Output::Yaml].contains(&format) {
        output::data(format, &json!({ "error": failure }))?;
    }
    for event in &failure.events {
        eprintln!("podcradle: event: {event}");
    }
    for line in failure.log.iter().flat_map(|log| log.lines()) {
        eprintln!("podcradle: log: {line}");
    }
    for left in &failure.left {
        eprintln!("podcradle: may be left behind: {left}");
    }
    let line = format!("{} ({})", failure.message, failure.hint);
    Ok(Failed::new(exit::of_failure(failure, signal), line))
}

/// Whether no sandbox has the token of this launch.
fn forgets(failure: &Failure) -> bool {
    failure.reason != Reason::TakenOver && failure.left.is_empty()
}

/// The token, made or read, and whether its file was written; that happens
/// before the server could meet a host that has it. With a launch id, a file
/// that is there is that of an earlier attempt at the same launch.
fn token_of(args: &Launch, again: bool) -> Result<(Token, bool), Failed> {
    let input = |error: podcradle_launcher::token::TokenError| Failed::input(error.to_string());
    if let Some(path) = &args.token_file {
        let token = if path == Path::new("-") {
            Token::read("standard input", std::io::stdin())
        } else {
            Token::read_file(path)
        };
        return Ok((token.map_err(input)?, false));
    }
    let Some(path) = &args.token_out else {
        return Ok((Token::untold(), false));
    };
    if again && path.is_file() {
        return Ok((Token::read_file(path).map_err(input)?, false));
    }
    let token = Token::random();
    token.write_file(path).map_err(input)?;
    Ok((token, true))
}
