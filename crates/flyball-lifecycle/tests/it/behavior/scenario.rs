//! Recorded scenarios: steps with actions, conditions to wait for, and what was observed.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

#[derive(Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Deserialize)]
pub(crate) struct Step {
    pub(crate) text: String,
    #[serde(rename = "do")]
    actions: Vec<Map<String, Value>>,
    pub(crate) until: Vec<Condition>,
    timeout: f64,
    quiet: f64,
    pub(crate) expect: Expectation,
}

/// The observations of a step.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Expectation {
    pub(crate) sequences: BTreeMap<String, Vec<Value>>,
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) removed: Vec<String>,
    #[serde(default)]
    pub(crate) varies: Vec<String>,
    #[serde(default)]
    pub(crate) until_not_reached: bool,
    #[serde(default)]
    pub(crate) responses: Vec<Value>,
    #[serde(default)]
    pub(crate) refused: Vec<Value>,
}

/// An object that a condition or an action is about.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Target {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) name_like: Option<String>,
    pub(crate) install_plan_of: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Condition {
    #[serde(flatten)]
    pub(crate) target: Target,
    path: Option<String>,
    equals: Option<Value>,
    differs: Option<Value>,
    matches: Option<String>,
    condition: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) absent: bool,
    pub(crate) seen: Option<Map<String, Value>>,
}

pub(crate) enum Action {
    Create(Value),
    CreateFromCatalog { bundle: String, kind: String, namespace: String },
    Patch { target: Target, body: Value, is_strategic: bool },
    Delete(Target),
    Pods { app: String, is_ready: bool },
    CatalogServer { runs: bool },
    PackageServer,
    Get { path: String, accept: Option<String> },
    Sleep(Duration),
}

impl Scenario {
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/behavior/scenarios/{name}.json"));
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Step {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    pub(crate) fn quiet(&self) -> Duration {
        Duration::from_secs_f64(self.quiet)
    }

    pub(crate) fn actions(&self) -> impl Iterator<Item = Action> {
        self.actions.iter().map(Action::of)
    }
}

impl Action {
    fn of(fields: &Map<String, Value>) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = |value: &Value| serde_json::from_value(value.clone()).unwrap();
        let (name, value) = fields.iter().find(|(name, _)| *name != "accept").unwrap();
        match name.as_str() {
            "create" => Self::Create(value.clone()),
            "createFromCatalog" => {
                let [bundle, kind, namespace] = ["bundle", "kind", "namespace"].map(|field| text(&value[field]));
                Self::CreateFromCatalog { bundle, kind, namespace }
            }
            "patch" => Self::Patch {
                target: target(&value["target"]),
                body: value["body"].clone(),
                is_strategic: value["type"] == "strategic-merge",
            },
            "delete" => Self::Delete(target(value)),
            "pods" => Self::Pods { app: text(&value["app"]), is_ready: value["ready"] == true },
            "catalogServer" => Self::CatalogServer { runs: value == "start" },
            "packageServer" => Self::PackageServer,
            "get" => Self::Get { path: text(value), accept: fields.get("accept").map(text) },
            "sleep" => Self::Sleep(Duration::from_secs_f64(value.as_f64().unwrap_or_default())),
            other => panic!("unknown action {other}"),
        }
    }
}

impl Condition {
    /// Returns true if it holds for the object, or its absence.
    pub(crate) fn holds(&self, object: Option<&Value>) -> bool {
        let Some(object) = object else { return self.absent };
        let at = || {
            let path = self.path.as_deref().unwrap_or_default();
            path.split('.').try_fold(object, |value, field| value.get(field)).cloned().unwrap_or_default()
        };
        if self.absent {
            return false;
        }
        if let Some(expected) = &self.condition {
            let conditions = object["status"]["conditions"].as_array();
            let matches = |found: &Value| expected.iter().all(|(field, value)| found[field] == *value);
            return conditions.into_iter().flatten().any(matches);
        }
        self.equals.as_ref().is_none_or(|expected| at() == *expected)
            && self.differs.as_ref().is_none_or(|unexpected| at() != *unexpected)
            && self
                .matches
                .as_ref()
                .is_none_or(|pattern| regex::Regex::new(pattern).unwrap().is_match(at().as_str().unwrap_or_default()))
    }
}
