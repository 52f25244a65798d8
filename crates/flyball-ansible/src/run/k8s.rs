//! The modules `k8s`, `k8s_info`, `k8s_scale` and `k8s_status`.
//!
//! See <https://docs.ansible.com/ansible/latest/collections/kubernetes/core/k8s_module.html>. Objects are created by
//! server-side apply and owned by the reconciled object, so that fields the role no longer sets are removed, and the
//! objects are deleted with their owner.

use super::Run;
use super::modules::Arguments;
use super::objects::{self, Change, text};
use super::tasks::TaskResult;
use super::wait::Wait;
use crate::job::TaskError;
use crate::playbook::Literals;
use crate::template::{BYTES_PER_FUEL, Budget, Scope, hash_of};
use crate::value::memory;
use crate::value::{Value, json};
use crate::yaml::{self, to_text, truth, type_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flyball::{Kind, ObjectKey};
use flyball_core::selector::LabelSelector;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Map, Value as Object};
use std::sync::Arc;

impl Run<'_> {
    pub(super) async fn k8s(
        &mut self,
        arguments: &Arguments,
        named: &Literals,
        scope: &Arc<Scope>,
    ) -> Result<TaskResult, TaskError> {
        let budget = self.budget.clone();
        let definitions = self.evaluate(|| definitions(&budget, arguments, scope)).await.map_err(TaskError::new)?;
        let state = arguments.get("state").map_or("present".to_owned(), to_text);
        let goes_on = is_set(arguments, "continue_on_error");
        let wait = Wait::of(arguments);
        let selector = selector(arguments)?;
        let (mut results, mut failure) = (Vec::new(), None);
        for definition in definitions {
            self.count().map_err(TaskError::new)?;
            if state != "absent" && selector.as_ref().is_some_and(|selector| !is_selected(&definition, selector)) {
                results.push(json!({"changed": false, "result": {}, "msg": "filtered by label_selectors"}));
                continue;
            }
            let change = match state.as_str() {
                "present" if arguments.contains_key("generate_name") && definition["metadata"]["name"].is_null() => {
                    self.create(&definition, named).await
                }
                "present" => self.present(&definition, named).await,
                "patched" => self.patched(&definition, named, replaces_lists(arguments)).await,
                "absent" => self.absent(&definition, arguments, selector.as_ref(), wait.as_ref()).await,
                other => Err(TaskError::new(format!("state is {other}, but must be present, patched or absent"))),
            };
            let change = change.map_err(|failed| failed.of_kind(&definition));
            // Known before it waits, see `pause`.
            self.outcome.wrote |= change.as_ref().is_ok_and(|change| change.changed);
            let change = match change {
                Ok(change) => self.waited(change, wait.as_ref(), state == "absent").await,
                failed => failed,
            };
            match change {
                Ok(Change { changed, mut object, method }) => {
                    hide(&mut object, &texts(arguments.get("hidden_fields")));
                    results.push(json!({"changed": changed, "method": method, "result": object}));
                }
                Err(failed) if goes_on && !failed.is_deferred => drop(failure.get_or_insert(failed)),
                Err(failed) => return Err(failed),
            }
        }
        let changed = results.iter().any(|result| result["changed"] == true);
        let mut done = match <[Value; 1]>::try_from(results) {
            Ok([result]) => TaskResult::with(result),
            Err(results) => TaskResult::with(json!({"changed": changed, "result": {"results": results}})),
        };
        done.failure = failure;
        Ok(done)
    }

    async fn waited(&mut self, change: Change, wait: Option<&Wait>, absent: bool) -> Result<Change, TaskError> {
        let (Some(wait), Some(object)) = (wait, &change.object) else { return Ok(change) };
        let (kind, key) = self.kind_and_key(object)?;
        let object = self.wait_for(wait, &kind, &key, absent).await?;
        Ok(Change { object: object.or(change.object), ..change })
    }

    /// Deletes the object of a definition, or the objects selected by labels, or all in the namespace.
    async fn absent(
        &mut self,
        definition: &Object,
        arguments: &Arguments,
        selector: Option<&LabelSelector>,
        wait: Option<&Wait>,
    ) -> Result<Change, TaskError> {
        let is_named = definition["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
        let kind = self.kind(text(&definition["apiVersion"]), text(&definition["kind"]))?;
        let namespace = self.namespace(&kind, definition["metadata"]["namespace"].as_str())?;
        let options = delete_options(arguments)?;
        if is_named {
            let name = text(&definition["metadata"]["name"]);
            return self.delete(&kind, &ObjectKey::new(namespace.as_deref(), name), &options).await;
        }
        if selector.is_none() && !["delete_all", "all"].iter().any(|name| is_set(arguments, name)) {
            let kind = kind.name();
            return Err(TaskError::new(format!("state absent of {kind} requires a name, labels, or delete_all")));
        }
        let keys = self.labeled(&kind, namespace.as_deref(), selector).await?;
        let mut changed = false;
        for key in &keys {
            self.count().map_err(TaskError::new)?;
            let deleted = self.delete(&kind, key, &options).await?.changed;
            // Known before it waits, see `pause`.
            self.outcome.wrote |= deleted;
            changed |= deleted;
        }
        if let Some(wait) = wait {
            for key in &keys {
                self.wait_for(wait, &kind, key, true).await?;
            }
        }
        Ok(Change { changed, object: None, method: "delete" })
    }

    /// Returns the keys of the objects with these labels, or of all.
    async fn labeled(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&LabelSelector>,
    ) -> Result<Vec<ObjectKey>, TaskError> {
        let found = self.job.cx.dynamic(kind).list(namespace).await.map_err(TaskError::of)?;
        let found = found.iter().filter(|object| selector.is_none_or(|selector| objects::has_labels(object, selector)));
        let key = |metadata: &ObjectMeta| {
            ObjectKey::new(metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default())
        };
        Ok(found.map(|object| key(&object.metadata)).collect())
    }

    pub(super) async fn k8s_info(&mut self, arguments: &Arguments) -> Result<TaskResult, TaskError> {
        let (version, kind) = named(arguments).map_err(TaskError::new)?;
        let kind = self.kind(&version, &kind)?;
        // Without a namespace it lists all of them, as Ansible does, unless it reads a single object.
        let requested = arguments.get("namespace").map(to_text);
        let name = arguments.get("name").map(to_text).filter(|name| !name.is_empty());
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
                    None => self
                        .access()
                        .check_listing_all_namespaces(kind.name())
                        .map(|()| None)
                        .map_err(TaskError::rejected)?,
                };
                let found = match self.job.cx.dynamic(&kind).list(namespace.as_deref()).await {
                    // The cluster does not serve this kind, so there are no objects.
                    Err(error) if error.status().is_some_and(|status| status.code == 404) => {
                        let nothing = json!({"changed": false, "api_found": false, "resources": []});
                        return Ok(TaskResult::with(nothing));
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
        let selected = |object: &Object| fields.iter().all(|term| objects::has_field(object, term));
        let hidden = texts(arguments.get("hidden_fields"));
        let shown = |object: Object| {
            let mut object = Some(object);
            hide(&mut object, &hidden);
            object
        };
        let resources: Vec<_> = found.into_iter().filter(selected).filter_map(shown).collect();
        Ok(TaskResult::with(json!({"changed": false, "api_found": true, "resources": resources})))
    }

    /// Sets the number of replicas of objects, or the parallelism of Jobs.
    pub(super) async fn k8s_scale(
        &mut self,
        arguments: &Arguments,
        named: &Literals,
        scope: &Arc<Scope>,
    ) -> Result<TaskResult, TaskError> {
        let budget = self.budget.clone();
        let found = self.evaluate(|| definitions(&budget, arguments, scope)).await.map_err(TaskError::new)?;
        let definition = found.first().ok_or_else(|| TaskError::new("no object to scale"))?;
        let selector = selector(arguments)?;
        let (kind, keys) = match &selector {
            Some(_) if definition["metadata"]["name"].is_null() => {
                let kind = self.kind(text(&definition["apiVersion"]), text(&definition["kind"]))?;
                let namespace = self.namespace(&kind, definition["metadata"]["namespace"].as_str())?;
                let keys = self.labeled(&kind, namespace.as_deref(), selector.as_ref()).await?;
                (kind, keys)
            }
            _ => {
                let (kind, key) = self.kind_and_key(definition)?;
                (kind, vec![key])
            }
        };
        let goes_on = keys.len() > 1 && is_set(arguments, "continue_on_error");
        let (mut results, mut errors) = (Vec::new(), Vec::new());
        for key in &keys {
            self.count().map_err(TaskError::new)?;
            match self.scaled(&kind, key, definition, arguments, named).await {
                Ok(result) => results.push(result),
                Err(failed) if goes_on && !failed.is_deferred => {
                    errors.push(json!({"error": failed.message, "failed": true}));
                }
                Err(failed) => return Err(failed),
            }
        }
        let changed = results.iter().any(|result| result["changed"] == true);
        let mut done = match results.pop() {
            result if keys.len() < 2 => {
                TaskResult::with(result.unwrap_or_else(|| json!({"changed": false, "result": {}})))
            }
            last => {
                results.extend(last);
                TaskResult::with(json!({"changed": changed, "results": results}))
            }
        };
        if !errors.is_empty() {
            done.result.insert("errors".into(), errors.into());
        }
        Ok(done)
    }

    async fn scaled(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        definition: &Object,
        arguments: &Arguments,
        named: &Literals,
    ) -> Result<Value, TaskError> {
        let number = |name: &str| match arguments.get(name) {
            None => Ok(None),
            Some(value) => match value.as_i64().or_else(|| value.as_str()?.trim().parse().ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(TaskError::new(format!("{name} must be a number, not {}", to_text(value)))),
            },
        };
        let replicas = number("replicas")?.ok_or_else(|| TaskError::new("missing argument replicas"))?;
        let Some(object) = self.get(kind, key).await? else {
            return Err(TaskError::new(format!(
                "Failed to retrieve requested object: {} {key} not found",
                kind.name()
            )));
        };
        let live = json_of(&object)?;
        let field = if kind.name() == "Job" { "parallelism" } else { "replicas" };
        let count = live["spec"][field]
            .as_i64()
            .ok_or_else(|| TaskError::new("Failed to retrieve the available count for the requested object."))?;
        let version = arguments.get("resource_version").map(to_text);
        let is_other = version.is_some_and(|version| object.metadata.resource_version != Some(version))
            || number("current_replicas")?.is_some_and(|expected| expected != count);
        if is_other || count == replicas {
            return Ok(json!({"changed": false, "result": live, "duration": 0}));
        }
        let patch = serde_json::json!({"apiVersion": definition["apiVersion"], "kind": definition["kind"],
            "metadata": {"name": key.name(), "namespace": key.namespace()}, "spec": {field: replicas}});
        let change = self.patched(&patch, named, false).await?;
        self.outcome.wrote |= change.changed;
        let mut waits = arguments.clone();
        waits.entry("wait").or_insert(true.into());
        waits.entry("wait_timeout").or_insert(20.into());
        let change = self.waited(change, Wait::of(&waits).as_ref(), false).await?;
        Ok(json!({"changed": change.changed, "result": change.object}))
    }

    /// Records status fields of the reconciled object; they are written at the end of the run.
    pub(super) fn k8s_status(&mut self, arguments: &Arguments) -> Result<TaskResult, TaskError> {
        let (version, kind) = named(arguments).map_err(TaskError::new)?;
        let object = self.job.object;
        let types = object.types.clone().unwrap_or_default();
        let is_own = types.api_version == version
            && types.kind == kind
            && arguments.get("name").map(to_text) == object.metadata.name
            && arguments.get("namespace").map(to_text).is_none_or(|name| Some(name) == object.metadata.namespace);
        if !is_own {
            let problem = "k8s_status only supports the status of the reconciled object";
            return Err(TaskError::new(problem));
        }
        let mut status = match arguments.get("status") {
            None => Default::default(),
            Some(Value::Object(status)) => status.clone(),
            Some(Value::String(text)) => {
                match documents(&self.budget, text, &mut { yaml::MAX_TEXT_MEMORY }).map_err(TaskError::new)?.pop() {
                    Some(Value::Object(status)) => status,
                    _ => return Err(TaskError::new("status must be a map")),
                }
            }
            Some(other) => return Err(TaskError::new(format!("status must be a map, not {}", type_name(other)))),
        };
        if let Some(conditions) = arguments.get("conditions") {
            if !conditions.as_array().is_some_and(|all| all.iter().all(|one| one["type"].is_string())) {
                return Err(TaskError::new("conditions must be a list of conditions, each with a type"));
            }
            status.insert("conditions".into(), conditions.clone());
        }
        let before = object.data.get("status").and_then(Object::as_object).cloned().unwrap_or_default();
        let mut after = before.clone();
        let status: Map<String, Object> = status.into();
        merge(&mut after, status.clone());
        merge(&mut self.outcome.status, status);
        Ok(TaskResult::with(json!({"changed": before != after, "result": {"status": Object::from(after)}})))
    }
}

/// Merges a status into another: maps by field, conditions by type.
pub(crate) fn merge(into: &mut Map<String, Object>, from: Map<String, Object>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Object::Object(known)), Object::Object(value)) => merge(known, value),
            (Some(Object::Array(known)), Object::Array(values)) if key == "conditions" => {
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

fn json_of(object: &DynamicObject) -> Result<Object, TaskError> {
    serde_json::to_value(object).map_err(|error| TaskError::new(error.to_string()))
}

/// Returns the kind in the arguments.
fn named(arguments: &Arguments) -> Result<(String, String), String> {
    let version = ["api_version", "api", "version"].iter().find_map(|name| arguments.get(*name));
    let kind = arguments.get("kind").map(to_text).ok_or("missing argument kind")?;
    Ok((version.map_or("v1".to_owned(), to_text), kind))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.iter().map(to_text).collect(),
        Some(one) => vec![to_text(one)],
        None => Vec::new(),
    }
}

/// Returns true if an option is set.
fn is_set(arguments: &Arguments, name: &str) -> bool {
    arguments.get(name).and_then(truth) == Some(true)
}

/// Returns true if the labels of a definition match.
fn is_selected(definition: &Object, selector: &LabelSelector) -> bool {
    selector.matches(|label| definition["metadata"]["labels"][label].as_str())
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
    remaining_bytes: usize,
}

/// Completes an object with the module's other arguments.
fn complete(definition: Value, arguments: &Arguments) -> Result<Value, String> {
    let Value::Object(mut fields) = definition else { return Err("definition must be a map".into()) };
    for (field, names) in [("kind", &["kind"][..]), ("apiVersion", &["api_version", "api", "version"])] {
        let beside = names.iter().find_map(|name| arguments.get(*name)).map(to_text);
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
            metadata.insert(name.into(), to_text(value).into());
        }
        // A name of digits is a string.
        if let Some(value) = metadata.get_mut(name).filter(|value| value.is_number()) {
            *value = to_text(value).into();
        }
    }
    if let Some(prefix) = arguments.get("generate_name").filter(|_| !metadata.contains_key("name")) {
        metadata.insert("generateName".into(), to_text(prefix).into());
    }
    let name = if metadata.contains_key("name") { "name" } else { "generateName" };
    let mut definition = Value::Object(fields);
    if is_set(arguments, "append_hash")
        && let (Some(prefix), Some(hash)) = (definition["metadata"][name].as_str(), hash_of(&definition))
    {
        definition["metadata"][name] = format!("{prefix}-{hash}").into();
    }
    if let Value::Object(fields) = &mut definition {
        encode(fields);
    }
    Ok(definition)
}

/// Returns true if patches replace lists in objects of built-in kinds too.
fn replaces_lists(arguments: &Arguments) -> bool {
    texts(arguments.get("merge_type")).first().is_some_and(|first| first == "merge")
}

/// Returns the options of deletions.
fn delete_options(arguments: &Arguments) -> Result<Option<DeleteParams>, TaskError> {
    let Some(options) = arguments.get("delete_options").filter(|options| !options.is_null()) else { return Ok(None) };
    let seconds = &options["gracePeriodSeconds"];
    let policy = match options["propagationPolicy"].as_str() {
        None => None,
        Some("Background") => Some(PropagationPolicy::Background),
        Some("Foreground") => Some(PropagationPolicy::Foreground),
        Some("Orphan") => Some(PropagationPolicy::Orphan),
        Some(other) => return Err(TaskError::new(format!("delete_options: unknown propagationPolicy {other}"))),
    };
    let preconditions = &options["preconditions"];
    let condition = |name: &str| preconditions[name].as_str().map(str::to_owned);
    let preconditions = preconditions
        .is_object()
        .then(|| Preconditions { resource_version: condition("resourceVersion"), uid: condition("uid") });
    Ok(Some(DeleteParams {
        grace_period_seconds: seconds.as_u64().and_then(|seconds| u32::try_from(seconds).ok()),
        propagation_policy: policy,
        preconditions,
        ..DeleteParams::default()
    }))
}

/// Removes fields from an object, by paths such as `metadata.managedFields`.
fn hide(object: &mut Option<Object>, paths: &[String]) {
    for path in paths {
        let (outer, field) = path.rsplit_once('.').map_or((None, path.as_str()), |(outer, field)| (Some(outer), field));
        let around = object.as_mut().and_then(|object| {
            outer.into_iter().flat_map(|outer| outer.split('.')).try_fold(object, |value, field| value.get_mut(field))
        });
        around.and_then(Object::as_object_mut).map(|fields| fields.remove(field));
    }
}

/// Converts `stringData` of a Secret to `data`: write-only fields cannot be compared with the stored object.
fn encode(fields: &mut crate::value::Map) {
    if fields["apiVersion"] != "v1" || fields["kind"] != "Secret" {
        return;
    }
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    if let Some(data) = data.as_object_mut() {
        data.extend(texts.into_iter().map(|(key, value)| (key, STANDARD.encode(to_text(&value)).into())));
    }
}

/// Returns the objects of a task: maps with `apiVersion`, `kind` and names.
fn definitions(budget: &Budget, arguments: &Arguments, scope: &Arc<Scope>) -> Result<Vec<Object>, String> {
    let definition_argument =
        ["definition", "resource_definition", "inline"].iter().find_map(|name| arguments.get(*name));
    let mut found = TaskObjects { objects: Vec::new(), remaining_bytes: yaml::MAX_TEXT_MEMORY };
    match (definition_argument, arguments.get("src"), arguments.get("template")) {
        (Some(definition_argument), _, _) => collect(budget, definition_argument.clone(), &mut found, 0)?,
        (None, Some(src), _) => collect(budget, scope.evaluate(&lookup("file", &to_text(src)))?, &mut found, 0)?,
        (None, None, Some(template)) => {
            let paths = match template {
                Value::Array(paths) => paths.clone(),
                one => vec![one.clone()],
            };
            for path in paths {
                let path = to_text(path.get("path").unwrap_or(&path));
                collect(budget, scope.evaluate(&lookup("template", &path))?, &mut found, 0)?;
            }
        }
        (None, None, None) => found.objects.push(json!({})),
    }
    found.objects.into_iter().map(|definition| complete(definition, arguments).map(Object::from)).collect()
}

/// Collects objects from a value: an object, a text with objects, or a list of them.
fn collect(budget: &Budget, value: Value, found: &mut TaskObjects, depth: usize) -> Result<(), String> {
    match value {
        Value::String(text) if depth < 4 => documents(budget, &text, &mut found.remaining_bytes)?
            .into_iter()
            .try_for_each(|document| collect(budget, document, found, depth + 1)),
        Value::Array(items) if depth < 4 => {
            items.into_iter().try_for_each(|item| collect(budget, item, found, depth + 1))
        }
        Value::Object(mut fields) => match fields.get("kind").and_then(Value::as_str) {
            Some("List") => collect(budget, fields.remove("items").unwrap_or_default(), found, depth + 1),
            _ => {
                found.objects.push(Value::Object(fields));
                Ok(())
            }
        },
        Value::Null => Ok(()),
        other => Err(format!("definition must be a Kubernetes object, not {}", type_name(&other))),
    }
}

/// Parses the documents of a text within the remaining memory. It is also charged to the budget of the run.
fn documents(budget: &Budget, text: &str, remaining_bytes: &mut usize) -> Result<Vec<Value>, String> {
    let documents = yaml::documents_within(text, *remaining_bytes).map_err(|error| yaml::invalid(&error))?;
    let size: usize = documents.iter().map(memory::of).sum();
    *remaining_bytes = remaining_bytes.saturating_sub(size);
    budget.charge((size / BYTES_PER_FUEL) as u64)?;
    Ok(documents)
}

impl Run<'_> {
    /// Returns kind and key of an object.
    pub(super) fn kind_and_key(&self, object: &Object) -> Result<(Kind, ObjectKey), TaskError> {
        let kind = self.kind(text(&object["apiVersion"]), text(&object["kind"]))?;
        let namespace = self.namespace(&kind, object["metadata"]["namespace"].as_str())?;
        let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            TaskError::rejected(format!(
                "the {} has no metadata.name, and generateName would create an object in each run: set the name, or \
                 generate_name of the task, with a condition",
                kind.name()
            ))
        })?;
        Ok((kind, ObjectKey::new(namespace.as_deref(), name)))
    }
}
