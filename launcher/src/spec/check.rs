//! Validation: every rule a spec must meet, each with one line that names the
//! field, the value and what would be right. One file for each kind of field.

mod affinity;
mod host;
mod images;
mod names;
mod network;
mod paths;
mod place;
mod repo;
mod resources;
mod times;

use std::fmt;

use k8s_openapi::api::core::v1::{Affinity, TopologySpreadConstraint};

use super::{Problem, Problems, SandboxSpec, SessionSpec};
use crate::manifest;
use crate::name::NameError;

pub use host::passthrough;
pub use repo::redact_url;

#[derive(Default)]
struct Checks(Vec<Problem>);

impl Checks {
    fn refuse(&mut self, field: &str, value: impl fmt::Display, rule: impl fmt::Display) {
        self.0.push(Problem::new(field, value, rule));
    }

    fn name(&mut self, field: &str, value: &str, checked: Result<(), NameError>) {
        if let Err(error) = checked {
            self.refuse(field, value, error);
        }
    }

    fn require(&mut self, right: bool, field: &str, value: impl fmt::Display, rule: &str) {
        if !right {
            self.refuse(field, value, rule);
        }
    }
}

/// What the API server would refuse of where an overlay wants the Pod.
pub(crate) fn placement(
    at: &str,
    affinity: Option<&Affinity>,
    spread: &[TopologySpreadConstraint],
) -> Vec<Problem> {
    let mut checks = Checks::default();
    if let Some(affinity) = affinity {
        affinity::check(&format!("{at}.affinity"), affinity, &mut checks);
    }
    for (index, one) in spread.iter().enumerate() {
        let at = format!("{at}.topologySpreadConstraints[{index}]");
        affinity::spread(&at, one, &mut checks);
    }
    checks.0
}

pub(super) fn all(spec: &SandboxSpec) -> Result<(), Problems> {
    let mut checks = Checks::default();
    names::check(spec, &mut checks);
    images::check(spec, &mut checks);
    place::check(spec, &mut checks);
    paths::check(spec, &mut checks);
    host::check(spec, &mut checks);
    if let Some(repo) = &spec.repo {
        repo::check(repo, &mut checks);
    }
    resources::check(spec, &mut checks);
    times::check(spec, &mut checks);
    network::check(spec, &mut checks);
    // What only the finished Pod and record show.
    let made = manifest::check(spec).err();
    checks.0.extend(made.into_iter().flat_map(|found| found.0));
    Problems::of(checks.0)
}

pub(super) fn session(spec: &SessionSpec) -> Result<(), Problems> {
    let mut checks = Checks::default();
    names::session(spec, &mut checks);
    if let Some(ttl) = spec.ttl {
        times::ttl(ttl, &mut checks);
    }
    if let Some(policy) = &spec.network_policy {
        network::ranges(policy, &mut checks);
    }
    Problems::of(checks.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with an example after a change of it.
    pub fn problems(change: impl FnOnce(&mut SandboxSpec)) -> Vec<String> {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "localhost/podcradle/sandbox:dev");
        change(&mut spec);
        let found = spec.validate().err().map_or_else(Vec::new, |p| p.0);
        found.iter().map(ToString::to_string).collect()
    }

    /// That a change leads to one problem, which names the field and the rule.
    #[track_caller]
    pub fn refused(field: &str, rule: &str, change: impl FnOnce(&mut SandboxSpec)) {
        let found = problems(change);
        assert!(
            found.len() == 1 && found[0].starts_with(field) && found[0].contains(rule),
            "not one problem of {field} with {rule:?}: {found:#?}"
        );
    }

    #[test]
    fn the_defaults_of_each_profile_are_valid() {
        assert_eq!(problems(|_| ()), Vec::<String>::new());
        let omnigent = SandboxSpec {
            sandbox: "a".into(),
            launch_id: "b".into(),
            image: "c".into(),
            ..SandboxSpec::of_profile(crate::spec::Profile::Omnigent)
        };
        assert_eq!(omnigent.validate(), Ok(()));
    }

    #[test]
    fn all_problems_are_reported_at_once_with_field_value_and_rule() {
        let found = problems(|s| {
            s.sandbox = "9a".into();
            s.resources.memory_limit = "4GiB".into();
            s.grace = 29;
        });
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].starts_with("sandbox \"9a\": must start with a letter"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("resources.memoryLimit \"4GiB\": must be a quantity"),
            "{found:?}"
        );
        assert!(found[2].contains("grace 29 + drain 5 + 2"), "{found:?}");
    }
}
