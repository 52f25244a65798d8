//! URLs, as Go's `net/url` parses and formats them.

use super::{DICT, STR, Table, cost, dict, text};
use crate::message;
use crate::quote::quote;
use crate::value::{Map, Value};

pub(super) fn add(table: &mut Table) {
    table.add("urlParse", cost::letters, &[STR], |_, args| {
        let written = text(&args[0]);
        let url = Url::parse(&written)
            .map_err(|message| format!("unable to parse url: parse {}: {message}", message::quoted(&written)))?;
        let entries = [
            ("scheme", url.scheme.clone()),
            ("hostname", url.hostname()),
            ("host", url.host),
            ("path", url.path),
            ("query", url.query),
            ("opaque", url.opaque),
            ("fragment", url.fragment),
            ("userinfo", url.user.unwrap_or_default()),
        ];
        Ok(Value::map(entries.into_iter().map(|(key, value)| (key.to_owned(), Value::str(value))).collect()))
    });
    table.add("urlJoin", cost::letters, &[DICT], |_, args| {
        let map = dict(&args[0]);
        let user = word(&map, "userinfo")?;
        let url = Url {
            scheme: word(&map, "scheme")?,
            host: word(&map, "host")?,
            path: word(&map, "path")?,
            query: word(&map, "query")?,
            opaque: word(&map, "opaque")?,
            fragment: word(&map, "fragment")?,
            user: (!user.is_empty()).then_some(user),
        };
        Ok(Value::str(url.write()))
    });
}

fn word(map: &Map, key: &str) -> Result<String, String> {
    match map.get(key) {
        None => Ok(String::new()),
        Some(value @ Value::Str(_)) => Ok(text(&value).into_owned()),
        Some(other) => Err(format!("unable to parse {key} key, must be of type string, but {} found", other.kind())),
    }
}

struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    opaque: String,
    fragment: String,
    user: Option<String>,
}

/// Escapes characters that are not allowed in a part of a URL.
fn escape(text: &str, allowed: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-_.~".contains(c) || allowed.contains(c) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// `url.QueryEscape`.
pub(super) fn query_escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        let c = char::from(*byte);
        if c == ' ' {
            out.push('+');
        } else if c.is_ascii_alphanumeric() || "-_.~".contains(c) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => out.push(byte),
            None => {
                let escape = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]);
                return Err(format!("invalid URL escape {}", quote(escape.as_bytes())));
            }
        }
        at += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

impl Url {
    fn parse(written: &str) -> Result<Url, String> {
        if written.chars().any(|c| c.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (rest, fragment) = written.split_once('#').unwrap_or((written, ""));
        let mut url = Url {
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            query: String::new(),
            opaque: String::new(),
            fragment: unescape(fragment)?,
            user: None,
        };
        let (scheme, rest) = split_scheme(rest)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            let segment = rest.split('/').next().unwrap_or("");
            if segment.contains(':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        if let Some(after) = rest.strip_prefix("//").filter(|_| !url.scheme.is_empty() || !rest.starts_with("///")) {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, remaining) = after.split_at(end);
            path = remaining;
            let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
            if let Some(user) = user {
                if !user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)) {
                    return Err("net/url: invalid userinfo".to_owned());
                }
                let (name, password) = user.split_once(':').map_or((user, None), |(name, pass)| (name, Some(pass)));
                let mut userinfo = escape(&unescape(name)?, "$&+,;=");
                if let Some(password) = password {
                    userinfo = format!("{userinfo}:{}", escape(&unescape(password)?, "$&+,;="));
                }
                url.user = Some(userinfo);
            }
            url.host = parse_host(host)?;
        }
        url.path = unescape(path)?;
        Ok(url)
    }

    fn hostname(&self) -> String {
        let host = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':') => host,
            _ => &self.host,
        };
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    }

    fn write(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&format!("{}:", self.scheme));
        }
        if self.opaque.is_empty() {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    out.push_str("//");
                }
                if let Some(user) = &self.user {
                    out.push_str(&format!("{user}@"));
                }
                out.push_str(&escape(&self.host, "!$&'()*+,;=:[]<>\""));
            }
            let path = escape(&self.path, "$&+,/:;=@!'()*");
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            if out.is_empty() && path.split('/').next().is_some_and(|first| first.contains(':')) {
                out.push_str("./");
            }
            out.push_str(&path);
        } else {
            out.push_str(&self.opaque);
        }
        if !self.query.is_empty() {
            out.push_str(&format!("?{}", self.query));
        }
        if !self.fragment.is_empty() {
            out.push_str(&format!("#{}", escape(&self.fragment, "$&+,/:;=?@!'()*")));
        }
        out
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_host(host: &str) -> Result<String, String> {
    if let Some(c) =
        host.chars().find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(*c))
    {
        return Err(format!("invalid character {} in host name", quote(c.to_string().as_bytes())));
    }
    if host.starts_with('[') && !host.contains(']') {
        return Err("missing ']' in host".to_owned());
    }
    if let Some((name, port)) = host.rsplit_once(':')
        && !name.contains('[') | name.ends_with(']')
        && !port.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(format!("invalid port {} after host", message::quoted(&format!(":{port}"))));
    }
    unescape(host)
}
