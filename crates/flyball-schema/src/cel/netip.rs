//! Parser of IP addresses that follows Go's `net/netip`, with its error messages.

use flyball_core::field::go_quote;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an address; the zone after a percent sign is dropped.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    let error = |what: &str, at: Option<&str>| {
        let at = at.map(|at| format!(" (at {})", go_quote(at))).unwrap_or_default();
        format!("ParseAddr({}): {what}{at}", go_quote(text))
    };
    match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => v4(text).map(|octets| Ipv4Addr::from(octets).into()).map_err(|(what, at)| error(what, at)),
        Some(b':') => v6(text).map(|octets| Ipv6Addr::from(octets).into()).map_err(|(what, at)| error(what, at)),
        Some(_) => Err(error("missing IPv6 address", None)),
        None => Err(error("unable to parse IP", None)),
    }
}

/// Parses an address with a prefix length.
pub(super) fn prefix(text: &str) -> Result<IpAddr, String> {
    let error = |reason: String| format!("netip.ParsePrefix({}): {reason}", go_quote(text));
    let Some((before, bits)) = text.rsplit_once('/') else { return Err(error("no '/'".into())) };
    let address = address(before).map_err(error)?;
    if before.contains('%') {
        return Err(error("IPv6 zones cannot be present in a prefix".into()));
    }
    let odd = bits.len() > 1 && !(b'1'..=b'9').contains(&bits.as_bytes()[0]);
    let Some(length) = bits.parse::<i64>().ok().filter(|_| !odd) else {
        return Err(error(format!("bad bits after slash: {}", go_quote(bits))));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    if (0..=most).contains(&length) { Ok(address) } else { Err(error("prefix length out of range".into())) }
}

/// The error and its position.
type ParseError<'t> = (&'static str, Option<&'t str>);

fn v4(text: &str) -> Result<[u8; 4], ParseError<'_>> {
    let (mut octets, mut part, mut digits, mut value) = ([0; 4], 0, 0, 0_u16);
    let bytes = text.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", None));
                }
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                octets[part] = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", None))?;
            }
            b'.' if i == 0 || i == bytes.len() - 1 || bytes[i - 1] == b'.' => {
                return Err(("IPv4 field must have at least one digit", text.get(i..)));
            }
            b'.' if part == 3 => return Err(("IPv4 address too long", None)),
            b'.' => (part, digits, value) = (part + 1, 0, 0),
            _ => return Err(("unexpected character", text.get(i..))),
        }
    }
    if part < 3 { Err(("IPv4 address too short", None)) } else { Ok(octets) }
}

fn v6(text: &str) -> Result<[u8; 16], ParseError<'_>> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", None)),
        Some((rest, _)) => rest,
        None => text,
    };
    let (mut octets, mut filled, mut ellipsis) = ([0; 16], 0, None);
    if let Some(after) = rest.strip_prefix("::") {
        (rest, ellipsis) = (after, Some(0));
        if rest.is_empty() {
            return Ok(octets);
        }
    }
    while filled < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(("each group must have 4 or fewer digits", Some(rest)));
        }
        if digits == 0 {
            return Err(("each colon-separated field must have at least one digit", Some(rest)));
        }
        if rest.as_bytes().get(digits) == Some(&b'.') {
            if ellipsis.is_none() && filled != 12 {
                let what = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err((what, Some(rest)));
            }
            if filled + 4 > 16 {
                let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err((what, Some(rest)));
            }
            octets[filled..filled + 4].copy_from_slice(&v4(rest)?);
            (rest, filled) = ("", filled + 4);
            break;
        }
        let group = u16::from_str_radix(&rest[..digits], 16).unwrap_or_default();
        octets[filled..filled + 2].copy_from_slice(&group.to_be_bytes());
        (rest, filled) = (&rest[digits..], filled + 2);
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", Some(rest)));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", Some(rest)));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", Some(rest)));
            }
            (rest, ellipsis) = (after, Some(filled));
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", Some(rest)));
    }
    match ellipsis {
        None if filled < 16 => Err(("address string too short", None)),
        Some(_) if filled == 16 => Err(("the :: must expand to at least one field of zeros", None)),
        Some(at) => {
            octets.copy_within(at..filled, 16 - (filled - at));
            octets[at..16 - (filled - at)].fill(0);
            Ok(octets)
        }
        None => Ok(octets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_addresses_are_rejected_with_gos_messages() {
        for (text, reason) in [
            ("x", r#"ParseAddr("x"): unable to parse IP"#),
            ("%e", r#"ParseAddr("%e"): missing IPv6 address"#),
            ("1.2.3", r#"ParseAddr("1.2.3"): IPv4 address too short"#),
            ("1.2.3.4.5", r#"ParseAddr("1.2.3.4.5"): IPv4 address too long"#),
            ("1.2.3.256", r#"ParseAddr("1.2.3.256"): IPv4 field has value >255"#),
            ("01.2.3.4", r#"ParseAddr("01.2.3.4"): IPv4 field has octet with leading zero"#),
            ("1..3.4", r#"ParseAddr("1..3.4"): IPv4 field must have at least one digit (at ".3.4")"#),
            ("1.a.3.4", r#"ParseAddr("1.a.3.4"): unexpected character (at "a.3.4")"#),
            ("1:2", r#"ParseAddr("1:2"): address string too short"#),
            ("1::2::3", r#"ParseAddr("1::2::3"): multiple :: in address (at ":3")"#),
            ("12345::", r#"ParseAddr("12345::"): each group must have 4 or fewer digits (at "12345::")"#),
            (":1", r#"ParseAddr(":1"): each colon-separated field must have at least one digit (at ":1")"#),
            ("fe80::1%", r#"ParseAddr("fe80::1%"): zone must be a non-empty string"#),
            ("1:2:3:4:5:6:7::8", r#"ParseAddr("1:2:3:4:5:6:7::8"): the :: must expand to at least one field of zeros"#),
        ] {
            assert_eq!(address(text), Err(reason.to_owned()));
        }
        for (text, reason) in [
            ("10.0.0.0", r#"netip.ParsePrefix("10.0.0.0"): no '/'"#),
            ("10.0.0.0/33", r#"netip.ParsePrefix("10.0.0.0/33"): prefix length out of range"#),
            ("10.0.0.0/08", r#"netip.ParsePrefix("10.0.0.0/08"): bad bits after slash: "08""#),
            ("a/8", r#"netip.ParsePrefix("a/8"): ParseAddr("a"): unable to parse IP"#),
            ("fe80::1%e/8", r#"netip.ParsePrefix("fe80::1%e/8"): IPv6 zones cannot be present in a prefix"#),
        ] {
            assert_eq!(prefix(text), Err(reason.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn addresses_parse_as_in_the_standard_library(text in "[0-9a-f:.]{0,18}|([0-9a-f]{1,4}:){1,7}:?[0-9a-f]{0,4}|([0-9]{1,3}\\.){3}[0-9]{1,3}") {
            prop_assert_eq!(address(&text).ok(), text.parse::<IpAddr>().ok(), "{}", text);
        }

        #[test]
        fn arbitrary_texts_do_not_panic(text in ".{0,24}") {
            let _ = (address(&text), prefix(&text));
        }
    }
}
