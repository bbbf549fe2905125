//! `podcradle reserve`, `list`, `status` and `delete`.

use podcradle_launcher::lifecycle::{Deleted, Session};
use podcradle_launcher::name;
use serde_json::json;

use super::args::{Delete, Global, Output, Reserve};
use super::exit::{self, Failed};
use super::{connect, output, timeout};

pub fn reserve(args: &Reserve, format: Output) -> Result<(), Failed> {
    name::check_rfc1123_label(&args.label, name::MAX_LABEL)
        .map_err(|rule| Failed::input(format!("label {:?}: {rule}", args.label)))?;
    let sandbox = name::generate(&args.label);
    let launch_id = name::random_hex(8);
    match format {
        Output::Json | Output::Yaml => output::data(
            format,
            &json!({ "sandbox": sandbox, "launchId": launch_id }),
        ),
        Output::Name => output::print(&format!("{sandbox}\n")),
        Output::Table | Output::Wide => output::print(&output::table(
            &["SANDBOX", "LAUNCH ID"],
            &[vec![sandbox, launch_id]],
        )),
    }
}

pub async fn list(global: &Global) -> Result<(), Failed> {
    let sessions = connect(global)?.list(timeout(global)).await?;
    match global.output {
        Output::Json | Output::Yaml => output::data(global.output, &sessions),
        Output::Name => {
            let names: Vec<_> = sessions.iter().map(|s| s.sandbox.as_str()).collect();
            let names = names
                .iter()
                .fold(String::new(), |text, name| text + name + "\n");
            output::print(&names)
        }
        Output::Table | Output::Wide => {
            let wide = global.output == Output::Wide;
            let rows: Vec<_> = sessions.iter().map(|one| row(one, wide)).collect();
            output::print(&output::table(&COLUMNS[..if wide { 10 } else { 6 }], &rows))
        }
    }
}

/// Of a list; a narrow one has the first six.
const COLUMNS: [&str; 10] = [
    "SANDBOX",
    "SESSION",
    "STATE",
    "AGE",
    "EXPIRES IN",
    "IMAGE",
    "NODE",
    "OWNER",
    "POD UID",
    "LAUNCH ID",
];

fn row(session: &Session, wide: bool) -> Vec<String> {
    let mut cells = vec![
        session.sandbox.clone(),
        shared(session).unwrap_or_else(|| "-".to_owned()),
        session.state.clone(),
        output::distance(session.created.as_deref()),
        output::until(session.expires.as_deref()),
        session.image.clone().unwrap_or_else(|| "-".to_owned()),
    ];
    if wide {
        let more = [
            &session.node,
            &session.owner,
            &session.pod_uid,
            &session.launch_id,
        ];
        cells.extend(more.map(|cell| cell.clone().unwrap_or_else(|| "-".to_owned())));
    }
    cells
}

/// The session, when it is a shared one.
fn shared(session: &Session) -> Option<String> {
    (session.session != session.sandbox).then(|| session.session.clone())
}

pub async fn status(global: &Global, name: &str) -> Result<(), Failed> {
    check_name("sandbox", name)?;
    let launcher = connect(global)?;
    let Some(session) = launcher.status(name, timeout(global)).await? else {
        return Err(Failed::new(exit::NAME, no_such(name, launcher.namespace())));
    };
    match global.output {
        Output::Json | Output::Yaml => output::data(global.output, &session),
        Output::Name => output::print(&format!("{}\n", session.sandbox)),
        Output::Table | Output::Wide => output::print(&details(&session)),
    }
}

fn details(session: &Session) -> String {
    let dash = || "-".to_owned();
    let host = session.host.as_ref().map_or_else(dash, |host| {
        let code = host
            .exit_code
            .map_or_else(String::new, |code| format!(", exit code {code}"));
        format!("{}{code}", host.state)
    });
    let report = session
        .report
        .as_ref()
        .map_or_else(dash, podcradle_launcher::report::Report::summary);
    let rows = [
        ("sandbox", session.sandbox.clone()),
        ("session", shared(session).unwrap_or_else(dash)),
        ("namespace", session.namespace.clone()),
        ("state", session.state.clone()),
        ("why", session.why.clone().unwrap_or_else(dash)),
        ("host", host),
        ("report", report),
        ("image", session.image.clone().unwrap_or_else(dash)),
        ("workspace", session.workspace.clone().unwrap_or_else(dash)),
        ("node", session.node.clone().unwrap_or_else(dash)),
        ("created", session.created.clone().unwrap_or_else(dash)),
        ("owner", session.owner.clone().unwrap_or_else(dash)),
        (
            "expires",
            session
                .expires
                .clone()
                .unwrap_or_else(|| "never".to_owned()),
        ),
    ];
    rows.iter().fold(String::new(), |text, (key, value)| {
        format!("{text}{key:10} {value}\n")
    })
}

pub async fn delete(global: &Global, args: &Delete) -> Result<(), Failed> {
    for name in &args.names {
        check_name("sandbox", name)?;
    }
    let launcher = connect(global)?;
    each(&args.names, async |name| {
        match launcher.delete(name, timeout(global)).await? {
            Deleted::NotOurs => Err(not_ours(name)),
            Deleted::OtherKind => Err(Failed::new(
                exit::NAME,
                format!("{name} is a shared session: podcradle session delete {name}"),
            )),
            Deleted::WasGone if !args.ignore_not_found => {
                Err(Failed::new(exit::NAME, no_such(name, launcher.namespace())))
            }
            done => say_deleted(name, done, global.output),
        }
    })
    .await
}

/// Does it to all of them: one that cannot be deleted does not keep the others.
pub async fn each(
    names: &[String],
    delete: impl AsyncFn(&str) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut failed: Option<Failed> = None;
    for name in names {
        if let Err(error) = delete(name).await
            && let Some(earlier) = failed.replace(error)
        {
            let _ = earlier.report();
        }
    }
    failed.map_or(Ok(()), Err)
}

pub fn not_ours(name: &str) -> Failed {
    let line = format!("service {name} was not made by podcradle; it was left alone");
    Failed::new(exit::NAME, line)
}

pub fn say_deleted(name: &str, done: Deleted, format: Output) -> Result<(), Failed> {
    match format {
        Output::Json | Output::Yaml => {
            output::data(format, &json!({ "sandbox": name, "deleted": done }))
        }
        Output::Name => output::print(&format!("{name}\n")),
        _ if done == Deleted::Gone => output::print(&format!("{name} deleted\n")),
        Output::Table | Output::Wide => output::print(&format!("{name} was gone already\n")),
    }
}

pub fn check_name(what: &str, name: &str) -> Result<(), Failed> {
    name::check_rfc1035_label(name, name::MAX_NAME)
        .map_err(|rule| Failed::input(format!("{what} {name:?}: {rule}")))
}

fn no_such(name: &str, namespace: &str) -> String {
    format!(
        "sandbox {name} does not exist in namespace {namespace}; see: podcradle list (and for shared sessions podcradle session list)"
    )
}
