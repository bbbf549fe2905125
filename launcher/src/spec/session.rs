//! A shared session as its maker wants it: what sandboxes launched into it do
//! not have a say in.

use std::collections::BTreeMap;
use std::time::Duration;

use super::resolve::Merged;
use super::{NetworkPolicy, Origin, Problem, Problems, Profile, SandboxSpec, check, time};

/// One shared session. Make one with [`SessionSpec::new`] and change what
/// differs from the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSpec {
    /// Its name, and its anchor's.
    pub session: String,
    /// Whose labels.
    pub profile: Profile,
    /// More labels for anchor and policy; none of Podcradle's or Kubernetes' own.
    pub labels: BTreeMap<String, String>,
    /// When it expires, from its creation; `None` is never.
    pub ttl: Option<Duration>,
    /// Lease of the deployment that owns it, instead of a TTL.
    pub owner: Option<String>,
    /// The traffic its sandboxes may have; any when absent.
    pub network_policy: Option<NetworkPolicy>,
}

impl SessionSpec {
    /// With the defaults of a launch.
    pub fn new(session: impl Into<String>) -> Self {
        Self::of(session.into(), SandboxSpec::default())
    }

    /// What a sandbox's spec says of its session.
    pub(super) fn of(session: String, spec: SandboxSpec) -> Self {
        Self {
            session,
            profile: spec.profile,
            labels: spec.labels,
            ttl: spec.ttl,
            owner: spec.owner,
            network_policy: spec.network_policy,
        }
    }

    /// Checks the whole spec.
    ///
    /// # Errors
    /// Every problem there is, each with its path.
    pub fn validate(&self) -> Result<(), Problems> {
        check::session(self)
    }
}

impl Merged {
    /// A shared session, from those of these fields that are its own.
    ///
    /// # Errors
    /// As for [`Merged::finish`].
    pub fn finish_session(self, session: String) -> Result<SessionSpec, Problems> {
        let mut problems = self.problems.clone();
        let spec = self.spec();
        let spec = spec.map_err(|rule| Problems(vec![Problem::new("session", "", rule)]))?;
        self.owner_or_ttl(&spec, &mut problems);
        let spec = SessionSpec::of(session, spec);
        let found = spec.validate().err();
        for problem in found.into_iter().flat_map(|found| found.0) {
            problems.push(self.told(problem));
        }
        Problems::of(problems).map(|()| spec)
    }

    /// Whether `field` was asked for by whoever asked for `other`, or over them.
    fn is_asked_with(&self, field: &str, other: &str) -> bool {
        let (origin, other) = (self.origin(field), self.origin(other));
        match (origin, other) {
            (Origin::Flag(_), _) | (Origin::Variable(_), Origin::Variable(_)) => true,
            _ => origin == other && *origin != Origin::Default,
        }
    }

    pub(super) fn owner_or_ttl(&self, spec: &SandboxSpec, problems: &mut Vec<Problem>) {
        if let Some(name) = &spec.owner
            && self.is_asked_with("ttl", "owner")
        {
            let rule = "a session has an owner or a time to live, never both; give one of them";
            let field = self.origin("owner").field("owner", "owner");
            problems.push(Problem::new(field, name, rule));
        }
    }

    /// A shared session brings its own end. What stands below the one who asks
    /// for that session, as a default for others, is not meant; but that there
    /// is to be a policy is never passed over.
    pub(super) fn in_session(&self, spec: &mut SandboxSpec, problems: &mut Vec<Problem>) {
        if spec.session.is_none() {
            return;
        }
        if !self.is_asked_with("owner", "session") {
            spec.owner = None;
        }
        if self.is_asked_with("ttl", "session") {
            let ttl = spec.ttl.map_or("none".to_owned(), time::format);
            let rule = "is the session's, set by podcradle session create and moved by podcradle extend; a sandbox in it has none of its own";
            problems.push(Problem::new(self.named("ttl"), ttl, rule));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::environment::Environment;
    use super::super::resolve::merge;
    use super::super::{Layer, Setting};
    use super::*;

    /// What these flags, variables and configuration come to.
    fn merged(flags: &[(&str, Value)], variables: &[(&str, &str)], config: &Value) -> Merged {
        let mut layer = Layer::default();
        for (flag, value) in flags {
            let origin = Origin::Flag(format!("--{flag}"));
            layer
                .settings
                .push(Setting::new(flag, value.clone(), &origin));
        }
        let config = Layer::of_value(config, &Origin::Config("config".to_owned()));
        merge(&layer, &variables.iter().copied().collect(), &[&config])
    }

    fn sandbox(
        flags: &[(&str, Value)],
        variables: &[(&str, &str)],
        config: &Value,
    ) -> Result<SandboxSpec, String> {
        let merged = merged(flags, variables, config);
        let spec = merged.finish("sandbox", &Environment::default());
        spec.map_err(|problems| problems.to_string())
    }

    #[test]
    fn what_is_a_default_for_others_gives_way_to_the_session() {
        let config = json!({ "image": "i:1", "owner": "team-a" });
        let spec = sandbox(&[("session", json!("team"))], &[], &config).unwrap();
        assert_eq!((spec.session_name(), &spec.owner), ("team", &None));
        let config = json!({ "image": "i:1", "ttl": "1h" });
        let spec = sandbox(&[], &[("PODCRADLE_SESSION", "team")], &config).unwrap();
        assert_eq!(spec.session.as_deref(), Some("team"));
    }

    #[test]
    fn what_is_asked_for_beside_the_session_is_refused() {
        let image = json!({ "image": "i:1" });
        let of_variable = [("PODCRADLE_SESSION", "team")];
        for (flag, value) in [
            ("ttl", json!("1h")),
            ("ttl", json!("none")),
            ("owner", json!("o")),
        ] {
            let wrong = sandbox(&[(flag, value)], &of_variable, &image).unwrap_err();
            let named = wrong.starts_with(&format!("--{flag} "));
            assert!(
                named && wrong.contains("podcradle session create"),
                "{wrong}"
            );
        }
        let all = json!({ "image": "i:1", "session": "team", "owner": "o", "ttl": "1h" });
        let wrong = sandbox(&[], &[], &all).unwrap_err();
        for field in ["config: sandbox.owner", "config: sandbox.ttl"] {
            assert!(wrong.contains(field), "{wrong}");
        }
        // Never passed over, whoever wants it.
        let shut_in = json!({ "image": "i:1", "networkPolicy": { "egress": ["192.0.2.0/24"] } });
        let wrong = sandbox(&[("session", json!("team"))], &[], &shut_in).unwrap_err();
        assert!(wrong.contains("config: sandbox.networkPolicy"), "{wrong}");
    }

    #[test]
    fn a_session_takes_its_own_from_every_layer() {
        let config = json!({ "image": "I", "labels": { "team": "a" }, "ttl": "1h" });
        let variables = [("PODCRADLE_EGRESS", "192.0.2.0/24")];
        let all = merged(&[("owner", json!("o"))], &variables, &config);
        let spec = all.finish_session("team".to_owned()).unwrap();
        let policy = NetworkPolicy {
            egress: vec!["192.0.2.0/24".to_owned()],
        };
        assert_eq!(spec.network_policy, Some(policy));
        assert_eq!(spec.owner.as_deref(), Some("o"));
        assert_eq!(spec.labels["team"], "a");
        let both = [("owner", json!("o")), ("ttl", json!("1h"))];
        let wrong = merged(&both, &[], &config).finish_session("T".to_owned());
        let wrong = wrong.unwrap_err().to_string();
        assert!(
            wrong.contains("never both") && wrong.contains("session \"T\""),
            "{wrong}"
        );
    }
}
