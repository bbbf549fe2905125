use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::manifest::random::{SANDBOX, spec};
use crate::manifest::{Owner, secret};

fn refused(token: &str, change: impl FnOnce(&mut SandboxSpec)) -> String {
    let token = Token::read("a test", token.as_bytes()).unwrap();
    let mut spec = SandboxSpec::new("podcradle-a-000000", "image:1");
    change(&mut spec);
    let found = check_token(&spec, &token).err();
    found.map(|found| found.to_string()).unwrap_or_default()
}

#[test]
fn the_field_that_holds_the_token_is_named_and_its_value_is_not() {
    let token = "0123456789abcdef-secret";
    let encoded = "MDEyMzQ1Njc4OWFiY2RlZi1zZWNyZXQ=";
    assert_eq!(refused(token, |_| ()), "");
    let key = |spec: &mut SandboxSpec| drop(spec.labels.insert(token.into(), "a".into()));
    let value = |spec: &mut SandboxSpec| drop(spec.env.insert("A".into(), token.into()));
    for (field, line) in [
        (
            "host[1]",
            refused(token, |s| s.host = vec!["a".into(), format!("--t={token}")]),
        ),
        ("host[0]", refused(token, |s| s.host = vec![encoded.into()])),
        ("env.A", refused(token, value)),
        ("labels", refused(token, key)),
        ("sandbox", refused("podcradle-a", |_| ())),
    ] {
        assert!(
            line.starts_with(&format!("{field} \"[redacted]\": holds the token")),
            "{line}"
        );
        assert!(!line.contains(token) && !line.contains(encoded), "{line}");
    }
}

#[test]
fn a_token_that_every_pod_says_is_none() {
    let line = refused("workspace-prep", |_| ());
    assert!(
        line.starts_with("token \"[redacted]\": is part of what every Pod says"),
        "{line}"
    );
}

/// Fields with the token (`@`) in them, in each kind of place that ends in an
/// object.
fn places() -> Vec<(&'static str, Value)> {
    let near = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"zone": "@"}}}]});
    let variable = json!({"name": "host", "env": [{"name": "A", "value": "@"}]});
    vec![
        ("affinity", json!({"podAffinity": near})),
        ("credentialsSecret", json!("@")),
        ("envPrefix", json!("@")),
        ("home", json!("/home/@")),
        ("host", json!(["agent", "--token=@"])),
        ("hostId", json!("@")),
        ("hostName", json!("a @")),
        ("image", json!("image:@")),
        ("imagePullSecrets", json!(["a", "@"])),
        ("initDir", json!("/@")),
        ("labels", json!({"a": "@"})),
        ("labels", json!({"@": "a"})),
        ("launchId", json!("@")),
        ("mounts", json!([{"path": "/x/@", "secret": "s"}])),
        ("mounts", json!([{"path": "/x", "claim": "@"}])),
        ("nodeSelector", json!({"a": "@"})),
        ("overlay", json!({"metadata": {"annotations": {"a": "@"}}})),
        ("overlay", json!({"spec": {"containers": [variable]}})),
        ("owner", json!("@")),
        ("prepImage", json!("@")),
        ("priorityClass", json!("@")),
        ("repo", json!({"url": "https://g/@"})),
        ("repo", json!({"url": "https://g/x", "branch": "@"})),
        ("server", json!("https://s/@")),
        ("serviceAccount", json!("@")),
        ("tolerations", json!([{"key": "a", "value": "@"}])),
    ]
}

fn put(spec: &SandboxSpec, field: &str, value: &Value, text: &str) -> SandboxSpec {
    let value = value.to_string().replace('@', text);
    let mut whole = json!(spec);
    whole[field] = serde_json::from_str(&value).unwrap();
    SandboxSpec {
        env: spec.env.clone(),
        ..serde_json::from_value(whole).unwrap()
    }
}

/// A caller's own token, such that it may stand at each of the places.
fn token() -> impl Strategy<Value = Token> {
    "[a-f0-9]{20,30}x".prop_map(|text| Token::read("a property", text.as_bytes()).unwrap())
}

/// As the Secret has it, without padding.
fn base64_of(spec: &SandboxSpec, token: &Token) -> String {
    let owner = Owner {
        name: SANDBOX.into(),
        uid: "u".into(),
    };
    let value = json!(secret(spec, 1, &owner, token))["data"]["token"].clone();
    value.as_str().unwrap().trim_end_matches('=').to_owned()
}

proptest! {
    #[test]
    fn no_object_of_a_spec_that_is_not_refused_holds_the_token(
        spec in spec(), token in token(), place in option::of(select(places())),
        encoded in any::<bool>(),
    ) {
        let base64 = base64_of(&spec, &token);
        let text = if encoded { &base64 } else { token.expose() };
        let spec = match &place {
            Some((field, value)) => put(&spec, field, value, text),
            None => spec,
        };
        let objects = Tree::of(&spec).unwrap().without_secret().to_string();
        let holds = objects.contains(token.expose()) || objects.contains(&base64);
        prop_assert_eq!(holds, place.is_some(), "a place that ends in no object");
        match (check_token(&spec, &token), place) {
            (Ok(()), None) => {}
            (Err(refused), Some((field, _))) => {
                let line = refused.to_string();
                prop_assert!(line.starts_with(field), "{}, not {}", line, field);
                prop_assert!(!line.contains(token.expose()) && !line.contains(&base64));
            }
            (checked, place) => prop_assert!(false, "{:?} of {:?}", checked, place),
        }
    }
}
