//! Filters of texts: shortened texts, URLs, paths, UUIDs and names with a hash.

use super::output::check_size;
use super::{from_json, python, reject, to_json, weigh};
use crate::value::{Map, Value as Json, json};
use flyball_core::hex;
use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, State};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// The namespace of UUIDs that `to_uuid` creates by default.
const UUID_NAMESPACE: &str = "361E6D51-FAEC-444A-9079-341386DA8E2E";

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("truncate", truncate);
    env.add_filter("hash", |text: String, kind: Option<String>| hash(&text, kind.as_deref().unwrap_or("sha1")));
    for name in ["checksum", "sha1"] {
        env.add_filter(name, |text: String| hash(&text, "sha1"));
    }
    env.add_filter("urlsplit", |url: String, part: Option<String>| {
        let parts = split_url(&url);
        match part {
            None => Ok(from_json(Json::Object(parts).sorted())),
            Some(part) => parts.get(&part).map(from_json).ok_or_else(|| reject("urlsplit: unknown URL component")),
        }
    });
    env.add_filter("splitext", |path: String| {
        let name = path.rfind('/').map_or(0, |at| at + 1);
        // Leading periods do not begin an extension.
        let start = name + path[name..].find(|letter| letter != '.').unwrap_or(path.len() - name);
        let at = path[start..].rfind('.').map_or(path.len(), |at| start + at);
        Value::from((&path[..at], &path[at..]))
    });
    env.add_filter("to_uuid", |state: &State<'_, '_>, value: Value, namespace: Option<String>, options: Kwargs| {
        let namespace = namespace.or(options.get("namespace")?).unwrap_or_else(|| UUID_NAMESPACE.to_owned());
        options.assert_all_used()?;
        weigh(state, &value)?;
        uuid(&namespace, &python::text(&value)?).ok_or_else(|| reject("to_uuid: invalid namespace"))
    });
    for name in ["k8s_config_resource_name", "kubernetes.core.k8s_config_resource_name"] {
        env.add_filter(name, |state: &State<'_, '_>, object: Value| {
            weigh(state, &object)?;
            let object = to_json(&object)?;
            let name = object["metadata"]["name"].as_str();
            let name =
                name.ok_or_else(|| reject("resource must have a metadata.name key to generate a resource name"))?;
            let hash = hash_of(&object).ok_or_else(|| reject("the resource must be a ConfigMap or a Secret"))?;
            Ok::<_, Error>(format!("{name}-{hash}"))
        });
    }
}

/// The kinds of the filter `hash`.
pub(super) const HASHES: [&str; 4] = ["sha1", "sha256", "sha384", "sha512"];

fn hash(text: &str, kind: &str) -> Result<String, Error> {
    let algorithm = match kind {
        "sha1" => &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => &ring::digest::SHA256,
        "sha384" => &ring::digest::SHA384,
        "sha512" => &ring::digest::SHA512,
        other => {
            return Err(reject(format!(
                "the built-in executor does not support hash {other}; supported: {}",
                HASHES.join(", ")
            )));
        }
    };
    Ok(hex::encode(digest(algorithm, text.as_bytes()).as_ref()))
}

/// The filter `truncate(length, killwords, end, leeway)`.
fn truncate(state: &State<'_, '_>, text: Value, arguments: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    weigh(state, &text)?;
    let text = python::text(&text)?;
    let argument = |at: usize, name: &str| match arguments.get(at) {
        Some(value) => Ok(Some(value.clone())),
        None => options.get::<Option<Value>>(name),
    };
    let number = |value: Option<Value>, default: usize| value.map_or(Ok(default), usize::try_from);
    let length = number(argument(0, "length")?, 255)?;
    let cuts_words = argument(1, "killwords")?.is_some_and(|value| value.is_true());
    let end = argument(2, "end")?.map_or("...".to_owned(), |end| end.to_string());
    let leeway = number(argument(3, "leeway")?, 5)?;
    options.assert_all_used()?;
    let Some(kept) = length.checked_sub(end.chars().count()) else {
        return Err(reject(format!("truncate: expected length >= {}, got {length}", end.chars().count())));
    };
    let cut = |count: usize| text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
    if cut(length.saturating_add(leeway)) == text.len() {
        return Ok(text);
    }
    let start = &text[..cut(kept)];
    let start = if cuts_words { start } else { start.rsplit_once(' ').map_or(start, |(start, _)| start) };
    check_size("truncate", start.len() + end.len())?;
    Ok(start.to_owned() + &end)
}

/// Returns the parts of a URL, as Python's `urlsplit` does.
fn split_url(url: &str) -> Map {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", url));
    let (netloc, rest) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (account, host) = netloc.rsplit_once('@').map_or((None, netloc), |(account, host)| (Some(account), host));
    let (user, password) = match account.map(|account| account.split_once(':').ok_or(account)) {
        Some(Ok((user, password))) => (Some(user), Some(password)),
        Some(Err(user)) => (Some(user), None),
        None => (None, None),
    };
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
    };
    let parts = json!({
        "scheme": scheme.to_ascii_lowercase(),
        "netloc": netloc,
        "path": path,
        "query": query,
        "fragment": fragment,
        "username": user,
        "password": password,
        "hostname": Some(host.to_lowercase()).filter(|host| !host.is_empty()),
        "port": port.and_then(|port| port.parse::<u16>().ok()),
    });
    if let Json::Object(parts) = parts { parts } else { Map::new() }
}

/// Returns the UUID of version 5 for a text; `None` if the namespace is not a UUID.
fn uuid(namespace: &str, text: &str) -> Option<String> {
    let digits = namespace.replace('-', "");
    let namespace = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(&namespace.to_be_bytes());
    hash.update(text.as_bytes());
    let hash = hash.finish();
    let mut bytes: [u8; 16] = hash.as_ref().get(..16)?.try_into().ok()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x50;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex::encode(&bytes);
    Some(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// Returns the hash in the name of a ConfigMap or Secret, as kustomize does; `None` for other kinds.
pub(crate) fn hash_of(object: &Json) -> Option<String> {
    let fields = match object["kind"].as_str()? {
        "ConfigMap" => &["data", "kind", "name"][..],
        "Secret" => &["data", "kind", "name", "type"],
        _ => return None,
    };
    let value = |field: &str| {
        let value = if field == "name" { &object["metadata"]["name"] } else { &object[field] };
        ascii(&if value.is_null() { json!("") } else { sorted(value) }.to_string())
    };
    let fields: Vec<String> = fields.iter().map(|field| format!("\"{field}\":{}", value(field))).collect();
    let hash = digest(&SHA256, format!("{{{}}}", fields.join(",")).as_bytes());
    let hex = hex::encode(&hash.as_ref()[..5]);
    let letter = |letter: char| match letter {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    Some(hex.chars().map(letter).collect())
}

/// Sorts the fields of maps.
fn sorted(value: &Json) -> Json {
    let Json::Object(fields) = value else { return value.clone() };
    let mut fields: Vec<_> = fields.iter().map(|(key, field)| (key.clone(), sorted(field))).collect();
    fields.sort_by(|(left, _), (right, _)| left.cmp(right));
    Json::Object(fields.into_iter().collect())
}

/// Escapes other characters than ASCII, as Python's JSON does.
pub(super) fn ascii(json: &str) -> String {
    let mut out = String::new();
    let mut units = [0; 2];
    for letter in json.chars() {
        match letter.is_ascii() {
            true => out.push(letter),
            false => letter.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out
}
