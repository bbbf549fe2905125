//! What whole specs become, as last reviewed. The end-to-end suite asks a real
//! API server whether it accepts the same files.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Owner, Record, network_policy, pod, secret, service, session, session_policy, with_record,
};
use crate::spec::{
    Inject, Mount, NetworkPolicy, Profile, Repo, Restart, SandboxSpec, SessionSpec, TokenDelivery,
};
use crate::token::Token;

fn example(profile: Profile) -> SandboxSpec {
    SandboxSpec {
        sandbox: "podcradle-a-000000".into(),
        launch_id: "0123456789abcdef".into(),
        image: "registry.example/host:1".into(),
        ..SandboxSpec::of_profile(profile)
    }
}

/// Every field that shows in an object.
fn everything() -> SandboxSpec {
    let mut spec = example(Profile::Default);
    spec.prep_image = Some("registry.example/prep:1".into());
    spec.image_pull_policy = Some("IfNotPresent".into());
    spec.image_pull_secrets = vec!["pull-a".into(), "pull-b".into()];
    spec.arch = Some("amd64".into());
    spec.host = vec!["agent".into(), "--cost".into(), "$(HOME) $5".into()];
    spec.login_shell = true;
    spec.server = Some("http://10.9.8.7:8080".into());
    spec.host_id = "id".into();
    spec.host_name = "a name".into();
    spec.env_prefix = "AGENT".into();
    spec.token_delivery = TokenDelivery::SecretKeyRef;
    spec.restart = Some(Restart { max: Some(3) });
    spec.repo = Some(Repo {
        url: "https://git.example/$(HOME)".into(),
        branch: Some("main".into()),
        dir: "r".into(),
    });
    spec.env.insert("COST".into(), "$5".into());
    spec.credentials_secret = Some("credentials".into());
    spec.labels.insert("team.example/name".into(), "a".into());
    spec.node_selector.insert("disk".into(), "fast".into());
    spec.tolerations = from(json!([{"key": "sandbox", "operator": "Exists"}]));
    spec.affinity = from(json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        ]},
    }}));
    spec.runtime_class = Some("podcradle-test".into());
    spec.priority_class = Some("podcradle-test".into());
    spec.host_users = Some(false);
    spec.run_as = 1000;
    spec.home = "/home/agent".into();
    spec.home_size_limit = Some("2Gi".into());
    let mount = |path: &str, claim: Option<&str>, secret: Option<&str>, writable| Mount {
        path: path.into(),
        claim: claim.map(Into::into),
        secret: secret.map(Into::into),
        writable,
    };
    spec.mounts = vec![
        mount("/data", Some("data"), None, true),
        mount("/models", Some("models"), None, false),
        mount("/certificates", None, Some("certificates"), false),
    ];
    spec.resources.ephemeral_storage_request = Some("1Gi".into());
    spec.resources.ephemeral_storage_limit = Some("4Gi".into());
    spec.network_policy = Some(NetworkPolicy {
        egress: vec!["0.0.0.0/0".into(), "2001:db8::/32".into()],
    });
    spec
}

fn injected(inject: Inject) -> SandboxSpec {
    let mut spec = example(Profile::Default);
    spec.inject = inject;
    spec.supervisor_image = Some("registry.example/supervisor:1".into());
    spec.host = vec!["/agent".into()];
    spec
}

/// What Podcradle has no field for.
fn overlaid() -> SandboxSpec {
    let mut spec = example(Profile::Default);
    spec.overlay = from(json!({
        "metadata": {"annotations": {"example.com/scrape": "false"}},
        "spec": {
            "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["server"]}],
            "containers": [
                {
                    "name": "host",
                    "env": [{"name": "COLOUR", "value": "blue"}],
                    "readinessProbe": {"exec": {"command": ["true"]}},
                },
                {
                    "name": "helper",
                    "image": "registry.example/helper:1",
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "capabilities": {"drop": ["ALL"]},
                    },
                },
            ],
            "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
        },
    }));
    spec
}

/// In a shared session.
fn shared() -> SandboxSpec {
    SandboxSpec {
        session: Some("podcradle-team-000000".into()),
        ..example(Profile::Default)
    }
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// One spec for each kind of thing that is made.
pub(super) fn examples() -> Vec<(&'static str, SandboxSpec)> {
    vec![
        ("default", example(Profile::Default)),
        ("everything", everything()),
        ("omnigent", example(Profile::Omnigent)),
        ("copy", injected(Inject::Copy)),
        ("image-volume", injected(Inject::ImageVolume)),
        ("overlay", overlaid()),
        ("shared", shared()),
    ]
}

/// The whole tree, as it is sent.
fn objects(spec: &SandboxSpec) -> Value {
    let owner = |name: &str, uid: &str| Owner {
        name: name.into(),
        uid: uid.into(),
    };
    let anchor = owner(spec.session_name(), "00000000-0000-4000-8000-000000000001");
    let token = Token::read("a test", "0123456789abcdef0123456789abcdef".as_bytes()).unwrap();
    let expires: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let record = Record::launching(spec, 1, "attempt");
    let mut items = Vec::new();
    let mut made = pod(spec, 1, &anchor).unwrap();
    if spec.session.is_some() {
        made = with_record(made, &record, expires);
    } else {
        items.push(json!(service(&record, expires)));
    }
    items.extend(network_policy(spec, 1, &anchor).map(|policy| json!(policy)));
    items.push(json!(made));
    let pod = owner(&spec.sandbox, "00000000-0000-4000-8000-000000000002");
    items.push(json!(secret(spec, 1, &pod, &token)));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A shared session with all that it may have.
fn session_objects() -> Value {
    let mut spec = SessionSpec::new("podcradle-team-000000");
    spec.labels.insert("team.example/name".into(), "a".into());
    spec.network_policy = Some(NetworkPolicy {
        egress: vec!["192.0.2.0/24".into()],
    });
    let anchor = Owner {
        name: spec.session.clone(),
        uid: "00000000-0000-4000-8000-000000000001".into(),
    };
    let id = "0123456789abcdef";
    let expires: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    json!({"apiVersion": "v1", "kind": "List", "items": [
        session(&spec, id, expires),
        session_policy(&spec, id, &anchor),
    ]})
}

#[test]
fn the_objects_of_each_example_are_as_last_reviewed() {
    for (name, spec) in examples() {
        assert_eq!(spec.validate(), Ok(()), "{name}");
        as_last_reviewed(name, &objects(&spec));
    }
    as_last_reviewed("session", &session_objects());
}

fn as_last_reviewed(name: &str, objects: &Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manifest/snapshots");
    let now = serde_json::to_string_pretty(objects).unwrap() + "\n";
    let file = folder.join(format!("{name}.json"));
    if std::env::var_os("PODCRADLE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&file, &now).unwrap();
    }
    let reviewed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        now == reviewed,
        "{name} changed; PODCRADLE_UPDATE_SNAPSHOTS=1 writes {} for review",
        file.display()
    );
}
