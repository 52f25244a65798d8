//! A minimal valid sample of a kind without samples.

use flyball_schema::{openapi, validate};
use serde_json::{Map, Value, json};

/// Creates a sample of the stored version, and its file name; `None` if no valid values can be derived from the schema.
pub(crate) fn of(definition: &Value) -> Option<(String, Value)> {
    let spec = &definition["spec"];
    let version = spec["versions"].as_array()?.iter().find(|version| version["storage"] == true)?;
    let (group, kind) = (spec["group"].as_str()?, spec["names"]["kind"].as_str()?);
    let version_name = version["name"].as_str()?;
    let schema = version["schema"].get("openAPIV3Schema")?;
    let mut object = json!({
        "apiVersion": format!("{group}/{version_name}"),
        "kind": kind,
        "metadata": {"name": format!("{}-sample", kind.to_lowercase())},
    });
    for (name, value) in fields(schema) {
        if object.get(&name).is_none() && name != "status" {
            object[name] = value;
        }
    }
    if object.get("spec").is_none() && schema.pointer("/properties/spec").is_some() {
        object["spec"] = json!({});
    }
    let root = openapi::read(Some(schema));
    let fits = validate::validate(root.node(), &object, None, "").is_empty();
    let file = format!("{}_{version_name}_{}.yaml", group.split('.').next()?, kind.to_lowercase());
    fits.then_some((file, object))
}

/// Builds the required fields, and those with a default.
fn fields(schema: &Value) -> Map<String, Value> {
    let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|field| field == name));
    let properties = schema["properties"].as_object();
    let shown =
        properties.into_iter().flatten().filter(|(name, field)| required(name) || field.get("default").is_some());
    shown.map(|(name, field)| (name.clone(), value(name, field))).collect()
}

fn value(name: &str, schema: &Value) -> Value {
    let proposed = schema.get("default").or(schema.get("example")).or(schema.pointer("/enum/0"));
    if let Some(proposed) = proposed {
        return proposed.clone();
    }
    let least = schema["minimum"].as_f64().unwrap_or(1.0) + if schema["exclusiveMinimum"] == true { 1.0 } else { 0.0 };
    let number = schema["maximum"].as_f64().map_or(least, |most| least.min(most));
    match schema["type"].as_str() {
        Some("integer") => json!(number.ceil() as i64),
        Some("number") => json!(number),
        Some("boolean") => json!(false),
        Some("string") => {
            let least = schema["minLength"].as_u64().unwrap_or(0) as usize;
            let text: String = name.chars().cycle().take(least.clamp(name.chars().count(), 1024)).collect();
            match schema["maxLength"].as_u64() {
                Some(most) => text.chars().take(most as usize).collect::<String>().into(),
                None => text.into(),
            }
        }
        Some("array") => {
            let items = schema["minItems"].as_u64().unwrap_or(0).min(16);
            (0..items).map(|_| value(name, &schema["items"])).collect::<Vec<_>>().into()
        }
        Some(_) => fields(schema).into(),
        None if schema["x-kubernetes-int-or-string"] == true => json!(1),
        None => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_minimal_and_valid() {
        let check = |spec: Value, expected: Option<Value>| {
            let schema = json!({"type": "object", "properties": {"spec": spec}, "required": ["spec"]});
            let version = json!({"name": "v1", "storage": true, "schema": {"openAPIV3Schema": schema}});
            let names = json!({"kind": "Site", "plural": "sites"});
            let sample = of(&json!({"spec": {"group": "web.example.com", "names": names, "versions": [version]}}));
            assert_eq!(sample.as_ref().map(|(_, object)| object["spec"].clone()), expected);
            assert!(sample.is_none_or(|(file, _)| file == "web_v1_site.yaml"));
        };
        let fields = json!({"size": {"type": "integer", "minimum": 3}, "image": {"type": "string", "minLength": 7},
            "tier": {"type": "string", "default": "gold"}, "more": {"type": "string"},
            "on": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}}});
        check(
            json!({"type": "object", "properties": fields, "required": ["size", "image", "on"]}),
            Some(json!({"size": 3, "image": "imageim", "tier": "gold", "on": ["a"]})),
        );
        check(json!({"type": "object"}), Some(json!({})));
        let pattern = json!({"when": {"type": "string", "pattern": "^[0-9]+$"}});
        check(json!({"type": "object", "properties": pattern, "required": ["when"]}), None);
    }
}
