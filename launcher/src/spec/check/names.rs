//! Names, each by the form that Kubernetes uses for its kind, and labels.

use std::collections::BTreeMap;

use super::Checks;
use crate::name;
use crate::spec::{Profile, SandboxSpec, SessionSpec};

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    let sandbox = name::check_rfc1035_label(&spec.sandbox, name::MAX_NAME);
    c.name("sandbox", &spec.sandbox, sandbox);
    let launch_id = name::check_rfc1123_label(&spec.launch_id, 63);
    c.name("launchId", &spec.launch_id, launch_id);
    let named = [
        ("serviceAccount", Some(&spec.service_account)),
        ("credentialsSecret", spec.credentials_secret.as_ref()),
        ("owner", spec.owner.as_ref()),
        ("runtimeClass", spec.runtime_class.as_ref()),
        ("priorityClass", spec.priority_class.as_ref()),
    ];
    for (field, value) in named {
        if let Some(value) = value {
            c.name(field, value, name::check_rfc1123_subdomain(value));
        }
    }
    for (index, secret) in spec.image_pull_secrets.iter().enumerate() {
        let field = format!("imagePullSecrets[{index}]");
        c.name(&field, secret, name::check_rfc1123_subdomain(secret));
    }
    if let Some(session) = &spec.session {
        of_session(spec, session, c);
    }
    labels(&spec.labels, spec.profile, c);
    for (key, value) in &spec.node_selector {
        label(c, "nodeSelector", key, value);
    }
}

/// What a sandbox in a shared session leaves to that.
fn of_session(spec: &SandboxSpec, session: &str, c: &mut Checks) {
    let name = name::check_rfc1035_label(session, name::MAX_NAME);
    c.name("session", session, name);
    let rule = "must be another name than the session's, which its anchor has";
    c.require(session != spec.sandbox, "sandbox", &spec.sandbox, rule);
    let rule =
        "is the session's, set by podcradle session create; a sandbox in it has none of its own";
    if let Some(owner) = &spec.owner {
        c.refuse("owner", owner, rule);
    }
    if spec.network_policy.is_some() {
        c.refuse("networkPolicy", "", rule);
    }
}

pub fn session(spec: &SessionSpec, c: &mut Checks) {
    let name = name::check_rfc1035_label(&spec.session, name::MAX_NAME);
    c.name("session", &spec.session, name);
    if let Some(owner) = &spec.owner {
        c.name("owner", owner, name::check_rfc1123_subdomain(owner));
    }
    labels(&spec.labels, spec.profile, c);
}

fn labels(labels: &BTreeMap<String, String>, profile: Profile, c: &mut Checks) {
    for (key, value) in labels {
        label(c, "labels", key, value);
        let rule = "is a label that podcradle or Kubernetes sets";
        c.require(
            !reserved(key, profile),
            &format!("labels.{key}"),
            value,
            rule,
        );
    }
}

fn label(c: &mut Checks, field: &str, key: &str, value: &str) {
    c.name(field, key, name::check_label_key(key));
    let field = format!("{field}.{key}");
    c.name(&field, value, name::check_label_value(value));
}

/// Whether a label is not the caller's: ours, or in the domains that
/// Kubernetes keeps for itself, but for the application labels it recommends.
fn reserved(key: &str, profile: Profile) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |outer: &str| {
        let rest = domain.strip_suffix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    match domain {
        "app.kubernetes.io" => key == "app.kubernetes.io/managed-by",
        _ if profile == Profile::Omnigent && key == "omnigent.ai/role" => true,
        _ => ["podcradle.dev", "kubernetes.io", "k8s.io"]
            .into_iter()
            .any(within),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};
    use super::*;

    #[test]
    fn names_have_the_form_of_their_kind() {
        refused("serviceAccount \"A\"", "RFC 1123 subdomain", |s| {
            s.service_account = "A".into();
        });
        refused("credentialsSecret", "subdomain", |s| {
            s.credentials_secret = Some("a_b".into());
        });
        refused("owner", "subdomain", |s| s.owner = Some("-".into()));
        refused("runtimeClass", "subdomain", |s| {
            s.runtime_class = Some("gVisor".into());
        });
        refused("priorityClass", "subdomain", |s| {
            s.priority_class = Some(String::new());
        });
        refused("imagePullSecrets[1]", "subdomain", |s| {
            s.image_pull_secrets = vec!["a.b".into(), "a b".into()];
        });
        refused("launchId", "RFC 1123 label", |s| s.launch_id = "a.b".into());
    }

    #[test]
    fn a_sandbox_in_a_session_leaves_to_it_what_is_the_sessions() {
        let shared = |s: &mut SandboxSpec| s.session = Some("team".into());
        assert_eq!(problems(shared), Vec::<String>::new());
        refused("session \"9\"", "RFC 1035", |s| {
            s.session = Some("9".into());
        });
        refused("sandbox", "another name than the session's", |s| {
            s.session = Some(s.sandbox.clone());
        });
        refused("owner \"o\"", "podcradle session create", |s| {
            shared(s);
            s.owner = Some("o".into());
        });
        refused("networkPolicy", "podcradle session create", |s| {
            shared(s);
            s.network_policy = Some(crate::spec::NetworkPolicy {
                egress: vec!["10.0.0.0/8".into()],
            });
        });
    }

    #[test]
    fn a_session_is_checked_as_a_launch_is() {
        let of = |change: fn(&mut SessionSpec)| {
            let mut spec = SessionSpec::new("podcradle-a-000000");
            change(&mut spec);
            spec.validate().map_err(|problems| problems.to_string())
        };
        assert_eq!(of(|_| ()), Ok(()));
        let wrong = of(|s| {
            s.session = "A".into();
            s.owner = Some("-".into());
            s.labels.insert("podcradle.dev/x".into(), "v".into());
            s.ttl = Some(std::time::Duration::from_secs(1));
            s.network_policy = Some(crate::spec::NetworkPolicy {
                egress: vec!["10.0.0.1/8".into()],
            });
        });
        let wrong = wrong.unwrap_err();
        for field in [
            "session",
            "owner",
            "labels.podcradle.dev/x",
            "ttl",
            "networkPolicy.egress[0]",
        ] {
            assert!(
                wrong.lines().any(|line| line.starts_with(field)),
                "{field}: {wrong}"
            );
        }
        assert_eq!(wrong.lines().count(), 5, "{wrong}");
    }

    #[test]
    fn a_label_has_a_qualified_key_and_a_short_value() {
        for (key, value) in [
            ("team", "a"),
            ("example.com/Team_1", ""),
            ("app.kubernetes.io/part-of", "x"),
            ("kueue.x-k8s.io/queue-name", "q"),
        ] {
            let found = problems(|s| drop(s.labels.insert(key.into(), value.into())));
            assert_eq!(found, Vec::<String>::new());
        }
        for key in [
            "",
            "a/b/c",
            "/a",
            "a/",
            "-a",
            "UPPER.example/a",
            &"a".repeat(64),
        ] {
            let found = problems(|s| drop(s.labels.insert(key.into(), "v".into())));
            assert_ne!(found.len(), 0, "{key}");
            let found = problems(|s| drop(s.node_selector.insert(key.into(), "v".into())));
            assert_ne!(found.len(), 0, "{key}");
        }
        refused("labels.a", "at most 63", |s| {
            drop(s.labels.insert("a".into(), "b c".into()));
        });
    }

    #[test]
    fn the_labels_of_podcradle_and_of_kubernetes_are_reserved() {
        for key in [
            "podcradle.dev/session",
            "x.podcradle.dev/y",
            "app.kubernetes.io/managed-by",
            "kubernetes.io/arch",
            "batch.kubernetes.io/job-name",
            "k8s.io/x",
        ] {
            refused(&format!("labels.{key}"), "sets", |s| {
                s.labels.insert(key.into(), "v".into());
            });
        }
        let role = |profile| reserved("omnigent.ai/role", profile);
        assert!(role(Profile::Omnigent) && !role(Profile::Default));
    }
}
