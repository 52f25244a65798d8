//! The objects in the manifest of a release.

use crate::annotation::{self, DEPENDS_ON, OWNER, OWNER_KIND};
use flyball::{Kind, ObjectKey};
use flyball_chart::{BoundedYaml, Budget, YamlError, from_yaml};
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

/// Objects of a release.
const MAX_OBJECTS: usize = 10_000;
/// Nesting depth of a `List`.
const DEEPEST: usize = 4;
/// Prefix of the name of each template in the manifest of a release.
const SOURCE: &str = "# Source: ";

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The template that it comes from.
    pub(crate) path: String,
    pub(crate) object: Value,
}

/// Why a manifest is not a list of objects.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A document is no YAML.
    #[error("{path} gives no YAML: {why}")]
    Yaml {
        /// The template.
        path: String,
        /// The problem.
        why: String,
    },
    /// A document is no object.
    #[error("{path} gives something without {field}: give it one")]
    Object {
        /// The template.
        path: String,
        /// The missing field.
        field: &'static str,
    },
    /// The metadata of an object are not such.
    #[error("{path} gives an object with wrong metadata: {why}")]
    Metadata {
        /// The template.
        path: String,
        /// The problem.
        why: String,
    },
    /// There are too many objects.
    #[error("the chart renders to more than {MAX_OBJECTS} objects, or to more than fits in the memory of a rendering")]
    TooMany,
    /// Lists are in lists.
    #[error("{path} gives lists in lists, deeper than {DEEPEST}")]
    TooDeep {
        /// The template.
        path: String,
    },
    /// The operator may not deal with a kind.
    #[error(
        "{path} gives {kind} of {api_version}, which the operator was not started for: write both words literally into the template, or have \
         a sample in config/samples render it, then install the operator's manifests anew and restart it"
    )]
    Unforeseen {
        /// The template.
        path: String,
        /// The API version of the kind.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// A custom resource says that there is to be an object outside of its namespace, or one that gives rights.
    #[error(
        "{path} gives {kind} {name} in {place}, which the custom resource chooses: outside of its own namespace, and of objects that give \
         rights, version, kind, namespace and type must stand in the chart itself"
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
    /// A custom resource gives an object outside of its namespace, or one that gives rights, another structure.
    #[error(
        "{path} gives {kind} {name} in {place}, where the custom resource makes more than a scalar of {field}: outside of its own \
         namespace, and of objects that give rights, fields, items and the text around values must be the chart's own. Quote \
         the values in the template, or set structureFromValues in watches.yaml"
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
    /// Two objects are the same.
    #[error("{path} gives {kind} {name}, which the chart renders twice")]
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
    /// Returns the objects of a document: one, or those of a `List`.
    pub(crate) fn of(path: &str, document: &Value) -> Result<Vec<Self>, ManifestError> {
        let mut found = Vec::new();
        add(path, document, DEEPEST, &mut found)?;
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

    /// Returns true if it stays when the release goes. See
    /// <https://helm.sh/docs/howto/charts_tips_and_tricks/#tell-helm-not-to-uninstall-a-resource>.
    pub(crate) fn is_kept(&self) -> bool {
        self.annotation("helm.sh/resource-policy").is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
    }

    /// Returns where it is, for a release in this namespace.
    pub(crate) fn key(&self, kind: &Kind, namespace: &str) -> ObjectKey {
        let place = kind.is_namespaced().then(|| self.namespace().unwrap_or(namespace));
        ObjectKey::new(place, self.name())
    }
}

/// Returns true if objects of a kind are lists of others.
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
    // Not all manifests are what was rendered within a budget: those of releases that end are read as they are.
    let mut yaml = BoundedYaml::new(Budget::untrusted().bytes);
    let mut found = Vec::new();
    let (mut path, mut text, mut begins) = (String::new(), String::new(), true);
    let mut end = |path: &str, text: &mut String| {
        let value = yaml.read(&std::mem::take(text)).map_err(|error| unreadable(path, &error))?;
        if yaml.is_exhausted() {
            return Err(ManifestError::TooMany);
        }
        if value.is_null() { Ok(()) } else { add(path, &value, DEEPEST, &mut found) }
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

/// Reads what a template gave.
pub(crate) fn read(path: &str, text: &str) -> Result<Value, ManifestError> {
    from_yaml(text).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, error: &YamlError) -> ManifestError {
    ManifestError::Yaml { path: path.to_owned(), why: error.to_string() }
}

/// Writes the manifest of a release, as Helm does.
pub(crate) fn manifest<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    documents.into_iter().map(|(path, text)| format!("---\n{SOURCE}{path}\n{text}\n")).collect()
}

/// Whose objects are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) release: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) kind: &'a Kind,
}

impl Owner<'_> {
    /// Returns true if an object says that it is part of the release.
    pub(crate) fn has(&self, live: &DynamicObject) -> bool {
        let notes = live.metadata.annotations.as_ref();
        let says =
            |annotation: &str, value: &str| notes.and_then(|notes| notes.get(annotation)).is_some_and(|v| v == value);
        says(annotation::RELEASE, self.release) && says(annotation::NAMESPACE, self.namespace)
    }

    /// Refuses to take over what is part of another release; and outside of the release's namespace, what is not part
    /// of it.
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
                    "{kind} {name} in {place} is there already and no part of release {release}: delete it, or give it the annotations \
                     {} and {}",
                    annotation::RELEASE,
                    annotation::NAMESPACE
                )
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Creates an object of a release: with what Helm adds to it, in its place. Tells whether its custom resource can
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

/// Names a kind as annotations do: with its group.
pub(crate) fn qualified(kind: &Kind) -> String {
    match &*kind.gvk().group {
        "" => kind.name().to_owned(),
        group => format!("{}.{group}", kind.name()),
    }
}

/// Returns the fields of a field, which is made an object if it is none.
fn fields<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object[field].is_object() {
        object[field] = json!({});
    }
    object[field].as_object_mut().expect("it was made one")
}
