//! The parameters of debug pages.

use crate::kind::Kind;
use crate::proxy::percent_decoded;
use flyball_core::ObjectKey;
use flyball_core::time::{Timestamp, parse_rfc3339};

/// Default of the limit of reconciles.
const DEFAULT_LIMIT: usize = 100;
/// Maximum of the limit of reconciles.
const MAX_LIMIT: usize = 1000;

/// The objects that are selected; an absent parameter selects all.
#[derive(Debug, Default)]
pub(super) struct SelectedObject {
    group: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// The parameters of the page with reconciles.
#[derive(Debug)]
pub(super) struct ReconcileQuery {
    controller: Option<String>,
    pub(super) object: SelectedObject,
    pub(super) id: Option<u64>,
    pub(super) involves: bool,
    pub(super) since: Option<Timestamp>,
    pub(super) limit: usize,
}

/// The parameters of the page about an object.
#[derive(Debug)]
pub(super) struct ObjectQuery {
    pub(super) object: SelectedObject,
}

impl SelectedObject {
    /// Sets a parameter, and returns false if it is not one of an object.
    fn set(&mut self, name: &str, value: String) -> bool {
        let field = match name {
            "group" => &mut self.group,
            "kind" => &mut self.kind,
            "namespace" => &mut self.namespace,
            "name" => &mut self.name,
            _ => return false,
        };
        *field = Some(value);
        true
    }

    pub(super) fn matches_kind(&self, kind: &Kind) -> bool {
        let gvk = kind.gvk();
        self.group.as_deref().is_none_or(|group| group == &*gvk.group)
            && self.kind.as_deref().is_none_or(|name| name == &*gvk.kind)
    }

    pub(super) fn matches(&self, kind: &Kind, key: &ObjectKey) -> bool {
        self.name.as_deref().is_none_or(|name| name == key.name())
            && self.namespace.as_deref().is_none_or(|namespace| key.namespace().unwrap_or_default() == namespace)
            && self.matches_kind(kind)
    }
}

impl ReconcileQuery {
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let object = SelectedObject::default();
        let mut parsed =
            Self { controller: None, object, id: None, involves: false, since: None, limit: DEFAULT_LIMIT };
        for (name, value) in parameters(query) {
            let wrong = |expected: &str| format!("{name}: invalid value {value:?}, expected {expected}");
            match &*name {
                "controller" => parsed.controller = Some(value),
                "id" => parsed.id = Some(u64::from_str_radix(&value, 16).map_err(|_| wrong("16 hexadecimal digits"))?),
                "involves" => parsed.involves = value.parse().map_err(|_| wrong("true or false"))?,
                "since" => parsed.since = Some(parse_rfc3339(&value).ok_or_else(|| wrong("a time in RFC 3339"))?),
                "limit" => {
                    let limit = value.parse::<usize>().map_err(|_| wrong("a number"))?;
                    parsed.limit = limit.clamp(1, MAX_LIMIT);
                }
                _ if parsed.object.set(&name, value) => {}
                _ => {
                    return Err(format!(
                        "{name:?} is not a parameter: use controller, group, kind, namespace, name, id, involves, \
                         since or limit"
                    ));
                }
            }
        }
        Ok(parsed)
    }

    /// Returns true if reconciles of a controller are selected.
    pub(super) fn is_of(&self, controller: &str) -> bool {
        self.controller.as_deref().is_none_or(|name| name == controller)
    }
}

impl ObjectQuery {
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut object = SelectedObject::default();
        for (name, value) in parameters(query) {
            if !object.set(&name, value) {
                return Err(format!("{name:?} is not a parameter: use group, kind, namespace and name"));
            }
        }
        match (&object.kind, &object.name) {
            (Some(_), Some(_)) => Ok(Self { object }),
            _ => Err("kind and name are required".into()),
        }
    }

    /// Returns the key of the object.
    pub(super) fn key(&self) -> ObjectKey {
        let namespace = self.object.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        ObjectKey::new(namespace, self.object.name.as_deref().unwrap_or_default())
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &str| String::from_utf8_lossy(&percent_decoded(&text.replace('+', " "))).into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(move |pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(move |(name, value)| (decoded(name), decoded(value)))
}
