//! IP addresses and CIDR blocks, parsed like in Kubernetes.
//!
//! Fields of old kinds used to accept addresses with leading zeros (`010.0.0.1`); unchanged ones remain valid.

use super::super::field::Field;
use flyball_core::field::FieldError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A CIDR block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

/// Parses an address; IPv4 may have leading zeros.
pub(crate) fn parse(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let parts: Vec<&str> = text.split('.').collect();
    let number = |part: &&str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<u8>().ok()).flatten();
    let numbers: Vec<u8> = parts.iter().map_while(number).collect();
    let octets: [u8; 4] = numbers.try_into().ok()?;
    (parts.len() == 4).then(|| Ipv4Addr::from(octets).into())
}

/// Parses a CIDR block; IPv4 may have leading zeros.
pub(crate) fn parse_block(text: &str) -> Option<Block> {
    let (address, bits) = text.split_once('/')?;
    let address = parse(address)?;
    let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let bits = bits.parse().ok().filter(|_| digits)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some(Block { address, bits })
}

impl Block {
    /// Returns the first address of the block.
    pub(crate) fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                Ipv4Addr::from_bits(address.to_bits() & u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0))
                    .into()
            }
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0))
                    .into()
            }
        }
    }

    /// Returns true if the block contains an address.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Block { address, ..self }.first() == self.first()
    }

    /// Formats the block like Go: with its first address.
    pub(crate) fn canonical(self) -> String {
        format!("{}/{}", canonical(self.first()), self.bits)
    }
}

/// Formats an address like Go, which treats mapped IPv4 addresses as IPv4.
pub(crate) fn canonical(address: IpAddr) -> String {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(|| v6.to_string(), |v4| v4.to_string()),
        IpAddr::V4(v4) => v4.to_string(),
    }
}

/// Returns true if Go treats an address as IPv6.
pub(crate) fn is_v6(text: &str) -> bool {
    matches!(parse(text), Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_none())
}

/// Returns true if there are addresses of both families.
pub(crate) fn is_dual_stack<'a>(mut texts: impl Iterator<Item = &'a str> + Clone) -> bool {
    texts.clone().any(is_v6) && texts.any(|text| !is_v6(text))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// The field must be an address.
pub(crate) fn check(field: &Field<'_>) -> Vec<FieldError> {
    let Some(address) = parse(field.text()) else {
        return vec![field.invalid_as(field.text(), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")];
    };
    let mut errors = Vec::new();
    if field.text().parse::<IpAddr>().is_err() {
        errors.push(field.invalid("must not have leading 0s"));
    }
    if is_mapped(address) {
        errors.push(field.invalid("must not be an IPv4-mapped IPv6 address"));
    }
    errors
}

/// Like [`check`], for a field whose unchanged values remain valid.
pub(crate) fn check_new(field: &Field<'_>, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&field.text()) { Vec::new() } else { check(field) }
}

/// The field must be an address in canonical form.
pub(crate) fn check_canonical(field: &Field<'_>) -> Vec<FieldError> {
    let errors = check(field);
    match parse(field.text()).map(canonical) {
        Some(canonical) if errors.is_empty() && canonical != field.text() => {
            vec![field.invalid(format!("must be in canonical form ({canonical:?})"))]
        }
        _ => errors,
    }
}

/// The field must be a CIDR block.
pub(crate) fn check_block(field: &Field<'_>) -> Vec<FieldError> {
    let text = field.text();
    let Some(block) = parse_block(text) else {
        return vec![field.invalid_as(text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")];
    };
    let (address, bits) = text.split_once('/').expect("a block has a slash");
    let wrong = if address.parse::<IpAddr>().is_err() || bits.len() > 1 && bits.starts_with('0') {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(block.address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if block.first() != block.address {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![field.invalid(wrong)]
}

/// Like [`check_block`], for a field whose unchanged values remain valid.
pub(crate) fn check_new_block(field: &Field<'_>, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&field.text()) { Vec::new() } else { check_block(field) }
}

/// The field must be an address that is valid as an endpoint.
pub(crate) fn check_endpoint(field: &Field<'_>) -> Vec<FieldError> {
    let text = field.text();
    let Some(address) = parse(text) else { return vec![field.invalid_as(text, "must be a valid IP address")] };
    let address = address.to_canonical();
    let mut errors = Vec::new();
    if address.is_unspecified() {
        errors.push(field.invalid(format!("may not be unspecified ({text})")));
    }
    if address.is_loopback() {
        errors.push(field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    let (local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if local {
        errors.push(field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if multicast {
        errors.push(field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
    errors
}

/// Warns about an address in non-canonical form.
pub(crate) fn warn(field: &Field<'_>) -> Option<String> {
    let (path, text) = (field.path(), field.text());
    let address = parse(text)?;
    if text.parse::<IpAddr>().is_err() || is_mapped(address) {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use {:?}", canonical(address)));
    }
    let standard = address.to_string();
    (address.is_ipv6() && standard != text)
        .then(|| format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({standard:?})"))
}

/// Warns about a CIDR block in non-canonical form.
pub(crate) fn warn_block(field: &Field<'_>) -> Vec<String> {
    let (path, text) = (field.path(), field.text());
    let Some(block) = parse_block(text) else { return Vec::new() };
    let mut warnings = Vec::new();
    if block.first() != block.address {
        let all = if block.address.is_ipv4() { 32 } else { 128 };
        let (whole, single) = (block.canonical(), format!("{}/{all}", canonical(block.address)));
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {whole:?} or {single:?}?)"
        ));
    }
    let standard = text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
    if !standard || is_mapped(block.address) {
        warnings.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use {:?}", block.canonical()));
    }
    let plain = format!("{}/{}", block.address, block.bits);
    if warnings.is_empty() && block.address.is_ipv6() && plain != text {
        warnings.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({plain:?})"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::field::Path;
    use serde_json::Value;

    fn messages(rule: fn(&Field<'_>) -> Vec<FieldError>, text: &str) -> Vec<String> {
        let value = Value::from(text);
        rule(&Field::new(Path::new("ip"), &value)).into_iter().map(|error| error.detail).collect()
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        let none: [&str; 0] = [];
        for good in ["10.0.0.1", "::1", "2001:db8::ffff"] {
            assert_eq!(messages(check, good), none, "{good}");
        }
        for bad in ["", "10.0.0", "10.0.0.256", "1.2.3.4.5", "g::", "10.0.0.1/8", "a.b.c.d"] {
            assert_eq!(
                messages(check, bad),
                ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
                "{bad}"
            );
        }
        assert_eq!(messages(check, "010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(messages(check, "::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
        assert_eq!(messages(check_canonical, "2001:DB8::1"), ["must be in canonical form (\"2001:db8::1\")"]);
    }

    #[test]
    fn block_bits_beyond_the_prefix_are_rejected() {
        let none: [&str; 0] = [];
        for good in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32", "10.1.2.3/32"] {
            assert_eq!(messages(check_block, good), none, "{good}");
        }
        assert_eq!(messages(check_block, "10.0.0.1/8"), ["must not have bits set beyond the prefix length"]);
        assert_eq!(messages(check_block, "10.0.0.0/08"), ["must not have leading 0s in IP or prefix length"]);
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "/8", "x/8"] {
            assert_eq!(
                messages(check_block, bad),
                ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"],
                "{bad}"
            );
        }
    }

    #[test]
    fn local_addresses_are_not_endpoints() {
        let kinds = |text: &str| messages(check_endpoint, text).len();
        assert_eq!((kinds("10.0.0.1"), kinds("127.0.0.1"), kinds("0.0.0.0")), (0, 1, 1));
        assert_eq!(
            (kinds("169.254.1.1"), kinds("224.0.0.5"), kinds("fe80::1"), kinds("ff02::1"), kinds("::1")),
            (1, 1, 1, 1, 1)
        );
    }

    #[test]
    fn blocks_contain_their_addresses() {
        let block = parse_block("10.96.0.0/12").unwrap();
        assert!(block.contains(parse("10.111.255.255").unwrap()) && !block.contains(parse("10.112.0.0").unwrap()));
        assert!(!block.contains(parse("::1").unwrap()));
        assert_eq!(parse_block("10.97.3.4/12").unwrap().canonical(), "10.96.0.0/12");
    }
}
