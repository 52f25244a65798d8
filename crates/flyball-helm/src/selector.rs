//! Label selectors of objects, converted to the form of a request.

use serde_json::Value;

/// Formats a selector with `matchLabels` and `matchExpressions`; an empty one selects all. See
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>.
pub(crate) fn read(selector: Option<&Value>) -> Result<String, String> {
    let selector = match selector {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::Object(selector)) => selector,
        Some(_) => return Err("must be a mapping with matchLabels or matchExpressions".into()),
    };
    if let Some(unknown) = selector.keys().find(|field| !matches!(field.as_str(), "matchLabels" | "matchExpressions")) {
        return Err(format!("unknown field {unknown}; expected matchLabels or matchExpressions"));
    }
    let mut terms = Vec::new();
    match selector.get("matchLabels") {
        None | Some(Value::Null) => {}
        Some(Value::Object(labels)) => {
            for (name, value) in labels {
                let value = value.as_str().ok_or_else(|| format!("matchLabels.{name}: {value} must be a string"))?;
                terms.push(format!("{name}={value}"));
            }
        }
        Some(_) => return Err("matchLabels must be a mapping".into()),
    }
    match selector.get("matchExpressions") {
        None | Some(Value::Null) => {}
        Some(Value::Array(expressions)) => {
            for (index, expression) in expressions.iter().enumerate() {
                terms.push(term(expression).map_err(|problem| format!("matchExpressions[{index}]: {problem}"))?);
            }
        }
        Some(_) => return Err("matchExpressions must be a list".into()),
    }
    Ok(terms.join(","))
}

fn term(expression: &Value) -> Result<String, String> {
    let key = expression["key"].as_str().filter(|key| !key.is_empty()).ok_or("key is missing")?;
    let values: Vec<&str> = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let operator = expression["operator"].as_str().unwrap_or_default();
    match operator {
        "In" | "NotIn" if values.is_empty() => Err(format!("{operator} needs values")),
        "In" => Ok(format!("{key} in ({})", values.join(","))),
        "NotIn" => Ok(format!("{key} notin ({})", values.join(","))),
        "Exists" => Ok(key.to_owned()),
        "DoesNotExist" => Ok(format!("!{key}")),
        other => Err(format!("{other:?} must be In, NotIn, Exists or DoesNotExist")),
    }
}
