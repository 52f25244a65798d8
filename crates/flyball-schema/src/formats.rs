//! Validation of `format`.

use flyball_core::names;
use flyball_core::time::{self, parse_duration};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if kube-apiserver validates a string format. Dashes in its name are ignored.
pub fn is_recognized(format: &str) -> bool {
    const DASHED: [&str; 3] = ["date-time", "k8s-short-name", "k8s-long-name"];
    let bare = |format: &str| format.replace('-', "");
    let undashed = bare(format);
    check(&undashed, "").is_some() || DASHED.iter().any(|known| bare(known) == undashed)
}

/// Returns true if a string matches a format; `None` if the format is unknown and therefore not validated.
pub fn check(format: &str, text: &str) -> Option<bool> {
    Some(match format {
        "date-time" => time::parse_rfc3339(text).is_some(),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "byte" => is_base64(text),
        "ipv4" => is_ipv4(text),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => is_ssn(text),
        "k8s-short-name" => names::dns_label(text).is_empty(),
        "k8s-long-name" => names::dns_subdomain(text).is_empty(),
        "password" => true,
        _ => return None,
    })
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && time::parse_rfc3339(&format!("{text}T00:00:00Z")).is_some()
}

/// Accepts any string with a number before a unit: `3d`, `2 weeks`, `5 minutes or so`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 7] = ["ns", "us", "µs", "ms", "s", "m", "h"];
    const UNIT_PREFIXES: [&str; 7] = ["nano", "micro", "milli", "sec", "min", "h", "d"];
    if parse_duration(text).is_ok() {
        return true;
    }
    text.split(|c: char| c.is_ascii_digit()).skip(1).any(|after| {
        let word: String = after.trim_start().chars().take_while(|c| c.is_alphabetic()).collect();
        UNITS.contains(&&*word) || UNIT_PREFIXES.iter().any(|unit| word.starts_with(unit)) || word.starts_with('w')
    })
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

/// Accepts leading zeros, which [`Ipv4Addr`] rejects.
fn is_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4
        && parts.iter().all(|part| {
            digits(part) && part.trim_start_matches('0').len() <= 3 && part.parse::<u32>().is_ok_and(|n| n < 256)
        })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max = if address.contains(':') { 128 } else { 32 };
    let address = if address.contains(':') {
        address.parse::<IpAddr>().is_ok()
    } else {
        is_ipv4(address) || address.parse::<Ipv4Addr>().is_ok()
    };
    address && digits(bits) && bits.parse::<u32>().is_ok_and(|bits| bits <= max)
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let groups: Vec<&str> = text.split(separator).collect();
        counts.contains(&groups.len())
            && groups.iter().all(|g| g.len() == width && g.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bare: String = if text.len() == 36 {
        let at = |i: usize| text.as_bytes()[i] == b'-';
        if !(at(8) && at(13) && at(18) && at(23)) {
            return false;
        }
        text.replace('-', "")
    } else {
        text.to_owned()
    };
    let hex = bare.len() == 32 && bare.bytes().all(|b| b.is_ascii_hexdigit());
    hex && version.is_none_or(|version| {
        let variant = version == b'3' || b"89abAB".contains(&bare.as_bytes()[16]);
        bare.as_bytes()[12] == version && variant
    })
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 255 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

fn is_email(text: &str) -> bool {
    let address = match text.strip_suffix('>').and_then(|rest| rest.split_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let atom =
        |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "()<>[]:;@\\,\"".contains(c));
    address.rsplit_once('@').is_some_and(|(local, domain)| {
        let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
        (quoted || local.split('.').all(atom)) && domain.split('.').all(atom)
    })
}

fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, rest)| {
        let scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        scheme && !rest.starts_with("//:")
    })
}

fn is_hex_color(text: &str) -> bool {
    let hex = text.strip_prefix('#').unwrap_or(text);
    matches!(hex.len(), 3 | 6) && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let parts = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'))
        .map(|inner| inner.split(',').map(str::trim).collect::<Vec<_>>());
    parts.is_some_and(|parts| {
        parts.len() == 3 && parts.iter().all(|part| digits(part) && part.parse::<u32>().is_ok_and(|n| n < 256))
    })
}

fn is_isbn10(text: &str) -> bool {
    let bare: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b' ')).collect();
    let shape =
        bare.len() == 10 && bare[..9].iter().all(u8::is_ascii_digit) && (bare[9].is_ascii_digit() || bare[9] == b'X');
    let value = |b: u8| if b == b'X' { 10 } else { u32::from(b - b'0') };
    shape && bare.iter().zip(1..).map(|(b, weight)| value(*b) * weight).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let bare: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b' ')).collect();
    let weighted = || bare.iter().enumerate().map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 3 });
    bare.len() == 13 && bare.iter().all(u8::is_ascii_digit) && weighted().sum::<u32>() % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let bare: Vec<u32> = text.chars().filter(|c| !matches!(c, '-' | ' ')).map_while(|c| c.to_digit(10)).collect();
    let doubled = |n: u32| if n > 4 { n * 2 - 9 } else { n * 2 };
    let luhn = || bare.iter().rev().enumerate().map(|(i, n)| if i % 2 == 1 { doubled(*n) } else { *n }).sum::<u32>();
    (13..=19).contains(&bare.len()) && luhn() % 10 == 0
}

fn is_ssn(text: &str) -> bool {
    let parts: Vec<&str> = text.split(['-', ' ']).collect();
    parts.len() == 3 && parts.iter().zip([3, 2, 4]).all(|(part, length)| part.len() == length && digits(part))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn formats_accept_the_same_values_as_kube_apiserver() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("date-time", &["2026-01-01T00:00:00Z"], &["2026-01-01", "2026-01-01T00:00:00"]),
            ("date", &["2026-02-28"], &["2026-02-30", "26-01-01"]),
            ("duration", &["5m", "3d", "5 minutes x", "2 weeks"], &["x", ""]),
            ("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "256.0.0.1", "::1"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "g::"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567", "123e4567-e89b-12d3-a456-42661417400g"]),
            ("email", &["a@b.c", "A <a@b>"], &["a", "a@", "a b@c"]),
            ("uri", &["http://x/y", "/path", "urn:a"], &["x y", "", "x"]),
            ("mac", &["00:11:22:33:44:55", "0011.2233.4455"], &["00:11:22:33:44"]),
            ("byte", &["YWJj", ""], &["a", "===="]),
            ("hostname", &["a.b", "localhost"], &["-a", "a_b"]),
            ("hexcolor", &["#fff", "00ff00"], &["#ff", "red"]),
        ];
        for (format, accepted, rejected) in cases {
            accepted.iter().for_each(|text| assert_eq!(check(format, text), Some(true), "{format} {text}"));
            rejected.iter().for_each(|text| assert_eq!(check(format, text), Some(false), "{format} {text}"));
        }
        assert_eq!(check("colour", "x"), None);
    }
}
