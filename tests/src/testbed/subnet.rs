//! Which addresses an instance takes: one /22 for node and pods, picked so that
//! it overlaps neither a route of this machine nor another instance.
//!
//! In: the kernel's route table as text and the ranges other instances hold.
//! Out: a range. Pure.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};

/// The range that is cut into /22s, one an instance.
const POOL: Subnet = Subnet {
    base: Ipv4Addr::new(10, 231, 0, 0),
    prefix: 16,
};
/// 1,022 addresses: more pods than one kubelet runs.
const PREFIX: u8 = 22;

/// An IPv4 range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Subnet {
    base: Ipv4Addr,
    prefix: u8,
}

impl Subnet {
    fn mask(self) -> u32 {
        u32::MAX
            .checked_shl(u32::from(32 - self.prefix))
            .unwrap_or(0)
    }

    fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        u32::from(self.base) & mask == u32::from(other.base) & mask
    }

    fn host(self, number: u32) -> Ipv4Addr {
        (u32::from(self.base) + number).into()
    }

    /// The node: the bridge's own address.
    pub fn node(self) -> Ipv4Addr {
        self.host(1)
    }

    /// The first address a pod may get.
    pub fn first_pod(self) -> Ipv4Addr {
        self.host(16)
    }

    /// The prefix length.
    pub fn prefix(self) -> u8 {
        self.prefix
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let bad = || format!("{text:?} is not ADDRESS/PREFIX");
        let (base, prefix) = text.split_once('/').ok_or_else(bad)?;
        let base = base.parse().map_err(|_| bad())?;
        let prefix = prefix.parse().ok().filter(|p| *p <= 32).ok_or_else(bad)?;
        Ok(Self { base, prefix })
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

/// The destinations in `/proc/net/route` (addresses there are little-endian hex).
pub(super) fn routes(table: &str) -> Vec<Subnet> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let destination = u32::from_str_radix(fields.nth(1)?, 16).ok()?.swap_bytes();
            let mask = u32::from_str_radix(fields.nth(5)?, 16).ok()?.swap_bytes();
            let prefix = u8::try_from(mask.leading_ones()).ok()?;
            // The default route covers everything and claims nothing.
            (prefix > 0).then_some(Subnet {
                base: destination.into(),
                prefix,
            })
        })
        .collect()
}

/// The first range of the pool that nobody uses.
pub(super) fn pick(taken: &[Subnet]) -> Result<Subnet> {
    let step = 1u32 << (32 - PREFIX);
    (0..1u32 << (PREFIX - POOL.prefix))
        .map(|i| Subnet {
            base: POOL.host(i * step),
            prefix: PREFIX,
        })
        .find(|candidate| !taken.iter().any(|t| t.overlaps(*candidate)))
        .ok_or_else(|| Error::NoSubnet(POOL.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        br0\t0000E70A\t00000000\t0001\t0\t0\t0\t00FCFFFF\t0\t0\t0\n\
        tun0\t0504E70A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";

    #[test]
    fn routes_are_read_and_the_default_route_is_not_a_claim() {
        let texts: Vec<_> = routes(TABLE).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.231.0.0/22", "10.231.4.5/32"]);
    }

    #[test]
    fn the_first_range_that_overlaps_nothing_is_picked() {
        assert_eq!(pick(&[]).unwrap().to_string(), "10.231.0.0/22");
        assert_eq!(pick(&routes(TABLE)).unwrap().to_string(), "10.231.8.0/22");
    }

    #[test]
    fn a_route_over_the_whole_pool_leaves_nothing() {
        let vpn = "10.0.0.0/8".parse().unwrap();
        assert!(matches!(pick(&[vpn]), Err(Error::NoSubnet(_))));
    }

    #[test]
    fn every_instance_gets_its_own_until_the_pool_is_empty() {
        let mut taken = Vec::new();
        while let Ok(next) = pick(&taken) {
            assert!(!taken.iter().any(|t: &Subnet| t.overlaps(next)));
            taken.push(next);
        }
        assert_eq!(taken.len(), 64);
    }

    #[test]
    fn node_and_pods_lie_inside() {
        let subnet: Subnet = "10.231.8.0/22".parse().unwrap();
        assert_eq!(subnet.node().to_string(), "10.231.8.1");
        assert_eq!(subnet.first_pod().to_string(), "10.231.8.16");
        assert!("10.0.0.0".parse::<Subnet>().is_err());
        assert!("10.0.0.0/33".parse::<Subnet>().is_err());
    }
}
