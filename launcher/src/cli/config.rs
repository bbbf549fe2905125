//! `podcradle config`: what a launch would want, and where each value comes
//! from. Of variables that are passed through only the names.

use podcradle_launcher::manifest;
use podcradle_launcher::spec::fields::{FIELDS, Field, Form, variable};
use podcradle_launcher::spec::resolve::Merged;
use podcradle_launcher::spec::{Origin, Problems, redact_url};
use serde_json::{Map, Value, json};

use super::args::{Global, InCluster, Output, Wanted};
use super::exit::Failed;
use super::output;
use super::say::say;
use super::spec::merged;

/// One value: its key, what it is, who set it.
type Row = (String, Value, Origin);

/// Names the variables that look like one of ours and are none.
pub fn warn_of_misspelt(global: &Global) {
    let known: Vec<_> = FIELDS
        .iter()
        .filter_map(Field::variable)
        .chain(
            [
                "namespace",
                "context",
                "kubeconfig",
                "in-cluster",
                "output",
                "config",
            ]
            .map(variable),
        )
        .collect();
    for (name, near) in global.environment.misspelt(&known) {
        say(&format!(
            "{name} is no variable of podcradle; did you mean {near}?"
        ));
    }
}

pub fn config(global: &Global, wanted: &Wanted) -> Result<(), Failed> {
    warn_of_misspelt(global);
    let sandboxes = match merged(global, wanted) {
        Ok(sandboxes) => sandboxes,
        found => return global.and(found).map(drop),
    };
    let head = global_rows(global);
    let rows: Vec<_> = sandboxes.iter().map(sandbox_rows).collect();
    if let format @ (Output::Json | Output::Yaml) = global.output {
        let one = |rows: &[Row]| -> Value {
            let rows = rows.iter().map(|(key, value, origin)| {
                (key.clone(), json!({ "value": value, "from": origin }))
            });
            rows.collect::<Map<_, _>>().into()
        };
        let all: Vec<_> = rows.iter().map(|rows| one(rows)).collect();
        output::data(format, &json!({ "global": one(&head), "sandboxes": all }))?;
    } else {
        let tables = rows.iter().map(|rows| {
            let rows: Vec<_> = head.iter().chain(rows).map(cells).collect();
            output::table(&["FIELD", "VALUE", "FROM"], &rows)
        });
        output::print(&tables.collect::<Vec<_>>().join("\n"))?;
    }
    let problems = sandboxes
        .into_iter()
        .flat_map(|merged| merged.problems)
        .collect();
    global.and(Problems::of(problems))
}

fn cells((key, value, origin): &Row) -> Vec<String> {
    let value = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    vec![key.clone(), value, origin.to_string()]
}

fn global_rows(global: &Global) -> Vec<Row> {
    ["namespace", "context", "kubeconfig", "in-cluster", "output"]
        .into_iter()
        .map(|key| {
            let found = global.origins.iter().find(|(known, ..)| *known == key);
            let found = found.map(|(_, text, origin)| (text.clone(), origin.clone()));
            let found = found.or_else(|| kubectls(global).filter(|_| key == "kubeconfig"));
            let (value, origin) = found.unzip();
            let value = value.map_or(Value::Null, Value::from);
            (key.to_owned(), value, origin.unwrap_or(Origin::Default))
        })
        .collect()
}

/// The variable that names kubectl's configuration counts when nothing of ours
/// says where the cluster is.
fn kubectls(global: &Global) -> Option<(String, Origin)> {
    const NAME: &str = "KUBECONFIG";
    let text = global.environment.text(NAME).ok().flatten()?;
    let counts = global.in_cluster != InCluster::Always;
    counts.then(|| (text.to_owned(), Origin::Variable(NAME.to_owned())))
}

fn sandbox_rows(merged: &Merged) -> Vec<Row> {
    let row = |path: &str| {
        let mut value = merged.value(path).cloned().unwrap_or_default();
        match (path, &mut value) {
            ("repo.url" | "server", Value::String(url)) => *url = redact_url(url),
            // What it allows has a row of its own.
            ("networkPolicy", policy @ Value::Object(_)) => *policy = true.into(),
            ("overlay", overlay) => manifest::forget_values(overlay),
            _ => {}
        }
        vec![(path.to_owned(), value, merged.origin(path).clone())]
    };
    let members = |path: &str, form: Form| {
        let members = merged.value(path).and_then(Value::as_object);
        let rows = members.into_iter().flatten().map(|(key, value)| {
            let path = format!("{path}.{key}");
            let origin = merged.origin(&path).clone();
            match form {
                // Who wrote NAME=VALUE, which a launch refuses, is not shown the value.
                Form::Names => {
                    let name = path.split('=').next().unwrap_or_default();
                    (name.to_owned(), "(passed through)".into(), origin)
                }
                _ => (path, value.clone(), origin),
            }
        });
        rows.collect()
    };
    FIELDS
        .iter()
        .flat_map(|field| match field.form {
            Form::Names | Form::Pairs => members(field.path, field.form),
            _ => row(field.path),
        })
        .chain(row("host"))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use podcradle_launcher::spec::environment::Environment;

    use super::super::args::{Cli, Command};
    use super::*;

    fn rows(args: &[&str], variables: &[(&str, &str)]) -> Vec<Row> {
        let all = ["podcradle", "config"].iter().chain(args);
        let cli = Cli::try_parse_from(all).unwrap();
        let environment: Environment = variables.iter().copied().collect();
        let global = Global::of(&cli.global, environment);
        let Command::Config(wanted) = cli.command else {
            panic!("another verb");
        };
        let merged = merged(&global, &wanted).unwrap();
        global_rows(&global)
            .into_iter()
            .chain(sandbox_rows(&merged[0]))
            .collect()
    }

    fn row(rows: &[Row], key: &str) -> Vec<String> {
        cells(rows.iter().find(|(known, ..)| known == key).unwrap())
    }

    #[test]
    fn each_value_says_where_it_came_from() {
        let variables = [
            ("PODCRADLE_NAMESPACE", "agents"),
            ("PODCRADLE_PROFILE", "omnigent"),
        ];
        let flags = ["--timeout", "90s", "--egress", "::/0"];
        let flags = [&flags[..], &["--memory-limit", "512Mi"]].concat();
        let rows = rows(&flags, &variables);
        for (key, value, from) in [
            ("namespace", "agents", "variable PODCRADLE_NAMESPACE"),
            ("profile", "omnigent", "variable PODCRADLE_PROFILE"),
            ("budgets.total", "1m30s", "--timeout"),
            ("networkPolicy.egress", r#"["::/0"]"#, "--egress"),
            ("home", "/home/omnigent", "profile omnigent"),
            ("grace", "20", "default"),
            (
                "resources.memoryRequest",
                "512Mi",
                "default, lowered to the limit",
            ),
            ("owner", "-", "default"),
            ("networkPolicy", "true", "--egress"),
            ("kubeconfig", "-", "default"),
        ] {
            assert_eq!(row(&rows, key), [key, value, from]);
        }
    }

    #[test]
    fn every_field_has_its_row() {
        let rows = rows(&[], &[]);
        let lists = [Form::Names, Form::Pairs];
        for field in FIELDS.iter().filter(|field| !lists.contains(&field.form)) {
            assert_eq!(row(&rows, field.path)[2], "default", "{}", field.path);
        }
    }

    #[test]
    fn the_variable_that_kubectl_goes_by_is_shown_where_it_counts() {
        let of_kubectl = [("KUBECONFIG", "/a:/b")];
        let from = |args: &[&str]| row(&rows(args, &of_kubectl), "kubeconfig")[1..].to_owned();
        assert_eq!(from(&[]), ["/a:/b", "variable KUBECONFIG"]);
        assert_eq!(from(&["--kubeconfig", "/c"]), ["/c", "--kubeconfig"]);
        assert_eq!(from(&["--in-cluster", "always"]), ["-", "default"]);
    }

    #[test]
    fn neither_passed_values_nor_credentials_are_shown() {
        let variables = [("COLOUR", "ultramarine")];
        let url = "https://user:hunter2@git.example/x";
        let overlay = r#"{"spec": {"containers": [{"name": "host",
            "env": [{"name": "A", "value": "hunter2"}]}]}}"#;
        let given = ["--env", "COLOUR", "--env", "API_KEY=hunter2"];
        let more = ["--repo", url, "--overlay", overlay];
        let rows = rows(&[given, more].concat(), &variables);
        assert_eq!(row(&rows, "env.API_KEY")[2], "--env");
        assert_eq!(
            row(&rows, "env.COLOUR"),
            ["env.COLOUR", "(passed through)", "--env"]
        );
        let all = format!("{rows:?}");
        assert!(
            !all.contains("ultramarine") && !all.contains("hunter2"),
            "{all}"
        );
    }
}
