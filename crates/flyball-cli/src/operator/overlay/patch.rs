//! Patches in files: of an object that they name themselves, or of a target, as kustomize has them.
//!
//! See <https://kubernetes.io/docs/tasks/manage-kubernetes-objects/kustomization/#customizing>.

use crate::cluster::apply;
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::InstallTarget;
use flyball_schema::decode::decode;
use flyball_schema::patch::{json, merge, strategic};
use flyball_server::built_in_schema;
use serde_json::Value;
use std::path::Path;

/// One patch.
#[derive(Debug)]
pub(super) struct Patch {
    kind: String,
    /// The group of the kind; `None` means any.
    group: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    how: PatchKind,
}

#[derive(Debug)]
enum PatchKind {
    /// Strategic, or, of a kind that is not built in, a merge.
    Merge(Value),
    Json(Vec<Value>),
}

/// Reads the patches of a file.
pub(super) fn read(file: &Path) -> Result<Vec<Patch>> {
    apply::read_documents(file)?.into_iter().map(|document| Patch::parse(document, file)).collect()
}

impl Patch {
    fn parse(document: Value, file: &Path) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let wrong = || {
            Error::new(format!("the patch in {} does not name its target", file.display()))
                .hint("add apiVersion, kind and metadata.name; or write {target: {kind: Deployment}, patch: [{op: …}]}")
        };
        if let Some(target) = document.get("target") {
            let how = match &document["patch"] {
                // Kustomize has patches as texts.
                Value::String(patch) => serde_saphyr::from_str(patch)
                    .context(format!("the patch in {} is not valid YAML", file.display()))?,
                patch => patch.clone(),
            };
            return Ok(Self {
                kind: text(&target["kind"]).ok_or_else(wrong)?,
                group: text(&target["group"]),
                name: text(&target["name"]),
                namespace: text(&target["namespace"]),
                how: match how {
                    Value::Array(operations) => PatchKind::Json(operations),
                    Value::Object(_) => PatchKind::Merge(how),
                    _ => return Err(wrong()),
                },
            });
        }
        let metadata = &document["metadata"];
        let (Some(api_version), Some(kind)) = (text(&document["apiVersion"]), text(&document["kind"])) else {
            return Err(wrong());
        };
        let name = text(&metadata["name"]).ok_or_else(wrong)?;
        let group = Some(group(&api_version).to_owned());
        let namespace = text(&metadata["namespace"]);
        Ok(Self { kind, group, name: Some(name), namespace, how: PatchKind::Merge(document) })
    }

    /// Lays the patch over all objects that it fits. Names may lack the prefix, as in `config`.
    pub(super) fn apply(&self, objects: &mut Vec<Value>, target: &InstallTarget, file: &Path) -> Result<()> {
        let fits = |object: &Value| {
            let metadata = &object["metadata"];
            let has_name = |name: &String| {
                metadata["name"] == name.as_str() || metadata["name"] == target.object_name(name).as_str()
            };
            let has_namespace = |namespace: &String| metadata["namespace"] == namespace.as_str();
            let has_group = |expected: &String| group(object["apiVersion"].as_str().unwrap_or_default()) == expected;
            object["kind"] == self.kind.as_str()
                && self.name.as_ref().is_none_or(has_name)
                && self.namespace.as_ref().is_none_or(has_namespace)
                && self.group.as_ref().is_none_or(has_group)
        };
        let object_name = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
        };
        if !objects.iter().any(fits) {
            let name = self.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
            let same: Vec<String> =
                objects.iter().filter(|object| object["kind"] == self.kind.as_str()).map(object_name).collect();
            let hint = match &same[..] {
                [] => format!("no {} in the manifests; list them with `flyball render`", self.kind),
                same => format!("available: {}", same.join(", ")),
            };
            return Err(Error::new(format!(
                "the patch in {} matches no object: no {}{name}",
                file.display(),
                self.kind
            ))
            .hint(hint));
        }
        for object in objects.iter_mut().filter(|object| fits(object)) {
            let what = format!("cannot apply the patch in {} to {}", file.display(), object_name(object));
            self.change(object).and_then(|()| self.check(object)).context(what)?;
        }
        // A patch may delete an object.
        objects.retain(|object| object.as_object().is_some_and(|fields| !fields.is_empty()));
        Ok(())
    }

    /// Finds unknown fields, which an API server would reject.
    fn check(&self, object: &Value) -> Result<(), flyball_schema::patch::Error> {
        let schema = built_in_schema(object["apiVersion"].as_str().unwrap_or_default(), &self.kind);
        let Some(schema) = schema.filter(|_| object.as_object().is_some_and(|fields| !fields.is_empty())) else {
            return Ok(());
        };
        let mut unknown = Vec::new();
        let error = |text: String| flyball_schema::patch::Error(text);
        decode(schema.node(), object.clone(), &mut unknown).map_err(|wrong| error(wrong.to_string()))?;
        match unknown.first() {
            None => Ok(()),
            Some(field) => Err(error(format!("{} has no field {field}", self.kind))),
        }
    }

    fn change(&self, object: &mut Value) -> Result<(), flyball_schema::patch::Error> {
        let patch = match &self.how {
            PatchKind::Json(operations) => return Ok(json::apply(object, operations)?),
            PatchKind::Merge(patch) => patch,
        };
        let (name, namespace) = (object["metadata"]["name"].clone(), object["metadata"].get("namespace").cloned());
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let schema = built_in_schema(api_version, &self.kind);
        match (&schema, object.as_object_mut(), patch.as_object()) {
            (Some(schema), Some(fields), Some(patch)) => strategic(schema.node(), fields, patch.clone())?,
            _ if patch["$patch"] == "delete" => *object = Value::Object(Default::default()),
            _ => merge(object, patch),
        }
        // Name and namespace of the patch select the object, and are not changed.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".into(), name);
            metadata.extend(namespace.map(|namespace| ("namespace".to_owned(), namespace)));
        }
        Ok(())
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
