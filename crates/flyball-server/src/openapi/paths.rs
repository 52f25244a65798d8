//! Paths and operations of OpenAPI documents.

use super::schemas::Dialect;
use crate::catalog::Resource;
use serde_json::{Map, Value, json};

/// Adds the paths of a resource.
pub(super) fn add(all: &mut Map<String, Value>, resource: &Resource, schema: &str, dialect: Dialect) {
    let base = format!("/{}", super::document_path(&resource.kind.group, &resource.kind.version));
    let scoped = if resource.namespaced { format!("{base}/namespaces/{{namespace}}") } else { base.clone() };
    let (list, item) = (format!("{scoped}/{}", resource.plural), format!("{scoped}/{}/{{name}}", resource.plural));
    let operation = |action: &str| operation(resource, schema, action, dialect);
    let verbs = |verb: &str| resource.verbs().allows(verb);
    let add_path = |all: &mut Map<String, Value>, path: String, methods: &[(&str, &str, bool)]| {
        let mut entry = Map::new();
        for (method, action, _) in methods.iter().filter(|(.., given)| *given) {
            entry.insert((*method).to_owned(), operation(action));
        }
        if !entry.is_empty() {
            entry.insert("parameters".into(), path_parameters(&path, dialect));
            all.insert(path, Value::Object(entry));
        }
    };
    add_path(
        all,
        list,
        &[
            ("get", "list", verbs("list")),
            ("post", "post", verbs("create")),
            ("delete", "deletecollection", verbs("deletecollection")),
        ],
    );
    let item_methods = |read: bool, write: bool, delete: bool| {
        [("get", "get", read), ("put", "put", write), ("patch", "patch", write), ("delete", "delete", delete)]
    };
    add_path(all, item.clone(), &item_methods(verbs("get"), verbs("update"), verbs("delete")));
    if resource.namespaced && verbs("list") {
        add_path(all, format!("{base}/{}", resource.plural), &[("get", "list", true)]);
    }
    for part in resource.subresources().iter().filter(|known| known.part.is_some()) {
        add_path(all, format!("{item}/{}", part.name), &item_methods(true, true, false));
    }
}

/// A parameter that is a text.
fn text(name: &str, place: &str, required: bool, dialect: Dialect) -> Value {
    parameter(name, place, "string", required, dialect)
}

fn parameter(name: &str, place: &str, ty: &str, required: bool, dialect: Dialect) -> Value {
    let mut parameter = match dialect {
        Dialect::V2 => json!({"name": name, "in": place, "type": ty, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": place, "schema": {"type": ty, "uniqueItems": true}}),
    };
    if required {
        parameter["required"] = true.into();
    }
    parameter
}

fn path_parameters(path: &str, dialect: Dialect) -> Value {
    let named = ["namespace", "name"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
    named.map(|name| text(name, "path", true, dialect)).chain([text("pretty", "query", false, dialect)]).collect()
}

fn operation(resource: &Resource, schema: &str, action: &str, dialect: Dialect) -> Value {
    let query = |names: &[(&str, &str)]| {
        names.iter().map(|(name, ty)| parameter(name, "query", ty, false, dialect)).collect::<Vec<Value>>()
    };
    const WRITE: [(&str, &str); 3] = [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
    const LIST: [(&str, &str); 10] = [
        ("allowWatchBookmarks", "boolean"),
        ("continue", "string"),
        ("fieldSelector", "string"),
        ("labelSelector", "string"),
        ("limit", "integer"),
        ("resourceVersion", "string"),
        ("resourceVersionMatch", "string"),
        ("sendInitialEvents", "boolean"),
        ("timeoutSeconds", "integer"),
        ("watch", "boolean"),
    ];
    const DELETE: [(&str, &str); 4] = [
        ("dryRun", "string"),
        ("gracePeriodSeconds", "integer"),
        ("orphanDependents", "boolean"),
        ("propagationPolicy", "string"),
    ];
    let mut parameters = match action {
        "list" => query(&LIST),
        "post" | "put" => query(&WRITE),
        "patch" => query(&[&WRITE[..], &[("force", "boolean")]].concat()),
        "delete" => query(&DELETE),
        "deletecollection" => query(&[&LIST[..], &DELETE[..]].concat()),
        _ => Vec::new(),
    };
    let list =
        schema.rsplit_once('.').map(|(prefix, _)| format!("{prefix}.{}", resource.list_kind)).unwrap_or_default();
    let response = match action {
        "list" => dialect.refer(&list),
        "delete" | "deletecollection" => dialect.refer("io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
        _ => dialect.refer(schema),
    };
    let body = match action {
        "post" | "put" => Some((dialect.refer(schema), &["application/json", "application/yaml"][..])),
        "patch" => Some((
            dialect.refer("io.k8s.apimachinery.pkg.apis.meta.v1.Patch"),
            &[
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ][..],
        )),
        _ => None,
    };
    let kind =
        json!({"group": &*resource.kind.group, "version": &*resource.kind.version, "kind": &*resource.kind.kind});
    let mut out = json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind});
    match dialect {
        Dialect::V3 => {
            out["responses"] = json!({"200": {"description": "OK", "content": {"application/json": {"schema": response}, "application/yaml": {"schema": response}}}});
            if let Some((schema, media)) = body {
                let media = media.iter().filter(|media| resource.custom().is_none() || !media.contains("strategic"));
                let content: Map<String, Value> =
                    media.map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                out["requestBody"] = json!({"required": true, "content": content});
            }
        }
        Dialect::V2 => {
            out["responses"] = json!({"200": {"description": "OK", "schema": response}});
            out["produces"] = json!(["application/json", "application/yaml"]);
            if let Some((schema, media)) = body {
                let media = media.iter().filter(|media| resource.custom().is_none() || !media.contains("strategic"));
                out["consumes"] = media.copied().collect();
                parameters.insert(0, json!({"name": "body", "in": "body", "required": true, "schema": schema}));
            }
        }
    }
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    out
}
