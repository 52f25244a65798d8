//! An API server of a few hundred lines: what a client can tell from the real one, with a handle on everything that
//! can go wrong.
//!
//! It knows no schema. Lists named in [`LIST_KEYS`] are merged by key on apply, and without elements owned by nobody;
//! all others are taken as a whole. As the real one stores quantities in its own words, this one stores `1000m` in
//! `data.cpu` as `1`.

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Lists whose elements are told apart by a field.
const LIST_KEYS: [(&str, &str); 2] = [("ownerReferences", "uid"), ("conditions", "type")];

/// What a request is answered with instead of what it asked for.
#[derive(Clone, Debug)]
pub enum Fault {
    /// An error with this code, and nothing done.
    Refuse(u16),
    /// An error with this code, and a wish to wait for so many seconds.
    RefuseFor(u16, u64),
    /// It is carried out, and the answer is lost.
    LoseAnswer,
    /// No answer, ever.
    Hang,
    /// These bytes, as a success.
    Answer(&'static str),
    /// A success that never ends, of which a byte comes each 29 s.
    Trickle,
    /// An error that says that the namespace is being deleted.
    Terminating,
}

/// What one request was and got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `PATCH /apis/example.com/v1/namespaces/ns/widgets/a/status`.
    pub what: String,
    pub query: String,
    pub code: u16,
    /// Whether only metadata was asked for.
    pub metadata: bool,
}

impl Seen {
    /// Returns true if the request changes something.
    pub fn is_write(&self) -> bool {
        !self.what.starts_with("GET")
    }
}

/// The world behind the API, shared by server and test.
#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    revision: u64,
    uids: u64,
    /// By resource, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    /// All changes, by revision.
    history: Vec<Change>,
    /// Changes up to this revision are forgotten.
    compacted: u64,
    watches: Vec<Watch>,
    seen: Vec<Seen>,
    faults: Vec<(String, usize, Fault)>,
    held: BTreeSet<String>,
    /// Watches whose connections lead nowhere any more: they stay open, and nothing comes over them.
    silent: Vec<Watch>,
    /// Resources that are served; those with another one are 404.
    absent: BTreeSet<String>,
}

#[derive(Clone)]
struct Change {
    revision: u64,
    resource: String,
    namespace: String,
    event: Bytes,
    /// Before and after.
    labels: (Option<Value>, Option<Value>),
}

struct Watch {
    resource: String,
    namespace: Option<String>,
    view: View,
    sent: u64,
    lines: mpsc::UnboundedSender<Bytes>,
}

/// What a list or a watch shows of objects.
#[derive(Clone, Default)]
struct View {
    /// Of labels, only equality is understood.
    labels: Vec<(String, String)>,
    /// Of fields, only the name.
    name: Option<String>,
    metadata: bool,
}

impl View {
    fn of(query: &BTreeMap<&str, &str>, metadata: bool) -> Self {
        let terms = |parameter: &str| -> Vec<(String, String)> {
            let text = query.get(parameter).copied().unwrap_or_default().replace("%3D", "=").replace("%2C", ",");
            text.split(',').filter_map(|term| term.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
        };
        let name = terms("fieldSelector").into_iter().find(|(field, _)| field == "metadata.name").map(|(_, name)| name);
        Self { labels: terms("labelSelector"), name, metadata }
    }

    fn selects(&self, labels: &Value) -> bool {
        self.labels.iter().all(|(label, value)| labels[label] == **value)
    }

    fn selects_object(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        self.selects(&metadata["labels"]) && self.name.as_ref().is_none_or(|name| metadata["name"] == **name)
    }

    fn shown(&self, object: &Value) -> Value {
        if !self.metadata {
            return object.clone();
        }
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    }

    /// Returns the line that tells of a change, if any does.
    fn event(&self, change: &Change) -> Option<Bytes> {
        if self.labels.is_empty() && self.name.is_none() && !self.metadata {
            return Some(change.event.clone());
        }
        let event: Value = serde_json::from_slice(&change.event).unwrap();
        if self.name.as_ref().is_some_and(|name| event["object"]["metadata"]["name"] != **name) {
            return None;
        }
        let selects = |labels: &Option<Value>| labels.as_ref().is_some_and(|labels| self.selects(labels));
        let kind = match (selects(&change.labels.0), selects(&change.labels.1)) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        Some(line(kind, &self.shown(&event["object"])))
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Api {
    /// Creates a client that talks to this server.
    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Answers requests whose `METHOD /path?query` contains `part` with a fault, so many times.
    pub fn fail(&self, part: &str, times: usize, fault: Fault) {
        self.world().faults.push((part.into(), times, fault));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.world().faults.clear();
    }

    /// Keeps the events of a resource back until [`release`](Self::release).
    pub fn hold(&self, resource: &str) {
        self.world().held.insert(resource.into());
    }

    pub fn release(&self, resource: &str) {
        let mut world = self.world();
        world.held.remove(resource);
        world.deliver();
    }

    /// Ends all watches of a resource.
    pub fn cut(&self, resource: &str) {
        self.world().watches.retain(|watch| watch.resource != resource);
    }

    /// Silences the connections of a resource's watches, which stay open.
    pub fn silence(&self, resource: &str) {
        let mut world = self.world();
        let (silent, rest) =
            std::mem::take(&mut world.watches).into_iter().partition(|watch| watch.resource == resource);
        world.watches = rest;
        world.silent.extend::<Vec<Watch>>(silent);
    }

    /// Sends a line to all watches of a resource.
    pub fn send(&self, resource: &str, line: &str) {
        let line = Bytes::from(format!("{line}\n"));
        for watch in self.world().watches.iter().filter(|watch| watch.resource == resource) {
            let _ = watch.lines.send(line.clone());
        }
    }

    /// Sends a bookmark of the present to all watches of a resource.
    pub fn bookmark(&self, resource: &str) {
        let revision = self.world().revision.to_string();
        let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": revision}}});
        self.send(resource, &bookmark.to_string());
    }

    /// Forgets the past, as etcd does after five minutes.
    pub fn compact(&self) {
        let mut world = self.world();
        world.compacted = world.revision;
    }

    /// Serves a resource, or stops serving it.
    pub fn serve(&self, resource: &str, served: bool) {
        let mut world = self.world();
        if served {
            world.absent.remove(resource)
        } else {
            world.absent.insert(resource.into())
        };
    }

    /// Changes an object behind the operator's back, or makes or deletes it.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut world = self.world();
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let mut object = world
            .objects
            .get(&key)
            .cloned()
            .unwrap_or_else(|| json!({"metadata": {"name": name, "namespace": namespace}}));
        edit(&mut object);
        world.store(key, object);
    }

    /// Deletes an object, as kubectl does.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.world().delete(&(resource.into(), namespace.into(), name.into()));
    }

    /// Returns an object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.world().objects.get(&(resource.into(), namespace.into(), name.into())).cloned()
    }

    /// Returns the names of all objects of a resource.
    pub fn names(&self, resource: &str) -> Vec<String> {
        self.world().objects.keys().filter(|key| key.0 == resource).map(|key| format!("{}/{}", key.1, key.2)).collect()
    }

    /// Returns the requests since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.world().seen)
    }

    /// Returns the requests since the last call that change something, as `METHOD path code`.
    pub fn writes(&self) -> Vec<String> {
        let writes = self.seen().into_iter().filter(Seen::is_write);
        writes.map(|seen| format!("{} {}", seen.what, seen.code)).collect()
    }

    /// Returns how many watches of a resource are open.
    pub fn watches(&self, resource: &str) -> usize {
        self.world().watches.iter().filter(|watch| watch.resource == resource && !watch.lines.is_closed()).count()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> std::io::Result<Answer> {
        // Every answer takes a little while, so that things happen in between.
        sleep(Duration::from_millis(1)).await;
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let (what, query) = (format!("{} {}", parts.method, parts.uri.path()), parts.uri.query().unwrap_or_default());
        let fault = self.world().fault(&format!("{what}?{query}"));
        let accept = parts.headers.get("accept").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let metadata = accept.contains("as=PartialObjectMetadata");
        // As of the real server: the first clause that it knows counts.
        let of_list = accept.starts_with("application/json;as=PartialObjectMetadataList;");
        let mixed = metadata && parts.method == Method::GET && of_list == query.contains("watch=");
        let content = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let answer = match &fault {
            Some(Fault::Hang) => {
                std::future::pending::<()>().await;
                unreachable!()
            }
            Some(Fault::Refuse(code)) => refusal(*code, "injected"),
            Some(Fault::RefuseFor(code, seconds)) => {
                let mut answer = refusal(*code, "injected");
                answer.headers_mut().insert("retry-after", (*seconds).into());
                answer
            }
            Some(Fault::Terminating) => {
                let details = json!({"causes": [{"reason": "NamespaceTerminating"}]});
                document(
                    403,
                    &json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no", "details": details}),
                )
            }
            Some(Fault::Answer(text)) => whole(200, Bytes::from_static(text.as_bytes())),
            Some(Fault::Trickle) => trickle(),
            Some(Fault::LoseAnswer) | None if mixed => refusal(406, "metadata of the other form was requested"),
            Some(Fault::LoseAnswer) | None => {
                self.world().handle(&parts.method, parts.uri.path(), query, (content, metadata), &body)
            }
        };
        let code = answer.status().as_u16();
        self.world().seen.push(Seen { what, query: query.into(), code, metadata });
        match fault {
            Some(Fault::LoseAnswer) => Err(std::io::Error::other("connection reset")),
            _ => Ok(answer),
        }
    }
}

impl World {
    fn fault(&mut self, request: &str) -> Option<Fault> {
        let (_, times, fault) = self.faults.iter_mut().find(|(part, times, _)| *times > 0 && request.contains(part))?;
        *times -= 1;
        Some(fault.clone())
    }

    fn handle(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        (content, metadata): (&str, bool),
        body: &[u8],
    ) -> Answer {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if let ["api", _] | ["apis", _, _] = parts[..] {
            return self.discovery();
        }
        if path == "/livez" {
            return whole(200, Bytes::from_static(b"ok"));
        }
        let rest = if parts[0] == "api" { &parts[2..] } else { &parts[3..] };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource] => (*resource, *name, *subresource),
            _ => return refusal(404, "no such path"),
        };
        if self.absent.contains(resource) {
            return refusal(404, "the server could not find the requested resource");
        }
        let query: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let key = (resource.to_owned(), namespace.unwrap_or_default().to_owned(), name.to_owned());
        let value = || serde_json::from_slice::<Value>(body).unwrap();
        match *method {
            Method::GET if query.contains_key("watch") => {
                let view = View::of(&query, metadata);
                self.watch(resource, namespace, &query, view)
            }
            Method::GET if name.is_empty() => {
                let view = View::of(&query, metadata);
                self.list(resource, namespace, &query, &view)
            }
            Method::GET => {
                self.objects.get(&key).map_or_else(|| refusal(404, "not found"), |object| document(200, object))
            }
            Method::POST => {
                let object = value();
                let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
                let key = (key.0, key.1, name);
                if self.objects.contains_key(&key) {
                    return refusal(409, "AlreadyExists");
                }
                document(201, &self.store(key, object))
            }
            Method::PATCH if content.starts_with("application/apply") => {
                self.apply(key, subresource, query["fieldManager"], value())
            }
            Method::PATCH => {
                let Some(mut object) = self.objects.get(&key).cloned() else { return refusal(404, "not found") };
                let patch = value();
                let version = &patch["metadata"]["resourceVersion"];
                if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
                    return refusal(409, "Conflict");
                }
                merge(&mut object, patch);
                document(200, &self.store(key, object))
            }
            Method::DELETE => {
                let Some(object) = self.objects.get(&key) else { return refusal(404, "not found") };
                let uid = &value()["preconditions"]["uid"];
                if !uid.is_null() && *uid != object["metadata"]["uid"] {
                    return refusal(409, "Conflict");
                }
                self.delete(&key);
                document(200, &json!({"kind": "Status", "status": "Success"}))
            }
            _ => refusal(405, "method not allowed"),
        }
    }

    /// Returns the resources with objects, each with the kind of its name, in any group.
    fn discovery(&self) -> Answer {
        let names: BTreeSet<&String> = self.objects.keys().map(|key| &key.0).collect();
        let served = names.into_iter().filter(|name| !self.absent.contains(*name));
        let kind = |name: &str| name[..1].to_uppercase() + name[1..].trim_end_matches('s');
        let resources: Vec<Value> = served
            .map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind(name), "verbs": []}))
            .collect();
        let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources});
        document(200, &list)
    }

    fn list(&self, resource: &str, namespace: Option<&str>, query: &BTreeMap<&str, &str>, view: &View) -> Answer {
        let matches = |key: &&(String, String, String)| key.0 == resource && namespace.is_none_or(|n| n == key.1);
        let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let (from, revision) = match query.get("continue").and_then(|token| token.split_once('.')) {
            Some((from, revision)) => (from.parse().unwrap(), revision.parse().unwrap()),
            None => (0, self.revision),
        };
        if revision < self.compacted {
            return refusal(410, "Expired");
        }
        let all: Vec<_> =
            self.objects.keys().filter(matches).filter(|key| view.selects_object(&self.objects[*key])).collect();
        let items: Vec<Value> = all.iter().skip(from).take(limit).map(|key| view.shown(&self.objects[*key])).collect();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if from + items.len() < all.len() {
            metadata["continue"] = format!("{}.{revision}", from + items.len()).into();
        }
        document(200, &json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }

    fn watch(&mut self, resource: &str, namespace: Option<&str>, query: &BTreeMap<&str, &str>, view: View) -> Answer {
        let (lines, receiver) = mpsc::unbounded_channel();
        let matches = |key: &(String, String, String)| key.0 == resource && namespace.is_none_or(|n| n == key.1);
        let sent = if query.contains_key("sendInitialEvents") {
            for (_, object) in self.objects.iter().filter(|(key, _)| matches(key)) {
                lines.send(line("ADDED", object)).unwrap();
            }
            let metadata = json!({
                "resourceVersion": self.revision.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            });
            lines.send(line("BOOKMARK", &json!({"metadata": metadata}))).unwrap();
            self.revision
        } else {
            query["resourceVersion"].parse().unwrap()
        };
        if sent < self.compacted {
            return refusal(410, "too old resource version");
        }
        let namespace = namespace.map(str::to_owned);
        self.watches.push(Watch { resource: resource.into(), namespace, view, sent, lines });
        self.deliver();
        let lines = stream::unfold(receiver, |mut receiver| async {
            let line = receiver.recv().await?;
            Some((Ok(Frame::data(line)), receiver))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }

    /// Sends to the watches what they have not got yet.
    fn deliver(&mut self) {
        let held = &self.held;
        for watch in self.watches.iter_mut().filter(|watch| !held.contains(&watch.resource)) {
            for change in self.history.iter().filter(|change| change.revision > watch.sent) {
                if change.resource == watch.resource
                    && watch.namespace.as_ref().is_none_or(|n| *n == change.namespace)
                    && let Some(event) = watch.view.event(change)
                {
                    let _ = watch.lines.send(event);
                }
            }
            watch.sent = self.revision;
        }
        self.watches.retain(|watch| !watch.lines.is_closed());
    }

    fn tell(&mut self, kind: &str, key: &(String, String, String), old: Option<&Value>, object: &Value) {
        let event = line(kind, object);
        let labels = |object: &Value| object["metadata"]["labels"].clone();
        let labels = (old.map(labels), (kind != "DELETED").then(|| labels(object)));
        let (revision, resource, namespace) = (self.revision, key.0.clone(), key.1.clone());
        self.history.push(Change { revision, resource, namespace, event, labels });
        self.deliver();
    }

    /// Stores an object, unless it is as before; returns what is stored.
    fn store(&mut self, key: (String, String, String), mut object: Value) -> Value {
        let old = self.objects.get(&key).cloned();
        if object["data"]["cpu"] == "1000m" {
            object["data"]["cpu"] = "1".into();
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        if metadata.get("finalizers").is_some_and(|finalizers| finalizers.as_array().unwrap().is_empty()) {
            metadata.remove("finalizers");
        }
        match &old {
            Some(old) if *old == object => return object,
            Some(old) => {
                let generation =
                    old["metadata"]["generation"].as_i64().unwrap() + i64::from(old["spec"] != object["spec"]);
                object["metadata"]["generation"] = generation.into();
            }
            None => {
                self.uids += 1;
                object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
                object["metadata"]["generation"] = 1.into();
                object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
        }
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let metadata = &object["metadata"];
        if metadata["deletionTimestamp"].is_string() && metadata["finalizers"].is_null() {
            self.objects.remove(&key);
            self.tell("DELETED", &key, old.as_ref(), &object);
        } else {
            self.objects.insert(key.clone(), object.clone());
            self.tell(if old.is_some() { "MODIFIED" } else { "ADDED" }, &key, old.as_ref(), &object);
        }
        object
    }

    fn delete(&mut self, key: &(String, String, String)) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z".into();
        }
        self.store(key.clone(), object);
    }

    /// Applies a configuration: sets what it says, removes what the manager applied before and does not any more.
    fn apply(&mut self, key: (String, String, String), subresource: &str, manager: &str, mut applied: Value) -> Answer {
        let known = self.objects.get(&key).cloned();
        if known.is_none() && !subresource.is_empty() {
            return refusal(404, "not found");
        }
        let mut object = known.unwrap_or_else(|| json!({"metadata": {"name": key.2, "namespace": key.1}}));
        let uid = applied["metadata"].as_object_mut().and_then(|metadata| metadata.remove("uid"));
        if uid.is_some_and(|uid| uid != object["metadata"]["uid"]) {
            return refusal(409, "Conflict");
        }
        for field in ["apiVersion", "kind"] {
            object[field] = applied[field].take();
            applied.as_object_mut().unwrap().remove(field);
        }
        let metadata = applied["metadata"].as_object_mut().unwrap();
        metadata.retain(|name, _| !matches!(name.as_str(), "name" | "namespace"));
        if metadata.is_empty() {
            applied.as_object_mut().unwrap().remove("metadata");
        }
        let mut managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let ours =
            |entry: &Value| entry["manager"] == manager && entry["subresource"].as_str().unwrap_or("") == subresource;
        let owned = fields_of(&applied);
        if let Some(before) = managers.iter().find(|entry| ours(entry)) {
            remove_fields(&mut object, &before["fieldsV1"], &owned);
        }
        apply_fields(&mut object, &applied);
        managers.retain(|entry| !ours(entry));
        let mut entry = json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsV1": owned});
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        managers.push(entry);
        managers.sort_by_key(Value::to_string);
        object["metadata"]["managedFields"] = managers.into();
        let created = !self.objects.contains_key(&key);
        document(if created { 201 } else { 200 }, &self.store(key, object))
    }
}

/// Returns the key of an element of a list, if the elements of that list have keys.
fn element_key(list: &str, element: &Value) -> Option<String> {
    let (_, field) = LIST_KEYS.iter().find(|(name, _)| *name == list)?;
    Some(format!("k:{}", json!({*field: element[*field]})))
}

fn fields_of(applied: &Value) -> Value {
    let Value::Object(applied) = applied else { return json!({}) };
    let mut fields = Map::new();
    for (name, value) in applied {
        let field = match value.as_array() {
            Some(list) if list.is_empty() && LIST_KEYS.iter().any(|(keyed, _)| keyed == name) => continue,
            Some(list) if LIST_KEYS.iter().any(|(keyed, _)| keyed == name) => {
                list.iter().map(|element| (element_key(name, element).unwrap(), fields_of(element))).collect()
            }
            _ => fields_of(value),
        };
        fields.insert(format!("f:{name}"), field);
    }
    Value::Object(fields)
}

fn remove_fields(object: &mut Value, before: &Value, now: &Value) {
    for (field, inner) in before.as_object().into_iter().flatten() {
        let Some(name) = field.strip_prefix("f:") else { continue };
        match now.get(field) {
            Some(now) if object[name].is_object() => remove_fields(&mut object[name], inner, now),
            Some(now) => {
                if let Some(list) = object[name].as_array_mut() {
                    list.retain(|element| {
                        element_key(name, element)
                            .is_none_or(|key| inner.get(&key).is_none() || now.get(&key).is_some())
                    });
                }
            }
            None => drop(object.as_object_mut().unwrap().remove(name)),
        }
    }
}

fn apply_fields(object: &mut Value, applied: &Value) {
    for (name, value) in applied.as_object().into_iter().flatten() {
        let target = &mut object[name.as_str()];
        match value {
            Value::Object(_) => {
                if !target.is_object() {
                    *target = json!({});
                }
                apply_fields(target, value);
            }
            Value::Array(list) if LIST_KEYS.iter().any(|(keyed, _)| keyed == name) => {
                let mut merged = target.as_array().cloned().unwrap_or_default();
                for element in list {
                    let same = merged.iter_mut().find(|known| element_key(name, known) == element_key(name, element));
                    match same {
                        Some(known) => apply_fields(known, element),
                        None => merged.push(element.clone()),
                    }
                }
                *target = merged.into();
            }
            _ => *target = value.clone(),
        }
    }
}

fn merge(target: &mut Value, patch: Value) {
    match patch {
        Value::Object(patch) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (name, value) in patch {
                if value.is_null() {
                    target.as_object_mut().unwrap().remove(&name);
                } else {
                    merge(&mut target[name], value);
                }
            }
        }
        patch => *target = patch,
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn whole(code: u16, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

fn document(code: u16, value: &Value) -> Answer {
    whole(code, value.to_string().into())
}

fn trickle() -> Answer {
    let bytes = stream::unfold((), |()| async {
        sleep(Duration::from_secs(29)).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))), ()))
    });
    Response::new(StreamBody::new(bytes).boxed_unsync())
}

fn refusal(code: u16, message: &str) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 if message == "AlreadyExists" => "AlreadyExists",
        409 => "Conflict",
        410 => "Expired",
        _ => "",
    };
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
    document(code, &status)
}
