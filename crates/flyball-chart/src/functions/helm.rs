//! Helm's own functions: `include`, `tpl`, `required`, `fail`, `lookup`.

use super::{ANY, STR, Table, cost, marked, text};
use crate::value::{Map, MapKind, Value};

/// Delimiters of messages from `required` and `fail`, which are shown without their location.
pub(crate) const MESSAGE: (&str, &str) = ("HELM_ERR_START", "HELM_ERR_END");

pub(super) fn add(table: &mut Table) {
    table.add("include", cost::constant, &[STR, ANY], |call, args| {
        call.templates.include(call.world, &text(&args[0]), args[1].clone())
    });
    table.add("tpl", cost::constant, &[STR, ANY], |call, args| {
        call.templates.tpl(call.world, &marked(&args[0]), args[1].clone(), call.is_evaluated)
    });
    table.add("required", cost::constant, &[STR, ANY], |_, args| match &args[1] {
        Value::Nil => Err(wrapped(&text(&args[0]))),
        Value::Str(bytes) if bytes.is_empty() => Err(wrapped(&text(&args[0]))),
        value => Ok(value.clone()),
    });
    table.add("fail", cost::deep, &[STR], |_, args| Err(wrapped(&text(&args[0]))));
    table.add("lookup", cost::constant, &[STR, STR, STR, STR], |call, args| {
        let Some(cluster) = call.world.lookup else { return Ok(Value::Map(Map::empty(MapKind::Any))) };
        if call.is_evaluated {
            return Err(
                "lookup is not allowed in text of the custom resource: only templates of the chart may call it"
                    .to_owned(),
            );
        }
        let [version, kind, namespace, name] = [0, 1, 2, 3].map(|at| text(&args[at]));
        let found = match call.is_literal {
            true => cluster.lookup_literal(&version, &kind, &namespace, &name)?,
            false => cluster.lookup(&version, &kind, &namespace, &name)?,
        };
        // The author of objects in the cluster is not the author of the chart, so the result is untrusted.
        Ok(found.map_or_else(|| Value::Map(Map::empty(MapKind::Any)), |object| Value::from(&object).to_data()))
    });
    // Host names are not resolved, so that the output of a chart does not depend on a resolver.
    table.add("getHostByName", cost::deep, &[STR], |_, _| Ok(Value::str("")));
}

fn wrapped(message: &str) -> String {
    format!("{}{message}{}", MESSAGE.0, MESSAGE.1)
}
