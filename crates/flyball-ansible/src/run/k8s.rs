//! The modules `k8s`, `k8s_info` and `k8s_status`.
//!
//! See <https://docs.ansible.com/ansible/latest/collections/kubernetes/core/k8s_module.html>. Objects are created by
//! server-side apply and owned by the reconciled object, so that fields the role no longer sets are removed, and the
//! objects are deleted with their owner.

use super::Run;
use super::modules::{Arguments, text};
use super::objects::{self, Change};
use super::tasks::Done;
use super::wait::Wait;
use crate::job::TaskError;
use crate::memory;
use crate::playbook::Literals;
use crate::template::{BYTES_PER_FUEL, Scope};
use crate::yaml::{self, truth, what};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flyball::{Kind, ObjectKey};
use flyball_core::selector::LabelSelector;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl Run<'_> {
    pub(super) async fn k8s(
        &mut self,
        arguments: &Arguments,
        named: &Literals,
        scope: &Arc<Scope>,
    ) -> Result<Done, TaskError> {
        let definitions = self.definitions(arguments, scope).map_err(TaskError::new)?;
        let state = arguments.get("state").map_or("present".to_owned(), text);
        let goes_on = arguments.get("continue_on_error").and_then(truth) == Some(true);
        let wait = Wait::of(arguments);
        let (mut results, mut failure) = (Vec::new(), None);
        for definition in definitions {
            self.count().map_err(TaskError::new)?;
            let change = match state.as_str() {
                "present" => self.present(&definition, named).await,
                "patched" => self.patched(&definition, named).await,
                "absent" => self.absent(&definition, arguments).await,
                other => Err(TaskError::new(format!("state is {other}, but must be present, patched or absent"))),
            };
            // Known before it waits, see `pause`.
            self.outcome.wrote |= change.as_ref().is_ok_and(|change| change.changed);
            let change = match change {
                Ok(change) => self.waited(change, wait.as_ref(), state == "absent").await,
                failed => failed,
            };
            match change {
                Ok(Change { changed, object, method }) => {
                    results.push(json!({"changed": changed, "method": method, "result": object}));
                }
                Err(failed) if goes_on && !failed.is_deferred => drop(failure.get_or_insert(failed)),
                Err(failed) => return Err(failed),
            }
        }
        let changed = results.iter().any(|result| result["changed"] == true);
        let mut done = match <[Value; 1]>::try_from(results) {
            Ok([result]) => Done::with(result),
            Err(results) => Done::with(json!({"changed": changed, "result": {"results": results}})),
        };
        done.failure = failure;
        Ok(done)
    }

    async fn waited(&mut self, change: Change, wait: Option<&Wait>, absent: bool) -> Result<Change, TaskError> {
        let (Some(wait), Some(object)) = (wait, &change.object) else { return Ok(change) };
        let (kind, key) = self.place(object)?;
        let object = self.wait_for(wait, &kind, &key, absent).await?;
        Ok(Change { object: object.or(change.object), ..change })
    }

    /// Deletes the object of a definition, or the objects selected by labels.
    async fn absent(&mut self, definition: &Value, arguments: &Arguments) -> Result<Change, TaskError> {
        let selector = selector(arguments)?;
        let is_named = definition["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
        let kind = self.kind(&text(&definition["apiVersion"]), &text(&definition["kind"]))?;
        let namespace = self.namespace(&kind, definition["metadata"]["namespace"].as_str())?;
        if is_named {
            let name = text(&definition["metadata"]["name"]);
            return self.delete(&kind, &ObjectKey::new(namespace.as_deref(), &name)).await;
        }
        let Some(selector) = selector else {
            return Err(TaskError::new(format!("state absent of {} requires a name or labels", kind.name())));
        };
        let found = self.job.cx.dynamic(&kind).list(namespace.as_deref()).await.map_err(TaskError::of)?;
        let mut changed = false;
        for object in found.iter().filter(|object| objects::has_labels(object, &selector)) {
            let name = object.metadata.name.clone().unwrap_or_default();
            changed |= self.delete(&kind, &ObjectKey::new(object.metadata.namespace.as_deref(), &name)).await?.changed;
        }
        Ok(Change { changed, object: None, method: "delete" })
    }

    pub(super) async fn k8s_info(&mut self, arguments: &Arguments) -> Result<Done, TaskError> {
        let (version, kind) = named(arguments).map_err(TaskError::new)?;
        let kind = self.kind(&version, &kind)?;
        // Without a namespace it lists all of them, as Ansible does, unless it reads a single object.
        let requested = arguments.get("namespace").map(text);
        let name = arguments.get("name").map(text).filter(|name| !name.is_empty());
        let wait = Wait::of(arguments);
        let found = match name {
            Some(name) => {
                let namespace = self.namespace(&kind, requested.as_deref())?;
                let key = ObjectKey::new(namespace.as_deref(), &name);
                match wait {
                    Some(wait) => self.wait_for(&wait, &kind, &key, false).await?.into_iter().collect(),
                    None => self.get(&kind, &key).await?.iter().map(json_of).collect::<Result<_, _>>()?,
                }
            }
            None => {
                let namespace = match &requested {
                    Some(requested) => self.namespace(&kind, Some(requested))?,
                    None if !kind.is_namespaced() => None,
                    None => self.reach().everywhere(kind.name()).map(|()| None).map_err(TaskError::refused)?,
                };
                let found = match self.job.cx.dynamic(&kind).list(namespace.as_deref()).await {
                    // The cluster does not serve this kind, so there are no objects.
                    Err(error) if error.status().is_some_and(|status| status.code == 404) => {
                        let nothing = json!({"changed": false, "api_found": false, "resources": []});
                        return Ok(Done::with(nothing));
                    }
                    found => found.map_err(TaskError::of)?,
                };
                let selector = selector(arguments)?;
                let labeled = |object: &DynamicObject| selector.as_ref().is_none_or(|s| objects::has_labels(object, s));
                found.iter().filter(|object| labeled(object)).map(json_of).collect::<Result<Vec<_>, _>>()?
            }
        };
        let fields = texts(arguments.get("field_selectors"));
        self.budget.charge(fields.len().saturating_mul(found.len()) as u64).map_err(TaskError::new)?;
        let selected = |object: &Value| fields.iter().all(|term| objects::has_field(object, term));
        let resources: Vec<_> = found.into_iter().filter(selected).collect();
        Ok(Done::with(json!({"changed": false, "api_found": true, "resources": resources})))
    }

    /// Records status fields of the reconciled object; they are written at the end of the run.
    pub(super) fn k8s_status(&mut self, arguments: &Arguments) -> Result<Done, TaskError> {
        let (version, kind) = named(arguments).map_err(TaskError::new)?;
        let object = self.job.object;
        let types = object.types.clone().unwrap_or_default();
        let is_own = types.api_version == version
            && types.kind == kind
            && arguments.get("name").map(text) == object.metadata.name
            && arguments.get("namespace").map(text).is_none_or(|name| Some(name) == object.metadata.namespace);
        if !is_own {
            let problem = "k8s_status only supports the status of the reconciled object";
            return Err(TaskError::new(problem));
        }
        let mut status = match arguments.get("status") {
            None => Map::new(),
            Some(Value::Object(status)) => status.clone(),
            Some(Value::String(text)) => {
                match self.documents(text, &mut { yaml::MAX_TEXT_MEMORY }).map_err(TaskError::new)?.pop() {
                    Some(Value::Object(status)) => status,
                    _ => return Err(TaskError::new("status must be a map")),
                }
            }
            Some(other) => return Err(TaskError::new(format!("status must be a map, not {}", what(other)))),
        };
        if let Some(conditions) = arguments.get("conditions") {
            if !conditions.as_array().is_some_and(|all| all.iter().all(|one| one["type"].is_string())) {
                return Err(TaskError::new("conditions must be a list of conditions, each with a type"));
            }
            status.insert("conditions".into(), conditions.clone());
        }
        let before = object.data.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut after = before.clone();
        merge(&mut after, status.clone());
        merge(&mut self.outcome.status, status);
        Ok(Done::with(json!({"changed": before != after, "result": {"status": after}})))
    }
}

/// Merges a status into another: maps by field, conditions by type.
pub(crate) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(value)) => merge(known, value),
            (Some(Value::Array(known)), Value::Array(values)) if key == "conditions" => {
                for value in values {
                    match known.iter_mut().find(|known| known["type"] == value["type"]) {
                        Some(known) => *known = value,
                        None => known.push(value),
                    }
                }
            }
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

fn json_of(object: &DynamicObject) -> Result<Value, TaskError> {
    serde_json::to_value(object).map_err(|error| TaskError::new(error.to_string()))
}

/// Returns the kind in the arguments.
fn named(arguments: &Arguments) -> Result<(String, String), String> {
    let version = ["api_version", "api", "version"].iter().find_map(|name| arguments.get(*name));
    let kind = arguments.get("kind").map(text).ok_or("missing argument kind")?;
    Ok((version.map_or("v1".to_owned(), text), kind))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        Some(one) => vec![text(one)],
        None => Vec::new(),
    }
}

fn selector(arguments: &Arguments) -> Result<Option<LabelSelector>, TaskError> {
    let terms = texts(arguments.get("label_selectors")).join(",");
    if terms.is_empty() {
        return Ok(None);
    }
    LabelSelector::parse(&terms).map(Some).map_err(|error| TaskError::new(format!("label_selectors: {error}")))
}

/// Returns the expression of a lookup.
fn lookup(what: &str, name: &str) -> String {
    format!("lookup('{what}', {})", Value::from(name))
}

/// Objects of a task, and the remaining memory for texts with objects.
struct TaskObjects {
    objects: Vec<Value>,
    room: usize,
}

/// Completes an object with the module's other arguments.
fn complete(definition: Value, arguments: &Arguments) -> Result<Value, String> {
    let Value::Object(mut fields) = definition else { return Err("definition must be a map".into()) };
    for (field, names) in [("kind", &["kind"][..]), ("apiVersion", &["api_version", "api", "version"])] {
        let beside = names.iter().find_map(|name| arguments.get(*name)).map(text);
        // As in Ansible, a definition without apiVersion is of the core group.
        let beside = beside.or_else(|| (field == "apiVersion").then(|| "v1".to_owned()));
        if let Some(beside) = beside.filter(|_| fields.get(field).is_none_or(Value::is_null)) {
            fields.insert(field.to_owned(), beside.into());
        }
        if !fields.get(field).is_some_and(Value::is_string) {
            return Err(format!("the definition has no {field}"));
        }
    }
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err("metadata of the definition must be a map".into());
    };
    for name in ["name", "namespace"] {
        if let Some(value) = arguments.get(name).filter(|_| metadata.get(name).is_none_or(Value::is_null)) {
            metadata.insert(name.into(), text(value).into());
        }
        // A name of digits is a string.
        if let Some(value) = metadata.get_mut(name).filter(|value| value.is_number()) {
            *value = text(value).into();
        }
    }
    encode(&mut fields);
    Ok(Value::Object(fields))
}

/// Converts `stringData` of a Secret to `data`: write-only fields cannot be compared with the stored object.
fn encode(fields: &mut Map<String, Value>) {
    if fields["apiVersion"] != "v1" || fields["kind"] != "Secret" {
        return;
    }
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    if let Some(data) = data.as_object_mut() {
        data.extend(texts.into_iter().map(|(key, value)| (key, STANDARD.encode(text(&value)).into())));
    }
}

impl Run<'_> {
    /// Returns the objects of a task: maps with `apiVersion`, `kind` and names.
    fn definitions(&self, arguments: &Arguments, scope: &Arc<Scope>) -> Result<Vec<Value>, String> {
        let definition_argument =
            ["definition", "resource_definition", "inline"].iter().find_map(|name| arguments.get(*name));
        let mut found = TaskObjects { objects: Vec::new(), room: yaml::MAX_TEXT_MEMORY };
        match (definition_argument, arguments.get("src"), arguments.get("template")) {
            (Some(definition_argument), _, _) => self.collect(definition_argument.clone(), &mut found, 0)?,
            (None, Some(src), _) => self.collect(scope.evaluate(&lookup("file", &text(src)))?, &mut found, 0)?,
            (None, None, Some(template)) => {
                let paths = match template {
                    Value::Array(paths) => paths.clone(),
                    one => vec![one.clone()],
                };
                for path in paths {
                    let path = text(path.get("path").unwrap_or(&path));
                    self.collect(scope.evaluate(&lookup("template", &path))?, &mut found, 0)?;
                }
            }
            (None, None, None) => found.objects.push(json!({})),
        }
        found.objects.into_iter().map(|definition| complete(definition, arguments)).collect()
    }

    /// Collects objects from a value: an object, a text with objects, or a list of them.
    fn collect(&self, value: Value, found: &mut TaskObjects, depth: usize) -> Result<(), String> {
        match value {
            Value::String(text) if depth < 4 => self
                .documents(&text, &mut found.room)?
                .into_iter()
                .try_for_each(|document| self.collect(document, found, depth + 1)),
            Value::Array(items) if depth < 4 => {
                items.into_iter().try_for_each(|item| self.collect(item, found, depth + 1))
            }
            Value::Object(mut fields) => match fields.get("kind").and_then(Value::as_str) {
                Some("List") => self.collect(fields.remove("items").unwrap_or_default(), found, depth + 1),
                _ => {
                    found.objects.push(Value::Object(fields));
                    Ok(())
                }
            },
            Value::Null => Ok(()),
            other => Err(format!("definition must be a Kubernetes object, not {}", what(&other))),
        }
    }

    /// Parses the documents of a text within the remaining memory. It is also charged to the budget of the run.
    fn documents(&self, text: &str, room: &mut usize) -> Result<Vec<Value>, String> {
        let documents = yaml::documents_within(text, *room).map_err(|error| yaml::invalid(&error))?;
        let size: usize = documents.iter().map(memory::size).sum();
        *room = room.saturating_sub(size);
        self.budget.charge((size / BYTES_PER_FUEL) as u64)?;
        Ok(documents)
    }

    /// Returns kind and key of an object.
    pub(super) fn place(&self, object: &Value) -> Result<(Kind, ObjectKey), TaskError> {
        let kind = self.kind(&text(&object["apiVersion"]), &text(&object["kind"]))?;
        let namespace = self.namespace(&kind, object["metadata"]["namespace"].as_str())?;
        let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            TaskError::refused(format!(
                "the {} has no metadata.name, and generateName would create an object in each run",
                kind.name()
            ))
        })?;
        Ok((kind, ObjectKey::new(namespace.as_deref(), name)))
    }
}
