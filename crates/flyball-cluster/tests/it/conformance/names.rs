//! Placeholders for values that differ between runs.

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static UUID: LazyLock<Regex> = LazyLock::new(|| regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
});
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| regex(r"\bkube-api-access-[a-z0-9]{5}\b"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| regex(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| regex("^[0-9.]+$|^[0-9a-f:]+:"));
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| regex("<(uid|rv|gen|hash|continue|ip|port|token):([0-9]+)>"));

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("written here")
}

/// Placeholders of one run, numbered by first appearance, so that identity is still compared.
#[derive(Clone)]
pub(crate) struct Names {
    run: String,
    seen: BTreeMap<(&'static str, String), String>,
    /// Values that also occur within other texts, the longest first.
    within: Vec<(String, String)>,
    count: BTreeMap<&'static str, usize>,
}

impl Names {
    /// Starts with the run's own name.
    pub(crate) fn new(run: &str) -> Self {
        Self { run: run.into(), seen: BTreeMap::new(), within: Vec::new(), count: BTreeMap::new() }
    }

    fn of(&mut self, kind: &'static str, value: &str) -> String {
        if let Some(name) = self.seen.get(&(kind, value.to_owned())) {
            return name.clone();
        }
        let count = self.count.entry(kind).or_default();
        *count += 1;
        let name = format!("<{kind}:{count}>");
        self.seen.insert((kind, value.to_owned()), name.clone());
        if matches!(kind, "gen" | "hash" | "ip") && !value.is_empty() {
            self.within.push((value.to_owned(), name.clone()));
            self.within.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        }
        name
    }

    fn text(&mut self, text: &str) -> String {
        let text = text.replace(&self.run, "<id>");
        let text = UUID.replace_all(&text, |found: &Captures<'_>| self.of("uid", &found[0])).into_owned();
        let text = TIME.replace_all(&text, "<time>");
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<gen>").into_owned();
        let text = TOKEN.replace_all(&text, |found: &Captures<'_>| self.of("token", &found[0])).into_owned();
        self.within.iter().fold(text, |text, (value, name)| text.replace(value, name))
    }

    /// Records generated names, hashes and addresses, which may occur within other texts.
    pub(crate) fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let text = |field: &str| fields.get(field).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
                    && let Some(suffix) = name.strip_prefix(prefix).filter(|suffix| suffix.len() >= 4)
                {
                    self.of("gen", suffix);
                }
                for (key, value) in fields {
                    match (key.as_str(), value.as_str()) {
                        ("pod-template-hash" | "controller-revision-hash", Some(hash)) if !hash.is_empty() => {
                            self.of("hash", hash.rsplit('-').next().unwrap_or_default());
                        }
                        ("clusterIP", Some(address)) if ADDRESS.is_match(address) => {
                            self.of("ip", address);
                        }
                        _ => {}
                    }
                    self.learn(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    /// Inserts placeholders into a response.
    pub(crate) fn put(&mut self, value: &Value) -> Value {
        self.put_at(value, "")
    }

    fn put_at(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (self.text(key), self.put_at(value, key))).collect()
            }
            Value::Array(items) => {
                items.iter().filter(|item| !is_of_fork(item)).map(|item| self.put_at(item, key)).collect()
            }
            Value::String(text) => match key {
                "resourceVersion" if !text.is_empty() && text != "0" => self.of("rv", text).into(),
                "storageVersionHash" | "currentResourceVersion" if !text.is_empty() && text != "0" => {
                    format!("<{key}>").into()
                }
                "continue" if !text.is_empty() => self.of("continue", text).into(),
                _ => self.text(text).into(),
            },
            Value::Number(number)
                if matches!(key, "nodePort" | "healthCheckNodePort") && number.as_i64() != Some(0) =>
            {
                self.of("port", &number.to_string()).into()
            }
            other => other.clone(),
        }
    }
}

/// Returns true if an item is the config map that exists on the recorded server only.
fn is_of_fork(item: &Value) -> bool {
    const NAME: &str = "openshift-service-ca.crt";
    ["/configMap/name", "/metadata/name", "/object/metadata/name"]
        .iter()
        .any(|at| item.pointer(at).is_some_and(|name| name == NAME))
}

/// Renumbers placeholders over compared values only, so that excluded ones do not count.
#[derive(Default)]
pub(crate) struct Renumbering {
    seen: BTreeMap<String, String>,
    count: BTreeMap<String, usize>,
}

impl Renumbering {
    /// Renumbers the placeholders of the next value.
    pub(crate) fn apply(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let renumbered: Map<String, Value> =
                    fields.iter().map(|(key, value)| (self.text(key), self.apply(value))).collect();
                renumbered.into()
            }
            Value::Array(items) => items.iter().map(|item| self.apply(item)).collect(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let one = |found: &Captures<'_>| {
            let Self { seen, count } = &mut *self;
            let fresh = || {
                let count = count.entry(found[1].to_owned()).or_default();
                *count += 1;
                format!("<{}:{count}>", &found[1])
            };
            seen.entry(found[0].to_owned()).or_insert_with(fresh).clone()
        };
        PLACEHOLDER.replace_all(text, one).into_owned()
    }
}
