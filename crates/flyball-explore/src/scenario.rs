//! Scenarios: the actions of a user in a run.

use serde_json::Value;
use std::time::Duration;

/// An action of a user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Applies an object.
    Apply(Value),
    /// Deletes an object, and waits until it no longer exists. Its name is `RESOURCE/NAME` or `RESOURCE.GROUP/NAME`.
    Delete(String),
    /// Deletes an object of a manifest, and waits until it no longer exists.
    Remove(Value),
    /// Deletes the namespace of the scenario, and waits until it no longer exists.
    DeleteNamespace,
    /// Waits until nothing changes.
    Settle,
    /// Waits for a time.
    Wait(Duration),
}

/// The actions of a user, in order.
///
/// Objects without a namespace are in the namespace of the scenario.
///
/// ```
/// use flyball_explore::Scenario;
/// use std::time::Duration;
///
/// let map = |value: u8| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{n: '{value}'}}}}");
/// let scenario = Scenario::new("edit").apply(map(1)).settle().apply(map(2)).wait(Duration::from_secs(5));
/// assert_eq!(scenario.delete("configmaps/a").name(), "edit");
/// ```
#[doc(alias = "workload")]
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a scenario does nothing until it is added to an explorer"]
pub struct Scenario {
    name: String,
    pub(crate) steps: Vec<Step>,
    /// The reason why the scenario cannot be used.
    pub(crate) error: Option<String>,
}

impl Scenario {
    /// Creates a scenario without actions.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), steps: Vec::new(), error: None }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies the objects of a manifest in YAML, each in a step of its own.
    pub fn apply(mut self, manifest: impl AsRef<str>) -> Self {
        match parse_manifest(manifest.as_ref()) {
            Ok(objects) => self.steps.extend(objects.into_iter().map(Step::Apply)),
            Err(error) => self.error = Some(error),
        }
        self
    }

    /// Deletes an object and waits until it no longer exists. The name is `RESOURCE/NAME` or `RESOURCE.GROUP/NAME`, in
    /// the plural.
    pub fn delete(mut self, object: impl Into<String>) -> Self {
        self.steps.push(Step::Delete(object.into()));
        self
    }

    /// Deletes the namespace of the scenario and waits until it no longer exists.
    pub fn delete_namespace(mut self) -> Self {
        self.steps.push(Step::DeleteNamespace);
        self
    }

    /// Waits until no object changes.
    pub fn settle(mut self) -> Self {
        self.steps.push(Step::Settle);
        self
    }

    /// Waits for a time.
    pub fn wait(mut self, time: Duration) -> Self {
        self.steps.push(Step::Wait(time));
        self
    }

    pub(crate) fn of(name: impl Into<String>, steps: Vec<Step>) -> Self {
        Self { name: name.into(), steps, error: None }
    }

    /// Returns the objects that the scenario applies.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.steps.iter().filter_map(|step| if let Step::Apply(object) = step { Some(object) } else { None })
    }

    /// Returns true if an object has the same state in two steps, with another one in between.
    pub(crate) fn reverts(&self) -> bool {
        let objects: Vec<&Value> = self.objects().collect();
        let deletes = self.steps.iter().any(|step| matches!(step, Step::Delete(_)));
        let repeats = |(n, object): (usize, &&Value)| objects[..n].contains(object);
        !deletes && objects.iter().enumerate().any(repeats)
    }
}

/// Parses the objects of a manifest in YAML.
pub(crate) fn parse_manifest(manifest: &str) -> Result<Vec<Value>, String> {
    let documents: Result<Vec<Value>, _> = serde_saphyr::from_multiple(manifest);
    let documents = documents.map_err(|error| format!("cannot parse the manifest: {error}\n{manifest}"))?;
    let objects: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    match objects.iter().find(|object| object["kind"].as_str().is_none() || object["metadata"]["name"].is_null()) {
        Some(object) => Err(format!("an object of the manifest lacks kind or metadata.name: {object}")),
        None => Ok(objects),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_of_a_manifest_is_a_step() {
        let scenario = Scenario::new("a").apply("{kind: A, metadata: {name: a}}\n---\n{kind: B, metadata: {name: b}}");
        assert_eq!((scenario.steps.len(), &scenario.error), (2, &None));
        assert!(Scenario::new("a").apply("{kind: A}").error.unwrap().contains("metadata.name"));
        assert!(Scenario::new("a").apply("{").error.is_some());
    }

    #[test]
    fn reverts_are_detected() {
        let (one, two) = ("{kind: A, metadata: {name: a}, n: 1}", "{kind: A, metadata: {name: a}, n: 2}");
        assert!(Scenario::new("a").apply(one).settle().apply(two).apply(one).reverts());
        assert!(!Scenario::new("a").apply(one).apply(two).reverts());
        assert!(!Scenario::new("a").apply(one).delete("as/a").apply(one).reverts());
    }
}
