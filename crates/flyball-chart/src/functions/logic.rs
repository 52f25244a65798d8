//! Defaults, choices and types.

use super::{ANY, BOOL, STR, Table, cost, is_empty, text};
use crate::value::Value;

pub(super) fn add(table: &mut Table) {
    table.variadic("default", cost::constant, &[ANY, ANY], |_, args| {
        Ok(args.get(1).filter(|value| !is_empty(value)).unwrap_or(&args[0]).clone())
    });
    table.add("empty", cost::constant, &[ANY], |_, args| Ok(Value::Bool(is_empty(&args[0]))));
    table.variadic("coalesce", cost::constant, &[ANY], |_, args| {
        Ok(args.iter().find(|arg| !is_empty(arg)).cloned().unwrap_or(Value::Nil))
    });
    table.variadic("all", cost::shallow, &[ANY], |_, args| Ok(Value::Bool(!args.iter().any(is_empty))));
    table.variadic("any", cost::shallow, &[ANY], |_, args| Ok(Value::Bool(args.iter().any(|arg| !is_empty(arg)))));
    table.add("ternary", cost::constant, &[ANY, ANY, BOOL], |_, args| Ok(args[usize::from(!args[2].truth())].clone()));
    table.add("typeOf", cost::constant, &[ANY], |_, args| Ok(Value::str(args[0].type_name())));
    table.add("typeIs", cost::constant, &[STR, ANY], |_, args| Ok(Value::Bool(text(&args[0]) == args[1].type_name())));
    table.add("typeIsLike", cost::constant, &[STR, ANY], |_, args| {
        let (expected, actual) = (text(&args[0]), args[1].type_name());
        Ok(Value::Bool(*expected == actual || format!("*{expected}") == actual))
    });
    table.add("kindOf", cost::constant, &[ANY], |_, args| Ok(Value::str(args[0].kind())));
    table.add("kindIs", cost::constant, &[STR, ANY], |_, args| Ok(Value::Bool(text(&args[0]) == args[1].kind())));
    table.add("deepEqual", cost::letters, &[ANY, ANY], |_, args| Ok(Value::Bool(args[0].deep_equal(&args[1]))));
}
