//! Memory limits of one evaluation of an expression.
//!
//! The cost model of kube-apiserver assumes shared values. The interpreter copies values, and some functions have
//! results that are much larger than their arguments. Each value that an expression puts into a list, a map or a longer
//! string is therefore charged with its size, and functions with large results are charged before they run. Lists that
//! loops build grow in place, where the interpreter would copy them in every iteration.

use super::{meter, patterns};
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::operators::{ADD, CONDITIONAL};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, MapEntryExpr,
    MapExpr, SelectExpr,
};
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::{Key, Opaque, Value as Cel};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult};
use parking_lot::Mutex;
use std::sync::{Arc, LazyLock};

/// Maximum number of bytes that one evaluation may allocate.
const MAX_BYTES: usize = 64 << 20;
/// Size of a value in bytes, without its string and its entries.
const VALUE_BYTES: usize = 64;

/// A function that charges the size of its argument and returns the argument.
const CHARGED: &str = "@charged";
/// Creates an empty list that grows in place.
const COLLECT: &str = "@collect";
/// Adds an item to a list that grows in place.
const PUSH: &str = "@push";
/// Ends the growth of a list.
const COLLECTED: &str = "@collected";

/// A list that grows in place.
#[derive(Debug)]
struct Collection(Mutex<Vec<Cel>>);

impl PartialEq for Collection {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Collection {}

impl Opaque for Collection {
    fn runtime_type_name(&self) -> &str {
        "@collection"
    }
}

/// Adds a charge for the values that an expression builds.
pub(super) fn bound(of: IdedExpr) -> IdedExpr {
    let IdedExpr { id, expr } = of;
    let expr = match expr {
        expr @ (Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified) => expr,
        Expr::Select(select) => Expr::Select(SelectExpr { operand: bound(*select.operand).into(), ..select }),
        Expr::List(list) => Expr::List(ListExpr {
            elements: list.elements.into_iter().map(|item| charged(bound(item))).collect(),
            ..list
        }),
        Expr::Map(map) => Expr::Map(MapExpr { entries: map.entries.into_iter().map(entry).collect() }),
        // The arguments of the charging function are not evaluated.
        Expr::Call(call) if call.func_name == meter::CHARGE_FUNCTION => Expr::Call(call),
        Expr::Call(call) => {
            let grows = call.func_name == ADD && !call.args.iter().any(is_literal_number);
            let call = Expr::Call(CallExpr {
                func_name: call.func_name,
                target: call.target.map(|target| bound(*target).into()),
                args: call.args.into_iter().map(bound).collect(),
            });
            if grows { charged(node(call)).expr } else { call }
        }
        Expr::Comprehension(of) => {
            let is_empty = matches!(&of.accu_init.expr, Expr::List(list) if list.elements.is_empty());
            let collects = is_empty && of.iter_var != "@unused";
            let of = ComprehensionExpr {
                iter_range: bound(of.iter_range),
                accu_init: if collects { call(COLLECT, vec![]) } else { bound(of.accu_init) },
                loop_cond: bound(of.loop_cond),
                loop_step: if collects { step(of.loop_step, &of.accu_var) } else { bound(of.loop_step) },
                result: if collects { collected(of.result, &of.accu_var) } else { bound(of.result) },
                ..*of
            };
            Expr::Comprehension(Box::new(of))
        }
    };
    IdedExpr { id, expr }
}

fn entry(at: IdedEntryExpr) -> IdedEntryExpr {
    let expr = match at.expr {
        EntryExpr::MapEntry(entry) => EntryExpr::MapEntry(MapEntryExpr {
            key: charged(bound(entry.key)),
            value: charged(bound(entry.value)),
            optional: entry.optional,
        }),
        other @ EntryExpr::StructField(_) => other,
    };
    IdedEntryExpr { id: at.id, expr }
}

/// Converts `sum + [item]`, the step of a loop, to a list that grows in place.
fn step(of: IdedExpr, sum: &str) -> IdedExpr {
    let is_sum = |of: &IdedExpr| matches!(&of.expr, Expr::Ident(name) if name == sum);
    let IdedExpr { id, expr } = of;
    let expr = match expr {
        Expr::Call(CallExpr { func_name, target: None, mut args }) => match (func_name.as_str(), args.as_mut_slice()) {
            (ADD, [so_far, item]) if is_sum(so_far) => {
                if let Expr::List(list) = &mut item.expr
                    && let Some(item) = list.elements.pop()
                {
                    return call(PUSH, vec![args.swap_remove(0), bound(item)]);
                }
                Expr::Call(CallExpr { func_name, target: None, args })
            }
            (CONDITIONAL, _) => {
                let mut args = args.into_iter();
                let condition = args.next().map(bound);
                let args = condition.into_iter().chain(args.map(|branch| step(branch, sum))).collect();
                Expr::Call(CallExpr { func_name, target: None, args })
            }
            _ => return bound(IdedExpr { id, expr: Expr::Call(CallExpr { func_name, target: None, args }) }),
        },
        expr => return bound(IdedExpr { id, expr }),
    };
    IdedExpr { id, expr }
}

/// Ends the growth of a loop's list in the result expression.
fn collected(of: IdedExpr, sum: &str) -> IdedExpr {
    match of.expr {
        Expr::Ident(name) if name == sum => call(COLLECTED, vec![node(Expr::Ident(name))]),
        Expr::Call(CallExpr { func_name, target, args }) if func_name != meter::CHARGE_FUNCTION => {
            let args = args.into_iter().map(|argument| collected(argument, sum)).collect();
            IdedExpr { id: of.id, expr: Expr::Call(CallExpr { func_name, target, args }) }
        }
        expr => IdedExpr { id: of.id, expr },
    }
}

fn charged(of: IdedExpr) -> IdedExpr {
    if matches!(of.expr, Expr::Literal(_)) { of } else { call(CHARGED, vec![of]) }
}

fn is_literal_number(of: &IdedExpr) -> bool {
    use LiteralValue::{Double, Int, UInt};
    matches!(&of.expr, Expr::Literal(Int(_) | UInt(_) | Double(_)))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// Returns the size of a value in bytes.
fn size(of: &Cel) -> usize {
    let inner = match of {
        Cel::String(text) => text.len(),
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.iter().map(size).sum(),
        Cel::Map(map) => map.map.iter().map(|(key, value)| size_of_key(key) + size(value)).sum(),
        _ => 0,
    };
    inner + VALUE_BYTES
}

fn size_of_key(of: &Key) -> usize {
    VALUE_BYTES + if let Key::String(text) = of { text.len() } else { 0 }
}

/// The unwrapped functions of the library.
static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Calls a function of the library on values.
pub(super) fn library(name: &str, target: Option<Cel>, arguments: impl IntoIterator<Item = Cel>) -> ResolveResult {
    let mut context = LIBRARY.new_inner_scope();
    let mut argument = |at: usize, value: Cel| {
        let name = format!("@{at}");
        context.add_variable_from_value(name.clone(), value);
        node(Expr::Ident(name))
    };
    let args = arguments.into_iter().enumerate().map(|(at, value)| argument(at + 1, value)).collect();
    let target = target.map(|target| argument(0, target).into());
    Cel::resolve(&node(Expr::Call(CallExpr { func_name: name.to_owned(), target, args })), &context)
}

/// Counts non-overlapping occurrences of a string.
fn occurrences(of: &str, within: &str, limit: Option<&Cel>) -> usize {
    let most = match limit {
        Some(Cel::Int(most)) if *most >= 0 => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    within.matches(of).take(most).count()
}

/// Returns the maximum size of a function's result in bytes, if it exceeds the size of the arguments.
fn size_of_result(name: &str, target: &Cel, arguments: &[Cel]) -> usize {
    match (name, target, arguments) {
        ("replace", Cel::String(text), [Cel::String(from), Cel::String(to), limit @ ..]) => {
            occurrences(from, text, limit.first()).saturating_mul(to.len()).saturating_add(text.len())
        }
        ("split", Cel::String(text), [Cel::String(by), limit @ ..]) => {
            (occurrences(by, text, limit.first()) + 1).saturating_mul(VALUE_BYTES).saturating_add(text.len())
        }
        // The empty string matches at each position.
        ("findAll", Cel::String(text), [_, Cel::Int(most)]) if *most >= 0 => {
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            most.min(text.len() + 1).saturating_mul(VALUE_BYTES).saturating_add(text.len())
        }
        ("findAll", Cel::String(text), _) => (text.len() + 1).saturating_mul(VALUE_BYTES),
        ("join", Cel::List(items), [Cel::String(between), ..]) => {
            size(target).saturating_add(items.len().saturating_mul(between.len()))
        }
        ("format", Cel::String(text), [arguments]) => {
            // A number is printed with the requested number of digits.
            let digits = text.split("%.").skip(1).map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                rest[..end].parse().unwrap_or(0)
            });
            digits.fold(text.len() + size(arguments), usize::saturating_add)
        }
        ("lists.range", Cel::Int(count), _) => usize::try_from(*count).unwrap_or_default().saturating_mul(VALUE_BYTES),
        _ => size(target),
    }
}

/// Adds the charging functions.
pub(super) fn add(context: &mut Context<'_>) {
    context.add_function(CHARGED, |Arguments(of): Arguments| -> ResolveResult {
        let value = of.first().cloned().unwrap_or(Cel::Null);
        meter::charge(size(&value), MAX_BYTES)?;
        Ok(value)
    });
    context.add_function(COLLECT, |_: &FunctionContext<'_, '_>| -> ResolveResult {
        Ok(Cel::Opaque(Arc::new(Collection(Mutex::default()))))
    });
    context.add_function(PUSH, |Arguments(of): Arguments| -> ResolveResult {
        let [list, item] = of.as_slice() else { return Err(ExecutionError::NoSuchOverload) };
        meter::charge(size(item), MAX_BYTES)?;
        items(list)?.push(item.clone());
        Ok(list.clone())
    });
    context.add_function(COLLECTED, |Arguments(of): Arguments| -> ResolveResult {
        let list = of.first().ok_or(ExecutionError::NoSuchOverload)?;
        let items = std::mem::take(&mut *items(list)?);
        Ok(Cel::List(Arc::new(items)))
    });
    context.add_function("matches", |This(text): This<Cel>, Arguments(of): Arguments| -> ResolveResult {
        // In a function call, the string is the first of two arguments.
        let (Cel::String(text), Some(Cel::String(pattern))) = (&text, of.last()) else {
            return Err(ExecutionError::NoSuchOverload);
        };
        patterns::is_match(text, pattern).map(Into::into)
    });
    context.add_function("find", |This(text): This<Cel>, Arguments(of): Arguments| -> ResolveResult {
        let (Cel::String(text), [Cel::String(pattern)]) = (&text, of.as_slice()) else {
            return Err(ExecutionError::NoSuchOverload);
        };
        meter::charge(text.len() + VALUE_BYTES, MAX_BYTES)?;
        let found = patterns::find("find", text, pattern, 1)?.pop().unwrap_or_default();
        Ok(Cel::String(found.into()))
    });
    context.add_function("findAll", |This(target): This<Cel>, Arguments(of): Arguments| -> ResolveResult {
        let (Cel::String(text), [Cel::String(pattern), limit @ ..]) = (&target, of.as_slice()) else {
            return Err(ExecutionError::NoSuchOverload);
        };
        let limit = match limit {
            // A negative number means no limit.
            [Cel::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        meter::charge(size_of_result("findAll", &target, &of), MAX_BYTES)?;
        let found = patterns::find("findAll", text, pattern, limit)?;
        Ok(Cel::List(Arc::new(found.into_iter().map(|found| Cel::String(found.into())).collect())))
    });
    for name in ["replace", "split", "join", "format"] {
        context.add_function(name, move |call: &FunctionContext<'_, '_>, Arguments(of): Arguments| -> ResolveResult {
            let Some(target) = call.this.clone() else { return Err(ExecutionError::NoSuchOverload) };
            meter::charge(size_of_result(name, &target, &of), MAX_BYTES)?;
            library(name, Some(target), of.iter().cloned())
        });
    }
    context.add_function("lists.range", |Arguments(of): Arguments| -> ResolveResult {
        let count = of.first().ok_or(ExecutionError::NoSuchOverload)?;
        meter::charge(size_of_result("lists.range", count, &[]), MAX_BYTES)?;
        library("lists.range", None, of.iter().cloned())
    });
}

/// Returns the items of a list that grows in place.
fn items(list: &Cel) -> Result<parking_lot::MutexGuard<'_, Vec<Cel>>, ExecutionError> {
    let Cel::Opaque(opaque) = list else { return Err(ExecutionError::NoSuchOverload) };
    let collection = opaque.downcast_ref::<Collection>().ok_or(ExecutionError::NoSuchOverload)?;
    Ok(collection.0.lock())
}

#[cfg(test)]
mod tests {
    use super::super::{BASE, Budget, Error, compile};
    use crate::rules::to_cel;
    use serde_json::{Value, json};
    use std::time::Instant;

    fn run(expression: &str, object: &Value) -> Result<bool, Error> {
        let mut context = BASE.new_inner_scope();
        context.add_variable_from_value("self", to_cel(None, object));
        compile(expression)
            .map_err(Error::Compile)?
            .run(&context, &Budget::of_rules())
            .map(|result| result == true.into())
    }

    #[test]
    fn values_beyond_the_memory_limit_stop_evaluation() {
        let object =
            json!({"s": "x".repeat(1 << 20), "l": (0..2000).collect::<Vec<_>>(), "m": {"a": "y".repeat(1 << 20)}});
        let sum = |n: usize| vec!["string(self.s)"; n].join(" + ");
        let halves = |n: usize| format!("({}) + ({})", sum(n), sum(n));
        let list = format!("[{}]", vec!["self.s"; 100].join(", "));
        let map = format!("{{{}}}", (0..100).map(|n| format!("'{n}': self.m")).collect::<Vec<_>>().join(", "));
        let format = format!("'{}'", "%.60000f".repeat(2000));
        for large in [
            "self.s.replace('x', self.s).size() > 0".to_owned(),
            "self.s.replace('', self.s).size() > 0".to_owned(),
            "self.l.map(x, string(x)).join(self.s).size() > 0".to_owned(),
            "self.l.map(x, self.s).size() > 0".to_owned(),
            "self.l.map(x, x > 0, {'k': self.s}).size() > 0".to_owned(),
            "self.l.transformList(i, x, self.s).size() > 0".to_owned(),
            "self.l.map(i, self.s.split('')).size() > 0".to_owned(),
            "self.l.map(i, self.s.findAll('x')).size() > 0".to_owned(),
            "self.l.map(i, self.s + self.s).size() > 0".to_owned(),
            "lists.range(1000000000000000000).size() > 0".to_owned(),
            "lists.range(100000000000).size() > 0".to_owned(),
            format!("{}.format(self.l).size() > 0", format.replace('f', "e")),
            format!("{}.size() > 0", halves(10)),
            format!("{list}.size() > 0"),
            format!("{map}.size() > 0"),
            // An error on one side does not hide the exceeded limit on the other.
            "self.l.exists(x, self.l.map(y, self.s).size() < 0 || x < 0)".to_owned(),
        ] {
            assert_eq!(run(&large, &object), Err(Error::CostLimit), "{}", &large[..large.len().min(100)]);
        }
        for fine in [
            "self.s.replace('x', 'yy').size() == 2097152",
            "self.l.map(x, string(x)).join(',').size() == 8889",
            "self.s.substring(0, 1000).split('').size() > 999",
            "lists.range(1000).size() == 1000",
            "self.l.map(x, x * 2).filter(x, x > 10).map(x, [x]).size() == 1994",
            "[1, 2, 3].map(x, self.l.filter(y, y < 2).map(y, x + y)).all(l, l.size() == 2)",
            "'%.2f and %s'.format([1.5, 'x']) == '1.50 and x'",
            "self.s.replace('x', '', 2).size() == 1048574 && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
            "'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        ] {
            assert_eq!(run(fine, &object), Ok(true), "{fine}");
        }
    }

    #[test]
    fn patterns_are_charged_by_their_states() {
        let patterns: Vec<String> = (0..200).map(|n| format!("(\\pL{{0,8}}){{0,9}}{n}")).collect();
        let object = json!({"p": patterns, "s": "x".repeat(100)});
        for expensive in ["self.p.exists(p, self.s.matches(p))", "self.p.exists(p, self.s.find(p) == 'y')"] {
            assert_eq!(run(expensive, &object), Err(Error::CostLimit), "{expensive}");
        }
        let rejected = run("self.s.matches('(\\\\pL{0,30}){0,30}')", &object);
        assert!(
            rejected
                .as_ref()
                .is_err_and(|why| why.to_string().contains("more than 60000: use fewer or smaller repetitions")),
            "{rejected:?}"
        );
        // Many patterns with few states, of unknown size.
        let texts: Vec<String> = (0..300).map(|n| format!("{n}{}", "x".repeat(297))).collect();
        let object = json!({"p": texts, "s": "x".repeat(100), "t": "x".repeat(100_000)});
        for expensive in [
            "self.p.all(a, self.p.all(b, a.matches('(x*)*y|' + b) || true))",
            "self.p.all(a, self.p.all(b, 'x'.matches('(x*)*y|' + a + b) || true))",
            "self.p.all(a, self.p.all(b, 'x'.find('(x*)*y|' + a + b) == ''))",
            // One pattern with many active states at each character.
            "self.t.matches('(x?){900}(x?){900}y')",
        ] {
            assert_eq!(run(expensive, &object), Err(Error::CostLimit), "{expensive}");
        }
        for fine in [
            "self.s.matches('^x{100}$')",
            "self.p.all(a, !a.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
            "matches(self.s, '^x+$')",
            "'a1'.find('[0-9]') == '1'",
        ] {
            assert_eq!(run(fine, &object), Ok(true), "{fine}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    fn lists_of_loops_take_linear_time() {
        let time = |n: u64| {
            let object = json!({"l": (0..n).collect::<Vec<_>>()});
            let run = || {
                let start = Instant::now();
                assert_eq!(run("self.l.map(x, x).filter(x, x >= 0).size() > 0", &object), Ok(true));
                start.elapsed()
            };
            (0..3).map(|_| run()).min().unwrap()
        };
        let (short, long) = (time(1000), time(16_000));
        // Quadratic time would be 256 times as long.
        assert!(long < short * 80, "{short:?} for 1,000 items, {long:?} for 16,000");
    }
}
