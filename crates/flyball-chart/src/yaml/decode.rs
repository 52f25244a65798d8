//! Decoding of documents: resolves tags, merges and aliases of nodes.

use super::parser::Node;
use super::resolve::resolve;
use super::{Data, Error};
use crate::message;
use crate::number::format_float;
use base64::Engine as _;
use std::collections::BTreeMap;
use std::rc::Rc;

const PREFIX: &str = "tag:yaml.org,2002:";

pub(super) fn decode(node: Rc<Node>) -> Result<Data, Error> {
    stacker::maybe_grow(128 << 10, 1 << 20, || match Rc::unwrap_or_clone(node) {
        Node::Scalar { tag, text, is_plain, .. } => scalar(&tag, text, is_plain),
        Node::Sequence { items } => items.into_iter().map(decode).collect::<Result<_, _>>().map(Data::List),
        Node::Mapping { entries } => mapping(entries).map(Data::Map),
    })
}

fn mapping(entries: Vec<(Rc<Node>, Rc<Node>)>) -> Result<BTreeMap<String, Data>, Error> {
    let mut map = BTreeMap::new();
    let mut merged = BTreeMap::new();
    for (key, value) in entries {
        if is_merge(&key) {
            merge(&mut merged, value)?;
            continue;
        }
        let value = decode(value)?;
        map.insert(key_text(decode(key)?, &value)?, value);
    }
    for (key, value) in merged {
        map.entry(key).or_insert(value);
    }
    Ok(map)
}

fn is_merge(key: &Node) -> bool {
    match key {
        Node::Scalar { tag, text, is_plain, .. } => {
            text == "<<" && ((tag.is_empty() && *is_plain) || tag.strip_prefix(PREFIX) == Some("merge"))
        }
        _ => false,
    }
}

/// Decodes `<<`: one mapping, or several; the first one takes precedence.
fn merge(into: &mut BTreeMap<String, Data>, value: Rc<Node>) -> Result<(), Error> {
    let wants_map = || Error::Yaml("map merge requires map or sequence of maps as the value".to_owned());
    let one = |into: &mut BTreeMap<String, Data>, node: Rc<Node>| match Rc::unwrap_or_clone(node) {
        Node::Mapping { entries } => {
            for (key, value) in mapping(entries)? {
                into.entry(key).or_insert(value);
            }
            Ok(())
        }
        _ => Err(wants_map()),
    };
    match &*value {
        Node::Mapping { .. } => one(into, value),
        Node::Sequence { items } => items.iter().try_for_each(|item| one(into, Rc::clone(item))),
        Node::Scalar { .. } => Err(wants_map()),
    }
}

fn scalar(tag: &str, text: String, is_plain: bool) -> Result<Data, Error> {
    let short = tag.strip_prefix(PREFIX).unwrap_or(tag);
    let resolved = if is_plain || !tag.is_empty() { resolve(&text) } else { None };
    let invalid = |is: &str| Err(Error::Yaml(format!("cannot decode !!{is} `{text}` as a !!{short}")));
    match (short, resolved) {
        ("str", _) => Ok(Data::Str(text)),
        ("binary", _) => match base64::engine::general_purpose::STANDARD.decode(text.replace(['\n', ' '], "")) {
            Ok(bytes) => Ok(Data::Str(String::from_utf8_lossy(&bytes).into_owned())),
            Err(_) => Err(Error::Yaml("!!binary value contains invalid base64 data".to_owned())),
        },
        ("int", Some(whole @ (Data::Int(_) | Data::Uint(_))))
        | ("bool", Some(whole @ Data::Bool(_)))
        | ("null", Some(whole @ Data::Null)) => Ok(whole),
        #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
        ("float", Some(Data::Int(whole))) => Ok(Data::Float(whole as f64)),
        ("float", Some(float @ Data::Float(_))) => Ok(float),
        ("timestamp", _) if super::resolve::is_timestamp(&text) => Ok(Data::Str(text)),
        ("int" | "bool" | "null" | "float" | "timestamp", other) => {
            invalid(other.map_or("str", |other| other.yaml_type()))
        }
        (_, Some(resolved)) if is_plain => Ok(resolved),
        _ => Ok(Data::Str(text)),
    }
}

/// JSON keys are strings: other scalars are converted.
fn key_text(key: Data, value: &Data) -> Result<String, Error> {
    let unsupported =
        |key: String| Err(Error::Key(format!("unsupported map key of type: {key}, value: {}", go_syntax(value))));
    Ok(match key {
        Data::Str(text) => text,
        Data::Int(whole) => whole.to_string(),
        Data::Bool(is) => is.to_string(),
        Data::Float(number) if number == f64::INFINITY => ".inf".to_owned(),
        Data::Float(number) if number == f64::NEG_INFINITY => "-.inf".to_owned(),
        Data::Float(number) if number.is_nan() => ".nan".to_owned(),
        Data::Float(number) => {
            #[allow(clippy::cast_possible_truncation, reason = "keys are written with the precision of 32 bits")]
            let short = number as f32;
            format_float(format!("{short}").parse().unwrap_or(number))
        }
        Data::Uint(whole) => {
            return unsupported(format!("uint64, key: {whole:#x}"));
        }
        Data::Null => return unsupported("%!s(<nil>), key: <nil>".to_owned()),
        Data::List(_) | Data::Map(_) => return Err(Error::Yaml(format!("invalid map key: {}", go_syntax(&key)))),
    })
}

/// Formats a value as Go's `%#v`, up to the limit of messages.
fn go_syntax(data: &Data) -> String {
    let mut out = String::new();
    write_go_syntax(&mut out, data);
    out
}

fn write_go_syntax(out: &mut String, data: &Data) {
    if message::is_beyond_limit(out.len()) {
        return;
    }
    match data {
        Data::Null => out.push_str("interface {}(nil)"),
        Data::Bool(is) => out.push_str(&is.to_string()),
        Data::Int(whole) => out.push_str(&whole.to_string()),
        Data::Uint(whole) => out.push_str(&format!("{whole:#x}")),
        Data::Float(number) => out.push_str(&format_float(*number)),
        Data::Str(text) => out.push_str(&message::quoted(text)),
        Data::List(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_go_syntax(out, item);
            }
            out.push('}');
        }
        Data::Map(entries) => {
            out.push_str("map[interface {}]interface {}{");
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(&message::quoted(key));
                out.push(':');
                write_go_syntax(out, value);
            }
            out.push('}');
        }
    }
}
