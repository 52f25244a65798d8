//! Reading objects from files, and applying them.
//!
//! By server-side apply, see <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.

use crate::cluster::connection::Connection;
use crate::cluster::kinds::KINDS_HINT;
use crate::cluster::wait::poll_until;
use crate::error::{Error, Result, ResultExt};
use crate::files::entries;
use crate::files::spelling::with_meant_path;
use crate::render::last_seen::summary;
use clap::{Args, ValueEnum};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Field manager.
const MANAGER: &str = "flyball";
/// Field manager of a reset conversion.
const RESET_MANAGER: &str = "flyball-run";
/// Timeout of the API server to serve a new kind.
const ESTABLISHED: Duration = Duration::from_secs(30);
/// Polling interval of a new kind.
const ESTABLISHED_POLL: Duration = Duration::from_millis(20);

/// Files of kustomize, which list others.
const KUSTOMIZATIONS: [&str; 2] = ["kustomization.yaml", "kustomization.yml"];

/// Reads the objects of a file, or of all YAML and JSON files of a directory in the order of their names. Files of
/// kustomize in the directory are skipped.
///
/// # Errors
///
/// If a file cannot be read, or contains other documents than objects.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>> {
    let what = || format!("cannot read {}", path.display());
    let found = fs::metadata(path).context(what()).map_err(|error| with_meant_path(error, path))?;
    if !found.is_dir() {
        return read_file(path);
    }
    let mut files = entries(path)?;
    let is_kustomization = |file: &Path| KUSTOMIZATIONS.iter().any(|name| file.ends_with(name));
    files.retain(|file| {
        !is_kustomization(file) && file.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
    });
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read_file(&file)?);
    }
    Ok(objects)
}

/// Reads the objects of the arguments of `-f`: files, directories, and `-` for standard input.
pub(crate) fn read_all(files: &[String]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in files {
        if file.starts_with("http://") || file.starts_with("https://") {
            return Err(Error::new(format!("{file} is a URL; remote files are not read"))
                .hint("download and review it, then pass the file"));
        }
        objects.extend(if file == "-" { read_standard_input()? } else { read(Path::new(file))? });
    }
    if objects.is_empty() {
        return Err(Error::new(format!("no objects found in {}", files.join(", "))));
    }
    Ok(objects)
}

fn read_standard_input() -> Result<Vec<Value>> {
    let text = std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?;
    objects(parse(&text, "standard input")?, "standard input")
}

fn read_file(file: &Path) -> Result<Vec<Value>> {
    objects(read_documents(file)?, &file.display().to_string())
}

/// Reads the YAML documents of a file, which may be other values than objects.
pub(crate) fn read_documents(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).context(format!("cannot read {}", file.display()))?;
    parse(&text, &file.display().to_string())
}

fn parse(text: &str, source: &str) -> Result<Vec<Value>> {
    let documents = match json_documents(text) {
        Some(documents) => documents,
        None => serde_saphyr::from_multiple(text).context(format!("{source} is not valid YAML"))?,
    };
    Ok(documents.into_iter().filter(|document| !document.is_null()).flat_map(items).collect())
}

/// Returns the documents of a JSON text, as kubectl: YAML forbids control characters that JSON permits.
fn json_documents(text: &str) -> Option<Vec<Value>> {
    let is_json = text.trim_start().starts_with('{');
    is_json.then(|| serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()).flatten()
}

/// Returns the items of a list, or the object itself.
pub(crate) fn items(object: Value) -> Vec<Value> {
    match object {
        Value::Object(mut fields) if fields.get("kind").is_some_and(|kind| kind == "List") => {
            match fields.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        object => vec![object],
    }
}

/// Parts of an object that commands change: each is an object, or missing.
const OBJECT_FIELDS: [&str; 4] = ["", "/metadata", "/metadata/labels", "/metadata/annotations"];

/// Checks that documents of a source are objects.
///
/// # Errors
///
/// If a document or its metadata has another type. The error contains the source and the field.
pub(crate) fn objects(documents: Vec<Value>, source: &str) -> Result<Vec<Value>> {
    for (number, document) in (1..).zip(&documents) {
        let wrong = OBJECT_FIELDS.iter().find_map(|pointer| match document.pointer(pointer)? {
            Value::Object(_) => None,
            Value::Null if !pointer.is_empty() => None,
            value => Some((*pointer, type_name(value))),
        });
        let Some((pointer, found)) = wrong else { continue };
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let kind = document["kind"].as_str().map(|kind| format!(" ({kind})")).unwrap_or_default();
        let what = if field.is_empty() { String::new() } else { format!(": {field}") };
        return Err(Error::new(format!("{source}: document {number}{kind}{what} is {found}, not an object"))
            .hint("each document must be a Kubernetes object with apiVersion, kind and metadata"));
    }
    Ok(documents)
}

/// Names the type of a value with its article.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Resets the conversion of a definition to None, if it is still as found. Nobody owns the field afterwards, so that a
/// later apply of another conversion has no conflict.
pub(crate) async fn reset_conversion(definitions: &Api<DynamicObject>, found: &Value) -> kube::Result<()> {
    let name = found["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams { field_manager: Some(RESET_MANAGER.into()), ..PatchParams::default() };
    let none = json!({
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "spec": {"conversion": {"strategy": "None", "webhook": null}},
    });
    let reset = definitions.patch(name, &params, &Patch::Merge(none)).await?.metadata;
    let mut managers = reset.managed_fields.unwrap_or_default();
    managers.retain(|entry| entry.manager.as_deref() != Some(RESET_MANAGER));
    let disowned = json!({"metadata": {"resourceVersion": reset.resource_version, "managedFields": managers}});
    definitions.patch(name, &params, &Patch::Merge(disowned)).await.map(drop)
}

/// The flag `--dry-run`, as in kubectl.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DryRunArgs {
    /// Validate with the API server without storing anything
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value = "none",
        default_missing_value = "server", hide_default_value = true)]
    dry_run: DryRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    None,
    Server,
}

impl DryRunArgs {
    pub(crate) fn is_dry(self) -> bool {
        self.dry_run == DryRun::Server
    }

    /// Returns the suffix of the line of an object.
    pub(crate) fn suffix(self) -> &'static str {
        if self.is_dry() { " (dry run)" } else { "" }
    }
}

/// Result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    Created,
    Changed,
    Unchanged,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

impl Connection {
    /// Applies an object, or validates it, and returns its name and the outcome.
    pub(crate) async fn apply_with(&self, object: &Value, force: bool, dry_run: bool) -> Result<(String, Outcome)> {
        let (objects, description, name) = self.resolve(object).await?;
        let before = objects.get_opt(&name).await.context(format!("cannot read {description}"))?;
        let params = PatchParams { force, dry_run, ..PatchParams::apply(MANAGER) };
        let applied = objects
            .patch(&name, &params, &Patch::Apply(object))
            .await
            .context(format!("cannot apply {description}"))?;
        let outcome = match before {
            None => Outcome::Created,
            Some(before) if is_same(&before, &applied) => Outcome::Unchanged,
            Some(_) => Outcome::Changed,
        };
        if object["kind"] == "CustomResourceDefinition" && !dry_run {
            self.wait_until_served(object, &description).await?;
        }
        Ok((description, outcome))
    }

    /// Applies an object and returns its name, such as `Service default/web`.
    pub(crate) async fn apply(&self, object: &Value) -> Result<String> {
        let (objects, description, name) = self.resolve(object).await?;
        let applied = objects.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(object)).await;
        applied.context(format!("cannot apply {description}"))?;
        Ok(description)
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, object: &Value) -> Result<()> {
        self.delete_with(object, &DeleteParams::default()).await
    }

    /// Deletes an object, if it exists, with these parameters.
    pub(crate) async fn delete_with(&self, object: &Value, params: &DeleteParams) -> Result<()> {
        let (objects, description, name) = self.resolve(object).await?;
        match objects.delete(&name, params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop).context(format!("cannot delete {description}")),
        }
    }

    /// Reads the current state of an object, if it exists. Missing permissions are an error.
    pub(crate) async fn find(&self, object: &Value) -> Result<Option<Value>> {
        match self.read(object).await {
            Err(error) if error.is_absence() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reads the current state of an object.
    pub(crate) async fn read(&self, object: &Value) -> Result<Value> {
        let (objects, description, name) = self.resolve(object).await?;
        let found = objects.get(&name).await.context(format!("cannot read {description}"))?;
        serde_json::to_value(found).context(format!("cannot read {description}"))
    }

    /// Returns true if an object is a definition with stored objects.
    pub(crate) async fn defines_objects(&self, object: &Value) -> Result<bool> {
        if object["kind"] != "CustomResourceDefinition" {
            return Ok(false);
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        let kind = GroupVersionKind::gvk(group, text("/spec/versions/0/name"), text("/spec/names/kind"));
        let objects: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural));
        let found = objects.list(&ListParams::default().limit(1)).await;
        Ok(!found.context(format!("cannot list {plural}"))?.items.is_empty())
    }

    /// Returns the API of an object, its display name, and its name.
    pub(crate) async fn resolve(&self, object: &Value) -> Result<(Api<DynamicObject>, String, String)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let fields = [("apiVersion", version), ("kind", kind), ("metadata.name", name)];
        if let Some((missing, _)) = fields.iter().find(|(_, text)| text.is_empty()) {
            let object = [kind, name].into_iter().find(|text| !text.is_empty()).unwrap_or("an object");
            return Err(Error::new(format!("{object}: {missing} is missing")).hint("generateName cannot be applied"));
        }
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let found = pinned_kind(&self.client, &GroupVersionKind::gvk(group, version, kind)).await;
        let found = found.context(format!("the cluster has no kind {kind} in {}", text("/apiVersion")));
        let (resource, capabilities) = found.map_err(|error| error.hint(KINDS_HINT))?;
        let namespace = match text("/metadata/namespace") {
            "" => self.namespace.as_str(),
            namespace => namespace,
        };
        let (objects, description): (Api<DynamicObject>, _) = match capabilities.scope {
            Scope::Namespaced => {
                (Api::namespaced_with(self.client.clone(), namespace, &resource), format!("{kind} {namespace}/{name}"))
            }
            Scope::Cluster => (Api::all_with(self.client.clone(), &resource), format!("{kind} {name}")),
        };
        Ok((objects, description, name.to_owned()))
    }

    /// Waits until the kind of a definition is served.
    async fn wait_until_served(&self, definition: &Value, description: &str) -> Result<()> {
        let versions = definition["spec"]["versions"].as_array();
        let served = versions.and_then(|versions| versions.iter().find(|version| version["served"] == true));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let names = &definition["spec"];
        let version = served.map(|version| text(&version["name"])).unwrap_or_default();
        let kind = GroupVersionKind::gvk(&text(&names["group"]), &version, &text(&names["names"]["kind"]));
        let served = poll_until(ESTABLISHED, ESTABLISHED_POLL, async || Ok(pinned_kind(&self.client, &kind).await));
        if served.await?.is_ok() {
            return Ok(());
        }
        let what = format!("{description} is not served after {} s", ESTABLISHED.as_secs());
        let found = self.read(definition).await?;
        Err(Error::new(format!("{what}; last seen:\n{}", summary(&found))))
    }
}

/// Returns true if two states of an object differ in managed fields and resource version only.
fn is_same(one: &DynamicObject, other: &DynamicObject) -> bool {
    let comparable = |object: &DynamicObject| {
        let mut object = object.clone();
        (object.metadata.managed_fields, object.metadata.resource_version) = (None, None);
        object
    };
    comparable(one) == comparable(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_may_contain_what_yaml_forbids() {
        let read = |text: &str| parse(text, "a.json").map(|documents| documents.len());
        assert_eq!(read("{\"kind\": \"A\", \"a\": \"\u{9b}\"} {\"kind\": \"B\"}").unwrap(), 2);
        assert_eq!(read("{kind: A}\n---\n{kind: B}").unwrap(), 2);
        assert!(read("{kind: \"\u{9b}\"}").is_err());
    }

    #[test]
    fn documents_that_are_no_objects_are_named() {
        let read = |text: &str| objects(parse(text, "a.yaml")?, "a.yaml");
        for (text, expected) in [
            ("[]", "a.yaml: document 1 is a list, not an object"),
            ("x", "a.yaml: document 1 is a string, not an object"),
            ("kind: A\n---\n7\n", "a.yaml: document 2 is a number, not an object"),
            ("kind: List\nitems: [true]\n", "a.yaml: document 1 is a boolean, not an object"),
            ("kind: A\nmetadata: x\n", "a.yaml: document 1 (A): metadata is a string, not an object"),
            ("kind: A\nmetadata: {labels: [a]}\n", "a.yaml: document 1 (A): metadata.labels is a list, not an object"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
        for (text, count) in
            [("", 0), ("---\n---\n", 0), ("kind: List\nitems: 1\n", 0), ("kind: A\nmetadata: null\n", 1)]
        {
            assert_eq!(read(text).unwrap().len(), count, "{text}");
        }
    }
}
