//! Converts a JSON schema of values to the structural schema of a spec.
//!
//! Helm validates the values of each release against the JSON schema itself, so keywords without a structural
//! equivalent are omitted. Values merge over the defaults of the chart: a field with a default is not required.

use super::{Comments, MAX_DEPTH, MAX_FIELDS, any};
use serde_json::{Map, Value, json};

/// Keywords with the same meaning in both, by type.
const KEYWORDS: [(&str, &[&str]); 4] = [
    ("integer", &["minimum", "maximum", "multipleOf"]),
    ("number", &["minimum", "maximum", "multipleOf"]),
    ("string", &["minLength", "maxLength", "pattern"]),
    ("array", &["minItems", "maxItems"]),
];

/// Converts the schema of `values.schema.json`.
pub(super) fn convert(schema: &Value, values: &Map<String, Value>, comments: &Comments) -> Value {
    let values = Value::Object(values.clone());
    let mut converter = Converter { root: schema, comments, fields: MAX_FIELDS };
    converter.schema(schema, Some(&values), &mut Vec::new(), 0)
}

struct Converter<'s> {
    root: &'s Value,
    comments: &'s Comments,
    fields: usize,
}

impl<'s> Converter<'s> {
    /// `values` are the defaults at this path, or nothing below lists and maps.
    fn schema(&mut self, schema: &'s Value, values: Option<&Value>, path: &mut Vec<String>, depth: usize) -> Value {
        if depth > MAX_DEPTH || self.fields == 0 {
            return any();
        }
        self.fields -= 1;
        if let Some(reference) = schema["$ref"].as_str() {
            // References to other files are not resolved.
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return target.map_or_else(any, |target| self.schema(target, values, path, depth + 1));
        }
        let (kind, is_nullable) = kind(schema);
        let mut converted = match kind {
            Some("object") => self.object(schema, values, path, depth),
            Some("array") => {
                let item = match &schema["items"] {
                    items @ Value::Object(_) => self.schema(items, None, &mut Vec::new(), depth + 1),
                    _ => any(),
                };
                json!({"type": "array", "items": item})
            }
            Some("int-or-string") => json!({"x-kubernetes-int-or-string": true}),
            Some(kind) => json!({"type": kind}),
            None => any(),
        };
        copy_keywords(schema, kind, is_nullable, &mut converted);
        if is_nullable {
            converted["nullable"] = true.into();
        }
        let words = schema["description"].as_str().or(schema["title"].as_str()).or(self.comments.at(path));
        if let Some(description) = words.filter(|words| !words.trim().is_empty()) {
            converted["description"] = description.into();
        }
        converted
    }

    fn object(&mut self, schema: &'s Value, values: Option<&Value>, path: &mut Vec<String>, depth: usize) -> Value {
        let mut properties = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            path.push(name.clone());
            let value = values.and_then(|values| values.get(name));
            properties.insert(name.clone(), self.schema(property, value, path, depth + 1));
            path.pop();
        }
        let mut converted = json!({"type": "object"});
        match &schema["additionalProperties"] {
            Value::Bool(false) if schema["patternProperties"].is_null() => {}
            more @ Value::Object(_) if properties.is_empty() && schema["patternProperties"].is_null() => {
                converted["additionalProperties"] = self.schema(more, None, &mut Vec::new(), depth + 1);
            }
            _ => converted["x-kubernetes-preserve-unknown-fields"] = true.into(),
        }
        let has_default = |name: &str| values.and_then(|values| values.get(name)).is_some_and(|value| !value.is_null());
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let required: Vec<&str> = required.filter(|name| !has_default(name)).collect();
        if !required.is_empty() {
            converted["required"] = json!(required);
        }
        if !properties.is_empty() {
            converted["properties"] = properties.into();
        }
        converted
    }
}

/// Returns the structural type, if there is one, and whether null is permitted.
fn kind(schema: &Value) -> (Option<&str>, bool) {
    let mut kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let count = kinds.len();
    kinds.retain(|kind| *kind != "null");
    let is_nullable = kinds.len() < count;
    kinds.sort_unstable();
    let is_text = |value: &Value| value.is_string();
    let kind = match kinds[..] {
        ["integer", "number"] => Some("number"),
        ["integer", "string"] => Some("int-or-string"),
        [kind @ ("object" | "array" | "string" | "integer" | "number" | "boolean")] => Some(kind),
        [] if count == 0 && schema["properties"].is_object() => Some("object"),
        [] if count == 0 && schema["const"].is_string() => Some("string"),
        [] if count == 0 => {
            schema["enum"].as_array().filter(|all| !all.is_empty() && all.iter().all(is_text)).map(|_| "string")
        }
        _ => None,
    };
    (kind, is_nullable)
}

fn copy_keywords(schema: &Value, kind: Option<&str>, is_nullable: bool, converted: &mut Value) {
    let Some(kind) = kind else { return };
    let known = KEYWORDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, words)| *words);
    for word in known {
        let is_usable = match &schema[*word] {
            Value::Number(_) => true,
            Value::String(pattern) => *word == "pattern" && is_portable(pattern),
            _ => false,
        };
        if is_usable {
            converted[*word] = schema[*word].clone();
        }
    }
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        match &schema[exclusive] {
            // Structural schemas have the form of older drafts.
            Value::Bool(flag) if !converted[bound].is_null() => converted[exclusive] = (*flag).into(),
            limit @ Value::Number(_) if known.contains(&bound) && schema[bound].is_null() => {
                converted[bound] = limit.clone();
                converted[exclusive] = true.into();
            }
            _ => {}
        }
    }
    let constant = [schema["const"].clone()];
    let allowed = schema["enum"].as_array().map_or(&constant[..], Vec::as_slice);
    let allowed: Vec<&Value> = allowed.iter().filter(|value| is_nullable || !value.is_null()).collect();
    let is_of_kind = |value: &&Value| value.is_null() || super::scalar(value) == Some(kind);
    if !allowed.is_empty() && !allowed.iter().all(|value| value.is_null()) && allowed.iter().all(is_of_kind) {
        converted["enum"] = json!(allowed);
    }
}

/// Returns true if a regular expression means the same to the API server.
fn is_portable(pattern: &str) -> bool {
    let backreference =
        |pair: &[u8]| pair[0] == b'\\' && (pair[1].is_ascii_digit() || pair[1] == b'u' || pair[1] == b'c');
    !["(?=", "(?!", "(?<"].iter().any(|group| pattern.contains(group))
        && !pattern.as_bytes().windows(2).any(backreference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &Value, expected: &Value) {
        let values = json!({"a": {"size": 1}});
        let root = json!({"type": "object", "additionalProperties": false, "properties": {"a": schema},
            "definitions": {"port": {"type": "integer"}, "tree": {"type": "array", "items": {"$ref": "#/definitions/tree"}}}});
        let converted = convert(&root, values.as_object().unwrap(), &Comments::default());
        assert_eq!(&converted["properties"]["a"], expected);
        assert!(converted.get("x-kubernetes-preserve-unknown-fields").is_none());
    }

    #[test]
    fn keywords_have_structural_equivalents() {
        let open = "x-kubernetes-preserve-unknown-fields";
        for (schema, expected) in [
            (json!({"type": "integer", "minimum": 1, "default": 3}), json!({"type": "integer", "minimum": 1})),
            (
                json!({"type": "number", "exclusiveMinimum": 0}),
                json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
            ),
            (
                json!({"type": "string", "pattern": "^a+$", "format": "duration"}),
                json!({"type": "string", "pattern": "^a+$"}),
            ),
            (json!({"type": "string", "pattern": "^(?!a)"}), json!({"type": "string"})),
            (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true})),
            (json!({"type": ["string", "integer"]}), json!({"x-kubernetes-int-or-string": true})),
            (json!({"type": ["string", "object"]}), json!({open: true})),
            (json!({"enum": ["soft", "hard"]}), json!({"type": "string", "enum": ["soft", "hard"]})),
            (json!({"enum": ["soft", 1]}), json!({open: true})),
            (json!({"const": "x"}), json!({"type": "string", "enum": ["x"]})),
            (json!({"oneOf": [{"type": "string"}]}), json!({open: true})),
            (json!(true), json!({open: true})),
            (json!({"$ref": "#/definitions/port"}), json!({"type": "integer"})),
            (json!({"$ref": "https://example.com/a.json"}), json!({open: true})),
            (
                json!({"type": "array", "uniqueItems": true, "minItems": 1}),
                json!({"type": "array", "items": {open: true}, "minItems": 1}),
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
            ),
            (
                json!({"properties": {"size": {"title": "Size"}}, "required": ["size", "name"], "additionalProperties": false}),
                json!({"type": "object", "properties": {"size": {open: true, "description": "Size"}}, "required": ["name"]}),
            ),
        ] {
            check(&schema, &expected);
        }
    }

    #[test]
    fn recursion_ends() {
        let root = json!({"type": "object", "properties": {"a": {"$ref": "#/definitions/tree"}, "b": {"$ref": "#/properties/b"}},
            "definitions": {"tree": {"type": "object", "properties":
                {"l": {"$ref": "#/definitions/tree"}, "r": {"$ref": "#/definitions/tree"}}}}});
        let converted = convert(&root, &Map::new(), &Comments::default());
        assert_eq!(converted["properties"]["b"], any());
        assert!(converted.to_string().len() < 1 << 20);
    }
}
