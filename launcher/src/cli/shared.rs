//! `podcradle session create`, `list` and `delete`.

use podcradle_launcher::lifecycle::{Deleted, SharedSession};
use podcradle_launcher::spec::resolve::merge;
use podcradle_launcher::spec::{Problem, Problems};
use podcradle_launcher::{SessionSpec, name};
use serde_json::json;

use super::args::{Delete, Global, Output, Session, SessionCreate};
use super::exit::{self, Failed};
use super::say::say;
use super::{config, connect, output, results, sessions, signals, timeout};

pub async fn session(global: &Global, command: Session) -> Result<(), Failed> {
    match command {
        Session::Create(args) => {
            let created = create(global, &args).await;
            created.map_err(|failed| failed.with_data(global.output))
        }
        Session::List => list(global).await,
        Session::Delete(args) => delete(global, &args).await,
    }
}

async fn create(global: &Global, args: &SessionCreate) -> Result<(), Failed> {
    config::warn_of_misspelt(global);
    let spec = global.and(spec_of(global, args))?;
    let launcher = connect(global)?;
    let mut signals =
        signals::listen().map_err(|error| Failed::unexpected(format!("signals: {error}")))?;
    let time = timeout(global);
    let creating = async {
        match args.session {
            Some(_) => launcher.create_session(spec, time).await,
            None => launcher.create_session_generated(spec, time).await,
        }
    };
    let mut creating = Box::pin(creating);
    let (created, signal) = tokio::select! {
        biased;
        created = &mut creating => (created, None),
        Some(signal) = signals.recv() => {
            say("deleting what was made; once more to quit at once");
            let ((), created) = tokio::join!(launcher.shutdown(), creating);
            (created, Some(signal))
        }
    };
    let session = match created {
        Ok(session) => session,
        Err(failure) => return results::failed(&failure, global.output, signal),
    };
    let printed = match global.output {
        Output::Json | Output::Yaml => output::data(global.output, &session),
        Output::Name => output::print(&format!("{}\n", session.session)),
        Output::Table | Output::Wide => {
            let row = vec![session.session.clone(), lives_until(&session)];
            output::print(&output::table(&["SESSION", "EXPIRES"], &[row]))
        }
    };
    printed.map_err(|failed| {
        let SharedSession {
            session, namespace, ..
        } = &session;
        let line = format!(
            "session {session} was created and stays; delete it with: podcradle -n {namespace} session delete {session}"
        );
        failed.and(Failed::unexpected(line))
    })
}

fn spec_of(global: &Global, args: &SessionCreate) -> Result<SessionSpec, Problems> {
    let label = args.name.as_deref().unwrap_or("session");
    let wrong = match args.session {
        Some(_) => None,
        None => name::check_rfc1123_label(label, name::MAX_LABEL).err(),
    };
    let mut flags = global.flags.clone();
    flags
        .settings
        .extend(args.fields.0.settings.iter().cloned());
    flags
        .problems
        .extend(args.fields.0.problems.iter().cloned());
    let merged = merge(&flags, &global.environment, &[&global.config]);
    let session = args.session.clone();
    let made = merged.finish_session(session.unwrap_or_else(|| name::generate(label)));
    let Some(rule) = wrong else {
        return made;
    };
    // The label is named once.
    let mut problems = vec![Problem::new("--name", label, rule)];
    let more = made.err().into_iter().flat_map(|found| found.0);
    problems.extend(more.filter(|problem| problem.field != "session"));
    Err(Problems(problems))
}

fn lives_until(session: &SharedSession) -> String {
    session.owner.as_ref().map_or_else(
        || output::until(session.expires.as_deref()),
        |owner| format!("with {owner}"),
    )
}

async fn list(global: &Global) -> Result<(), Failed> {
    let sessions = connect(global)?.sessions(timeout(global)).await?;
    match global.output {
        Output::Json | Output::Yaml => output::data(global.output, &sessions),
        Output::Name => {
            let names = sessions.iter().fold(String::new(), |text, session| {
                text + &session.session + "\n"
            });
            output::print(&names)
        }
        Output::Table | Output::Wide => {
            let rows: Vec<_> = sessions.iter().map(row).collect();
            output::print(&output::table(
                &["SESSION", "STATE", "SANDBOXES", "AGE", "EXPIRES"],
                &rows,
            ))
        }
    }
}

fn row(session: &SharedSession) -> Vec<String> {
    vec![
        session.session.clone(),
        session.state.to_owned(),
        session.sandboxes.to_string(),
        output::distance(Some(&session.created)),
        lives_until(session),
    ]
}

async fn delete(global: &Global, args: &Delete) -> Result<(), Failed> {
    for name in &args.names {
        sessions::check_name("session", name)?;
    }
    let launcher = connect(global)?;
    sessions::each(&args.names, async |name| {
        match launcher.delete_session(name, timeout(global)).await? {
            Deleted::NotOurs => Err(sessions::not_ours(name)),
            Deleted::OtherKind => Err(Failed::new(
                exit::NAME,
                format!("{name} is the own session of a sandbox: podcradle delete {name}"),
            )),
            Deleted::WasGone if !args.ignore_not_found => {
                let namespace = launcher.namespace();
                Err(Failed::new(
                    exit::NAME,
                    format!("session {name} does not exist in namespace {namespace}; see: podcradle session list"),
                ))
            }
            done => say_deleted(name, done, global.output),
        }
    })
    .await
}

fn say_deleted(name: &str, done: Deleted, format: Output) -> Result<(), Failed> {
    match format {
        Output::Json | Output::Yaml => {
            output::data(format, &json!({ "session": name, "deleted": done }))
        }
        _ => sessions::say_deleted(name, done, format),
    }
}
