//! Defaults, choices and types.

use super::{ANY, BOOL, STR, Table, is_empty, text};
use crate::template::value::Value;

pub(super) fn add(table: &mut Table) {
    table.variadic("default", &[ANY, ANY], |_, args| {
        Ok(args.get(1).filter(|given| !is_empty(given)).unwrap_or(&args[0]).clone())
    });
    table.add("empty", &[ANY], |_, args| Ok(Value::Bool(is_empty(&args[0]))));
    table.variadic("coalesce", &[ANY], |_, args| {
        Ok(args.iter().find(|arg| !is_empty(arg)).cloned().unwrap_or(Value::Nil))
    });
    table.variadic("all", &[ANY], |_, args| Ok(Value::Bool(!args.iter().any(is_empty))));
    table.variadic("any", &[ANY], |_, args| Ok(Value::Bool(args.iter().any(|arg| !is_empty(arg)))));
    table.add("ternary", &[ANY, ANY, BOOL], |_, args| Ok(args[usize::from(!args[2].truth())].clone()));
    table.add("typeOf", &[ANY], |_, args| Ok(Value::str(args[0].type_name())));
    table.add("typeIs", &[STR, ANY], |_, args| Ok(Value::Bool(text(&args[0]) == args[1].type_name())));
    table.add("typeIsLike", &[STR, ANY], |_, args| {
        let (wanted, actual) = (text(&args[0]), args[1].type_name());
        Ok(Value::Bool(*wanted == actual || format!("*{wanted}") == actual))
    });
    table.add("kindOf", &[ANY], |_, args| Ok(Value::str(args[0].kind())));
    table.add("kindIs", &[STR, ANY], |_, args| Ok(Value::Bool(text(&args[0]) == args[1].kind())));
    table.add("deepEqual", &[ANY, ANY], |_, args| Ok(Value::Bool(args[0].deep_equal(&args[1]))));
}
