//! Every field that can grow, of every kind that is served: lists, maps and strings, found in the OpenAPI documents.
//!
//! A type that several kinds share is measured in the first of them. Fields that grow together are in
//! [`crate::SHAPES`].

use crate::reads::{self, Read};
use crate::send::send;
use crate::{ALONE, APPLY, RATIO, ROUNDS, cpu};
use flyball_core::Clock;
use flyball_server::{Options, Server};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const JSON: &str = "application/json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Items of a list or a map, and characters of a string.
const ITEMS: usize = 1_000;
const CHARACTERS: usize = 20_000;

/// Maximum number of measurements of a field that seems too slow.
const MEASUREMENTS: usize = 30;

/// Times below this are too short to measure. Quadratic time for this number of items, or characters, is longer.
const FLOOR: Duration = Duration::from_millis(4);

/// Maximum depth of schemas: that of a CRD is recursive.
const MAX_DEPTH: usize = 24;

/// A field that can grow, in an otherwise small object.
#[derive(Clone)]
struct Growing {
    /// The collection of the kind.
    collection: String,
    /// The way to the field, and its schema.
    steps: Vec<Step>,
    schema: Value,
}

#[derive(Clone)]
enum Step {
    /// A field of an object of this schema.
    Field(Value, String),
    /// An item of a list of this schema.
    Item(Value),
    /// A value of a map.
    Value,
}

/// The items of a field.
#[derive(Clone, Copy, PartialEq)]
enum Items {
    Same,
    DistinctFrom(usize),
}

/// The measured request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measured {
    /// Creates an object, which need not be valid.
    Create,
    /// Changes all items of a valid object.
    Update,
    /// Changes another field of a valid object.
    UpdateOther,
    /// Applies the items that another client created.
    Apply,
    /// Takes the items over from the manager that applied them, with other values.
    ApplyOther,
    /// Applies an object without the items that the same manager applied before.
    ApplyLess,
    /// Reads a valid object.
    Read(Read),
}

/// The requests for valid objects, besides those for single types.
const OF_VALID: [Measured; 4] = [Measured::Update, Measured::Apply, Measured::ApplyOther, Measured::ApplyLess];

/// A request for an object with a field, to be measured.
#[derive(Clone)]
struct Case {
    document: usize,
    field: Growing,
    request: Measured,
    items: Items,
}

/// An OpenAPI document.
struct Document(Value);

impl Document {
    /// Resolves a schema, and returns its name if it has one.
    fn resolve<'d>(&'d self, schema: &'d Value) -> (&'d Value, Option<&'d str>) {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        let name = reference.and_then(|reference| reference.strip_prefix("#/components/schemas/"));
        name.map_or((schema, None), |name| (&self.0["components"]["schemas"][name], Some(name)))
    }

    /// Creates a small value, distinct for each number.
    fn sample(&self, schema: &Value, number: usize, depth: usize) -> Value {
        let (schema, _) = self.resolve(schema);
        if let Some(value) = schema["enum"].get(0) {
            return value.clone();
        }
        match schema["type"].as_str() {
            _ if depth > MAX_DEPTH => Value::Null,
            Some("object") => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let named = schema["properties"]["name"].is_object().then_some("name");
                let field = |name: &str| (name.into(), self.sample(&schema["properties"][name], number, depth + 1));
                required.chain(named).map(field).collect::<Map<_, _>>().into()
            }
            Some("array") => json!([]),
            Some("integer" | "number") => json!(number + 1),
            Some("boolean") => json!(true),
            _ => json!(format!("v{number}")),
        }
    }

    /// Creates an object with a number of items in one field: all equal to the first, or distinct from this number on.
    fn object(&self, growing: &Growing, count: usize, items: Items) -> Value {
        let number = |n: usize| match items {
            Items::Same => 0,
            Items::DistinctFrom(first) => first + n,
        };
        let schema = &growing.schema;
        let mut value = match schema["type"].as_str() {
            Some("array") => (0..count).map(|n| self.sample(&schema["items"], number(n), 0)).collect(),
            Some("object") => {
                let of = &schema["additionalProperties"];
                (0..count)
                    .map(|n| (format!("k{}", number(n).max(n)), self.sample(of, number(n), 0)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            _ => Value::from(format!("v{}", number(0) % 10).repeat(count / 2)),
        };
        for step in growing.steps.iter().rev() {
            value = match step {
                Step::Item(schema) => self.merged(&schema["items"], value, |value| json!([value])),
                Step::Value => json!({"k": value}),
                Step::Field(schema, name) => self.merged(schema, json!({name: value}), |value| value),
            };
        }
        value
    }

    /// Adds the required fields besides a value.
    fn merged(&self, schema: &Value, value: Value, wrap: impl Fn(Value) -> Value) -> Value {
        let mut whole = self.sample(schema, 0, 0);
        match (whole.as_object_mut(), value) {
            (Some(whole), Value::Object(fields)) => whole.extend(fields),
            (_, value) => whole = value,
        }
        wrap(whole)
    }
}

/// Walks the schemas of one document.
struct Walk<'d> {
    document: &'d Document,
    seen: &'d mut BTreeSet<String>,
    found: Vec<Growing>,
}

impl Walk<'_> {
    fn walk(&mut self, collection: &str, schema: &Value, steps: &[Step]) {
        let document = self.document;
        let (schema, name) = document.resolve(schema);
        if steps.len() > MAX_DEPTH || name.is_some_and(|name| !self.seen.insert(name.to_owned())) {
            return;
        }
        let then = |step: Step| [steps, &[step]].concat();
        let grows = match schema["type"].as_str() {
            Some("array") => {
                self.walk(collection, &schema["items"], &then(Step::Item(schema.clone())));
                true
            }
            Some("object") => {
                for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                    self.walk(collection, field, &then(Step::Field(schema.clone(), name.clone())));
                }
                let values = &schema["additionalProperties"];
                if values.is_object() {
                    self.walk(collection, values, &then(Step::Value));
                }
                values.is_object() || schema["x-kubernetes-preserve-unknown-fields"] == true
            }
            Some("string") => true,
            _ => false,
        };
        if grows {
            self.found.push(Growing { collection: collection.into(), steps: steps.to_vec(), schema: schema.clone() });
        }
    }
}

impl std::fmt::Display for Growing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.collection)?;
        self.steps.iter().try_for_each(|step| match step {
            Step::Field(_, name) => write!(f, ".{name}"),
            Step::Item(_) => f.write_str("[]"),
            Step::Value => f.write_str(".*"),
        })
    }
}

/// Creates a server with the definitions of the corpus.
async fn server() -> Server {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    for file in files {
        for document in std::fs::read_to_string(&file).unwrap().split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            if object["kind"] == "CustomResourceDefinition" {
                assert_eq!(send(&server, Method::POST, DEFINITIONS, JSON, object.to_string()).await.0, 201);
            }
        }
    }
    server
}

async fn get(server: &Server, path: &str) -> Value {
    let (code, response, _) = send(server, Method::GET, path, JSON, "").await;
    assert_eq!(code, 200, "{path}");
    response
}

/// Returns what an object of a collection needs to be valid.
fn base(collection: &str) -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let selector = json!({"matchLabels": {"a": "b"}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let spec = match collection.rsplit('/').next().unwrap_or_default() {
        "pods" => pod,
        "deployments" | "replicasets" | "daemonsets" => json!({"selector": selector, "template": template}),
        "statefulsets" => json!({"selector": selector, "template": template, "serviceName": "s"}),
        "replicationcontrollers" => json!({"selector": {"a": "b"}, "template": template}),
        "services" => json!({"ports": [{"port": 80}]}),
        "persistentvolumeclaims" => {
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
        }
        "persistentvolumes" => {
            json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/d"}})
        }
        "horizontalpodautoscalers" => {
            json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}})
        }
        "ingresses" => json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}),
        _ => return json!({"metadata": {"generateName": "v"}}),
    };
    json!({"metadata": {"generateName": "v"}, "spec": spec})
}

/// Sets fields of an object, also of the single items of lists.
fn overlay(object: &mut Value, fields: Value) {
    match (object, fields) {
        (Value::Object(object), Value::Object(fields)) => {
            for (name, field) in fields {
                overlay(object.entry(name).or_insert(Value::Null), field);
            }
        }
        (Value::Array(items), Value::Array(mut fields)) if items.len() == 1 && fields.len() == 1 => {
            overlay(&mut items[0], fields.remove(0));
        }
        (object, fields) => *object = fields,
    }
}

/// Sends a request that may fail, and returns the object or error.
async fn try_write(server: &Server, method: Method, path: &str, field: &Growing, body: Value) -> (u16, Value) {
    let media_type = if method == Method::PATCH { "application/merge-patch+json" } else { JSON };
    let (code, response, _) = send(server, method, path, media_type, body.to_string()).await;
    assert_answered(field, code, &response);
    (code, response)
}

fn assert_answered(field: &Growing, code: u16, response: &Value) {
    // A real server also returns 500 if the target of a binding is not a node.
    let is_binding = field.collection.ends_with("/bindings") && code == 500;
    let is_answered = code < 300 || [400, 403, 404, 409, 413, 422].contains(&code) || is_binding;
    assert!(is_answered, "{field}: {code} {:.300}", response["message"].as_str().unwrap_or_default());
}

/// Returns the CPU time for an object with a number of items; `None` if the object that a request needs cannot be
/// created.
async fn cost(server: &Server, document: &Document, case: &Case, count: usize) -> Option<Duration> {
    let Case { field, items, .. } = case;
    let object = document.object(field, count, *items);
    if case.request == Measured::Create {
        let start = cpu();
        try_write(server, Method::POST, &format!("{}?dryRun=All", field.collection), field, object).await;
        return Some(cpu() - start);
    }
    let mut stored = base(&field.collection);
    overlay(&mut stored, object);
    let (code, stored) = try_write(server, Method::POST, &field.collection, field, stored).await;
    let name = stored["metadata"]["name"].as_str().filter(|_| code == 201)?;
    let path = format!("{}/{name}", field.collection);
    let cost = match case.request {
        Measured::Read(read) => reads::cost(server, read, &field.collection, name).await,
        Measured::Create | Measured::Update | Measured::UpdateOther => {
            let changed = changed(server, document, case, count, &path).await;
            let start = cpu();
            try_write(server, Method::PATCH, &format!("{path}?dryRun=All"), field, changed).await;
            cpu() - start
        }
        Measured::Apply | Measured::ApplyOther | Measured::ApplyLess => {
            cost_of_apply(server, document, case, count, &path).await
        }
    };
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    try_write(server, Method::DELETE, &path, field, now).await;
    Some(cost)
}

/// Returns a merge patch of a stored object.
async fn changed(server: &Server, document: &Document, case: &Case, count: usize, path: &str) -> Value {
    let Case { field, request, .. } = case;
    if *request == Measured::UpdateOther {
        return json!({"metadata": {"labels": {"changed": "v"}}});
    }
    let (_, mut changed) = try_write(server, Method::GET, path, field, Value::Null).await;
    let name = changed["metadata"]["name"].clone();
    overlay(&mut changed, document.object(field, count, Items::DistinctFrom(2 * ITEMS + 1)));
    changed["metadata"]["name"] = name;
    changed
}

/// Returns the CPU time of a server-side apply to a stored object.
async fn cost_of_apply(server: &Server, document: &Document, case: &Case, count: usize, path: &str) -> Duration {
    let Case { field, request, .. } = case;
    let configuration = |mut object: Value, from: &Value| {
        for name in ["apiVersion", "kind"] {
            object[name] = from[name].clone();
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|name, _| !["uid", "resourceVersion", "creationTimestamp", "generateName"].contains(&&**name));
        metadata.remove("managedFields");
        metadata.insert("name".into(), from["metadata"]["name"].clone());
        object
    };
    let (_, stored) = try_write(server, Method::GET, path, field, Value::Null).await;
    let whole = configuration(stored.clone(), &stored);
    let apply = async |manager: &str, more: &str, object: &Value| {
        let path = format!("{path}?fieldManager={manager}&force=true{more}");
        let start = cpu();
        let (code, response, _) = send(server, Method::PATCH, &path, APPLY, object.to_string()).await;
        let cost = cpu() - start;
        assert_answered(field, code, &response);
        cost
    };
    if *request == Measured::Apply {
        return apply("one", "&dryRun=All", &whole).await;
    }
    apply("one", "", &whole).await;
    if *request == Measured::ApplyLess {
        return apply("one", "&dryRun=All", &configuration(base(&field.collection), &stored)).await;
    }
    let mut other = whole.clone();
    overlay(&mut other, document.object(field, count, Items::DistinctFrom(2 * ITEMS + 1)));
    apply("two", "&dryRun=All", &configuration(other, &stored)).await
}

/// Measures a field; returns whether it was measured, or the error if it is too slow.
async fn judge(server: &Server, document: &Document, case: &Case) -> Result<bool, String> {
    let Case { field, request, .. } = case;
    let count = if field.schema["type"] == "string" { CHARACTERS } else { ITEMS };
    let (mut once, mut twice) = (Duration::MAX, Duration::MAX);
    // A loaded machine may spoil a measurement.
    for _ in 0..MEASUREMENTS {
        let costs = (cost(server, document, case, count).await, cost(server, document, case, 2 * count).await);
        let (Some(of_once), Some(of_twice)) = costs else { return Ok(false) };
        (once, twice) = (once.min(of_once), twice.min(of_twice));
        if twice <= FLOOR || twice.as_secs_f64() <= RATIO * once.as_secs_f64() {
            return Ok(true);
        }
    }
    Err(format!("{request:?} of {field}: {once:?} for {count}, {twice:?} for twice as much"))
}

/// The results of measurements.
#[derive(Default)]
struct Results {
    /// Number of measured fields by request.
    measured: BTreeMap<String, usize>,
    slow: Vec<Case>,
    errors: Vec<String>,
}

impl Results {
    fn extend(&mut self, more: Self) {
        more.measured.into_iter().for_each(|(request, count)| *self.measured.entry(request).or_default() += count);
        self.slow.extend(more.slow);
        self.errors.extend(more.errors);
    }
}

/// Measures cases one after the other, on a server of their own.
async fn round(documents: &[Document], cases: Vec<Case>) -> Results {
    let (server, mut results) = (server().await, Results::default());
    // Most fields need more than their items for a valid object.
    let mut without_valid_object = BTreeSet::new();
    for case in cases {
        let field = (case.document, case.field.to_string());
        if case.request != Measured::Create && without_valid_object.contains(&field) {
            continue;
        }
        match judge(&server, &documents[case.document], &case).await {
            Ok(is_measured) => {
                if !is_measured {
                    without_valid_object.insert(field);
                }
                *results.measured.entry(format!("{:?}", case.request)).or_default() += usize::from(is_measured);
            }
            Err(error) => {
                results.errors.push(error);
                results.slow.push(case);
            }
        }
    }
    results
}

/// Measures all cases, on all cores. What seems too slow is to be measured again without others beside it.
fn first_round(documents: &[Document], cases: Vec<Case>) -> Results {
    let mut by_document = BTreeMap::<usize, Vec<Case>>::new();
    cases.into_iter().for_each(|case| by_document.entry(case.document).or_default().push(case));
    let mut waiting = Vec::from_iter(by_document.into_values());
    waiting.sort_by_key(Vec::len);
    let (waiting, results) = (Mutex::new(waiting), Mutex::new(Results::default()));
    let measure = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        loop {
            let next = waiting.lock().pop();
            let Some(cases) = next else { return };
            let found = runtime.block_on(round(documents, cases));
            results.lock().extend(found);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(measure);
        }
    });
    results.into_inner()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_field_takes_linear_time() {
    let _alone = ALONE.lock().await;
    let server = server().await;
    let mut seen = BTreeSet::new();
    let (mut documents, mut remaining) = (Vec::new(), Vec::new());
    let root = get(&server, "/openapi/v3").await;
    for place in root["paths"].as_object().unwrap().keys() {
        let document = Document(get(&server, &format!("/openapi/v3/{place}")).await);
        let mut walk = Walk { document: &document, seen: &mut seen, found: Vec::new() };
        for (path, methods) in document.0["paths"].as_object().unwrap() {
            let schema = &methods["post"]["requestBody"]["content"]["application/json"]["schema"];
            if !schema.is_null() {
                walk.walk(&path.replace("{namespace}", "default").replace("{name}", "v0"), schema, &[]);
            }
        }
        for field in walk.found {
            let case = |request, items| Case { document: documents.len(), field: field.clone(), request, items };
            let of_distinct = |request| case(request, Items::DistinctFrom(0));
            let is_list = field.schema["type"] == "array";
            remaining.extend(is_list.then(|| case(Measured::Create, Items::Same)));
            remaining.push(of_distinct(Measured::Create));
            remaining.extend(OF_VALID.map(of_distinct));
            remaining.extend(is_list.then(|| of_distinct(Measured::UpdateOther)));
            remaining.extend(Read::ALL.map(|read| of_distinct(Measured::Read(read))));
        }
        documents.push(document);
    }
    let mut results = first_round(&documents, remaining);
    for _ in 1..ROUNDS {
        let slow = std::mem::take(&mut results.slow);
        results.errors.clear();
        results.extend(round(&documents, slow).await);
    }
    let Results { measured, errors, .. } = results;
    println!("{measured:?}");
    assert!(errors.is_empty(), "{errors:#?}");
    let too_few = |(request, count): (&String, &usize)| {
        let expected = match request.as_str() {
            "Create" => 2_000,
            // Lists only.
            "UpdateOther" => 40,
            _ => 150,
        };
        (*count < expected).then(|| format!("{request}: {count}"))
    };
    let too_few: Vec<String> = measured.iter().filter_map(too_few).collect();
    assert!(too_few.is_empty(), "{too_few:?}");
}
