//! Every field that can grow, of every kind that is served: lists, maps and strings, found in the OpenAPI documents.
//!
//! A type that several kinds share is measured in the first of them. Fields that grow together are in
//! [`crate::SHAPES`].

use crate::send::send;
use crate::{ALONE, RATIO, ROUNDS, cpu};
use flyball_core::Clock;
use flyball_server::{Options, Server};
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
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

    /// Creates an object with a number of items in one field.
    fn object(&self, growing: &Growing, count: usize, is_same: bool) -> Value {
        let number = |n: usize| if is_same { 0 } else { n };
        let schema = &growing.schema;
        let mut value = match schema["type"].as_str() {
            Some("array") => (0..count).map(|n| self.sample(&schema["items"], number(n), 0)).collect(),
            Some("object") => {
                let of = &schema["additionalProperties"];
                (0..count).map(|n| (format!("k{n}"), self.sample(of, number(n), 0))).collect::<Map<_, _>>().into()
            }
            _ => Value::from("v".repeat(count)),
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

/// Returns the CPU time for an object with a number of items.
async fn cost(server: &Server, document: &Document, field: &Growing, count: usize, is_same: bool) -> Duration {
    let body = document.object(field, count, is_same).to_string();
    let start = cpu();
    let path = format!("{}?dryRun=All", field.collection);
    let (code, response, _) = send(server, Method::POST, &path, JSON, body).await;
    let cost = cpu() - start;
    // A real server also returns 500 if the target of a binding is not a node.
    let is_binding = field.collection.ends_with("/bindings") && code == 500;
    let is_answered = code < 300 || [400, 403, 404, 409, 413, 422].contains(&code) || is_binding;
    assert!(is_answered, "{field}: {code} {:.300}", response["message"].as_str().unwrap_or_default());
    cost
}

/// Measures a field; returns the error if it is too slow.
async fn judge(server: &Server, document: &Document, field: &Growing, is_same: bool) -> Option<String> {
    let count = if field.schema["type"] == "string" { CHARACTERS } else { ITEMS };
    let (mut once, mut twice) = (Duration::MAX, Duration::MAX);
    // A loaded machine may spoil a measurement.
    for _ in 0..MEASUREMENTS {
        once = once.min(cost(server, document, field, count, is_same).await);
        twice = twice.min(cost(server, document, field, 2 * count, is_same).await);
        if twice <= FLOOR || twice.as_secs_f64() <= RATIO * once.as_secs_f64() {
            return None;
        }
    }
    Some(format!("{field}: {once:?} for {count}, {twice:?} for twice as much"))
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
            if field.schema["type"] == "array" {
                remaining.push((documents.len(), field.clone(), true));
            }
            remaining.push((documents.len(), field, false));
        }
        documents.push(document);
    }
    let count = remaining.len();
    assert!(count > 2_000, "{count} fields");
    let mut errors = Vec::new();
    for _ in 0..ROUNDS {
        errors.clear();
        for (document, field, is_same) in std::mem::take(&mut remaining) {
            if let Some(error) = judge(&server, &documents[document], &field, is_same).await {
                errors.push(error);
                remaining.push((document, field, is_same));
            }
        }
    }
    println!("{count} measurements in {:?}", cpu());
    assert!(errors.is_empty(), "{errors:#?}");
}
