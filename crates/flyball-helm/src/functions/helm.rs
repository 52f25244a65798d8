//! Helm's own functions: `include`, `tpl`, `required`, `fail`, `lookup`.

use super::{ANY, STR, Table, text};
use crate::template::value::Value;
use std::collections::BTreeMap;

/// Between these stands what `required` and `fail` say, which is shown without where it was said.
pub(crate) const MESSAGE: (&str, &str) = ("HELM_ERR_START", "HELM_ERR_END");

pub(super) fn add(table: &mut Table) {
    table.add("include", &[STR, ANY], |call, args| call.include(&text(&args[0]), args[1].clone()));
    table.add("tpl", &[STR, ANY], |call, args| call.tpl(&text(&args[0]), args[1].clone()));
    table.add("required", &[STR, ANY], |_, args| match &args[1] {
        Value::Nil => Err(wrapped(&text(&args[0]))),
        Value::Str(bytes) if bytes.is_empty() => Err(wrapped(&text(&args[0]))),
        value => Ok(value.clone()),
    });
    table.add("fail", &[STR], |_, args| Err(wrapped(&text(&args[0]))));
    table.add("lookup", &[STR, STR, STR, STR], |call, args| {
        let Some(cluster) = call.world.lookup else { return Ok(Value::map(BTreeMap::new())) };
        let found = cluster.lookup(&text(&args[0]), &text(&args[1]), &text(&args[2]), &text(&args[3]))?;
        Ok(found.map_or_else(|| Value::map(BTreeMap::new()), |object| Value::from(&object)))
    });
    // A name is looked up by nobody: what a chart renders to does not depend on a resolver.
    table.add("getHostByName", &[STR], |_, _| Ok(Value::str("")));
}

fn wrapped(message: &str) -> String {
    format!("{}{message}{}", MESSAGE.0, MESSAGE.1)
}
