//! `NO_PROXY`: addresses that are connected to without a proxy, as Go's `httpproxy` package reads them.
//!
//! Entries are separated by commas. `*` matches every address; an IP address or a range in CIDR notation matches
//! itself; `example.com` matches the host and its subdomains; `.example.com` and `*.example.com` match the
//! subdomains. All but ranges may have a port. Other entries match nothing and do not affect the rest.

use std::net::IpAddr;

/// The addresses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exclusions {
    entries: Vec<Entry>,
    /// True if loopback addresses are excluded.
    loopback: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Entry {
    All,
    Range {
        network: u128,
        mask: u128,
        is_v4: bool,
    },
    Address {
        address: IpAddr,
        port: Option<u16>,
    },
    /// A suffix that starts with a dot.
    Domain {
        suffix: String,
        with_itself: bool,
        port: Option<u16>,
    },
}

impl Default for Exclusions {
    fn default() -> Self {
        Self { entries: Vec::new(), loopback: true }
    }
}

impl Exclusions {
    /// Excludes no address.
    pub(super) fn none() -> Self {
        Self { entries: Vec::new(), loopback: false }
    }

    pub(super) fn parse(list: &str) -> Self {
        Self {
            entries: list.split(',').filter_map(|entry| Entry::parse(&entry.trim().to_lowercase())).collect(),
            ..Self::default()
        }
    }

    /// Returns true if an address is among them. The host of a URL has brackets around an IPv6 address.
    pub(super) fn contain(&self, host: &str, port: u16) -> bool {
        let host = host.trim().to_lowercase();
        let address: Option<IpAddr> =
            without_brackets(&host).parse().ok().map(|address: IpAddr| address.to_canonical());
        if self.loopback && (host == "localhost" || address.is_some_and(|address| address.is_loopback())) {
            return true;
        }
        self.entries.iter().any(|entry| entry.contains(&host, address, port))
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((address, length)) = text.split_once('/') {
            let (bits, is_v4) = bits(address.parse().ok()?);
            let width = if is_v4 { 32 } else { 128 };
            let length = length.parse::<u32>().ok().filter(|length| *length <= width)?;
            // An IPv4 address has the low bits.
            let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
            return Some(Self::Range { network: bits & mask, mask, is_v4 });
        }
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an IPv6 address without brackets are not a port separator.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (text, None),
        };
        if let Ok(address) = without_brackets(host).parse::<IpAddr>() {
            return Some(Self::Address { address: address.to_canonical(), port });
        }
        let host = if host.starts_with("*.") { &host[1..] } else { host };
        match host.strip_prefix('.') {
            _ if host.is_empty() => None,
            Some(_) => Some(Self::Domain { suffix: host.to_owned(), with_itself: false, port }),
            None => Some(Self::Domain { suffix: format!(".{host}"), with_itself: true, port }),
        }
    }

    fn contains(&self, host: &str, address: Option<IpAddr>, at: u16) -> bool {
        match self {
            Self::All => true,
            Self::Range { network, mask, is_v4 } => address.is_some_and(|address| {
                let (bits, of_v4) = bits(address);
                of_v4 == *is_v4 && bits & mask == *network
            }),
            Self::Address { address: excluded, port } => {
                address == Some(*excluded) && port.is_none_or(|port| port == at)
            }
            Self::Domain { suffix, with_itself, port } => {
                let is_below = host.ends_with(suffix.as_str()) || (*with_itself && *host == suffix[1..]);
                is_below && port.is_none_or(|port| port == at)
            }
        }
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Returns the bits of an address, and whether it is an IPv4 address.
fn bits(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(address) => (u32::from(address).into(), true),
        IpAddr::V6(address) => (address.into(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusions_match_go() {
        for (list, host, port, expected) in [
            ("*", "example.com", 443, true),
            ("example.com", "example.com", 443, true),
            ("example.com", "api.example.com", 6443, true),
            ("example.com", "myexample.com", 443, false),
            (".example.com", "example.com", 443, false),
            (".example.com", "api.example.com", 443, true),
            ("*.example.com", "api.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("EXAMPLE.com", "Api.Example.COM", 443, true),
            ("example.com:6443", "example.com", 6443, true),
            ("example.com:6443", "example.com", 443, false),
            ("a.com, , b.com,", "b.com", 443, true),
            ("10.0.0.0/8", "10.96.0.1", 443, true),
            ("10.0.0.0/8", "11.0.0.1", 443, false),
            ("10.0.0.0/8", "10.example.com", 443, false),
            ("0.0.0.0/0", "203.0.113.7", 443, true),
            ("0.0.0.0/0", "[2001:db8::1]", 443, false),
            ("203.0.113.7/32", "203.0.113.7", 443, true),
            ("203.0.113.7", "203.0.113.7", 443, true),
            ("203.0.113.7:80", "203.0.113.7", 443, false),
            ("203.0.113.7", "::ffff:203.0.113.7", 443, true),
            ("2001:db8::/32", "[2001:db8::1]", 443, true),
            ("2001:db8::1", "[2001:db8::1]", 443, true),
            ("[2001:db8::1]:443", "[2001:db8::1]", 443, true),
            ("[2001:db8::1]:80", "[2001:db8::1]", 443, false),
            ("", "localhost", 443, true),
            ("", "127.0.0.53", 443, true),
            ("", "[::1]", 443, true),
            ("", "localhost.example.com", 443, false),
            // Invalid entries.
            ("10.0.0.0/33,:443,10.0.0.0/x,a:b:c", "10.0.0.1", 443, false),
            ("10.0.0.0/33,example.com", "example.com", 443, true),
        ] {
            assert_eq!(Exclusions::parse(list).contain(host, port), expected, "{list:?}: {host}:{port}");
        }
        assert!(!Exclusions::none().contain("localhost", 443));
    }
}
