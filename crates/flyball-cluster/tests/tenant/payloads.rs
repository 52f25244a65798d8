//! Custom resources of a tenant, generated from the schema of their definition: each field in turn gets all extreme
//! values.
//!
//! It is independent of operators and deterministic: the same definition results in the same resources.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// Texts with a special meaning in templates, shells, paths, YAML, selectors or URLs, and unusual texts.
const TEXTS: [&str; 52] = [
    "",
    " ",
    "-",
    ".",
    "..",
    "/",
    "a/b",
    "../../../../etc/passwd",
    "../vault/secrets/crown",
    "/api/v1/namespaces/vault/secrets/crown",
    "vault/crown",
    "crown?watch=true",
    "crown#",
    "%2e%2e%2fvault",
    "%00",
    "a\0b",
    "a\nb",
    "a\r\nX-Header: b",
    "\u{feff}a",
    "\u{202e}a",
    "é",
    "名前",
    "🎈",
    "A",
    "a_b",
    "a.b.c",
    "kube-system",
    "default",
    "system:masters",
    "*",
    "a,b in (c)",
    "a=b,c!=d",
    "{{ .Values }}",
    "{{ lookup('pipe', 'touch PWN') }}",
    "{{ lookup \"v1\" \"Secret\" \"vault\" \"crown\" }}",
    "${HOME}",
    "$(touch PWN)",
    "`touch PWN`",
    "'; touch PWN; '",
    "a\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: stray}\n",
    "&a [*a, *a]",
    "!!python/object/apply:os.system [touch PWN]",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "NaN",
    "0x7fffffffffffffff",
    "9999999999999999999999999999",
    "2999-99-99T99:99:99Z",
    "http://[::1]:99999/../",
];

/// Numbers at and beyond the limits of their types.
const NUMBERS: [i64; 15] = [
    0,
    1,
    -1,
    2,
    100,
    255,
    256,
    65_535,
    65_536,
    1_000_000_000,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
];

/// Names of objects; most are invalid.
const NAMES: [&str; 12] =
    ["0", "00", "a.b.c", "a--b", "kube-root-ca.crt", "default", "tenant", "-a", "a/b", "..", "A", "a%2fb"];

/// Returns resources of a definition, each of which differs from a valid one in one field or in its metadata.
pub(crate) fn of(definition: &CustomResourceDefinition, good: &Value) -> Vec<Value> {
    let version = definition.spec.versions.iter().find(|version| version.storage).expect("one is stored");
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = serde_json::to_value(schema).expect("it is JSON");
    let object = |name: String, spec: &Value| {
        json!({
            "apiVersion": format!("{}/{}", definition.spec.group, version.name),
            "kind": definition.spec.names.kind,
            "metadata": {"name": name},
            "spec": spec,
        })
    };
    let mut all = Vec::new();
    let mut fields = Vec::new();
    leaves(&schema["properties"]["spec"], "", &mut fields);
    for (path, kind) in fields {
        for value in values(&kind) {
            let mut spec = good.clone();
            set(&mut spec, &path, value);
            all.push(object(format!("p{}", all.len()), &spec));
        }
    }
    for spec in [json!(null), json!({}), json!([]), json!("a"), nested(50), nested(90)] {
        all.push(object(format!("p{}", all.len()), &spec));
    }
    all.extend(NAMES.map(|name| object(name.to_owned(), good)));
    all.extend([63, 64, 200, 253].map(|length| object("a".repeat(length), good)));
    let long = "x".repeat(100_000);
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "vault", "uid": "1", "controller": true});
    for (field, value) in [
        ("labels", json!({"app": "a/b"})),
        ("labels", json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "crown"})),
        ("annotations", json!({"a": long})),
        ("annotations", json!({"kubectl.kubernetes.io/last-applied-configuration": "{"})),
        ("annotations", json!({"meta.helm.sh/release-namespace": "vault"})),
        ("ownerReferences", json!([owner])),
        ("finalizers", json!(["example.com/a", "foregroundDeletion"])),
        ("generateName", json!("a")),
        ("creationTimestamp", json!("0001-01-01T00:00:00Z")),
        ("deletionTimestamp", json!("2999-01-01T00:00:00Z")),
        ("managedFields", json!([{"manager": "a", "operation": "Apply", "fieldsV1": {"f:a": {}}}])),
        ("namespace", json!("vault")),
    ] {
        let mut found = object(format!("p{}", all.len()), good);
        found["metadata"][field] = value;
        all.push(found);
    }
    all
}

/// Finds the leaf fields of a schema.
fn leaves(schema: &Value, path: &str, into: &mut Vec<(String, String)>) {
    match schema["properties"].as_object() {
        Some(fields) => fields.iter().for_each(|(name, field)| leaves(field, &format!("{path}/{name}"), into)),
        None => into.push((path.to_owned(), schema["type"].as_str().unwrap_or_default().to_owned())),
    }
}

/// Returns the values for a field of a type, including those of other types.
fn values(kind: &str) -> Vec<Value> {
    let mut all =
        vec![json!(null), json!([]), json!({}), json!(["a"]), json!({"a": "b"}), json!(true), json!(1.5), nested(60)];
    match kind {
        "string" => {
            all.extend(TEXTS.map(Value::from));
            all.extend([63, 64, 253, 254, 1 << 12, 1 << 16, 1 << 19].map(|size| Value::from("a".repeat(size))));
            all.extend([10, 1000, 100_000].map(|count| Value::from("{{".repeat(count))));
            all.extend(["1.", "../", "é", "3.1."].map(|part| Value::from(part.repeat(1000))));
        }
        "integer" | "number" => {
            all.extend(NUMBERS.map(Value::from));
            all.extend([json!(u64::MAX), json!(1e300), json!(-0.5), json!("1")]);
        }
        _ => all.extend(TEXTS[..8].iter().map(|text| json!({*text: [text]}))),
    }
    all
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("a"), |inner, _| json!({"a": [inner]}))
}

/// Sets a field, and creates its parent objects.
fn set(spec: &mut Value, path: &str, value: Value) {
    let mut at = spec;
    for field in path.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[field];
    }
    *at = value;
}
