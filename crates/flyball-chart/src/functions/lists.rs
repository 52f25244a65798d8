//! Functions for lists, which are immutable: functions that add items return a new list.

use super::{ANY, INT, MAX_LIST_ITEMS, NIL_POINTER, Table, cost, int};
use crate::context::Call;
use crate::value::{List, ListKind, Value};

pub(super) fn add(table: &mut Table) {
    for name in ["list", "tuple"] {
        table.variadic(name, cost::constant, &[ANY], |_, args| Ok(Value::list(args.to_vec())));
    }
    for name in ["append", "push", "mustAppend", "mustPush"] {
        table.add(name, cost::shallow, &[ANY, ANY], |_, args| {
            let mut items = items(&args[0], "Cannot push on type")?;
            items.push(args[1].clone());
            bounded(items)
        });
    }
    table.both("prepend", "mustPrepend", cost::shallow, &[ANY, ANY], |_, args| {
        let mut items = items(&args[0], "Cannot prepend on type")?;
        items.insert(0, args[1].clone());
        bounded(items)
    });
    table.both("first", "mustFirst", cost::shallow, &[ANY], |_, args| {
        Ok(items(&args[0], "Cannot find first on type")?.into_iter().next().unwrap_or(Value::Nil))
    });
    table.both("last", "mustLast", cost::shallow, &[ANY], |_, args| {
        Ok(items(&args[0], "Cannot find last on type")?.pop().unwrap_or(Value::Nil))
    });
    table.both("rest", "mustRest", cost::shallow, &[ANY], |_, args| {
        let items = items(&args[0], "Cannot find rest on type")?;
        Ok(if items.is_empty() { nil() } else { Value::list(items[1..].to_vec()) })
    });
    table.both("initial", "mustInitial", cost::shallow, &[ANY], |_, args| {
        let mut items = items(&args[0], "Cannot find initial on type")?;
        Ok(if items.pop().is_none() { nil() } else { Value::list(items) })
    });
    table.both("reverse", "mustReverse", cost::shallow, &[ANY], |_, args| {
        let mut items = items(&args[0], "Cannot find reverse on type")?;
        items.reverse();
        Ok(Value::list(items))
    });
    table.both("compact", "mustCompact", cost::shallow, &[ANY], |_, args| {
        let items = items(&args[0], "Cannot compact on type")?;
        Ok(Value::list(items.into_iter().filter(|item| !super::is_empty(item)).collect()))
    });
    table.both("uniq", "mustUniq", cost::deep, &[ANY], |call, args| {
        take_comparisons(call, args, &args[0])?;
        let mut found: Vec<Value> = Vec::new();
        for item in items(&args[0], "Cannot find uniq on type")? {
            if !holds(&found, &item) {
                found.push(item);
            }
        }
        Ok(Value::list(found))
    });
    for name in ["without", "mustWithout"] {
        table.variadic(name, cost::deep, &[ANY, ANY], |call, args| {
            let items = items(&args[0], "Cannot find without on type")?;
            take_comparisons(call, &args[..1], &Value::list(args[1..].to_vec()))?;
            Ok(Value::list(items.into_iter().filter(|item| !holds(&args[1..], item)).collect()))
        });
    }
    table.both("has", "mustHas", cost::letters, &[ANY, ANY], |_, args| {
        if matches!(args[1], Value::Nil) {
            return Ok(Value::Bool(false));
        }
        Ok(Value::Bool(holds(&items(&args[1], "Cannot find has on type")?, &args[0])))
    });
    for name in ["slice", "mustSlice"] {
        table.variadic(name, cost::shallow, &[ANY, ANY], |_, args| slice(args));
    }
    table.variadic("concat", cost::shallow, &[ANY], |_, args| {
        let mut all = Vec::new();
        for arg in args {
            if arg.items().is_none() && !matches!(arg, Value::Nil) {
                return Err(format!("Cannot concat type {} as list", arg.kind()));
            }
            all.extend(items(arg, "")?);
        }
        if all.is_empty() { Ok(nil()) } else { bounded(all) }
    });
    table.both("chunk", "mustChunk", cost::shallow, &[INT, ANY], |_, args| {
        let items = items(&args[1], "Cannot chunk type")?;
        let Some(size) = usize::try_from(int(&args[0])).ok().filter(|size| *size > 0) else {
            return Err("runtime error: integer divide by zero".to_owned());
        };
        let chunks = items.chunks(size).map(|chunk| Value::list(chunk.to_vec())).collect();
        Ok(Value::List(List::new(ListKind::Named("[][]interface {}"), chunks)))
    });
}

fn nil() -> Value {
    Value::List(List::nil(ListKind::Any))
}

fn bounded(items: Vec<Value>) -> Result<Value, String> {
    if items.len() > MAX_LIST_ITEMS {
        return Err(format!("the list has more than {MAX_LIST_ITEMS} items"));
    }
    Ok(Value::list(items))
}

/// Returns the items of a list.
fn items(value: &Value, message: &str) -> Result<Vec<Value>, String> {
    if matches!(value, Value::Nil) {
        return Err(NIL_POINTER.to_owned());
    }
    value.items().ok_or_else(|| format!("{message} {}", value.kind()))
}

/// Charges the comparison of values with each item of a list.
fn take_comparisons(call: &Call<'_>, values: &[Value], with: &Value) -> Result<(), String> {
    let count = with.items().map_or(0, |items| items.len());
    let steps = call.context.weigh(values)?;
    call.context.charge(steps.saturating_mul(count as u64), 0)
}

fn holds(items: &[Value], expected: &Value) -> bool {
    items.iter().any(|item| item.deep_equal(expected))
}

fn slice(args: &[Value]) -> Result<Value, String> {
    let message = "list should be type of slice or array but";
    let items = items(&args[0], message)?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let at = |position: Option<&Value>, otherwise: usize| match position {
        None => Some(otherwise),
        Some(position) => usize::try_from(super::numbers::to_int(position)).ok(),
    };
    match (at(args.get(1), 0), at(args.get(2), items.len())) {
        (Some(from), Some(to)) if from <= to && to <= items.len() => Ok(match &args[0] {
            Value::List(list) => Value::List(List::new(list.kind, items[from..to].to_vec())),
            Value::Bytes(bytes) => Value::Bytes(bytes[from..to].into()),
            _ => Value::Nil,
        }),
        _ => Err("reflect.Value.Slice: slice index out of bounds".to_owned()),
    }
}
