//! `podcradle render`, and `launch --dry-run`: the objects of a launch without
//! the launch, and what the API server would say to them.

use podcradle_launcher::SandboxSpec;
use podcradle_launcher::lifecycle::{self, Answer};
use podcradle_launcher::manifest::{self, Tree};
use podcradle_launcher::spec::Problems;
use serde_json::Value;

use super::args::{DryRun, Global, Output, Wanted};
use super::exit::Failed;
use super::say::say;
use super::spec::specs_of;
use super::{connect, output, timeout};

/// Renders every sandbox that is wanted, or has the API server look at it.
pub async fn render(global: &Global, wanted: &Wanted, by: DryRun) -> Result<(), Failed> {
    let mut trees = Vec::new();
    for named in specs_of(global, wanted)? {
        check(&named.spec)?;
        trees.push(Tree::of(&named.spec).map_err(|problems| refused(&problems))?);
    }
    if by == DryRun::Client {
        let objects: Vec<_> = trees.iter().flat_map(Tree::shown).collect();
        return print(global.output, &objects);
    }
    say("without owners, whose uids the API server gives");
    let launcher = connect(global)?;
    let mut accepted = Vec::new();
    let mut failed: Option<Failed> = None;
    for tree in trees {
        let time = timeout(global);
        let asked = launcher
            .ask(move |cluster| async move { Ok(lifecycle::dry_run(cluster, tree, time).await) });
        for answer in asked.await? {
            let refusal = match answer {
                Answer::Accepted(object) => {
                    accepted.push(object);
                    continue;
                }
                Answer::Refused(error) => Failed::from(error),
                Answer::Changed(failure) => Failed::of(*failure),
            };
            // A launch ends at the first.
            failed = Some(match failed {
                Some(first) => Failed::and(first, refusal),
                None => refusal,
            });
        }
    }
    match (global.output, failed) {
        (_, Some(failed)) => Err(failed),
        (Output::Table | Output::Wide, None) => {
            output::print(&names(&accepted, " accepted (server dry run)"))
        }
        (format, None) => print(format, &accepted),
    }
}

/// Refuses, before anything is made, what no object can be made of, and names
/// what an overlay weakens where that is allowed.
pub fn check(spec: &SandboxSpec) -> Result<(), Failed> {
    manifest::check(spec).map_err(|problems| refused(&problems))?;
    for weakening in manifest::weakenings(spec).map_err(|problems| refused(&problems))? {
        say(&format!("allowed by allowUnsafeOverlay: {weakening}"));
    }
    Ok(())
}

fn refused(problems: &Problems) -> Failed {
    Failed::input(problems.to_string())
}

/// Objects are for programs: a table of them would say little.
fn print(format: Output, objects: &[Value]) -> Result<(), Failed> {
    match format {
        Output::Name => output::print(&names(objects, "")),
        Output::Json => output::json(&serde_json::json!({
            "apiVersion": "v1", "kind": "List", "items": objects,
        })),
        Output::Table | Output::Wide | Output::Yaml => {
            let mut text = String::new();
            for object in objects {
                text.push_str("---\n");
                text.push_str(&output::yaml(object)?);
            }
            output::print(&text)
        }
    }
}

fn names(objects: &[Value], what: &str) -> String {
    objects.iter().fold(String::new(), |text, object| {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{text}{kind}/{name}{what}\n")
    })
}
