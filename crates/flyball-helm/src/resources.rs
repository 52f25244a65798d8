//! The objects in the manifest of a release.

use crate::annotation::{self, DEPENDS_ON, OWNER, OWNER_KIND};
use flyball::{Kind, ObjectKey};
use flyball_chart::{BoundedYaml, Budget, YamlError, from_yaml};
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

/// Limit of objects of a release.
const MAX_OBJECTS: usize = 10_000;
/// Nesting depth of a `List`.
const MAX_DEPTH: usize = 4;
/// Prefix of the name of each template in the manifest of a release.
const SOURCE: &str = "# Source: ";

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
    #[error("{path} does not render valid YAML: {why}")]
    Yaml {
        /// The template.
        path: String,
        /// The problem.
        why: String,
    },
    /// A document is not an object.
    #[error("{path} renders a document without {field}: add it")]
    Object {
        /// The template.
        path: String,
        /// The missing field.
        field: &'static str,
    },
    /// The metadata of an object are invalid.
    #[error("{path} renders an object with invalid metadata: {why}")]
    Metadata {
        /// The template.
        path: String,
        /// The problem.
        why: String,
    },
    /// There are too many objects.
    #[error("the chart renders more than {MAX_OBJECTS} objects, or exceeds the memory limit of a rendering")]
    TooMany,
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
    Unforeseen {
        /// The template.
        path: String,
        /// The API version of the kind.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// A custom resource determines an object outside of its namespace, or one that grants permissions.
    #[error(
        "{path} renders {kind} {name} in {place}, determined by the custom resource: for objects outside of its namespace, and \
         for objects that grant permissions, version, kind, namespace and type must be literal in the chart"
    )]
    Elsewhere {
        /// The template.
        path: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// Its namespace.
        place: String,
    },
    /// A custom resource changes the structure of an object outside of its namespace, or of one that grants
    /// permissions.
    #[error(
        "{path} renders {kind} {name} in {place}, where a value of the custom resource is more than a scalar in {field}: for objects \
         outside of its namespace, and for objects that grant permissions, fields, items and the text around values must be literal in \
         the chart. Quote the values in the template, or set structureFromValues in watches.yaml"
    )]
    Structure {
        /// The template.
        path: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// Its namespace.
        place: String,
        /// The field.
        field: String,
    },
    /// The chart renders an object twice.
    #[error("{path} renders {kind} {name}, which the chart renders twice")]
    Twice {
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

    /// Returns true if the uninstallation keeps the object. See
    /// <https://helm.sh/docs/howto/charts_tips_and_tricks/#tell-helm-not-to-uninstall-a-resource>.
    pub(crate) fn is_kept(&self) -> bool {
        self.annotation("helm.sh/resource-policy").is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
    }

    /// Returns its key, for a release in this namespace.
    pub(crate) fn key(&self, kind: &Kind, namespace: &str) -> ObjectKey {
        let place = kind.is_namespaced().then(|| self.namespace().unwrap_or(namespace));
        ObjectKey::new(place, self.name())
    }
}

/// Returns true if objects of the kind are lists of other objects.
pub(crate) fn is_list(api_version: &str, kind: &str) -> bool {
    (api_version, kind) == ("v1", "List")
}

fn add(path: &str, document: &Value, depth: usize, found: &mut Vec<Resource>) -> Result<(), ManifestError> {
    let missing = |field| ManifestError::Object { path: path.to_owned(), field };
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
        return Err(ManifestError::TooMany);
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
            return Err(ManifestError::TooMany);
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

/// Parses the output of a template.
pub(crate) fn read(path: &str, text: &str) -> Result<Value, ManifestError> {
    from_yaml(text).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, error: &YamlError) -> ManifestError {
    ManifestError::Yaml { path: path.to_owned(), why: error.to_string() }
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
}

impl Owner<'_> {
    /// Returns true if the object's annotations name the release.
    pub(crate) fn has(&self, live: &DynamicObject) -> bool {
        let notes = live.metadata.annotations.as_ref();
        let matches =
            |annotation: &str, value: &str| notes.and_then(|notes| notes.get(annotation)).is_some_and(|v| v == value);
        matches(annotation::RELEASE, self.release) && matches(annotation::NAMESPACE, self.namespace)
    }

    /// Rejects objects of other releases; and outside of the release's namespace, all objects that are not part of
    /// it.
    pub(crate) fn check(&self, kind: &Kind, live: &DynamicObject, is_inside: bool) -> flyball::Result<()> {
        let note = |annotation: &str| live.metadata.annotations.as_ref()?.get(annotation).cloned();
        match note(annotation::RELEASE) {
            Some(release) if !self.has(live) => {
                let (name, namespace) =
                    (live.metadata.name.as_deref(), note(annotation::NAMESPACE).unwrap_or_default());
                let name = name.unwrap_or_default();
                Err(format!("{} {name} is part of release {release} in namespace {namespace}", kind.name()).into())
            }
            None if !is_inside => {
                let (name, release) = (live.metadata.name.as_deref().unwrap_or_default(), self.release);
                let place =
                    live.metadata.namespace.as_ref().map_or("no namespace".into(), |at| format!("namespace {at}"));
                let kind = kind.name();
                Err(format!(
                    "{kind} {name} in {place} already exists and is not part of release {release}: delete it, or set its annotations \
                     {} and {}",
                    annotation::RELEASE,
                    annotation::NAMESPACE
                )
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Builds an object of a release with the metadata that Helm adds, and returns whether the custom resource can
    /// own it.
    pub(crate) fn settle(&self, resource: &Resource, kind: &Kind) -> Result<(DynamicObject, bool), ManifestError> {
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
        fields(&mut metadata, "labels").insert("app.kubernetes.io/managed-by".into(), "Helm".into());
        let annotations = fields(&mut metadata, "annotations");
        annotations.remove(DEPENDS_ON);
        annotations.insert(annotation::RELEASE.into(), self.release.into());
        annotations.insert(annotation::NAMESPACE.into(), self.namespace.into());
        if !owned {
            annotations.insert(OWNER.into(), format!("{}/{}", self.namespace, self.release).into());
            annotations.insert(OWNER_KIND.into(), qualified(self.kind).into());
        }
        let wrong =
            |error: serde_json::Error| ManifestError::Metadata { path: resource.path.clone(), why: error.to_string() };
        let mut dynamic = DynamicObject::new(resource.name(), &kind.api_resource());
        dynamic.metadata = serde_json::from_value(metadata).map_err(wrong)?;
        if let Value::Object(fields) = &mut object {
            fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
        }
        dynamic.data = object;
        Ok((dynamic, owned))
    }
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
