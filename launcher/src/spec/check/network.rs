//! The NetworkPolicy: ranges that mean what they say, and no name where only
//! addresses count.

use std::net::IpAddr;

use super::Checks;
use crate::spec::server::{Host, Server};
use crate::spec::{METADATA, NetworkPolicy, SandboxSpec};

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    let Some(policy) = &spec.network_policy else {
        return;
    };
    ranges(policy, c);
    if !policy.egress.is_empty() {
        return;
    }
    let server = spec.server.as_deref().unwrap_or_default();
    if let Some(Server {
        host: Host::Name(name),
        ..
    }) = Server::of(server)
    {
        let rule = format!(
            "{name} is a name, and a NetworkPolicy knows only addresses; give the range of its addresses with --egress"
        );
        c.refuse("server", super::redact_url(server), rule);
    }
    if let Some(repo) = &spec.repo {
        let rule = "a NetworkPolicy knows only addresses; give the range of those of its server with --egress";
        c.refuse("repo.url", super::redact_url(&repo.url), rule);
    }
}

pub fn ranges(policy: &NetworkPolicy, c: &mut Checks) {
    for (index, cidr) in policy.egress.iter().enumerate() {
        if let Some(rule) = wrong_range(cidr) {
            c.refuse(&format!("networkPolicy.egress[{index}]"), cidr, rule);
        }
    }
}

/// Why a range is refused.
fn wrong_range(cidr: &str) -> Option<String> {
    let form =
        || Some("must be a range of addresses such as 10.0.0.0/8 or 2001:db8::/32".to_owned());
    let parts = cidr.split_once('/').and_then(|(address, width)| {
        Some((address.parse::<IpAddr>().ok()?, width.parse::<u32>().ok()?))
    });
    let Some((address, width)) = parts else {
        return form();
    };
    // Zeros in place of all that is not the network's.
    let (network, bits) = match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX
                .checked_shl(32u32.saturating_sub(width))
                .unwrap_or(0);
            (IpAddr::V4((v4.to_bits() & mask).into()), 32)
        }
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => return form(),
        IpAddr::V6(v6) => {
            let mask = u128::MAX
                .checked_shl(128u32.saturating_sub(width))
                .unwrap_or(0);
            (IpAddr::V6((v6.to_bits() & mask).into()), 128)
        }
    };
    if width > bits {
        return form();
    }
    let canonical = format!("{network}/{width}");
    if canonical != cidr {
        return Some(format!("must be written as the network it is, {canonical}"));
    }
    (width == bits && METADATA.contains(&address))
        .then(|| "is a cloud's metadata service, which no sandbox may reach".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};
    use crate::spec::{NetworkPolicy, Repo};

    fn policy(ranges: &[&str]) -> NetworkPolicy {
        let egress = ranges.iter().map(|range| (*range).to_owned()).collect();
        NetworkPolicy { egress }
    }

    #[test]
    fn a_range_is_a_network_in_its_one_spelling() {
        for good in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "192.0.2.7/32",
            "2001:db8::/32",
            "::/0",
            "::1/128",
            "169.254.0.0/16",
        ] {
            let found = problems(|s| s.network_policy = Some(policy(&[good])));
            assert_eq!(found, Vec::<String>::new(), "{good}");
        }
        for (bad, rule) in [
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("10.0.0.0/08", "10.0.0.0/8"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("10.0.0.0", "range"),
            ("10.0.0.0/33", "range"),
            ("::/129", "range"),
            ("::ffff:10.0.0.0/104", "range"),
            ("server.example/32", "range"),
            ("/8", "range"),
            ("169.254.169.254/32", "metadata"),
            ("fd00:ec2::254/128", "metadata"),
        ] {
            refused("networkPolicy.egress[1]", rule, |s| {
                s.network_policy = Some(policy(&["10.0.0.0/8", bad]));
            });
        }
    }

    #[test]
    fn a_name_cannot_be_let_through_by_its_address() {
        refused("server", "knows only addresses", |s| {
            s.server = Some("https://server.example:8443/x".into());
            s.network_policy = Some(policy(&[]));
        });
        refused("repo.url", "knows only addresses", |s| {
            s.repo = Some(Repo {
                url: "https://git.example/x".into(),
                ..Repo::default()
            });
            s.network_policy = Some(policy(&[]));
        });
        for server in ["http://10.1.2.3:80", "https://[2001:db8::1]/x"] {
            let found = problems(|s| {
                s.server = Some(server.into());
                s.network_policy = Some(policy(&[]));
            });
            assert_eq!(found, Vec::<String>::new(), "{server}");
        }
        let found = problems(|s| {
            s.server = Some("https://server.example".into());
            s.network_policy = Some(policy(&["192.0.2.0/24"]));
        });
        assert_eq!(found, Vec::<String>::new());
    }
}
