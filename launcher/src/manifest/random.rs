//! Specs at random: most of them valid, with texts that nobody should write.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use crate::spec::{
    Inject, Mount, NetworkPolicy, Profile, Repo, Restart, SandboxSpec, TokenDelivery,
};

/// The name of each.
pub(super) const SANDBOX: &str = "podcradle-a-000000";

/// Words that are names everywhere, and texts that are nothing but text.
fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,8}"
}

fn mount() -> impl Strategy<Value = Mount> {
    let above = select(vec!["/mnt", "/data", "/srv/$(HOME)", "/var/lib/a-b"]);
    (above, word(), word(), any::<bool>(), any::<bool>()).prop_map(
        |(above, path, name, claim, writable)| Mount {
            path: format!("{above}/{path}"),
            claim: claim.then(|| name.clone()),
            secret: (!claim).then_some(name),
            writable: claim && writable,
        },
    )
}

pub(super) fn host() -> impl Strategy<Value = SandboxSpec> {
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
                spec.sandbox = SANDBOX.into();
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
            let tolerations = taints
                .iter()
                .map(|taint| json!({"key": taint, "value": "x"}));
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

pub(super) fn spec() -> impl Strategy<Value = SandboxSpec> {
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
