//! What holds for the objects of any valid spec, and for any overlay that is
//! not refused.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::overlay::random::{change, overlay};
use super::random::{SANDBOX, host, spec};
use super::{Owner, Record, TOKEN_GATE, labels, network_policy, pod, secret, service};
use crate::name;
use crate::spec::{METADATA, SandboxSpec};
use crate::token::Token;

fn owner() -> Owner {
    Owner {
        name: SANDBOX.into(),
        uid: "uid-1".into(),
    }
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
    assert_eq!(
        pod.supplemental_groups.as_deref().unwrap_or_default(),
        [0; 0]
    );
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

/// What an API server takes for a label.
fn labelled(spec: &SandboxSpec, metadata: &ObjectMeta) {
    let found = metadata.labels.as_ref().unwrap();
    for (key, value) in labels(spec, 1) {
        assert_eq!(found.get(&key), Some(&value), "{key}");
    }
    let word = |text: &str| {
        let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let ends = end(text.chars().next()) && end(text.chars().next_back());
        text.len() <= 63 && ends && text.chars().all(inner)
    };
    for (key, value) in found {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("a", key));
        assert_eq!(name::check_rfc1123_subdomain(prefix), Ok(()), "{key}");
        assert!(
            word(name) && (value.is_empty() || word(value)),
            "{key}={value}"
        );
    }
}

/// The root of it all: no way in, and in nobody's hands.
fn anchor(spec: &SandboxSpec, service: &Service) {
    labelled(spec, &service.metadata);
    let name = service.metadata.name.as_ref().unwrap();
    assert_eq!(name, &spec.sandbox);
    assert_eq!(name::check_rfc1035_label(name, 63), Ok(()), "{name}");
    assert_eq!(service.metadata.owner_references, None);
    let made = service.spec.as_ref().unwrap();
    assert_eq!(made.cluster_ip.as_deref(), Some("None"));
    assert!(made.selector.is_none() && made.ports.is_none(), "{made:?}");
    assert!(json!(service.metadata.annotations).to_string().len() < 16_000);
}

/// An address and how many bits of it are the network's.
fn network(cidr: &str) -> (IpAddr, u32) {
    let (address, width) = cidr.split_once('/').unwrap();
    let (address, width): (IpAddr, u32) = (address.parse().unwrap(), width.parse().unwrap());
    assert!(width <= if address.is_ipv4() { 32 } else { 128 }, "{cidr}");
    (address, width)
}

/// Whether the network of `outer` has the address: both as text of their bits,
/// so in another way than the policy is made.
fn has(outer: &str, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    };
    let (network, width) = network(outer);
    let width = usize::try_from(width).unwrap();
    network.is_ipv4() == address.is_ipv4() && bits(network)[..width] == bits(address)[..width]
}

/// Nothing comes in, nothing goes out to metadata, and it goes with its anchor.
fn shut(spec: &SandboxSpec, policy: &NetworkPolicy) {
    labelled(spec, &policy.metadata);
    assert_eq!(policy.metadata.name.as_ref(), Some(&spec.sandbox));
    let owners = policy.metadata.owner_references.as_deref().unwrap();
    assert!(
        matches!(owners, [one] if one.uid == owner().uid),
        "{owners:?}"
    );
    let made = policy.spec.as_ref().unwrap();
    let kinds = made.policy_types.as_deref().unwrap();
    assert_eq!(kinds, ["Ingress", "Egress"]);
    assert_eq!(made.ingress, None);
    let selected = made.pod_selector.as_ref().unwrap();
    assert!(selected.match_expressions.is_none());
    let all = labels(spec, 1);
    let selected = selected.match_labels.as_ref().unwrap();
    assert!(!selected.is_empty() && selected.iter().all(|(k, v)| all.get(k) == Some(v)));
    let mut open = Vec::new();
    for rule in made.egress.iter().flatten() {
        // One without peers would allow everything.
        let peers = rule.to.as_deref().unwrap();
        assert!(!peers.is_empty(), "{rule:?}");
        for block in peers.iter().filter_map(|peer| peer.ip_block.as_ref()) {
            let (_, width) = network(&block.cidr);
            for cut in block.except.iter().flatten() {
                let (address, narrow) = network(cut);
                assert!(has(&block.cidr, address) && narrow > width, "{block:?}");
            }
            let cut = |address| block.except.iter().flatten().any(|cut| has(cut, address));
            for metadata in METADATA {
                assert!(!has(&block.cidr, metadata) || cut(metadata), "{block:?}");
            }
            open.push(&block.cidr);
        }
    }
    let wanted = spec.network_policy.iter().flat_map(|policy| &policy.egress);
    for range in wanted {
        assert!(open.contains(&range), "{range} is not open: {open:?}");
    }
}

proptest! {
    #[test]
    fn any_valid_spec_makes_valid_objects(spec in spec()) {
        let made = pod(&spec, 1, &owner()).unwrap();
        ours(&spec, &made);
        consistent(made.spec.as_ref().unwrap());
        confined(made.spec.as_ref().unwrap());
        let secret = secret(&spec, 1, &owner(), &Token::random());
        prop_assert!(name::check_rfc1123_subdomain(secret.metadata.name.as_ref().unwrap()).is_ok());
        prop_assert_eq!(secret.metadata.owner_references.unwrap().len(), 1);
        let record = Record::launching(&spec, 1, "attempt");
        anchor(&spec, &service(&record, Timestamp::UNIX_EPOCH));
        let policy = network_policy(&spec, 1, &owner());
        prop_assert_eq!(policy.is_some(), spec.network_policy.is_some());
        if let Some(policy) = policy {
            shut(&spec, &policy);
        }
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
