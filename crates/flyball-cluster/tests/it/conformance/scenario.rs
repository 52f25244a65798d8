//! The file format of scenarios.

use flyball_core::json::RawJson;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario and its recording.
#[derive(Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    /// Additional variables.
    #[serde(default)]
    pub(crate) vars: BTreeMap<String, Value>,
    /// True if it requires controllers.
    #[serde(default)]
    pub(crate) controllers: bool,
}

/// One step: a request, a watch, the events of a watch, or a wait; and its result.
#[derive(Deserialize)]
pub(crate) struct Step {
    pub(crate) request: Option<Call>,
    /// Variables to capture from the response, each by a JSON pointer.
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, String>,
    /// The content that the response must eventually have; the request is repeated until then.
    pub(crate) eventually: Option<Value>,
    /// Timeout of a wait in seconds.
    pub(crate) within: Option<f64>,
    pub(crate) watch: Option<Value>,
    pub(crate) collect: Option<Value>,
    /// The response of a webhook from now on.
    pub(crate) webhook: Option<Value>,
    pub(crate) received: Option<Value>,
    pub(crate) sleep: Option<f64>,
    #[serde(default)]
    pub(crate) compare: Compare,
    /// JSON pointers to values that are not compared; `*` is any step.
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
    pub(crate) expect: Value,
}

/// A request. Its body is kept as text, since the order of keys is visible in responses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Call {
    pub(crate) method: Option<String>,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) query: Map<String, Value>,
    #[serde(default)]
    pub(crate) headers: Map<String, Value>,
    #[serde(skip)]
    pub(crate) body: Option<String>,
    pub(crate) raw: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) accept: Option<String>,
    pub(crate) user: Option<Value>,
}

/// The compared part of a response.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compare {
    #[default]
    Body,
    /// Code, reason and details.
    Status,
    /// The HTTP code alone.
    Code,
    /// The response must contain this.
    Subset(Value),
}

/// Reads all scenarios of a directory, by name.
pub(crate) fn read_all(folder: &Path) -> Vec<Scenario> {
    let entries = std::fs::read_dir(folder).expect("the recordings are checked in");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("just listed");
        let mut scenario: Scenario =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let steps = RawJson(&text).find("steps").ok().flatten().and_then(RawJson::elements).unwrap_or_default();
        for (step, raw) in scenario.steps.iter_mut().zip(steps) {
            let body = || raw.find("request").ok().flatten()?.find("body").ok().flatten();
            if let (Some(request), Some(body)) = (&mut step.request, body()) {
                request.body = Some(body.0.to_owned()).filter(|body| body != "null");
            }
        }
        scenario
    };
    paths.iter().map(|path| read(path)).collect()
}

/// Values for `${NAME}` in the requests of a scenario.
pub(crate) struct Variables(pub(crate) BTreeMap<String, Value>);

impl Variables {
    /// Replaces variables by their values; a text that is one variable becomes that value.
    pub(crate) fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                match text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).and_then(|name| self.0.get(name))
                {
                    Some(value) => value.clone(),
                    None => self.text(text).into(),
                }
            }
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => fields.iter().map(|(key, value)| (self.text(key), self.fill(value))).collect(),
            other => other.clone(),
        }
    }

    /// Replaces variables within a text.
    pub(crate) fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), &plain(value)))
    }

    /// Replaces variables within the text of a JSON document.
    pub(crate) fn json(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| {
            let quoted = Value::from(plain(value)).to_string();
            let whole = text.replace(&format!("\"${{{name}}}\""), &value.to_string());
            whole.replace(&format!("${{{name}}}"), &quoted[1..quoted.len() - 1])
        })
    }
}

/// Writes a value without the quotes of a text.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
