//! From the command line, the environment and files to [`SandboxSpec`]s.

use std::collections::BTreeSet;
use std::sync::Arc;

use podcradle_launcher::spec::resolve::{Merged, merge};
use podcradle_launcher::spec::{Layer, Problem, Problems, file};
use podcradle_launcher::{SandboxSpec, name};

use super::args::{Global, Wanted};
use super::exit::Failed;

/// A sandbox that is wanted.
#[derive(Debug, Clone)]
pub struct Named {
    /// What it is to be; valid.
    pub spec: SandboxSpec,
    /// Its name was generated here.
    pub generated: bool,
    /// Its launch id was given: an earlier launch may have had it.
    pub again: bool,
    /// Who set what.
    pub merged: Arc<Merged>,
}

/// The sandboxes that are wanted, each valid: one a document of `--file`, or
/// one without it.
///
/// # Errors
/// Everything that is wrong with all of them.
pub fn specs_of(global: &Global, wanted: &Wanted) -> Result<Vec<Named>, Failed> {
    super::config::warn_of_misspelt(global);
    let label = wanted.name.as_deref().unwrap_or("sandbox");
    let mut problems = Vec::new();
    if let Err(rule) = name::check_rfc1123_label(label, name::MAX_LABEL) {
        problems.push(Problem::new("--name", label, rule));
    }
    let mut specs = Vec::new();
    let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let documents = merged(global, wanted).unwrap_or_else(|found| {
        problems.extend(found.0);
        Vec::new()
    });
    if documents.is_empty() {
        // The file cannot be read; what is over it can. An image may be in it.
        let over = merge(
            &flags(global, wanted),
            &global.environment,
            &[&global.config],
        );
        let found = over.finish(label, &global.environment).err();
        let found = found.into_iter().flat_map(|found| found.0);
        problems.extend(found.filter(|problem| problem.field != "image"));
    }
    for merged in documents {
        let given = |path: &str| merged.value(path).is_some_and(|value| value != "");
        let (generated, again) = (!given("sandbox"), given("launchId"));
        match merged.finish(label, &global.environment) {
            Ok(mut spec) => {
                while generated && names.contains(&spec.sandbox) {
                    spec.sandbox = name::generate(label);
                }
                for (field, taken, value) in [
                    ("sandbox", &mut names, &spec.sandbox),
                    ("launchId", &mut ids, &spec.launch_id),
                ] {
                    if !taken.insert(value.clone()) {
                        let rule = "is that of another sandbox of this launch too";
                        problems.push(Problem::new(field, value, rule));
                    }
                }
                specs.push(Named {
                    spec,
                    generated,
                    again,
                    merged: Arc::new(merged),
                });
            }
            // The label is named once.
            Err(found) => {
                let more = found
                    .0
                    .into_iter()
                    .filter(|p| !(generated && p.field == "sandbox"));
                problems.extend(more);
            }
        }
    }
    global.and(Problems::of(problems).map(|()| specs))
}

/// The layers of each sandbox that is wanted, put together.
///
/// # Errors
/// The spec file cannot be read.
pub fn merged(global: &Global, wanted: &Wanted) -> Result<Vec<Merged>, Problems> {
    let flags = flags(global, wanted);
    let documents = match &wanted.file {
        Some(path) => file::read(path)?,
        None => vec![Layer::default()],
    };
    let merged = documents
        .iter()
        .map(|document| merge(&flags, &global.environment, &[document, &global.config]));
    Ok(merged.collect())
}

/// All flags that set fields of a spec.
fn flags(global: &Global, wanted: &Wanted) -> Layer {
    let mut flags = global.flags.clone();
    flags
        .settings
        .extend(wanted.fields.0.settings.iter().cloned());
    flags
        .problems
        .extend(wanted.fields.0.problems.iter().cloned());
    flags
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use clap::Parser as _;
    use podcradle_launcher::spec::environment::Environment;

    use super::super::args::{Cli, Command};
    use super::*;

    fn specs(args: &[&str], file: &str) -> Result<Vec<Named>, String> {
        let mut spec = tempfile::NamedTempFile::new().unwrap();
        spec.write_all(file.as_bytes()).unwrap();
        let path = spec.path().to_str().unwrap();
        let all = [&["podcradle", "launch", "-f", path], args].concat();
        let cli = Cli::try_parse_from(all).unwrap();
        let global = Global::of(&cli.global, Environment::default());
        let Command::Launch(launch) = cli.command else {
            panic!("another verb");
        };
        specs_of(&global, &launch.wanted).map_err(|failed| {
            // What people read: programs get the same once more as data.
            let all = format!("{failed:?}");
            let lines = all.split("], failure:").next();
            lines.unwrap_or_default().to_owned()
        })
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let mut config = tempfile::NamedTempFile::new().unwrap();
        config
            .write_all(b"namespce: a\nsandbox: {grace: long}\n")
            .unwrap();
        let config = config.path().to_str().unwrap();
        let told = |args: &[&str], variables: &[(&str, &str)]| {
            let all = [&["podcradle", "launch", "--image", "a"], args].concat();
            let cli = Cli::try_parse_from(all).unwrap();
            let global = Global::of(&cli.global, variables.iter().copied().collect());
            let Command::Launch(launch) = cli.command else {
                panic!("another verb");
            };
            let failed = specs_of(&global, &launch.wanted).unwrap_err();
            let all = format!("{failed:?}");
            all.split("], failure:")
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let flags = ["--timeout", "soon", "--cpu-limit", "lots", "-o", "xml"];
        let all = [&flags[..], &["--in-cluster", "perhaps"]].concat();
        let of_flags = [
            "--timeout \\\"soon\\\": must be a time",
            "--cpu-limit \\\"lots\\\": ",
            "--output \\\"xml\\\": must be one of table",
            "--in-cluster \\\"perhaps\\\": must be one of auto",
        ];
        let variables = [
            ("PODCRADLE_TIMEOUT", "soon"),
            ("PODCRADLE_CPU_LIMIT", "lots"),
        ];
        let of_variables = ["PODCRADLE_TIMEOUT", "PODCRADLE_CPU_LIMIT"];
        let file = ["--config", config, "--memory-limit", "much"];
        let of_file = ["did you mean namespace", "sandbox.grace", "--memory-limit"];
        let unread = ["-f", "/nowhere", "--memory-limit", "much"];
        let of_unread = ["/nowhere", "--memory-limit"];
        for (told, expected) in [
            (told(&all, &[]), &of_flags[..]),
            (told(&[], &variables), &of_variables),
            (told(&file, &[]), &of_file),
            (told(&unread, &[]), &of_unread),
        ] {
            for problem in expected {
                assert_eq!(told.matches(problem).count(), 1, "{problem}: {told}");
            }
            assert_eq!(told.split("\", \"").count(), expected.len(), "{told}");
        }
    }

    #[test]
    fn each_document_is_a_sandbox_under_the_flags() {
        let file = "{image: a, sandbox: mine}\n---\n- {ttl: 1h}\n- {launchId: x}\n";
        let found = specs(&["--image", "b", "--name", "many"], file).unwrap();
        let images: Vec<_> = found.iter().map(|one| one.spec.image.as_str()).collect();
        assert_eq!(images, ["b", "b", "b"]);
        let told: Vec<_> = found.iter().map(|one| (one.generated, one.again)).collect();
        assert_eq!(told, [(false, false), (true, false), (true, true)]);
        assert!(found[1].spec.sandbox.starts_with("podcradle-many-"));
        assert_ne!(found[1].spec.sandbox, found[2].spec.sandbox);
    }

    #[test]
    fn no_two_sandboxes_have_one_name_or_one_launch_id() {
        let error = specs(&["--sandbox", "mine"], "[{image: a}, {image: b}]").unwrap_err();
        assert!(
            error.contains("sandbox \\\"mine\\\": is that of another"),
            "{error}"
        );
        let error = specs(&["--launch-id", "x"], "[{image: a}, {image: b}]").unwrap_err();
        assert!(
            error.contains("launchId \\\"x\\\": is that of another"),
            "{error}"
        );
    }

    #[test]
    fn what_is_wrong_with_an_overlay_comes_with_all_other_problems() {
        let file = "\
            [{image: a, overlay: {spec: {hostPID: true, hostIpc: true}}},\n\
            {image: A, overlay: {metadata: {name: x}}},\n\
            {image: a, host: [HUGE]}]"
            .replace("HUGE", &"x".repeat(20_000));
        let error = specs(&["--grace", "29"], &file).unwrap_err();
        for (start, rule) in [
            ("[0]: overlay.spec.hostIpc", "did you mean hostIPC?"),
            ("[1]: image", "must be an image reference"),
            ("[1]: overlay.metadata.name", "must be"),
            ("[2]: spec", "must be at most"),
            ("--grace", "grace 29"),
        ] {
            let lines = error.split("\", \"");
            let mut found = lines.filter(|line| line.contains(start) && line.contains(rule));
            assert!(found.next().is_some(), "{start}: {error}");
        }
        let bad = r#"{"spec": {"hostPID": true}}"#;
        let error = specs(&["--overlay", bad], "{image: a}").unwrap_err();
        assert!(error.contains("--overlay: overlay.spec.hostPID"), "{error}");
    }

    #[test]
    fn a_label_that_is_wrong_is_named_once() {
        let error = specs(&["--name", "a_b"], "[{image: a}, {image: b}]").unwrap_err();
        assert_eq!(error.matches("a_b").count(), 1, "{error}");
    }
}
