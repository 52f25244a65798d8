//! Helm's own functions: `include`, `tpl`, `required`, `fail`, `lookup`; and those that it removes from sprig.

use super::{ANY, STR, Table, cost, marked, text};
use crate::context::Call;
use crate::environment::expand_variables;
use crate::message;
use crate::quote::{is_print, quote};
use crate::value::{Map, MapKind, Value};

/// Delimiters of messages from `required` and `fail`, which are shown without their location.
pub(crate) const MESSAGE: (&str, &str) = ("HELM_ERR_START", "HELM_ERR_END");

pub(super) fn add(table: &mut Table) {
    table.add("include", cost::first, &[STR, ANY], |call, args| {
        call.templates.include(call.context, &text(&args[0]), args[1].clone())
    });
    table.add("tpl", cost::first, &[STR, ANY], |call, args| {
        call.templates.tpl(call.context, &marked(&args[0]), args[1].clone(), call.is_evaluated)
    });
    table.add("required", cost::first, &[STR, ANY], |call, args| {
        let of_4 = match &args[1] {
            Value::Nil => "level=WARN msg=\"missing required value\"",
            Value::Str(bytes) if bytes.is_empty() => "level=WARN msg=\"missing required values\"",
            value => return Ok(value.clone()),
        };
        failure(call, &text(&args[0]), ("Missing required value", of_4))
    });
    table.add("fail", cost::deep, &[STR], |call, args| {
        failure(call, &text(&args[0]), ("Fail", "level=INFO msg=\"funcMap fail\""))
    });
    table.add("lookup", cost::deep, &[STR, STR, STR, STR], |call, args| {
        let Some(cluster) = call.context.lookup else { return Ok(Value::Map(Map::empty(MapKind::Any))) };
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
        // Objects in the cluster do not come from the author of the chart, so the result is untrusted.
        Ok(found.map_or_else(|| Value::Map(Map::empty(MapKind::Any)), |object| Value::from(&object).to_data()))
    });
    table.add("env", cost::deep, &[STR], |call, args| {
        let variable = call.context.variables.and_then(|variables| variables(&text(&args[0])));
        Ok(Value::str(variable.unwrap_or_default()))
    });
    table.add("expandenv", cost::deep, &[STR], |call, args| {
        let variable = |name: &str| call.context.variables.and_then(|variables| variables(name));
        Ok(Value::str(expand_variables(&text(&args[0]), &variable)))
    });
    // Host names are not resolved, so that the output of a chart does not depend on a resolver.
    table.add("getHostByName", cost::deep, &[STR], |_, _| Ok(Value::str("")));
}

/// Fails with a message, or logs the message of a Helm version if the templates are linted.
fn failure(call: &Call<'_>, message: &str, (of_3, of_4): (&str, &str)) -> Result<Value, String> {
    let entry = || {
        let is_word = !message.is_empty() && message.chars().all(|c| is_print(c) && !matches!(c, ' ' | '"' | '='));
        let value = if is_word { message.to_owned() } else { quote(message.as_bytes()) };
        call.context.helm.choose(format!("[INFO] {of_3}: {message}"), format!("{of_4} message={value}"))
    };
    match call.context.is_linted(entry) {
        true => Ok(Value::str("")),
        // The marks must remain if the middle of a longer message is removed.
        false => Err(format!("{}{}{}", MESSAGE.0, message::excerpt(message), MESSAGE.1)),
    }
}
