//! Addresses of machines in a network.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of addresses of a network that are searched.
const MAX_ADDRESSES: u128 = 4096;
/// Number of the first address of a machine: the lower ones belong to the cloud.
const FIRST: u128 = 4;

/// Parses a range such as `10.0.0.0/24`: its first address, and its number of bits for hosts.
pub(super) fn parse_range(cidr: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix) = cidr.split_once('/')?;
    let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u32>().ok()?);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    Some((address, bits - (prefix <= bits).then_some(prefix)?))
}

/// Returns the first free address of a range.
pub(super) fn free(cidr: &str, used: &BTreeSet<&str>) -> Option<String> {
    let (address, bits) = parse_range(cidr)?;
    let count = 1_u128.checked_shl(bits).unwrap_or(u128::MAX).min(MAX_ADDRESSES);
    let at = |number: u128| match address {
        IpAddr::V4(first) => {
            let number = u32::try_from(number).ok()?;
            let first = u32::try_from(masked(first.to_bits().into(), bits)).ok()?;
            Some(IpAddr::V4(Ipv4Addr::from_bits(first + number)))
        }
        IpAddr::V6(first) => Some(IpAddr::V6(Ipv6Addr::from_bits(masked(first.to_bits(), bits) + number))),
    };
    // The last one is the broadcast address.
    let mut free = (FIRST..count.saturating_sub(1)).filter_map(at).map(|address| address.to_string());
    free.find(|address| !used.contains(&**address))
}

/// Returns the number of the first address of a range.
fn masked(address: u128, bits: u32) -> u128 {
    address.checked_shr(bits).and_then(|prefix| prefix.checked_shl(bits)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_free_address_is_in_the_range() {
        let check = |cidr: &str, used: &[&str], expected: Option<&str>| {
            assert_eq!(free(cidr, &used.iter().copied().collect()).as_deref(), expected, "{cidr}");
        };
        check("10.0.0.0/24", &[], Some("10.0.0.4"));
        check("10.0.0.77/24", &["10.0.0.4", "10.0.0.5"], Some("10.0.0.6"));
        check("10.0.0.0/29", &["10.0.0.4", "10.0.0.5", "10.0.0.6"], None);
        check("10.0.0.0/31", &[], None);
        check("0.0.0.0/0", &[], Some("0.0.0.4"));
        check("fd00::/64", &["fd00::4"], Some("fd00::5"));
        check("::/0", &[], Some("::4"));
        for invalid in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/8", ""] {
            check(invalid, &[], None);
        }
    }
}
