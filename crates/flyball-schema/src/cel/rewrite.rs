//! Rewriting of expressions that the interpreter does not support: optional fields, macros with two variables, objects.
//!
//! See <https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries>.

use super::authorizer::REQUEST_RESOURCE;
use kube_cel::cel::common::ast::operators::{
    ADD, CONDITIONAL, EQUALS, INDEX, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, NOT_STRICTLY_FALSE, OPT_INDEX, OPT_SELECT,
};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, MapEntryExpr,
    MapExpr, SelectExpr,
};
use kube_cel::cel::extractors::Arguments;
use kube_cel::cel::objects::{Key, Map as CelMap, Value as Cel};
use kube_cel::cel::{Context, ExecutionError, ResolveResult};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Returns true for macros with variables for both index and value.
pub(super) fn is_two_variable_macro(call: &CallExpr) -> bool {
    let arguments = match call.func_name.as_str() {
        "all" | "exists" | "existsOne" | "exists_one" => 3..=3,
        "transformList" | "transformMap" | "transformMapEntry" => 3..=4,
        _ => return false,
    };
    call.target.is_some() && arguments.contains(&call.args.len()) && names(call, 2).is_some()
}

/// Returns true for macros with a variable for an optional value.
pub(super) fn is_optional_macro(call: &CallExpr) -> bool {
    matches!(call.func_name.as_str(), "optMap" | "optFlatMap")
        && call.target.is_some()
        && call.args.len() == 2
        && names(call, 1).is_some()
}

/// Returns the variables that a macro declares.
pub(super) fn names(call: &CallExpr, count: usize) -> Option<Vec<&str>> {
    let mut found = Vec::with_capacity(count);
    for argument in call.args.get(..count)? {
        let Expr::Ident(name) = &argument.expr else { return None };
        found.push(name.as_str());
    }
    Some(found)
}

/// Returns true for the variable whose name has the form of a field access.
fn is_request_resource(select: &SelectExpr) -> bool {
    let Expr::Ident(name) = &select.operand.expr else { return false };
    !select.test && REQUEST_RESOURCE.strip_prefix(name.as_str()) == Some(&format!(".{}", select.field))
}

/// Compiles an expression.
pub(super) fn rewrite(at: IdedExpr) -> IdedExpr {
    let IdedExpr { id, expr } = at;
    let expr = match expr {
        Expr::Select(select) if is_request_resource(&select) => Expr::Ident(REQUEST_RESOURCE.into()),
        Expr::Select(select) => {
            let operand = rewrite(*select.operand);
            match (is_optional(&operand), select.test) {
                (true, false) => call(OPT_INDEX, [operand, text(&select.field)]),
                (true, true) => method("hasValue", node(call(OPT_INDEX, [operand, text(&select.field)])), []),
                // The interpreter evaluates field access on a value without fields to false, but rejects an index.
                (false, false) => call(INDEX, [operand, text(&select.field)]),
                (false, true) => Expr::Select(SelectExpr { operand: operand.into(), ..select }),
            }
        }
        Expr::Call(of) => {
            let of = CallExpr {
                func_name: of.func_name,
                target: of.target.map(|target| rewrite(*target).into()),
                args: of.args.into_iter().map(rewrite).collect(),
            };
            if of.func_name == OPT_SELECT {
                Expr::Call(CallExpr { func_name: OPT_INDEX.into(), ..of })
            } else if is_two_variable_macro(&of) {
                two_variables(id, of)
            } else if is_optional_macro(&of) {
                optional(of)
            } else {
                Expr::Call(of)
            }
        }
        Expr::Comprehension(of) => Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: rewrite(of.iter_range),
            accu_init: rewrite(of.accu_init),
            loop_cond: rewrite(of.loop_cond),
            loop_step: rewrite(of.loop_step),
            result: rewrite(of.result),
            ..*of
        })),
        Expr::List(list) => Expr::List(ListExpr { elements: list.elements.into_iter().map(rewrite).collect(), ..list }),
        Expr::Map(map) => Expr::Map(MapExpr { entries: map.entries.into_iter().map(entry).collect() }),
        Expr::Struct(of) => {
            let mut entries: Vec<IdedEntryExpr> = of.entries.into_iter().map(entry).collect();
            if of.type_name != "JSONPatch" {
                let name = MapEntryExpr { key: text(&TYPE_NAME), value: text(&of.type_name), optional: false };
                entries.push(IdedEntryExpr { id: 0, expr: EntryExpr::MapEntry(name) });
            }
            Expr::Map(MapExpr { entries })
        }
        expr @ (Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified) => expr,
    };
    IdedExpr { id, expr }
}

fn entry(at: IdedEntryExpr) -> IdedEntryExpr {
    let entry = match at.expr {
        EntryExpr::MapEntry(entry) => {
            MapEntryExpr { key: rewrite(entry.key), value: rewrite(entry.value), optional: entry.optional }
        }
        EntryExpr::StructField(field) => MapEntryExpr {
            key: text(&super::identifier::unescape(&field.field)),
            value: rewrite(field.value),
            optional: field.optional,
        },
    };
    IdedEntryExpr { id: at.id, expr: EntryExpr::MapEntry(entry) }
}

/// Returns true if the result of an expression is optional.
fn is_optional(of: &IdedExpr) -> bool {
    match &of.expr {
        Expr::Call(call) if call.func_name == OPT_INDEX => true,
        Expr::Call(call) if call.func_name == INDEX => call.args.first().is_some_and(is_optional),
        _ => false,
    }
}

/// Converts a macro with two variables to a loop over pairs.
fn two_variables(id: u64, of: CallExpr) -> Expr {
    let (pair, sum) = (format!("@pair{id}"), format!("@sum{id}"));
    let CallExpr { func_name, target, mut args } = of;
    let (Some(range), Some(body)) = (target, args.pop()) else { return Expr::Unspecified };
    let mut args = args.into_iter();
    let mut next_name = || match args.next().map(|argument| argument.expr) {
        Some(Expr::Ident(name)) => name,
        _ => String::new(),
    };
    let (first, second) = (next_name(), next_name());
    let filter = args.next();
    let part = |i: i64| node(call(INDEX, [ident(&pair), node(Expr::Literal(LiteralValue::Int(i.into())))]));
    let with_variables = |body: IdedExpr| node(bind(&first, part(0), node(bind(&second, part(1), body))));
    let so_far = || ident(&sum);
    let not_yet = |what: IdedExpr| node(call(NOT_STRICTLY_FALSE, [what]));
    let not = |what: IdedExpr| node(call(LOGICAL_NOT, [what]));
    let number = |n: i64| node(Expr::Literal(LiteralValue::Int(n.into())));
    let (init, condition, step, result) = match func_name.as_str() {
        "all" => (truth(true), not_yet(so_far()), node(call(LOGICAL_AND, [so_far(), with_variables(body)])), so_far()),
        "exists" => {
            (truth(false), not_yet(not(so_far())), node(call(LOGICAL_OR, [so_far(), with_variables(body)])), so_far())
        }
        "existsOne" | "exists_one" => {
            let more = node(call(ADD, [so_far(), number(1)]));
            let step = node(call(CONDITIONAL, [with_variables(body), more, so_far()]));
            (number(0), truth(true), step, node(call(EQUALS, [so_far(), number(1)])))
        }
        name => {
            let element =
                if name == "transformMap" { list([part(0), with_variables(body)]) } else { with_variables(body) };
            let more = node(call(ADD, [so_far(), list([element])]));
            let step = match filter {
                Some(filter) => node(call(CONDITIONAL, [with_variables(filter), more, so_far()])),
                None => more,
            };
            let result = match name {
                "transformMap" => node(call(FROM_PAIRS, [so_far()])),
                "transformMapEntry" => node(call(FROM_MAPS, [so_far()])),
                _ => so_far(),
            };
            (list([]), truth(true), step, result)
        }
    };
    Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node(call(PAIRS, [*range])),
        iter_var: pair,
        iter_var2: None,
        accu_var: sum,
        accu_init: init,
        loop_cond: condition,
        loop_step: step,
        result,
    }))
}

/// Converts `x.optMap(v, e)` to a conditional.
fn optional(of: CallExpr) -> Expr {
    let CallExpr { func_name, target, mut args } = of;
    let (Some(target), Some(body)) = (target, args.pop()) else { return Expr::Unspecified };
    let Some(Expr::Ident(name)) = args.pop().map(|argument| argument.expr) else { return Expr::Unspecified };
    let value = node(method("value", (*target).clone(), []));
    let mapped = node(bind(&name, value, body));
    let mapped = if func_name == "optMap" { node(method("of", ident("optional"), [mapped])) } else { mapped };
    let none = node(method("none", ident("optional"), []));
    call(CONDITIONAL, [node(method("hasValue", *target, [])), mapped, none])
}

/// Binds a name within an expression: a loop over an empty list with the value as its accumulator.
fn bind(name: &str, value: IdedExpr, body: IdedExpr) -> Expr {
    Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list([]),
        iter_var: "@unused".into(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: truth(false),
        loop_step: ident(name),
        result: body,
    }))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

fn text(text: &str) -> IdedExpr {
    node(Expr::Literal(LiteralValue::String(text.into())))
}

fn truth(is: bool) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Boolean(is.into())))
}

fn list<const N: usize>(items: [IdedExpr; N]) -> IdedExpr {
    node(Expr::List(ListExpr::new(items.into())))
}

fn call<const N: usize>(name: &str, args: [IdedExpr; N]) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args: args.into() })
}

fn method<const N: usize>(name: &str, target: IdedExpr, args: [IdedExpr; N]) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(target.into()), args: args.into() })
}

/// The key of the type name in an object literal.
pub(super) static TYPE_NAME: LazyLock<Arc<String>> = LazyLock::new(|| Arc::new("@type".to_owned()));

/// A function that returns the pairs of index and value of a list, or of key and value of a map.
const PAIRS: &str = "@pairs";
/// A function that creates a map from pairs.
const FROM_PAIRS: &str = "@from_pairs";
/// A function that merges maps.
const FROM_MAPS: &str = "@from_maps";

/// Adds the functions that rewritten expressions call.
pub(super) fn add(context: &mut Context<'_>) {
    context.add_function(PAIRS, |Arguments(of): Arguments| -> ResolveResult {
        let pair = |first: Cel, second: Cel| Cel::List(Arc::new(vec![first, second]));
        match of.first() {
            Some(Cel::List(items)) => {
                let pairs = items.iter().zip(0..).map(|(item, i)| pair(Cel::Int(i), item.clone()));
                Ok(Cel::List(Arc::new(pairs.collect())))
            }
            Some(Cel::Map(map)) => {
                // Sorted, since hash order is random.
                let mut entries: Vec<(&Key, &Cel)> = map.map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                let pairs = entries.into_iter().map(|(key, value)| pair(from_key(key), value.clone()));
                Ok(Cel::List(Arc::new(pairs.collect())))
            }
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function(FROM_PAIRS, |Arguments(of): Arguments| -> ResolveResult {
        let Some(Cel::List(pairs)) = of.first() else { return Err(ExecutionError::NoSuchOverload) };
        let entries = pairs.iter().filter_map(|pair| match pair {
            Cel::List(parts) => Some((to_key(parts.first()?)?, parts.get(1)?.clone())),
            _ => None,
        });
        Ok(Cel::Map(CelMap { map: Arc::new(entries.collect()) }))
    });
    context.add_function(FROM_MAPS, |Arguments(of): Arguments| -> ResolveResult {
        let Some(Cel::List(maps)) = of.first() else { return Err(ExecutionError::NoSuchOverload) };
        let mut all = HashMap::new();
        for map in maps.iter() {
            let Cel::Map(map) = map else { return Err(ExecutionError::NoSuchOverload) };
            let mut entries: Vec<(&Key, &Cel)> = map.map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                if all.insert(key.clone(), value.clone()).is_some() {
                    let reason = format!("insert failed: key {key} already exists");
                    return Err(ExecutionError::function_error("transformMapEntry", reason));
                }
            }
        }
        Ok(Cel::Map(CelMap { map: Arc::new(all) }))
    });
}

fn from_key(key: &Key) -> Cel {
    match key {
        Key::Int(n) => Cel::Int(*n),
        Key::Uint(n) => Cel::UInt(*n),
        Key::Bool(b) => Cel::Bool(*b),
        Key::String(text) => Cel::String(text.clone()),
    }
}

fn to_key(value: &Cel) -> Option<Key> {
    match value {
        Cel::Int(n) => Some(Key::Int(*n)),
        Cel::UInt(n) => Some(Key::Uint(*n)),
        Cel::Bool(b) => Some(Key::Bool(*b)),
        Cel::String(text) => Some(Key::String(text.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BASE, Error, compile};
    use kube_cel::cel::objects::Value as Cel;

    fn holds(expression: &str) -> Result<bool, Error> {
        compile(expression)
            .map_err(Error::Compile)?
            .run(&BASE, &super::super::Budget::of_rules())
            .map(|value| value == Cel::Bool(true))
    }

    #[test]
    fn rewritten_macros_and_operators_evaluate() {
        for expression in [
            "{'a': {'b': 1}}.?a.?b.orValue(0) == 1",
            "{'a': {'b': 1}}.?a.b.orValue(0) == 1",
            "{'a': {'b': 1}}.?x.?b.orValue(0) == 0",
            "{'a': {'b': 1}}.?x.b.c.hasValue() == false",
            "[1, 2][?5].orValue(7) == 7 && [1, 2][?1].orValue(7) == 2",
            "{'a': 1}[?'a'].optMap(v, v + 1).orValue(0) == 2",
            "{'a': 1}[?'b'].optMap(v, v + 1).hasValue() == false",
            "[?{'a': 1}.?a, ?{'a': 1}.?b] == [1]",
            "{?'k': {'a': 1}.?b, 'l': 2} == {'l': 2}",
            "[1, 2, 3].all(i, v, v == i + 1)",
            "['a', 'b'].exists(i, v, i == 1 && v == 'b')",
            "{'a': 1, 'b': 2}.existsOne(k, v, k == 'a' || v == 7)",
            "[1, 2, 3].transformList(i, v, i * v) == [0, 2, 6]",
            "[1, 2, 3].transformList(i, v, i > 0, i * v) == [2, 6]",
            "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 2) == {'b': 4}",
            "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'}",
            "[[1], [2]].all(i, v, v.all(j, w, w == i + 1 && j == 0))",
        ] {
            assert_eq!(holds(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn duplicate_map_keys_are_an_error() {
        let twice = "['a', 'a'].transformMapEntry(i, v, {v: i}) == {}";
        assert_eq!(holds(twice), Err(Error::Function("insert failed: key a already exists".to_owned())));
    }
}
