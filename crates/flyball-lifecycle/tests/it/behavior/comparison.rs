//! Comparison of what was observed with what is expected, with placeholders in the expectation.

use regex::Regex;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

static PLACEHOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"<(?:(?:api-|csv-)?hash-\d+|rand|ca|cluster-ip|data|varies|age)>").unwrap());

/// A place where the observation differs from the expectation.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    /// The key of the object.
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) expected: Option<Value>,
    pub(crate) actual: Option<Value>,
}

/// The values of numbered placeholders.
#[derive(Clone, Default)]
pub(crate) struct Bindings(BTreeMap<String, String>);

/// Returns a compiled pattern. Compiling takes longer than everything else in a comparison.
pub(crate) fn compiled(pattern: String) -> Regex {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|known| {
        known.entry(pattern).or_insert_with_key(|pattern| Regex::new(pattern).unwrap()).clone()
    })
}

/// Returns the pattern of a text before a placeholder. Names are cut off so that they end with the hash within 63
/// characters; the hashes of OLM have no fixed length.
fn literal(text: &str, precedes_hash: bool) -> String {
    let base = text
        .strip_suffix('-')
        .filter(|base| precedes_hash && base.rsplit(' ').next().is_some_and(|name| name.len() > 18));
    match base {
        Some(base) => format!("{}[a-z0-9.]{{0,4}}-", regex::escape(&base[..base.len() - 3])),
        None => regex::escape(text),
    }
}

impl Bindings {
    /// Returns true if a text matches an expected one, and binds its placeholders.
    fn matches(&mut self, expected: &str, actual: &str) -> bool {
        if !expected.contains('<') {
            return expected == actual;
        }
        let (mut pattern, mut names, mut end) = (String::from("^"), Vec::new(), 0);
        for found in PLACEHOLDER.find_iter(expected) {
            let name = found.as_str();
            pattern += &literal(&expected[end..found.start()], name.starts_with("<hash-"));
            pattern += if name.contains("hash-") { "([0-9A-Za-z]+)" } else { "([\\s\\S]*)" };
            names.push(name);
            end = found.end();
        }
        pattern += &regex::escape(&expected[end..]);
        let Some(captures) = compiled(pattern + "$").captures(actual) else { return false };
        let values: Vec<(&str, &str)> =
            names.into_iter().zip((1..).map(|at| captures.get(at).map_or("", |m| m.as_str()))).collect();
        let numbered = values.iter().filter(|(name, _)| name.contains("hash-"));
        if numbered.clone().any(|(name, value)| self.0.get(*name).is_some_and(|bound| bound != value)) {
            return false;
        }
        self.0.extend(numbered.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        true
    }

    /// Returns the field that an expected name stands for.
    fn field<'a>(
        &mut self,
        expected: &str,
        value: &Value,
        actual: &'a Map<String, Value>,
    ) -> Option<(&'a String, &'a Value)> {
        let fits = |(name, _): &(&String, &Value)| self.clone().matches(expected, name);
        let found = match actual.get_key_value(expected) {
            None if expected.contains('<') => {
                let fitting: Vec<_> = actual.iter().filter(fits).collect();
                fitting.iter().find(|(_, other)| *other == value).or(fitting.first()).copied()
            }
            found => found,
        }?;
        self.matches(expected, found.0);
        Some(found)
    }

    /// Binds placeholders whose value is certain.
    pub(crate) fn learn(&mut self, expected: &Value, actual: &Value) {
        match (expected, actual) {
            (Value::String(expected), Value::String(actual)) => drop(self.matches(expected, actual)),
            (Value::Object(expected), Value::Object(actual)) => {
                for (name, value) in expected {
                    if let Some((_, found)) = self.field(name, value, actual) {
                        self.learn(value, found);
                    }
                }
            }
            (Value::Array(expected), Value::Array(actual)) if expected.len() == 1 && actual.len() == 1 => {
                self.learn(&expected[0], &actual[0]);
            }
            _ => {}
        }
    }

    /// Returns the key of the object that an expected key stands for: the most similar one.
    pub(crate) fn object<'a>(
        &mut self,
        key: &str,
        expected: &Value,
        actual: &'a BTreeMap<String, Value>,
        taken: &BTreeSet<String>,
    ) -> Option<(&'a String, &'a Value)> {
        if !key.contains('<') || actual.contains_key(key) {
            return actual.get_key_value(key);
        }
        let candidates = actual.iter().filter(|(name, _)| !taken.contains(*name));
        let fitting = candidates.filter_map(|(name, value)| {
            let mut bindings = self.clone();
            bindings.matches(key, name).then(|| {
                let mut mismatches = Vec::new();
                bindings.compare(expected, value, "", &mut mismatches);
                (mismatches.len(), (name, value))
            })
        });
        let (_, (name, value)) = fitting.min_by_key(|(count, _)| *count)?;
        self.matches(key, name);
        Some((name, value))
    }

    /// Adds the differences of two values.
    pub(crate) fn compare(
        &mut self,
        expected: &Value,
        actual: &Value,
        path: &str,
        found: &mut Vec<(String, Option<Value>, Option<Value>)>,
    ) {
        match (expected, actual) {
            (Value::String(text), _) if text == "<varies>" => {}
            // A hash of the content, of which nothing else depends.
            (Value::String(_), Value::String(hash)) if path.ends_with("/olm.permissions.hash") && !hash.is_empty() => {}
            (Value::String(expected_text), Value::String(text)) => {
                let is_same = || is_same_conflict(expected_text, text) || are_executed(path, [expected_text, text]);
                if !self.matches(expected_text, text) && !is_same() {
                    found.push((path.to_owned(), Some(expected.clone()), Some(actual.clone())));
                }
            }
            (Value::Object(expected), Value::Object(actual)) => self.compare_fields(expected, actual, path, found),
            (Value::Array(expected), Value::Array(actual)) => self.compare_lists(expected, actual, path, found),
            _ if expected == actual => {}
            _ => found.push((path.to_owned(), Some(expected.clone()), Some(actual.clone()))),
        }
    }

    fn compare_fields(
        &mut self,
        expected: &Map<String, Value>,
        actual: &Map<String, Value>,
        path: &str,
        found: &mut Vec<(String, Option<Value>, Option<Value>)>,
    ) {
        let mut known = BTreeSet::new();
        for (name, value) in expected.iter().filter(|(_, value)| !value.is_null()) {
            let path = format!("{path}/{name}");
            match self.field(name, value, actual) {
                Some((name, other)) => {
                    known.insert(name);
                    self.compare(value, other, &path, found);
                }
                None if is_empty(value) || value == "<varies>" => {}
                None => found.push((path, Some(value.clone()), None)),
            }
        }
        for (name, value) in actual.iter().filter(|(name, value)| !known.contains(name) && !is_empty(value)) {
            found.push((format!("{path}/{name}"), None, Some(value.clone())));
        }
    }

    /// Compares lists as sets if their order differs.
    fn compare_lists(
        &mut self,
        expected: &[Value],
        actual: &[Value],
        path: &str,
        found: &mut Vec<(String, Option<Value>, Option<Value>)>,
    ) {
        let equals = |bindings: &mut Self, one: &Value, other: &Value| {
            let (mut tried, mut mismatches) = (bindings.clone(), Vec::new());
            tried.compare(one, other, "", &mut mismatches);
            if mismatches.is_empty() {
                *bindings = tried;
            }
            mismatches.is_empty()
        };
        // Of several similar elements it is not certain which one a placeholder belongs to.
        let equals = |bindings: &mut Self, one: &Value, other: &Value| match expected.len() {
            1 => equals(bindings, one, other),
            _ => equals(&mut bindings.clone(), one, other),
        };
        let mut rest: Vec<&Value> = actual.iter().collect();
        let (mut open, mut missing) = (Vec::new(), Vec::new());
        // Elements whose placeholders have values match one element only.
        for value in expected {
            let fits = |other: &&Value| {
                let (mut tried, mut mismatches) = (self.clone(), Vec::new());
                tried.compare(value, other, "", &mut mismatches);
                mismatches.is_empty() && tried.0.len() == self.0.len()
            };
            match rest.iter().position(fits) {
                Some(at) => drop(rest.remove(at)),
                None => open.push(value),
            }
        }
        for value in open {
            match rest.iter().position(|other| equals(self, value, other)) {
                Some(at) => drop(rest.remove(at)),
                None => missing.push(value),
            }
        }
        for value in missing {
            let name = identity(value);
            match rest.iter().position(|other| name.is_some() && identity(other) == name) {
                Some(at) => {
                    let path = format!("{path}[{}]", name.unwrap_or_default());
                    self.compare(value, rest.remove(at), &path, found);
                }
                None => found.push((format!("{path}[]"), Some(value.clone()), None)),
            }
        }
        found.extend(rest.into_iter().map(|value| (format!("{path}[]"), None, Some(value.clone()))));
    }
}

/// Returns what identifies an element of a list.
fn identity(value: &Value) -> Option<String> {
    let parts = ["resolving", "type", "kind", "name", "resource"].map(|field| match &value[field] {
        Value::Object(resource) => resource.get("kind").map(Value::to_string),
        Value::String(text) => Some(PLACEHOLDER.replace_all(text, "").split('-').next().unwrap_or_default().to_owned()),
        _ => None,
    });
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns true for two statuses of executed steps of an InstallPlan: which of them comes depends on timing.
fn are_executed(path: &str, statuses: [&str; 2]) -> bool {
    path.starts_with("/status/plan[") && statuses.iter().all(|status| ["Created", "Present"].contains(status))
}

/// Returns true for the messages of one conflict of several equivalent ones, as the recordings count them.
fn is_same_conflict(one: &str, other: &str) -> bool {
    let facts = |text: &str| {
        let facts = text.strip_prefix("constraints not satisfiable: ")?;
        let mut facts: Vec<String> = facts.split(", ").map(str::to_owned).collect();
        facts.sort();
        Some(facts)
    };
    facts(one).is_some() && facts(one) == facts(other)
}

/// Returns true for expected states that a watcher may miss: their appearance depends on timing in OLM as well.
fn is_optional(state: &Value) -> bool {
    let steps = state["steps"].as_array().into_iter().flatten();
    let waits_for_api = steps.filter_map(Value::as_str).any(|step| step.ends_with("WaitingForApi"));
    let reason = state["reason"].as_str().unwrap_or_default();
    let during_upgrade = |condition: &Value| {
        condition["type"] == "ResolutionFailed"
            && condition["message"].as_str().is_some_and(|text| text.contains("is not referenced by a subscription"))
    };
    let conditions = || state["conditions"].as_array().into_iter().flatten();
    let is_pending = state["state"] == "UpgradePending";
    waits_for_api
        || ["RequirementsNotMet", "InstallWaiting"].contains(&reason)
        || conditions().any(during_upgrade)
        || (is_pending || conditions().any(|condition| condition["type"] == "ResolutionFailed"))
            && conditions().any(|condition| condition["reason"] == "CatalogSourcesAdded")
}

/// Brings expected and observed states into the same form.
pub(crate) fn comparable(states: &[Value]) -> Vec<Value> {
    let mut result: Vec<Value> = Vec::new();
    let mut steps = Value::Null;
    for state in states {
        let mut state = state.clone();
        // It comes and goes several times.
        if let Some(conditions) = state.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions
                .retain(|condition| condition["type"] != "InstallPlanPending" || condition["reason"] != "Installing");
        }
        if state.get("steps").is_some_and(|steps| steps == "<same>") {
            state["steps"] = steps.clone();
        } else if let Some(list) = state.get_mut("steps").and_then(Value::as_array_mut) {
            let present = |step: &Value| step.as_str().unwrap_or_default().replace(": Created", ": Present").into();
            let mut list: Vec<Value> = list.iter().map(present).collect();
            list.sort_by_key(Value::to_string);
            state["steps"] = list.into();
            steps = state["steps"].clone();
        }
        if result.last() != Some(&state) {
            result.push(state);
        }
    }
    result
}

/// Returns the expected states that were not observed in their order.
pub(crate) fn missing_states(expected: &[Value], actual: &[Value], bindings: &mut Bindings) -> Vec<Value> {
    let (mut expected, actual) = (comparable(expected), comparable(actual));
    // Groups get the APIs of their operators one by one, in an order that depends on timing.
    let is_last = |index: usize, count: usize| index + 1 == count;
    let (count, mut index) = (expected.len(), 0);
    expected.retain(|state| {
        index += 1;
        !is_optional(state) && (state.get("namespaces").is_none() || is_last(index - 1, count))
    });
    expected.dedup();
    let mut equal = |one: &Value, other: &Value| {
        let (mut tried, mut mismatches) = (bindings.clone(), Vec::new());
        tried.compare(one, other, "", &mut mismatches);
        if mismatches.is_empty() {
            *bindings = tried;
        }
        mismatches.is_empty()
    };
    // The longest common subsequence.
    let (rows, columns) = (expected.len(), actual.len());
    let mut same = vec![vec![false; columns]; rows];
    for (row, one) in expected.iter().enumerate() {
        for (column, other) in actual.iter().enumerate() {
            same[row][column] = equal(one, other);
        }
    }
    let mut length = vec![vec![0; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            let skipped = length[row + 1][column].max(length[row][column + 1]);
            length[row][column] = if same[row][column] { length[row + 1][column + 1] + 1 } else { skipped };
        }
    }
    let (mut row, mut column, mut missing) = (0, 0, Vec::new());
    while row < rows {
        if column < columns && same[row][column] {
            (row, column) = (row + 1, column + 1);
        } else if column < columns && length[row][column + 1] >= length[row + 1][column] {
            column += 1;
        } else {
            missing.push(expected[row].clone());
            row += 1;
        }
    }
    missing
}
