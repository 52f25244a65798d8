//! Scenarios as lists of steps in YAML.

use crate::cluster::apply;
use crate::duration::parse_duration;
use crate::error::{Error, Result, ResultExt};
use flyball_explore::Scenario;
use serde_json::Value;
use std::fs;
use std::path::Path;

const HINT: &str =
    "a step is settle, deleteNamespace, apply: OBJECT, apply: FILE, delete: RESOURCE.GROUP/NAME, or wait: 5s";

/// Reads a scenario, which is named after its file.
pub(crate) fn read(path: &Path) -> Result<Scenario> {
    let what = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(path).context(what())?;
    let steps: Value = serde_saphyr::from_str(&text).context(format!("{} is not valid YAML", path.display()))?;
    let steps = steps.as_array().filter(|steps| !steps.is_empty());
    let steps = steps.ok_or_else(|| Error::usage(format!("{}: must be a list of steps", path.display())).hint(HINT))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut scenario = Scenario::new(name);
    for (number, step) in (1..).zip(steps) {
        scenario = add(scenario, step, path.parent().unwrap_or(Path::new("")))
            .map_err(|error| error.within(&format!("{}: step {number}", path.display())))?;
    }
    Ok(scenario)
}

fn add(scenario: Scenario, step: &Value, folder: &Path) -> Result<Scenario> {
    let invalid = |why: String| Error::usage(why).hint(HINT);
    match step.as_str() {
        Some("settle") => return Ok(scenario.settle()),
        Some("deleteNamespace") => return Ok(scenario.delete_namespace()),
        Some(other) => return Err(invalid(format!("unknown step {other:?}"))),
        None => {}
    }
    let fields = step.as_object().filter(|fields| fields.len() == 1);
    let Some((action, value)) = fields.and_then(|fields| fields.iter().next()) else {
        return Err(invalid("must have exactly one action".to_owned()));
    };
    match (action.as_str(), value) {
        ("apply", Value::String(file)) => Ok(scenario.apply(manifest(&apply::read(&folder.join(file))?))),
        ("apply", Value::Object(_)) => Ok(scenario.apply(manifest(&apply::objects(vec![value.clone()], "apply")?))),
        ("delete", Value::String(name)) => Ok(scenario.delete(name)),
        ("wait", Value::String(time)) => match parse_duration(time) {
            Some(time) => Ok(scenario.wait(time)),
            None => Err(invalid(format!("wait: expected a duration such as 5s, not {time:?}"))),
        },
        _ => Err(invalid(format!("unknown action or value: {step}"))),
    }
}

/// Returns objects as one manifest.
pub(crate) fn manifest(objects: &[Value]) -> String {
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.join("\n---\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn steps_are_actions() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let steps =
            [json!({"apply": object}), json!("settle"), json!({"wait": "5s"}), json!({"delete": "configmaps/a"})];
        let read = steps.iter().try_fold(Scenario::new("a"), |scenario, step| add(scenario, step, Path::new("")));
        let expected = Scenario::new("a").apply(object.to_string()).settle().wait(Duration::from_secs(5));
        assert_eq!(read.unwrap(), expected.delete("configmaps/a"));
    }

    #[test]
    fn unknown_steps_are_rejected() {
        for step in [json!("rest"), json!({"wait": "soon"}), json!({"fly": 1}), json!({"wait": "1s", "delete": "a"})] {
            assert!(add(Scenario::new("a"), &step, Path::new("")).is_err(), "{step}");
        }
    }
}
