//! `podcradle launch`: of one sandbox or of many, which differ in what is
//! printed at the end.

use std::collections::BTreeSet;

use podcradle_launcher::{Launches, Outcome, Owner, name};
use tokio::sync::mpsc;

use super::args::{Global, Launch};
use super::exit::Failed;
use super::progress::Progress;
use super::spec::{Named, specs_of};
use super::{attach, connect, render, results, signals, tokens::tokens};

pub async fn launch(global: &Global, args: Launch) -> Result<(), Failed> {
    let problems =
        |problems: podcradle_launcher::spec::Problems| Failed::problems(&problems.to_string());
    if let Some(by) = args.dry_run {
        return render::render(global, &args.wanted, by).await;
    }
    // Valid before the first call and before any file is written.
    let mut wanted = specs_of(global, &args.wanted)?;
    for named in &wanted {
        render::check_overlay(&named.spec)?;
    }
    let many = wanted.len() > 1 || args.count.is_some();
    if let Some(count) = args.count {
        wanted = copies(wanted, count)?;
    }
    if args.attach && wanted.len() > 1 {
        return Err(Failed::input(
            "--attach: this process can wait for the end of one sandbox, not of many",
        ));
    }
    let launcher = connect(global)?;
    let mut signals =
        signals::listen().map_err(|error| Failed::unexpected(format!("signals: {error}")))?;
    let owner = if args.attach {
        Some(launcher.attach().await?)
    } else {
        None
    };
    for named in &mut wanted {
        if let Some(owner) = &owner {
            named.spec.owner = Some(owner.name().to_owned());
        }
    }
    let (tokens, written) = tokens(&args, &wanted)?;
    let names: Vec<_> = wanted.iter().map(|n| n.spec.sandbox.clone()).collect();
    let orders = wanted
        .into_iter()
        .zip(tokens)
        .map(|(named, token)| (named.spec, token, named.generated))
        .collect();
    let concurrency = usize::from(args.concurrency);
    let launches = launcher
        .launch_many(orders, concurrency)
        .map_err(problems)?;
    let progress = Progress::new(args.progress, names.clone());
    let (outcomes, signal) = follow(launches, progress, &mut signals).await;
    for (which, (name, outcome)) in names.iter().zip(&outcomes).enumerate() {
        written.settle(which, name, outcome)?;
    }
    match (owner, outcomes.as_slice()) {
        (Some(owner), [Outcome::Launched(launched)]) => {
            results::launched(launched, global.output)?;
            attach::stay(&launcher, owner, launched, &mut signals).await
        }
        (owner, outcomes) => {
            if let Some(owner) = owner {
                give_up(owner, &launcher).await;
            }
            match outcomes {
                [one] if !many => results::one(one, global.output, signal),
                all => results::many(&names, all, global.output, signal),
            }
        }
    }
}

async fn give_up(owner: Owner, launcher: &podcradle_launcher::Launcher) {
    drop(owner);
    launcher.shutdown().await;
}

/// So many of each, under names of their own.
fn copies(wanted: Vec<Named>, count: u16) -> Result<Vec<Named>, Failed> {
    let mut all = Vec::new();
    let mut taken = BTreeSet::new();
    for named in wanted {
        if !named.generated || named.again {
            let (field, value) = if named.generated {
                ("launchId", &named.spec.launch_id)
            } else {
                ("sandbox", &named.spec.sandbox)
            };
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
/// order of the launch, and the signal that cut it short.
async fn follow(
    mut launches: Launches,
    mut progress: Progress,
    signals: &mut mpsc::UnboundedReceiver<i32>,
) -> (Vec<Outcome>, Option<i32>) {
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
    let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    (outcomes, signal)
}
