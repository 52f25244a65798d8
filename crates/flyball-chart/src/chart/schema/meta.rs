//! A metaschema, limited to the types of keywords.

use super::Draft;
use serde_json::{Map, Value, json};

/// The metaschema of a draft, and its name.
pub(super) fn schema(draft: Draft) -> (Value, &'static str) {
    let url = match draft {
        Draft::V4 => "http://json-schema.org/draft-04/schema",
        Draft::V6 => "http://json-schema.org/draft-06/schema",
        Draft::V7 => "http://json-schema.org/draft-07/schema",
        Draft::V2019 => "https://json-schema.org/draft/2019-09/schema",
        Draft::V2020 => "https://json-schema.org/draft/2020-12/schema",
    };
    let is_new = draft >= Draft::V2019;
    let applies = keywords(&[
        (
            "additionalProperties unevaluatedProperties unevaluatedItems contains propertyNames not if then else",
            schema_ref(),
        ),
        ("additionalItems", schema_ref()),
        ("items", if draft == Draft::V2020 { schema_ref() } else { json!({"anyOf": [schema_ref(), array()]}) }),
        ("prefixItems allOf anyOf oneOf", array()),
        ("properties patternProperties dependentSchemas", map_of(schema_ref())),
    ]);
    let validates = keywords(&[
        (
            "type",
            json!({"anyOf": [{"$ref": "#/$defs/type"}, {"type": "array", "items": {"$ref": "#/$defs/type"}, "minItems": 1, "uniqueItems": true}]}),
        ),
        ("enum", json!({"type": "array"})),
        ("multipleOf", json!({"type": "number", "exclusiveMinimum": 0})),
        ("maximum minimum", json!({"type": "number"})),
        ("exclusiveMaximum exclusiveMinimum", json!({"type": if draft == Draft::V4 { "boolean" } else { "number" }})),
        ("maxLength minLength maxItems minItems maxProperties minProperties maxContains minContains", count()),
        ("pattern", json!({"type": "string"})),
        ("uniqueItems", json!({"type": "boolean"})),
        ("required", texts()),
        ("dependentRequired", map_of(texts())),
    ]);
    let describes = keywords(&[
        ("title description $comment format contentMediaType contentEncoding", json!({"type": "string"})),
        ("deprecated readOnly writeOnly", json!({"type": "boolean"})),
        ("examples", json!({"type": "array"})),
    ]);
    let core = keywords(&[
        ("$id $schema $ref $anchor $dynamicRef $dynamicAnchor", json!({"type": "string"})),
        ("$defs definitions", map_of(schema_ref())),
    ]);
    let types = if draft == Draft::V4 { json!("object") } else { json!(["object", "boolean"]) };
    let defs = json!({
        "type": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]},
        "core": {"properties": core}, "applies": {"properties": applies},
        "validates": {"properties": validates}, "describes": {"properties": describes},
    });
    // Since draft 2019-09, keywords are grouped into vocabularies; before, they were in one list.
    let meta = if is_new {
        let parts =
            ["core", "applies", "validates", "describes"].map(|part| json!({"$ref": format!("#/$defs/{part}")}));
        json!({"allOf": parts, "type": types, "$defs": defs})
    } else {
        let mut all = Map::new();
        for part in [core, applies, validates, describes] {
            all.extend(part);
        }
        json!({"type": types, "properties": all, "$defs": defs})
    };
    (meta, url)
}

fn keywords(rules: &[(&str, Value)]) -> Map<String, Value> {
    let pairs = rules.iter().flat_map(|(names, rule)| names.split(' ').map(|name| (name.to_owned(), rule.clone())));
    pairs.collect()
}

fn schema_ref() -> Value {
    json!({"$ref": "#"})
}

fn array() -> Value {
    json!({"type": "array", "minItems": 1, "items": {"$ref": "#"}})
}

fn map_of(rule: Value) -> Value {
    json!({"type": "object", "additionalProperties": rule})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})
}
