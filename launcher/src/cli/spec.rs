//! From the command line, the environment and files to [`SandboxSpec`]s.

use std::collections::BTreeSet;

use podcradle_launcher::spec::resolve::{Merged, merge};
use podcradle_launcher::spec::{Layer, Problem, Problems, file};
use podcradle_launcher::{SandboxSpec, name};

use super::args::{Global, Wanted};
use super::exit::Failed;

/// A sandbox that is wanted.
#[derive(Clone)]
pub struct Named {
    /// What it is to be; valid.
    pub spec: SandboxSpec,
    /// Its name was generated here.
    pub generated: bool,
    /// Its launch id was given: an earlier launch may have had it.
    pub again: bool,
}

/// The sandboxes that are wanted, each valid: one a document of `--file`, or
/// one without it.
///
/// # Errors
/// Everything that is wrong with all of them.
pub fn specs_of(global: &Global, wanted: &Wanted) -> Result<Vec<Named>, Failed> {
    let label = wanted.name.as_deref().unwrap_or("sandbox");
    let mut problems = Vec::new();
    if let Err(rule) = name::check_rfc1123_label(label, name::MAX_LABEL) {
        problems.push(Problem::new("--name", label, rule));
    }
    let mut specs = Vec::new();
    let mut names = BTreeSet::new();
    for merged in merged(global, wanted)? {
        let given = |path: &str| merged.value(path).is_some_and(|value| value != "");
        let (generated, again) = (!given("sandbox"), given("launchId"));
        match merged.finish(label, &global.environment) {
            Ok(spec) if names.insert(spec.sandbox.clone()) => specs.push(Named {
                spec,
                generated,
                again,
            }),
            Ok(spec) => problems.push(Problem::new(
                "sandbox",
                spec.sandbox,
                "is the name of another sandbox of this launch too",
            )),
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
    Problems::of(problems)
        .map(|()| specs)
        .map_err(|problems| Failed::problems(&problems.to_string()))
}

/// The layers of each sandbox that is wanted, put together.
///
/// # Errors
/// The spec file cannot be read.
pub fn merged(global: &Global, wanted: &Wanted) -> Result<Vec<Merged>, Failed> {
    let mut flags = global.flags.clone();
    flags
        .settings
        .extend(wanted.fields.0.settings.iter().cloned());
    flags
        .problems
        .extend(wanted.fields.0.problems.iter().cloned());
    let documents = match &wanted.file {
        Some(path) => {
            file::read(path).map_err(|problems| Failed::problems(&problems.to_string()))?
        }
        None => vec![Layer::default()],
    };
    let merged = documents
        .iter()
        .map(|document| merge(&flags, &global.environment, &[document, &global.config]));
    Ok(merged.collect())
}
