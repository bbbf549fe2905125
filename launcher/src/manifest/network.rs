//! The session's NetworkPolicy: nothing comes in; out go name lookups, the
//! server and the ranges of the spec. Never the cloud's metadata service, whose
//! address gives away the node's credentials.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Owner, SESSION, labels, owner_reference};
use crate::spec::server::{Host, Server};
use crate::spec::{METADATA, NetworkPolicy as Wanted, SandboxSpec};

/// Where a node's own DNS cache listens, by convention.
const NODE_DNS: &str = "169.254.20.10/32";
/// A policy sees a lookup after the Service's port has become that of the Pod
/// which answers: 53, or 5353 on `OpenShift`, whose Pods must not bind low ports.
const DNS: [i32; 2] = [53, 5353];

/// The policy, owned by `anchor`; `None` when the spec asks for none.
pub fn network_policy(
    spec: &SandboxSpec,
    generation: u32,
    anchor: &Owner,
) -> Option<NetworkPolicy> {
    let wanted = spec.network_policy.as_ref()?;
    let server = spec.server.as_deref().and_then(server);
    Some(policy(wanted, server, labels(spec, generation), anchor))
}

/// The policy of all Pods in the anchor's session.
pub(super) fn policy(
    wanted: &Wanted,
    server: Option<NetworkPolicyEgressRule>,
    labels: BTreeMap<String, String>,
    anchor: &Owner,
) -> NetworkPolicy {
    let mut egress = vec![dns()];
    egress.extend(server);
    let ranges: Vec<_> = wanted
        .egress
        .iter()
        .filter_map(|cidr| block(cidr))
        .collect();
    // A rule without peers would allow everything.
    if !ranges.is_empty() {
        egress.push(NetworkPolicyEgressRule {
            to: Some(ranges.into_iter().map(to_block).collect()),
            ports: None,
        });
    }
    NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(anchor.name.clone()),
            labels: Some(labels),
            owner_references: Some(vec![owner_reference("Service", anchor)]),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some([(SESSION.to_owned(), anchor.name.clone())].into()),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: None,
            egress: Some(egress),
        }),
    }
}

/// Lookups: by any Pod of the cluster, since the name service is one, or by
/// the node's cache. Not by the whole world, which would be a way out.
fn dns() -> NetworkPolicyEgressRule {
    let pods = NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        ..NetworkPolicyPeer::default()
    };
    let cache = IPBlock {
        cidr: NODE_DNS.to_owned(),
        except: None,
    };
    NetworkPolicyEgressRule {
        to: Some(vec![pods, to_block(cache)]),
        ports: Some(
            DNS.into_iter()
                .flat_map(|number| [port("UDP", number), port("TCP", number)])
                .collect(),
        ),
    }
}

/// A server that its URL names by address, at its port.
fn server(url: &str) -> Option<NetworkPolicyEgressRule> {
    let Server { host, port: number } = Server::of(url)?;
    let Host::Address(address) = host else {
        return None;
    };
    // An IPv4 address may be spelled as one of IPv6.
    let address = address.to_canonical();
    let width = if address.is_ipv4() { 32 } else { 128 };
    Some(NetworkPolicyEgressRule {
        to: Some(vec![to_block(block(&format!("{address}/{width}"))?)]),
        ports: Some(vec![port("TCP", number.into())]),
    })
}

/// A range without the metadata service; `None` when nothing is left of it.
fn block(cidr: &str) -> Option<IPBlock> {
    let (address, width) = cidr.split_once('/')?;
    let (address, width) = (address.parse::<IpAddr>().ok()?, width.parse::<u32>().ok()?);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let inside = METADATA.into_iter().filter(|m| holds(address, width, *m));
    let except: Vec<_> = inside
        .map(|metadata| format!("{metadata}/{bits}"))
        .collect();
    if width >= bits && !except.is_empty() {
        return None;
    }
    Some(IPBlock {
        cidr: cidr.to_owned(),
        except: (!except.is_empty()).then_some(except),
    })
}

/// Whether the range of `width` bits around `address` holds `other`.
fn holds(address: IpAddr, width: u32, other: IpAddr) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let rest = bits.saturating_sub(width);
        // A shift by all bits is no shift to the processor.
        (a ^ b).checked_shr(rest).unwrap_or(0) == 0
    };
    match (address, other) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

fn to_block(block: IPBlock) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        ip_block: Some(block),
        ..NetworkPolicyPeer::default()
    }
}

fn port(protocol: &str, number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(number)),
        end_port: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    fn egress(server: Option<&str>, ranges: &[&str]) -> Vec<NetworkPolicyEgressRule> {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "i");
        spec.server = server.map(str::to_owned);
        spec.network_policy = Some(spec::NetworkPolicy {
            egress: ranges.iter().map(|&range| range.to_owned()).collect(),
        });
        let anchor = Owner {
            name: spec.sandbox.clone(),
            uid: "u".into(),
        };
        let policy = network_policy(&spec, 1, &anchor).unwrap().spec.unwrap();
        assert_eq!(policy.policy_types.unwrap(), ["Ingress", "Egress"]);
        assert_eq!(policy.ingress, None, "nothing comes in");
        policy.egress.unwrap()
    }

    fn blocks(rules: &[NetworkPolicyEgressRule]) -> Vec<(String, Vec<String>)> {
        let peers = rules.iter().flat_map(|rule| rule.to.clone().unwrap());
        peers
            .filter_map(|peer| peer.ip_block)
            .map(|block| (block.cidr, block.except.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn lookups_reach_the_ports_that_name_services_listen_on() {
        let ports = egress(None, &[])[0].ports.clone().unwrap();
        let ports: Vec<_> = ports
            .into_iter()
            .map(|port| (port.protocol.unwrap(), port.port.unwrap()))
            .collect();
        for protocol in ["UDP", "TCP"] {
            for number in [53, 5353] {
                let wanted = (protocol.to_owned(), IntOrString::Int(number));
                assert!(ports.contains(&wanted), "{wanted:?} of {ports:?}");
            }
        }
        assert_eq!(ports.len(), 4);
    }

    #[test]
    fn the_metadata_service_is_cut_out_of_every_range() {
        let cut = |range: &str| blocks(&egress(None, &[range])).pop().unwrap();
        for (range, except) in [
            ("169.254.0.0/16", &["169.254.169.254/32"][..]),
            ("169.254.169.254/31", &["169.254.169.254/32"]),
            ("100.64.0.0/10", &["100.100.100.200/32"]),
            (
                "0.0.0.0/0",
                &[
                    "169.254.169.254/32",
                    "100.100.100.200/32",
                    "168.63.129.16/32",
                ],
            ),
            ("fd00:ec2::/32", &["fd00:ec2::254/128"]),
            ("fd00:ec2::254/127", &["fd00:ec2::254/128"]),
            ("::/0", &["fd00:ec2::254/128", "fd20:ce::254/128"]),
        ] {
            assert_eq!(cut(range).1, except, "{range}");
        }
        for range in ["10.0.0.0/8", "169.254.169.253/32", "2001:db8::/32"] {
            assert_eq!(cut(range), (range.to_owned(), vec![]));
        }
    }

    #[test]
    fn a_range_of_nothing_but_metadata_allows_nothing() {
        let only_dns = egress(None, &[]);
        for range in [
            "169.254.169.254/32",
            "168.63.129.16/32",
            "fd00:ec2::254/128",
        ] {
            assert_eq!(egress(None, &[range]), only_dns, "{range}");
        }
        for server in [
            "http://169.254.169.254/latest",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]:8080",
            "http://[fd00:ec2::254]/",
            "http://[fd00:0ec2:0:0::0254]/",
            "http://100.100.100.200",
        ] {
            assert_eq!(egress(Some(server), &[]), only_dns, "{server}");
        }
        assert!(
            only_dns
                .iter()
                .all(|rule| rule.to.as_ref().is_some_and(|to| !to.is_empty()))
        );
    }

    #[test]
    fn a_server_named_by_its_address_is_reached_at_its_port_alone() {
        for (url, cidr, port) in [
            ("http://10.1.2.3:8080/x", "10.1.2.3/32", 8080),
            ("https://10.1.2.3", "10.1.2.3/32", 443),
            ("http://10.1.2.3/", "10.1.2.3/32", 80),
            ("https://[2001:db8::1]:8443", "2001:db8::1/128", 8443),
            ("https://[2001:db8::1]/x", "2001:db8::1/128", 443),
            ("https://[::ffff:10.1.2.3]", "10.1.2.3/32", 443),
            ("HTTP://[2001:DB8::1]", "2001:db8::1/128", 80),
        ] {
            let rules = egress(Some(url), &[]);
            let to = blocks(&rules[1..]);
            assert_eq!(to, [(cidr.to_owned(), vec![])], "{url}");
            let ports = rules[1].ports.as_ref().unwrap();
            assert_eq!(ports.len(), 1);
            assert_eq!(ports[0].port, Some(IntOrString::Int(port)), "{url}");
        }
        assert_eq!(egress(Some("https://server.example"), &[]).len(), 1);
    }
}
