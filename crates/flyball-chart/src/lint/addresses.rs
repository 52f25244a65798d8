//! Validation of addresses in `Chart.yaml`: email addresses, web pages and URLs.
//!
//! Follows the rules of asaskevich/govalidator, which Helm uses, and of Go's URL parser.

use regex::Regex;
use std::sync::LazyLock;

/// Non-ASCII letters in email addresses.
const WIDE: &str = r"\x{A0}-\x{D7FF}\x{F900}-\x{FDCF}\x{FDF0}-\x{FFEF}";
/// Non-ASCII letters in host names.
const WIDE_HOST: &str = r"\x{A1}-\x{FFFF}";
const MAX_URL: usize = 2083;
const MIN_URL: usize = 3;

static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    let atom = format!(r"[a-zA-Z0-9!#$%&'*+\-/=?^_`{{|}}~{WIDE}]+");
    let blank = r"(?:(?:[ \t]*\r\n)?[ \t]+)?";
    let plain = format!(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f\x21\x23-\x5b\x5d-\x7e{WIDE}]");
    // The original pattern has an opening parenthesis instead of a backslash.
    let escaped = format!(r"\([\x01-\x09\x0b\x0c\x0d-\x7f]|[{WIDE}]");
    // Its repetition includes the quotation mark.
    let quoted = format!(r#"(?:"{blank}(?:{plain}|{escaped}))*{blank}""#);
    let (first, middle) = (format!("[a-zA-Z0-9{WIDE}]"), format!("[a-zA-Z0-9.\\-_~{WIDE}]"));
    let (last, last_middle) = (format!("[a-zA-Z{WIDE}]"), format!("[a-zA-Z0-9\\-_~{WIDE}]"));
    let domain = format!(r"(?:(?:{first}|{first}{middle}*{first})\.)+(?:{last}|{last}{last_middle}*{last})\.?");
    Regex::new(&format!(r"^(?:{atom}(?:\.{atom})*|{quoted})@{domain}$")).expect("a constant pattern")
});

static URL: LazyLock<Regex> = LazyLock::new(|| {
    let ip4 = r"(?:[1-9][0-9]?|1[0-9]{2}|2[01][0-9]|22[0-3]|24[0-9]|25[0-5])(?:\.(?:[0-9]{1,2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])){2}\.(?:[0-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])";
    let byte = r"(?:25[0-5]|(?:2[0-4]|1?[0-9])?[0-9])";
    let hex = "[0-9a-fA-F]{1,4}";
    let mut ip6 = vec![format!("(?:{hex}:){{7}}{hex}"), format!("(?:{hex}:){{1,7}}:")];
    ip6.extend((1..=6).map(|tail| format!("(?:{hex}:){{1,{}}}(?::{hex}){{1,{tail}}}", 7 - tail)));
    ip6.push(format!(":(?:(?::{hex}){{1,7}}|:)"));
    ip6.push(r"fe80:(?::[0-9a-fA-F]{0,4}){0,4}%[0-9a-zA-Z]+".to_owned());
    ip6.push(format!(r"::(?:ffff(?::0{{1,4}})?:)?(?:{byte}\.){{3}}{byte}"));
    ip6.push(format!(r"(?:{hex}:){{1,4}}:(?:{byte}\.){{3}}{byte}"));
    let ip6 = ip6.join("|");
    let subdomain = r"(?:www\.|[a-zA-Z0-9]+(?:[-_.]?[a-zA-Z0-9])*[a-zA-Z0-9]\.[a-zA-Z0-9]+)";
    let prefix = format!(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9_-]+)?[a-zA-Z0-9](?:[-.][a-zA-Z0-9]+)*|{subdomain}?)");
    let word = format!("[a-zA-Z{WIDE_HOST}0-9]");
    let name = format!(r"{prefix}?(?:(?:{word}+-?-?)*{word}+)(?:\.[a-zA-Z{WIDE_HOST}]+)?");
    let space = r"[^\t\n\f\r ]";
    let head = format!(r"(?:(?:ftp|tcp|udp|wss?|https?)://)?(?:{space}+(?::{space}*)?@)?");
    let tail = format!(r"\.?(?::[0-9]{{1,5}})?(?:[/?#]{space}*)?");
    Regex::new(&format!(r"^{head}(?:{ip4}|\[(?:{ip6})\]|{name}){tail}$")).expect("a constant pattern")
});

pub(super) fn is_email(text: &str) -> bool {
    EMAIL.is_match(text)
}

/// Returns true for the address of a web page, with or without a scheme.
pub(super) fn is_url(text: &str) -> bool {
    if text.chars().count() >= MAX_URL || text.len() <= MIN_URL || text.starts_with('.') {
        return false;
    }
    let lacks_scheme = text.contains(':') && !text.contains("://");
    let whole = if lacks_scheme { format!("http://{text}") } else { text.to_owned() };
    // Fragments are not removed from request URIs.
    let whole = whole.split('#').next().unwrap_or_default();
    let Some(parts) = parse(whole, false) else { return false };
    if parts.host.starts_with('.') || (parts.host.is_empty() && !parts.path.is_empty() && !parts.path.contains('.')) {
        return false;
    }
    URL.is_match(text)
}

/// Returns true for an absolute URL.
pub(super) fn is_request_url(text: &str) -> bool {
    !text.is_empty() && parse(text, true).is_some_and(|parts| parts.has_scheme)
}

struct Parts<'u> {
    has_scheme: bool,
    host: &'u str,
    path: &'u str,
}

/// Parses a URL like Go's `url.Parse`; `None` if Go rejects it.
fn parse(text: &str, is_request: bool) -> Option<Parts<'_>> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return None;
    }
    let (scheme, rest) = scheme(text)?;
    let has_scheme = !scheme.is_empty();
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        if has_scheme {
            return Some(Parts { has_scheme, host: "", path: "" });
        }
        let first = rest.split('/').next().unwrap_or_default();
        if is_request || first.contains(':') {
            return None;
        }
    }
    let has_host = has_scheme || (!is_request && !rest.starts_with("///"));
    let (host, path) = match rest.strip_prefix("//").filter(|_| has_host) {
        None => ("", rest),
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            let is_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            (user.chars().all(is_user) && is_escaped(user) && is_host(host)).then_some((host, path))?
        }
    };
    is_escaped(path).then_some(Parts { has_scheme, host, path })
}

/// Splits off the scheme, which may be empty. `None` if the URL begins with a colon.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return None,
            ':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

fn is_host(host: &str) -> bool {
    let is_port = |port: &str| {
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let port = match host.strip_prefix('[') {
        Some(_) => match host.rfind(']') {
            Some(end) => &host[end + 1..],
            None => return false,
        },
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let is_plain = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~%".contains(c);
    // In a host, only non-ASCII bytes may be escaped.
    let mut escapes = host.split('%').skip(1);
    let is_wide = |rest: &str| {
        rest.starts_with("25") || rest.starts_with(|c: char| matches!(c, '8'..='9' | 'a'..='f' | 'A'..='F'))
    };
    is_port(port) && host.chars().all(is_plain) && is_escaped(host) && escapes.all(is_wide)
}

/// Returns true if each percent sign is followed by two hexadecimal digits.
fn is_escaped(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(|rest| is_hex(rest.as_bytes().first()) && is_hex(rest.as_bytes().get(1)))
}
