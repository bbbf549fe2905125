//! `podcradle launch`: of one sandbox or of many, which differ in what is
//! printed at the end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use podcradle_launcher::spec::Problems;
use podcradle_launcher::token::Token;
use podcradle_launcher::{Launcher, Launches, Outcome, Owner, manifest, name};
use tokio::sync::mpsc;

use super::args::{Global, Launch};
use super::exit::Failed;
use super::progress::Progress;
use super::spec::{Named, specs_of};
use super::tokens::{Written, tokens};
use super::{attach, connect, render, results, signals};

pub async fn launch(global: &Global, args: Launch) -> Result<(), Failed> {
    if let Some(by) = args.dry_run {
        check_dry_run(&args)?;
        return render::render(global, &args.wanted, by).await;
    }
    check_stdin(&args)?;
    // Valid before the first call and before any file is written.
    let mut wanted = specs_of(global, &args.wanted)?;
    if args.attach {
        let [one] = wanted.as_mut_slice() else {
            return Err(Failed::input(
                "--attach: this process can wait for the end of one sandbox, not of many",
            ));
        };
        if let Some(session) = &one.spec.session {
            return Err(Failed::input(format!(
                "--attach: a sandbox in session {session} lives as long as that, not as this process; leave one of them out"
            )));
        }
        // Part of what is checked next, the record's size included.
        one.spec.owner = Some(name::of_process());
    }
    for named in &wanted {
        render::check(&named.spec)?;
    }
    let many = wanted.len() > 1 || args.count.is_some();
    if let Some(count) = args.count {
        wanted = copies(wanted, count)?;
    }
    let launcher = connect(global)?;
    // While a token is read, Ctrl-C still ends the process.
    let (tokens, written) = tokens(&args, &wanted)?;
    // One that was made for a launch is in no spec.
    if args.token_file.is_some() || args.token_out.is_some() {
        check_tokens(&wanted, &tokens).inspect_err(|_| written.forget())?;
    }
    let asked = Asked {
        args: &args,
        many,
        wanted,
        tokens,
        written: &written,
    };
    let mut owner = None;
    let done = Box::pin(carry_out(&launcher, &mut owner, global, asked)).await;
    // On every way out: what is attached, and what is still under way, goes.
    drop(owner);
    launcher.shutdown().await;
    done
}

/// The fields that hold a token, each as whoever set it knows it.
fn check_tokens(wanted: &[Named], tokens: &[Token]) -> Result<(), Failed> {
    let mut found = Vec::new();
    for (named, token) in wanted.iter().zip(tokens) {
        let checked = manifest::check_token(&named.spec, token);
        let problems = checked.err().into_iter().flat_map(|problems| problems.0);
        found.extend(problems.map(|problem| named.merged.told(problem)));
    }
    Problems::of(found).map_err(|problems| Failed::input(problems.to_string()))
}

/// There is one of it, and it ends once.
fn check_stdin(args: &Launch) -> Result<(), Failed> {
    let is_stdin = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if is_stdin(&args.wanted.file) && is_stdin(&args.token_file) {
        return Err(Failed::input(
            "--file -, --token-file -: both want standard input; give one of them a file's name",
        ));
    }
    Ok(())
}

/// Nothing is launched, so there is nothing for these to be about.
fn check_dry_run(args: &Launch) -> Result<(), Failed> {
    let given = [
        ("--count", args.count.is_some()),
        ("--attach", args.attach),
        ("--token-out", args.token_out.is_some()),
        ("--token-file", args.token_file.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failed::input(format!(
            "{flag}: has no meaning with --dry-run, which launches nothing; leave it out"
        ))),
        None => Ok(()),
    }
}

/// Launches that are valid and have their tokens.
struct Asked<'a> {
    args: &'a Launch,
    many: bool,
    wanted: Vec<Named>,
    tokens: Vec<Token>,
    written: &'a Written,
}

async fn carry_out(
    launcher: &Launcher,
    owner: &mut Option<Owner>,
    global: &Global,
    mut asked: Asked<'_>,
) -> Result<(), Failed> {
    let names: Vec<_> = asked
        .wanted
        .iter()
        .map(|n| n.spec.sandbox.clone())
        .collect();
    // How an attached host ends is told without it.
    let token = asked.tokens.first().cloned();
    let begun = begin(launcher, owner, &mut asked).await;
    let (launches, mut signals) = begun.inspect_err(|_| asked.written.forget())?;
    let progress = Progress::new(asked.args.progress, names.clone());
    let (outcomes, signal) = follow(launches, progress, &mut signals).await;
    let mut settled = Ok(());
    for (which, outcome) in &outcomes {
        let done = asked.written.settle(*which, &names[*which], outcome);
        settled = settled.and(done);
    }
    let outcomes: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    results::as_before(&outcomes);
    match (owner, outcomes.as_slice()) {
        (Some(owner), [Outcome::Launched(launched)]) => {
            let said = settled.and_then(|()| results::launched(launched, global.output));
            match said {
                Ok(()) => {
                    let redact = |text: &str| match &token {
                        Some(token) => token.redact(text),
                        None => text.to_owned(),
                    };
                    let until = attach::Until {
                        owner,
                        signal,
                        signals: &mut signals,
                    };
                    attach::stay(launcher, launched, until, redact).await
                }
                Err(failed) => attach::end(launcher, launched).await.and(Err(failed)),
            }
        }
        (_, [one]) if !asked.many => results::one(one, global.output, signal).and(settled),
        (_, all) => results::many(all, global.output, signal).and(settled),
    }
}

/// Listens to signals, makes the Lease of an attached launch, and begins.
async fn begin(
    launcher: &Launcher,
    owner: &mut Option<Owner>,
    asked: &mut Asked<'_>,
) -> Result<(Launches, mpsc::UnboundedReceiver<i32>), Failed> {
    let signals =
        signals::listen().map_err(|error| Failed::unexpected(format!("signals: {error}")))?;
    let lease = asked.wanted.first().and_then(|n| n.spec.owner.as_deref());
    if let Some(lease) = lease.filter(|_| asked.args.attach) {
        *owner = Some(launcher.attach(lease).await?);
    }
    let orders = std::mem::take(&mut asked.wanted)
        .into_iter()
        .zip(std::mem::take(&mut asked.tokens))
        .map(|(named, token)| (named.spec, token, named.generated))
        .collect();
    let launches = launcher
        .launch_many(orders, usize::from(asked.args.concurrency))
        .map_err(|problems| Failed::input(problems.to_string()))?;
    Ok((launches, signals))
}

/// So many of each, under names of their own.
fn copies(wanted: Vec<Named>, count: u16) -> Result<Vec<Named>, Failed> {
    let mut all = Vec::new();
    let mut taken = BTreeSet::new();
    for named in wanted {
        let spec = &named.spec;
        let given = [
            ("sandbox", &spec.sandbox, !named.generated),
            ("launchId", &spec.launch_id, named.again),
            ("hostId", &spec.host_id, !spec.host_id.is_empty()),
            ("hostName", &spec.host_name, !spec.host_name.is_empty()),
        ];
        if let Some((field, value, _)) = given.iter().find(|(.., given)| *given) {
            return Err(Failed::input(format!(
                "--count {count}: {field} {value:?} is for one sandbox only; --name gives generated names their label"
            )));
        }
        for _ in 0..count {
            let mut copy = named.clone();
            while !taken.insert(copy.spec.sandbox.clone()) {
                if let Some(another) = name::another(&copy.spec.sandbox) {
                    copy.spec.sandbox = another;
                }
            }
            copy.spec.launch_id = name::random_hex(8);
            all.push(copy);
        }
    }
    Ok(all)
}

/// Shows what they go through until the last has ended; the outcomes in the
/// order of the launch, with their places, and the signal that cut it short.
async fn follow(
    mut launches: Launches,
    mut progress: Progress,
    signals: &mut mpsc::UnboundedReceiver<i32>,
) -> (Vec<(usize, Outcome)>, Option<i32>) {
    let mut events = launches.events();
    let mut signal = None;
    let mut outcomes = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(number) = signals.recv(), if signal.is_none() => {
                signal = Some(number);
                progress.note("deleting what was made; once more to quit at once");
                launches.cancel();
            }
            // What led to an outcome is said before it.
            Some((which, event)) = async {
                match &mut events {
                    Some(events) => events.recv().await,
                    None => None,
                }
            } => progress.say(which, &event),
            outcome = launches.next() => match outcome {
                Some((which, outcome)) => {
                    progress.done(which, &outcome);
                    outcomes.push((which, outcome));
                }
                None => break,
            },
            () = progress.tick() => progress.draw(),
        }
    }
    outcomes.sort_by_key(|(which, _)| *which);
    (outcomes, signal)
}
