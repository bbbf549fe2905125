//! What holds for the objects of any valid spec, and for any overlay that is
//! not refused.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::overlay::random::{change, overlay};
use super::{Owner, TOKEN_GATE, Tree, check_token, labels, pod, secret};
use crate::name;
use crate::spec::{
    Inject, Mount, NetworkPolicy, Profile, Repo, Restart, SandboxSpec, TokenDelivery,
};
use crate::token::Token;

fn owner() -> Owner {
    Owner {
        name: "podcradle-a-000000".into(),
        uid: "uid-1".into(),
    }
}

/// Words that are names everywhere, and texts that are nothing but text.
fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,8}"
}

fn mount() -> impl Strategy<Value = Mount> {
    let above = select(vec!["/mnt", "/data", "/srv/$(HOME)", "/var/lib/a-b"]);
    (above, word(), word(), any::<bool>(), any::<bool>()).prop_map(|(above, path, name, claim, writable)| Mount {
        path: format!("{above}/{path}"),
        claim: claim.then(|| name.clone()),
        secret: (!claim).then_some(name),
        writable: claim && writable,
    })
}

fn host() -> impl Strategy<Value = SandboxSpec> {
    (
        select(vec![Profile::Default, Profile::Omnigent]),
        vec("[^\0]{1,12}", 1..4),
        btree_map("[B-F][A-F0-9_]{0,6}", "[^\0]{0,12}", 0..4),
        any::<bool>(),
        option::of(option::of(1..9u32)),
        select(vec![TokenDelivery::File, TokenDelivery::SecretKeyRef]),
        select(vec![
            Inject::Auto,
            Inject::Baked,
            Inject::Copy,
            Inject::ImageVolume,
        ]),
        option::of(word()),
    )
        .prop_map(
            |(profile, host, env, login, restart, delivery, inject, repo)| {
                let mut spec = SandboxSpec::of_profile(profile);
                spec.sandbox = owner().name;
                spec.launch_id = "0123456789abcdef".into();
                spec.image = "image:1".into();
                spec.host = host;
                spec.env = env;
                spec.login_shell = login;
                spec.restart = restart.map(|max| Restart { max });
                spec.token_delivery = delivery;
                spec.inject = inject;
                spec.supervisor_image = Some("supervisor:1".into());
                spec.repo = repo.map(|dir| Repo {
                    url: "https://git.example/$(HOME)".into(),
                    branch: None,
                    dir,
                });
                spec
            },
        )
}

/// Where a Pod may go, as YAML has it.
fn placed() -> impl Strategy<Value = SandboxSpec> {
    (
        host(),
        option::of(word()),
        option::of(word()),
        select(vec![None, Some("amd64"), Some("arm64")]),
        vec(word(), 0..3),
        option::of(word()),
        option::of((word(), word())),
    )
        .prop_map(|(mut spec, prep, secret, arch, taints, zone, classes)| {
            spec.prep_image = prep;
            spec.credentials_secret = secret;
            spec.arch = arch.map(str::to_owned);
            let tolerations = taints.iter().map(|taint| json!({"key": taint, "value": "x"}));
            spec.tolerations = tolerations
                .map(|one| serde_json::from_value(one).unwrap())
                .collect();
            let near = zone.map(|zone| {
                json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"zone": zone}}}]}})
            });
            spec.affinity = near.map(|near| serde_json::from_value(near).unwrap());
            let (runtime, priority) = classes.unzip();
            spec.runtime_class = runtime;
            spec.priority_class = priority;
            spec
        })
}

/// Where things are in the containers, and how much of them there is.
fn shaped() -> impl Strategy<Value = SandboxSpec> {
    (
        placed(),
        "/(home|srv|data)/[a-z]{1,8}(/[a-z$().-]{1,8}x)?",
        "(/opt/[a-z]{1,8}|/usr/local/bin|/)",
        "[A-Z][A-Z0-9]{0,6}",
        1..9u32,
        option::of(1..9u32),
    )
        .prop_map(|(mut spec, home, init_dir, prefix, cpus, disk)| {
            spec.home = home;
            spec.init_dir = init_dir;
            spec.env_prefix = prefix;
            spec.resources.cpu_request = format!("{cpus}00m");
            spec.resources.cpu_limit = cpus.to_string();
            spec.resources.memory_limit = format!("{cpus}Gi");
            spec.resources.memory_request = format!("{cpus}e8");
            spec.resources.ephemeral_storage_limit = disk.map(|disk| format!("{disk}G"));
            spec
        })
}

fn spec() -> impl Strategy<Value = SandboxSpec> {
    let ranges = select(vec!["0.0.0.0/0", "10.0.0.0/8", "::/0", "169.254.169.0/24"]);
    let servers = select(vec!["http://10.1.2.3:8080", "https://[2001:db8::1]/x"]);
    (
        shaped(),
        vec(mount(), 0..4),
        btree_map(word(), word(), 0..3),
        vec(word(), 0..3),
        option::of(select(vec!["1Gi", "500Mi"])),
        option::of(vec(ranges, 0..3)),
        option::of(servers),
        1..60_000i64,
        option::of(any::<bool>()),
    )
        .prop_map(
            |(mut spec, mounts, labels, secrets, size, egress, server, id, users)| {
                spec.mounts = mounts;
                spec.labels = labels.clone();
                spec.node_selector = labels;
                spec.image_pull_secrets = secrets;
                spec.home_size_limit = size.map(Into::into);
                spec.server = server.map(Into::into);
                spec.run_as = id;
                spec.host_users = users;
                spec.network_policy = egress.map(|ranges| NetworkPolicy {
                    egress: ranges.into_iter().map(Into::into).collect(),
                });
                spec
            },
        )
        // Two mounts may have met at one path, for instance.
        .prop_filter("not valid", |spec| spec.validate().is_ok())
}

fn all(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers)
}

fn unique<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().all(|item| seen.insert(item))
}

/// Every name is one, and every mount is of a volume.
fn consistent(spec: &PodSpec) {
    let volumes: Vec<_> = spec
        .volumes
        .iter()
        .flatten()
        .map(|v| v.name.as_str())
        .collect();
    assert!(unique(volumes.iter()), "{volumes:?}");
    for name in volumes
        .iter()
        .copied()
        .chain(all(spec).map(|c| c.name.as_str()))
    {
        assert_eq!(name::check_rfc1123_label(name, 63), Ok(()), "{name}");
    }
    assert!(unique(all(spec).map(|c| &c.name)));
    let mounted: BTreeSet<_> = all(spec)
        .flat_map(|c| c.volume_mounts.iter().flatten())
        .map(|mount| mount.name.as_str())
        .collect();
    assert_eq!(mounted, volumes.into_iter().collect(), "mounted, volumes");
    for container in all(spec) {
        let mounts = container.volume_mounts.iter().flatten();
        assert!(unique(mounts.map(|mount| &mount.mount_path)));
        let env = container.env.iter().flatten();
        assert!(unique(env.map(|env| &env.name)), "{:?}", container.env);
    }
}

/// `restricted`, said once more and in other words than where it is enforced.
fn confined(spec: &PodSpec) {
    let pod = spec.security_context.as_ref().unwrap();
    assert_eq!(pod.run_as_non_root, Some(true));
    assert_ne!(pod.run_as_user, Some(0));
    let seccomp = pod.seccomp_profile.as_ref().unwrap();
    assert_eq!(seccomp.type_, "RuntimeDefault");
    assert!(pod.run_as_user.is_some() && pod.run_as_group.is_some_and(|group| group != 0));
    assert!(pod.fs_group.is_some_and(|group| group != 0));
    assert_eq!(pod.supplemental_groups.as_deref().unwrap_or_default(), [0; 0]);
    for flag in [
        spec.host_pid,
        spec.host_ipc,
        spec.host_network,
        spec.share_process_namespace,
    ] {
        assert_ne!(flag, Some(true));
    }
    assert_eq!(spec.automount_service_account_token, Some(false));
    for container in all(spec) {
        let context = container.security_context.as_ref().unwrap();
        assert_ne!(context.privileged, Some(true));
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_ne!(context.run_as_user, Some(0));
        assert_ne!(context.run_as_non_root, Some(false));
        let capabilities = context.capabilities.as_ref().unwrap();
        let dropped = capabilities.drop.iter().flatten();
        assert!(dropped.into_iter().any(|name| name == "ALL"));
        assert_eq!(capabilities.add.as_deref().unwrap_or_default(), [""; 0]);
        assert_ne!(context.run_as_group, Some(0));
        let seccomp = context.seccomp_profile.as_ref();
        assert!(seccomp.is_none_or(|profile| profile.type_ == "RuntimeDefault"));
    }
    for volume in spec.volumes.iter().flatten() {
        assert_eq!(volume.host_path, None, "{}", volume.name);
    }
}

/// What the launcher knows its Pod by.
fn ours(spec: &SandboxSpec, pod: &Pod) {
    let owners = pod.metadata.owner_references.as_deref().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].uid, owner().uid);
    assert_eq!(pod.metadata.name.as_ref(), Some(&spec.sandbox));
    assert_eq!(pod.metadata.namespace, None);
    let mut plain = spec.clone();
    plain.labels.clear();
    for (key, value) in labels(&plain, 1) {
        let found = pod.metadata.labels.as_ref().unwrap().get(&key);
        assert_eq!(found, Some(&value), "{key}");
    }
    let gates = pod.spec.as_ref().unwrap().scheduling_gates.as_ref();
    assert!(gates.unwrap().iter().any(|gate| gate.name == TOKEN_GATE));
}

fn base64_of(secret: &k8s_openapi::api::core::v1::Secret) -> String {
    let value = json!(secret)["data"]["token"].clone();
    value.as_str().unwrap().to_owned()
}

/// Puts a text somewhere into a spec.
type Place = fn(&mut SandboxSpec, String);

/// Every kind of place that ends in an object.
const PLACES: [(&str, Place); 22] = [
    ("env", |spec, text| drop(spec.env.insert("A".into(), text))),
    ("host", |spec, text| spec.host.push(text)),
    ("host", |spec, text| spec.host.push(format!("--token={text}"))),
    ("server", |spec, text| spec.server = Some(format!("https://s/{text}"))),
    ("hostId", |spec, text| spec.host_id = text),
    ("hostName", |spec, text| spec.host_name = format!("a {text}")),
    ("launchId", |spec, text| spec.launch_id = text),
    ("image", |spec, text| spec.image = format!("image:{text}")),
    ("prepImage", |spec, text| spec.prep_image = Some(text)),
    ("home", |spec, text| spec.home = format!("/home/{text}")),
    ("initDir", |spec, text| spec.init_dir = format!("/{text}")),
    ("repo", |spec, text| {
        spec.repo = Some(Repo { url: "https://g/x".into(), branch: Some(text), dir: "x".into() });
    }),
    ("repo", |spec, text| {
        spec.repo = Some(Repo { url: format!("https://g/{text}"), ..Repo::default() });
    }),
    ("labels", |spec, text| drop(spec.labels.insert("a".into(), text))),
    ("labels", |spec, text| drop(spec.labels.insert(text, "a".into()))),
    ("nodeSelector", |spec, text| drop(spec.node_selector.insert("a".into(), text))),
    ("imagePullSecrets", |spec, text| spec.image_pull_secrets.push(text)),
    ("credentialsSecret", |spec, text| spec.credentials_secret = Some(text)),
    ("mounts", |spec, text| {
        let path = format!("/x/{text}");
        let secret = Some("s".into());
        spec.mounts.push(Mount { path, claim: None, secret, writable: false });
    }),
    ("tolerations", |spec, text| {
        spec.tolerations = serde_json::from_value(json!([{"key": "a", "value": text}])).unwrap();
    }),
    ("overlay", |spec, text| {
        let container = json!({"name": "host", "env": [{"name": "A", "value": text}]});
        spec.overlay = json!({"spec": {"containers": [container]}}).as_object().cloned();
    }),
    ("overlay", |spec, text| {
        spec.overlay = json!({"metadata": {"annotations": {"a": text}}}).as_object().cloned();
    }),
];

/// A caller's own token, such that it may stand at each of the places.
fn token() -> impl Strategy<Value = Token> {
    "[a-f0-9]{20,30}x".prop_map(|text| Token::read("a property", text.as_bytes()).unwrap())
}

proptest! {
    #[test]
    fn no_object_of_a_spec_that_is_not_refused_holds_the_token(
        spec in spec(), token in token(), place in option::of(select(&PLACES[..])),
        encoded in any::<bool>(),
    ) {
        let mut spec = spec;
        // Without padding, as some show it.
        let base64 = base64_of(&secret(&spec, 1, &owner(), &token));
        let base64 = base64.trim_end_matches('=').to_owned();
        if let Some((_, put)) = place {
            put(&mut spec, if encoded { base64.clone() } else { token.expose().to_owned() });
        }
        let tree = Tree::of(&spec).unwrap();
        let text = json!([tree.service, tree.network_policy, tree.pod]).to_string();
        let holds = text.contains(token.expose()) || text.contains(&base64);
        prop_assert_eq!(holds, place.is_some(), "a place that ends in no object");
        match (check_token(&spec, &token), place) {
            (Ok(()), None) => {}
            (Err(refused), Some((field, _))) => {
                let line = refused.to_string();
                prop_assert!(line.starts_with(field), "{}, not {}", line, field);
                prop_assert!(!line.contains(token.expose()) && !line.contains(&base64));
            }
            (checked, place) => prop_assert!(false, "{checked:?} of {:?}", place.map(|p| p.0)),
        }
    }

    #[test]
    fn any_valid_spec_makes_valid_objects(spec in spec()) {
        let made = pod(&spec, 1, &owner()).unwrap();
        ours(&spec, &made);
        consistent(made.spec.as_ref().unwrap());
        confined(made.spec.as_ref().unwrap());
        let secret = secret(&spec, 1, &owner(), &Token::random());
        prop_assert!(name::check_rfc1123_subdomain(secret.metadata.name.as_ref().unwrap()).is_ok());
        prop_assert_eq!(secret.metadata.owner_references.unwrap().len(), 1);
    }

    #[test]
    fn any_overlay_is_refused_or_leaves_the_sandbox_shut(
        spec in host(), changes in vec(change(), 1..4),
    ) {
        let mut spec = spec;
        spec.overlay = Some(overlay(&changes));
        let Ok(made) = pod(&spec, 1, &owner()) else {
            return Ok(());
        };
        ours(&spec, &made);
        let with = made.spec.as_ref().unwrap();
        confined(with);
        spec.overlay = None;
        let plain = pod(&spec, 1, &owner()).unwrap().spec.unwrap();
        prop_assert_eq!(&with.service_account_name, &plain.service_account_name);
        for container in all(&plain) {
            let kept = all(with).find(|other| other.name == container.name).unwrap();
            prop_assert_eq!(&kept.command, &container.command);
        }
        // Wherever the token's Secret is named, it was named before.
        let count = |spec: &PodSpec| json!(spec).to_string().matches("-g1-token\"").count();
        prop_assert_eq!(count(with), count(&plain));
        let token = |spec: &PodSpec| -> Vec<Value> {
            let mounts = all(spec).flat_map(|c| c.volume_mounts.iter().flatten());
            mounts.filter(|m| m.name == "token").map(|m| json!(m)).collect()
        };
        prop_assert_eq!(token(with), token(&plain));
    }

    #[test]
    fn no_flag_lets_an_overlay_take_the_pod_from_its_session(
        spec in host(), changes in vec(change(), 1..4),
    ) {
        let mut spec = spec;
        spec.allow_unsafe_overlay = true;
        spec.overlay = Some(overlay(&changes));
        if let Ok(made) = pod(&spec, 1, &owner()) {
            ours(&spec, &made);
        }
    }
}
