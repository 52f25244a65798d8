//! The objects in the manifest of a release.

use crate::annotation::{self, DEPENDS_ON, OWNER, OWNER_KIND, RESOURCE_POLICY};
use flyball::{Kind, ObjectKey};
use flyball_chart::{BoundedYaml, Budget, YamlError, from_yaml};
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Limit of objects of a release.
const MAX_OBJECTS: usize = 10_000;
/// Nesting depth of a `List`.
const MAX_DEPTH: usize = 4;
/// Prefix of the name of each template in the manifest of a release.
const SOURCE: &str = "# Source: ";
/// Label of all objects of Helm's releases, and its value.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const HELM: &str = "Helm";

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The template that renders it.
    pub(crate) path: String,
    pub(crate) object: Value,
}

/// Error in a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A document is not valid YAML.
    #[error("{path} does not render valid YAML: {problem}")]
    Yaml {
        /// The template.
        path: String,
        /// The problem.
        problem: String,
    },
    /// A document is not an object.
    #[error("{path} renders a document without {field}: add it")]
    MissingField {
        /// The template.
        path: String,
        /// The missing field.
        field: &'static str,
    },
    /// The metadata of an object are invalid.
    #[error("{path} renders an object with invalid metadata: {problem}")]
    Metadata {
        /// The template.
        path: String,
        /// The problem.
        problem: String,
    },
    /// There are too many objects.
    #[error("the chart renders more than {MAX_OBJECTS} objects, or exceeds the memory limit of a rendering")]
    TooManyObjects,
    /// Lists are nested too deeply.
    #[error("{path} renders nested Lists, deeper than {MAX_DEPTH}")]
    TooDeep {
        /// The template.
        path: String,
    },
    /// The operator has no permission for a kind.
    #[error(
        "{path} renders {kind} of {api_version}, a kind that was unknown when the operator started: write apiVersion and kind literally \
         in the template, or add a sample to config/samples that renders it, then reinstall the operator's manifests and restart it"
    )]
    UndeclaredKind {
        /// The template.
        path: String,
        /// The API version of the kind.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// A custom resource determines an object outside of its namespace, or one that grants permissions.
    #[error(
        "{path} renders {kind} {name} in {location}, determined by the custom resource: for objects outside of its namespace, and \
         for objects that grant permissions, version, kind, namespace and type must be literal in the chart"
    )]
    Privileged {
        /// The template.
        path: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// Its namespace.
        location: String,
    },
    /// A custom resource changes the structure of an object outside of its namespace, or of one that grants
    /// permissions.
    #[error(
        "{path} renders {kind} {name} in {location}, where a value of the custom resource is more than a scalar in {field}: for objects \
         outside of its namespace, and for objects that grant permissions, fields, items and the text around values must be literal in \
         the chart. Quote the values in the template, or set structureFromValues in watches.yaml"
    )]
    PrivilegedStructure {
        /// The template.
        path: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// Its namespace.
        location: String,
        /// The field.
        field: String,
    },
    /// The chart renders an object twice.
    #[error("{path} renders {kind} {name}, which the chart renders twice")]
    Duplicate {
        /// The template.
        path: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
    },
}

impl Resource {
    /// Returns the objects of a document: one, or the items of a `List`.
    pub(crate) fn of(path: &str, document: &Value) -> Result<Vec<Self>, ManifestError> {
        let mut found = Vec::new();
        add(path, document, MAX_DEPTH, &mut found)?;
        Ok(found)
    }

    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty())
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][name].as_str()
    }

    /// Returns true if the uninstallation keeps the object.
    pub(crate) fn is_kept(&self) -> bool {
        is_keep(self.annotation(RESOURCE_POLICY))
    }

    /// Returns its key, for a release in this namespace.
    pub(crate) fn key(&self, kind: &Kind, namespace: &str) -> ObjectKey {
        let namespace = kind.is_namespaced().then(|| self.namespace().unwrap_or(namespace));
        ObjectKey::new(namespace, self.name())
    }
}

/// Returns true if the uninstallation keeps an object in the cluster.
pub(crate) fn is_kept(live: &DynamicObject) -> bool {
    is_keep(note(&live.metadata, RESOURCE_POLICY))
}

fn is_keep(policy: Option<&str>) -> bool {
    policy.is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}

/// Returns true if objects of the kind are lists of other objects.
pub(crate) fn is_list(api_version: &str, kind: &str) -> bool {
    (api_version, kind) == ("v1", "List")
}

fn add(path: &str, document: &Value, depth: usize, found: &mut Vec<Resource>) -> Result<(), ManifestError> {
    let missing = |field| ManifestError::MissingField { path: path.to_owned(), field };
    let text = |field: &'static str| document[field].as_str().filter(|text| !text.is_empty()).ok_or(missing(field));
    let (api_version, kind) = (text("apiVersion")?.to_owned(), text("kind")?.to_owned());
    if is_list(&api_version, &kind) {
        let depth = depth.checked_sub(1).ok_or_else(|| ManifestError::TooDeep { path: path.to_owned() })?;
        return document["items"].as_array().into_iter().flatten().try_for_each(|item| add(path, item, depth, found));
    }
    if document["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        return Err(missing("metadata.name"));
    }
    if found.len() >= MAX_OBJECTS {
        return Err(ManifestError::TooManyObjects);
    }
    found.push(Resource { api_version, kind, path: path.to_owned(), object: document.clone() });
    Ok(())
}

/// Reads the objects of a release's manifest, in their order.
pub(crate) fn of_manifest(manifest: &str) -> Result<Vec<Resource>, ManifestError> {
    // Not every manifest was rendered within a budget: those of releases being uninstalled are parsed as stored.
    let mut yaml = BoundedYaml::new(Budget::untrusted().bytes);
    let mut found = Vec::new();
    let (mut path, mut text, mut begins) = (String::new(), String::new(), true);
    let mut end = |path: &str, text: &mut String| {
        let value = yaml.read(&std::mem::take(text)).map_err(|error| unreadable(path, &error))?;
        if yaml.is_exhausted() {
            return Err(ManifestError::TooManyObjects);
        }
        if value.is_null() { Ok(()) } else { add(path, &value, MAX_DEPTH, &mut found) }
    };
    for line in manifest.lines() {
        if line.trim_end() == "---" {
            end(&path, &mut text)?;
            begins = true;
            continue;
        }
        match line.strip_prefix(SOURCE).filter(|_| begins) {
            Some(source) => path = source.to_owned(),
            None => text.extend([line, "\n"]),
        }
        begins = false;
    }
    end(&path, &mut text)?;
    Ok(found)
}

/// Returns true if a manifest lacks objects of another one; false if they cannot be read.
pub(crate) fn has_fewer_objects(manifest: &str, other: &str) -> bool {
    let names = |manifest: &str| -> Result<BTreeSet<[String; 4]>, ManifestError> {
        let name = |resource: Resource| {
            let (name, namespace) = (resource.name().to_owned(), resource.namespace().unwrap_or_default().to_owned());
            [resource.api_version, resource.kind, namespace, name]
        };
        Ok(of_manifest(manifest)?.into_iter().map(name).collect())
    };
    match (names(manifest), names(other)) {
        (Ok(names), Ok(others)) => !others.is_subset(&names),
        _ => false,
    }
}

/// Parses the output of a template.
pub(crate) fn read(path: &str, text: &str) -> Result<Value, ManifestError> {
    from_yaml(text).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, error: &YamlError) -> ManifestError {
    ManifestError::Yaml { path: path.to_owned(), problem: error.to_string() }
}

/// Builds the manifest of a release, as Helm does.
pub(crate) fn manifest<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    documents.into_iter().map(|(path, text)| format!("---\n{SOURCE}{path}\n{text}\n")).collect()
}

/// The owner of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) release: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) kind: &'a Kind,
    /// The UID of the custom resource.
    pub(crate) uid: &'a str,
}

impl Owner<'_> {
    /// Returns true if an object belongs to the release: its annotations name the release, and no other custom resource
    /// owns it.
    pub(crate) fn has(&self, live: &DynamicObject) -> bool {
        self.is_named_by(&live.metadata) && self.other_owner(&live.metadata).is_none()
    }

    /// Returns true if the object carries all of Helm's metadata of the release, so that the release may adopt it.
    pub(crate) fn may_adopt(&self, live: &DynamicObject) -> bool {
        let label = live.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
        label.is_some_and(|manager| manager == HELM) && self.has(live)
    }

    fn is_named_by(&self, metadata: &ObjectMeta) -> bool {
        let matches = |(annotation, value): (&str, &str)| note(metadata, annotation) == Some(value);
        self.release_annotations().into_iter().all(matches)
    }

    /// Returns Helm's annotations of the release.
    fn release_annotations(&self) -> [(&'static str, &str); 2] {
        [(annotation::RELEASE, self.release), (annotation::NAMESPACE, self.namespace)]
    }

    /// Names the other custom resource that owns an object, by its controller reference or its annotations.
    pub(crate) fn other_owner(&self, metadata: &ObjectMeta) -> Option<String> {
        let mut owners = metadata.owner_references.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
            return (owner.uid != self.uid).then(|| format!("{} {}", owner.kind, owner.name));
        }
        let (kind, owner) = (note(metadata, OWNER_KIND)?, note(metadata, OWNER).unwrap_or_default());
        let is_own = kind == qualified(self.kind) && owner == format!("{}/{}", self.namespace, self.release);
        (!is_own).then(|| format!("{kind} {owner}"))
    }

    /// Rejects objects of other releases and of other custom resources; and outside of the release's namespace, all
    /// objects that are not part of the release.
    ///
    /// The rule and the message are those of `helm install`.
    pub(crate) fn check(&self, kind: &Kind, live: &DynamicObject, is_in_namespace: bool) -> flyball::Result<()> {
        let metadata = &live.metadata;
        // An object that is being deleted is awaited.
        if metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let owner = self.other_owner(metadata).map(|owner| format!("it belongs to {owner}"));
        let is_of_release = note(metadata, annotation::RELEASE).is_some();
        let reasons = match is_of_release && !self.is_named_by(metadata) || !is_in_namespace && !is_of_release {
            true => [Some(self.mismatch(metadata)), owner].into_iter().flatten().collect(),
            false => Vec::from_iter(owner),
        };
        if reasons.is_empty() {
            return Ok(());
        }
        Err(cannot_import(kind, metadata, &reasons.join("; ")).into())
    }

    /// Describes why the release cannot adopt an object without an owner, in Helm's words.
    pub(crate) fn rejection(&self, kind: &Kind, metadata: &ObjectMeta) -> String {
        cannot_import(kind, metadata, &self.mismatch(metadata))
    }

    /// Describes the difference between the metadata of an object and those of the release, in Helm's words.
    fn mismatch(&self, metadata: &ObjectMeta) -> String {
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).map(String::as_str);
        let annotations =
            self.release_annotations().map(|(key, value)| ("annotation", key, value, note(metadata, key)));
        let mut text = "invalid ownership metadata".to_owned();
        for (what, key, value, actual) in [("label", MANAGED_BY, HELM, label)].into_iter().chain(annotations) {
            text += &match actual {
                Some(actual) if actual == value => continue,
                Some(actual) => {
                    format!("; {what} validation error: key {key:?} must equal {value:?}: current value is {actual:?}")
                }
                None => format!("; {what} validation error: missing key {key:?}: must be set to {value:?}"),
            };
        }
        text
    }

    /// Builds an object of a release with the metadata that Helm adds, and returns whether the custom resource can
    /// own it.
    pub(crate) fn build_object(
        &self,
        resource: &Resource,
        kind: &Kind,
    ) -> Result<(DynamicObject, bool), ManifestError> {
        let mut object = resource.object.clone();
        let owned = kind.is_namespaced()
            && resource.namespace().is_none_or(|namespace| namespace == self.namespace)
            && !resource.is_kept();
        let metadata = fields(&mut object, "metadata");
        match kind.is_namespaced() {
            true if !metadata.contains_key("namespace") => {
                metadata.insert("namespace".into(), self.namespace.into());
            }
            true => {}
            false => drop(metadata.remove("namespace")),
        }
        let mut metadata = Value::Object(std::mem::take(metadata));
        fields(&mut metadata, "labels").insert(MANAGED_BY.into(), HELM.into());
        let annotations = fields(&mut metadata, "annotations");
        annotations.remove(DEPENDS_ON);
        annotations.insert(annotation::RELEASE.into(), self.release.into());
        annotations.insert(annotation::NAMESPACE.into(), self.namespace.into());
        if !owned {
            annotations.insert(OWNER.into(), format!("{}/{}", self.namespace, self.release).into());
            annotations.insert(OWNER_KIND.into(), qualified(self.kind).into());
        }
        let wrong = |error: serde_json::Error| ManifestError::Metadata {
            path: resource.path.clone(),
            problem: error.to_string(),
        };
        let mut dynamic = DynamicObject::new(resource.name(), &kind.api_resource());
        dynamic.metadata = serde_json::from_value(metadata).map_err(wrong)?;
        if let Value::Object(fields) = &mut object {
            fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
        }
        dynamic.data = object;
        Ok((dynamic, owned))
    }
}

fn cannot_import(kind: &Kind, metadata: &ObjectMeta, reasons: &str) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (kind, name, namespace) = (kind.name(), text(&metadata.name), text(&metadata.namespace));
    format!(
        "{kind} {name:?} in namespace {namespace:?} exists and cannot be imported into the current release: {reasons}"
    )
}

fn note<'m>(metadata: &'m ObjectMeta, annotation: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(annotation).map(String::as_str)
}

/// Names a kind with its group, as in annotations.
pub(crate) fn qualified(kind: &Kind) -> String {
    match &*kind.gvk().group {
        "" => kind.name().to_owned(),
        group => format!("{}.{group}", kind.name()),
    }
}

/// Returns the fields of a field, which becomes an object if it is not one.
fn fields<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object[field].is_object() {
        object[field] = json!({});
    }
    object[field].as_object_mut().expect("the field is an object")
}
