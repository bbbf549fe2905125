//! `podcradle launch`.

use std::collections::BTreeMap;
use std::path::Path;

use podcradle_launcher::spec::{Problem, Problems, Repo, passthrough};
use podcradle_launcher::token::Token;
use podcradle_launcher::{Failure, LaunchEvent, Launched, Outcome, SandboxSpec, name};
use serde_json::json;

use super::args::{Global, Launch, Output};
use super::exit::{self, Failed};
use super::{connect, output, signals};

pub async fn launch(global: &Global, args: Launch) -> Result<(), Failed> {
    let spec = spec_of(global, &args)?;
    // Before the first call and before any file is written.
    spec.validate()
        .map_err(|problems| Failed::problems(&problems.to_string()))?;
    let launcher = connect(global)?;
    let mut signals =
        signals::listen().map_err(|error| Failed::unexpected(format!("signals: {error}")))?;
    let token = token_of(&args)?;
    let mut launching = launcher
        .launch(spec, token)
        .map_err(|problems| Failed::problems(&problems.to_string()))?;
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
            if let Some(path) = &args.token_out {
                // A token that no sandbox has is of no use to anybody.
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
        LaunchEvent::GateRemoved => eprintln!("podcradle: gate removed"),
        LaunchEvent::Waiting { why, .. } => eprintln!("podcradle: waiting: {why}"),
        LaunchEvent::Ready => eprintln!("podcradle: host runs"),
    }
}

fn print_launched(launched: &Launched, format: Output) -> Result<(), Failed> {
    match format {
        Output::Json => output::json(launched),
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
    if format == Output::Json {
        output::json(&json!({ "error": failure }))?;
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

/// The token, made or read; `--token-out` is written before the server could
/// meet a host that has it.
fn token_of(args: &Launch) -> Result<Token, Failed> {
    let input = |error: podcradle_launcher::token::TokenError| Failed::input(error.to_string());
    if let Some(path) = &args.token_file {
        return if path == Path::new("-") {
            Token::read("standard input", std::io::stdin()).map_err(input)
        } else {
            Token::read_file(path).map_err(input)
        };
    }
    let token = Token::random();
    if let Some(path) = &args.token_out {
        token.write_file(path).map_err(input)?;
    }
    Ok(token)
}

fn spec_of(global: &Global, args: &Launch) -> Result<SandboxSpec, Failed> {
    let sandbox = match (&args.sandbox, &args.name) {
        (Some(exact), _) => exact.clone(),
        (None, label) => {
            let label = label.as_deref().unwrap_or("sandbox");
            name::check_rfc1123_label(label, name::MAX_LABEL)
                .map_err(|rule| Failed::input(format!("--name {label:?}: {rule}")))?;
            name::generate(label)
        }
    };
    let mut spec = SandboxSpec::new(sandbox, &args.image);
    let set = |field: &mut String, value: &Option<String>| {
        if let Some(value) = value {
            field.clone_from(value);
        }
    };
    set(&mut spec.launch_id, &args.launch_id);
    set(&mut spec.init_dir, &args.init_dir);
    set(&mut spec.host_id, &args.host_id);
    set(&mut spec.host_name, &args.host_name);
    set(&mut spec.env_prefix, &args.env_prefix);
    set(&mut spec.service_account, &args.service_account);
    set(&mut spec.resources.cpu_request, &args.cpu_request);
    set(&mut spec.resources.memory_request, &args.memory_request);
    set(&mut spec.resources.cpu_limit, &args.cpu_limit);
    set(&mut spec.resources.memory_limit, &args.memory_limit);
    spec.prep_image.clone_from(&args.prep_image);
    spec.image_pull_policy.clone_from(&args.image_pull_policy);
    spec.server.clone_from(&args.server);
    spec.credentials_secret.clone_from(&args.credentials_secret);
    spec.host.clone_from(&args.host);
    spec.node_selector = args.node_selector.iter().cloned().collect();
    spec.keep_on_failure = args.keep_on_failure;
    if let Some(ttl) = args.ttl {
        spec.ttl = ttl.0;
    }
    if let Some(lifetime) = args.max_lifetime {
        spec.max_lifetime = lifetime;
    }
    if let Some(total) = global.timeout {
        spec.budgets.total = total;
    }
    spec.repo = args.repo.as_ref().map(|url| Repo {
        url: url.clone(),
        branch: args.branch.clone(),
        dir: args.repo_dir.clone().unwrap_or_else(|| dir_of(url)),
    });
    spec.env = environment(&args.env, &spec.env_prefix)?;
    Ok(spec)
}

fn environment(names: &[String], prefix: &str) -> Result<BTreeMap<String, String>, Failed> {
    let mut env = BTreeMap::new();
    let mut problems: Vec<Problem> = Vec::new();
    for name in names {
        let value = std::env::var_os(name).map(std::ffi::OsString::into_string);
        match value {
            Some(Err(_)) => problems.push(Problem {
                field: "env".to_owned(),
                value: name.clone(),
                rule: "its value is not UTF-8 text".to_owned(),
            }),
            value => {
                match passthrough(name, value.as_ref().and_then(|v| v.as_deref().ok()), prefix) {
                    Ok(()) => {
                        env.insert(name.clone(), value.and_then(Result::ok).unwrap_or_default());
                    }
                    Err(problem) => problems.push(problem),
                }
            }
        }
    }
    if problems.is_empty() {
        Ok(env)
    } else {
        Err(Failed::problems(&Problems(problems).to_string()))
    }
}

/// The directory git would choose: the URL's last part without `.git`.
fn dir_of(url: &str) -> String {
    let last = url
        .trim_end_matches('/')
        .rsplit(['/', ':'])
        .next()
        .unwrap_or_default();
    last.strip_suffix(".git").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clones_directory_is_the_one_git_would_choose() {
        for (url, dir) in [
            ("https://git.example/team/repo.git", "repo"),
            ("https://git.example/team/repo/", "repo"),
            ("git@git.example:repo", "repo"),
        ] {
            assert_eq!(dir_of(url), dir);
        }
    }
}
