//! Metering of the cost of an expression during evaluation, which limits its run time.
//!
//! The interpreter does not count costs. Metering therefore inserts calls that charge the cost before each basic block:
//! the whole expression except the bodies of loops, the branches of conditionals and the right sides of `&&` and `||`,
//! which are separate blocks. The costs are those of kube-apiserver; if a size is unknown before evaluation, the
//! minimum is charged. So each expression that is rejected here is also rejected by kube-apiserver, and every iteration
//! of a loop is charged.
//! See <https://kubernetes.io/docs/reference/using-api/cel/#resource-constraints>.

use super::cost::{self, Estimate, Size};
use super::error::Error;
use super::functions::NAMESPACES;
use super::typing::{INT, STRING, Type};
use kube_cel::cel::common::ast::operators::{CONDITIONAL, INDEX, LOGICAL_AND, LOGICAL_OR, OPT_INDEX};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, MapEntryExpr,
    MapExpr, SelectExpr,
};
use kube_cel::cel::common::types::{CelBytes, CelList, CelMap, CelString};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::objects::Value as Cel;
use kube_cel::cel::{Context, ExecutionError, FunctionContext};
use std::cell::Cell;

/// Maximum cost of one evaluation of an expression.
const PER_CALL: u64 = 1_000_000;

thread_local! {
    /// Current cost of the evaluation on this thread; an expression is evaluated on one thread.
    static SPENT: Cell<u64> = const { Cell::new(0) };
    /// Bytes allocated by the evaluation.
    static BUILT: Cell<usize> = const { Cell::new(0) };
}

/// Evaluates an expression; returns its value and its cost.
pub(super) fn measure(ready: &IdedExpr, context: &Context<'_>) -> (Result<Cel, ExecutionError>, u64) {
    SPENT.set(0);
    BUILT.set(0);
    let result = Cel::resolve(ready, context);
    (result, SPENT.replace(0))
}

/// Charges allocated bytes; an evaluation that exceeds the limit fails.
pub(super) fn charge(bytes: usize, limit: usize) -> Result<(), ExecutionError> {
    let built = BUILT.get().saturating_add(bytes);
    BUILT.set(built);
    if built > limit {
        SPENT.set(SPENT.get().max(PER_CALL + 1));
        return Err(ExecutionError::function_error(CHARGE_FUNCTION, Error::CostLimit));
    }
    Ok(())
}

/// Charges a cost that is known only at run time.
pub(super) fn pay(price: u64) -> Result<(), ExecutionError> {
    let spent = SPENT.get().saturating_add(price);
    SPENT.set(spent);
    if is_exceeded(spent) { Err(ExecutionError::function_error(CHARGE_FUNCTION, Error::CostLimit)) } else { Ok(()) }
}

/// Returns true if a cost exceeds the limit of one evaluation.
pub(super) fn is_exceeded(cost: u64) -> bool {
    cost > PER_CALL
}

/// The function that charges a fixed cost and the costs of calls that depend on their arguments.
pub(super) const CHARGE_FUNCTION: &str = "@pay";

/// Adds the function that charges costs.
pub(super) fn add(context: &mut Context<'_>) {
    context.add_function(CHARGE_FUNCTION, |call: &FunctionContext<'_, '_>| -> Result<bool, ExecutionError> {
        let exceeded = || ExecutionError::function_error(CHARGE_FUNCTION, Error::CostLimit);
        let mut spent = SPENT.get();
        if is_exceeded(spent) {
            return Err(exceeded());
        }
        for price in call.args {
            spent = spent.saturating_add(match &price.expr {
                Expr::Literal(LiteralValue::Int(price)) => u64::try_from(*price.inner()).unwrap_or_default(),
                Expr::Call(of) => price_of(of, call.ptx),
                _ => 0,
            });
        }
        SPENT.set(spent);
        if is_exceeded(spent) { Err(exceeded()) } else { Ok(true) }
    });
}

/// Adds metering to an expression.
pub(super) fn meter(of: IdedExpr) -> IdedExpr {
    let mut block_cost = BlockCost::default();
    let of = block_cost.walk(of);
    block_cost.with_charge(of)
}

/// The cost of a basic block of an expression.
#[derive(Default)]
struct BlockCost {
    fixed: u64,
    /// Calls with costs that depend on their arguments.
    calls: Vec<IdedExpr>,
}

impl BlockCost {
    /// Wraps an expression with its cost.
    fn with_charge(self, of: IdedExpr) -> IdedExpr {
        if self.fixed == 0 && self.calls.is_empty() {
            return of;
        }
        let fixed = i64::try_from(self.fixed).unwrap_or(i64::MAX);
        let mut args = vec![node(Expr::Literal(LiteralValue::Int(fixed.into())))];
        args.extend(self.calls);
        let pay = node(Expr::Call(CallExpr { func_name: CHARGE_FUNCTION.into(), target: None, args }));
        let nothing = node(Expr::Literal(LiteralValue::Null));
        node(Expr::Call(CallExpr { func_name: CONDITIONAL.into(), target: None, args: vec![pay, of, nothing] }))
    }

    /// Adds up the costs of the parts that are always evaluated, and meters the other parts separately.
    fn walk(&mut self, of: IdedExpr) -> IdedExpr {
        let IdedExpr { id, expr } = of;
        let expr = match expr {
            Expr::Ident(name) => {
                self.fixed += u64::from(!is_pair(&name));
                Expr::Ident(name)
            }
            expr @ (Expr::Literal(_) | Expr::Unspecified | Expr::Struct(_)) => expr,
            Expr::Select(select) => {
                self.fixed += u64::from(!select.test);
                Expr::Select(SelectExpr { operand: self.walk(*select.operand).into(), ..select })
            }
            Expr::List(list) => {
                self.fixed += if list.elements.first().is_some_and(is_part_of_pair) { 0 } else { 10 };
                let elements = list.elements.into_iter().map(|item| self.walk(item)).collect();
                Expr::List(ListExpr { elements, ..list })
            }
            Expr::Map(map) => {
                self.fixed += 30;
                Expr::Map(MapExpr { entries: map.entries.into_iter().map(|entry| self.entry(entry)).collect() })
            }
            Expr::Call(call) => Expr::Call(self.call(call)),
            Expr::Comprehension(of) => {
                let binds = of.iter_var == "@unused";
                let iter_range = if binds { of.iter_range } else { self.walk(of.iter_range) };
                let accu_init = self.walk(of.accu_init);
                // The loop condition is charged with each iteration.
                let mut round = BlockCost::default();
                let loop_cond = round.walk(of.loop_cond);
                let loop_step = round.walk(of.loop_step);
                let loop_step = if binds { loop_step } else { round.with_charge(loop_step) };
                Expr::Comprehension(Box::new(ComprehensionExpr {
                    iter_range,
                    accu_init,
                    loop_cond,
                    loop_step,
                    result: meter(of.result),
                    ..*of
                }))
            }
        };
        IdedExpr { id, expr }
    }

    fn entry(&mut self, at: IdedEntryExpr) -> IdedEntryExpr {
        let expr = match at.expr {
            EntryExpr::MapEntry(entry) => EntryExpr::MapEntry(MapEntryExpr {
                key: self.walk(entry.key),
                value: self.walk(entry.value),
                optional: entry.optional,
            }),
            other @ EntryExpr::StructField(_) => other,
        };
        IdedEntryExpr { id: at.id, expr }
    }

    fn call(&mut self, call: CallExpr) -> CallExpr {
        let CallExpr { func_name, target, args } = call;
        let mut args = args.into_iter();
        match func_name.as_str() {
            CONDITIONAL | LOGICAL_AND | LOGICAL_OR => {
                let first = args.next().map(|first| self.walk(first));
                let args = first.into_iter().chain(args.map(meter)).collect();
                return CallExpr { func_name, target, args };
            }
            _ => {}
        }
        let call = CallExpr { func_name, target, args: args.collect() };
        if depends_on_size(&call.func_name) && operands(&call).any(is_path) {
            self.calls.push(node(Expr::Call(call.clone())));
        } else {
            let is_own = matches!(call.func_name.as_str(), "@pairs" | "@from_pairs" | "@from_maps")
                || call.args.first().is_some_and(is_pair_itself);
            self.fixed += match call.func_name.as_str() {
                _ if is_own => 0,
                "check" if call.target.is_some() => 350_000,
                // These functions charge when they are called.
                "matches" | "find" | "findAll" => 0,
                name if depends_on_size(name) => 0,
                _ => 1,
            };
        }
        // An index that is a plain lookup has no additional cost.
        if matches!(call.func_name.as_str(), INDEX | OPT_INDEX) && call.args.get(1).is_some_and(is_path) {
            let mut args = call.args.into_iter();
            let of = args.next().map(|of| self.walk(of));
            return CallExpr { args: of.into_iter().chain(args).collect(), ..call };
        }
        let is_namespace = call.target.as_ref().is_some_and(|target| is_namespace(target));
        CallExpr {
            target: call.target.map(|target| if is_namespace { target } else { self.walk(*target).into() }),
            args: call.args.into_iter().map(|argument| self.walk(argument)).collect(),
            func_name: call.func_name,
        }
    }
}

/// Returns true if the cost of a function depends on the size of its arguments.
fn depends_on_size(name: &str) -> bool {
    matches!(
        name,
        "_==_"
            | "_!=_"
            | "_<_"
            | "_<=_"
            | "_>_"
            | "_>=_"
            | "_+_"
            | "@in"
            | "contains"
            | "intersects"
            | "equivalent"
            | "startsWith"
            | "endsWith"
            | "isSorted"
            | "sum"
            | "max"
            | "min"
            | "indexOf"
            | "lastIndexOf"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "substring"
            | "replace"
            | "split"
            | "url"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "ip"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
    )
}

fn operands(call: &CallExpr) -> impl Iterator<Item = &IdedExpr> {
    call.target.as_deref().into_iter().chain(&call.args)
}

/// Returns true if an expression is a plain path to an existing value, which can be evaluated twice without cost.
fn is_path(of: &IdedExpr) -> bool {
    match &of.expr {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test && is_path(&select.operand),
        Expr::Call(call) if call.func_name == INDEX || call.func_name == OPT_INDEX => {
            let by = call.args.get(1);
            call.args.first().is_some_and(is_path)
                && by.is_some_and(|by| matches!(by.expr, Expr::Literal(_)) || is_path(by))
        }
        _ => false,
    }
}

fn is_namespace(of: &IdedExpr) -> bool {
    matches!(&of.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()))
}

/// Returns true if a variable contains both an index and a value.
fn is_pair(name: &str) -> bool {
    name.starts_with("@pair")
}

fn is_pair_itself(of: &IdedExpr) -> bool {
    matches!(&of.expr, Expr::Ident(name) if is_pair(name))
}

fn is_part_of_pair(of: &IdedExpr) -> bool {
    matches!(&of.expr, Expr::Call(call) if call.func_name == INDEX && call.args.first().is_some_and(is_pair_itself))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

/// Returns the cost of a call with the current values of its arguments.
fn price_of(call: &CallExpr, context: &Context<'_>) -> u64 {
    let in_sets =
        call.target.as_ref().is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "sets"));
    let target = call.target.as_ref().filter(|target| !is_namespace(target)).map(|target| estimate(target, context));
    let arguments: Vec<Estimate<'_>> = call.args.iter().map(|argument| estimate(argument, context)).collect();
    cost::of_call(&call.func_name, target.as_ref(), &arguments, &call.args, in_sets).0
}

/// Returns the type and size of an expression, if they are known without evaluation.
fn estimate(of: &IdedExpr, context: &Context<'_>) -> Estimate<'static> {
    let (ty, size) = match &of.expr {
        Expr::Literal(literal) => {
            let ty = if matches!(literal, LiteralValue::String(_)) { STRING } else { INT };
            (ty, cost::literal(literal))
        }
        _ if is_path(of) => {
            Cel::resolve_val(of, context).map_or((Type::Dyn, Size::exactly(0)), |value| sized(value.as_ref()))
        }
        _ => (Type::Dyn, Size::exactly(0)),
    };
    Estimate { size: Some(size), ..Estimate::of(ty, 0) }
}

fn sized(value: &dyn Val) -> (Type<'static>, Size) {
    let (ty, size) = if let Some(text) = value.downcast_ref::<CelString>() {
        (STRING, text.inner().chars().count())
    } else if let Some(list) = value.downcast_ref::<CelList>() {
        (Type::List(Type::Dyn.into()), list.inner().len())
    } else if let Some(map) = value.downcast_ref::<CelMap>() {
        (Type::Map(Type::Dyn.into(), Type::Dyn.into()), map.inner().len())
    } else if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        (super::typing::BYTES, bytes.inner().len())
    } else {
        (INT, 1)
    };
    (ty, Size::exactly(size as u64))
}

#[cfg(test)]
mod tests {
    use super::super::{BASE, Budget, TotalBudget, compile};
    use super::{Error, measure};
    use crate::rules::to_cel;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// Evaluates an expression on `self`.
    fn run(expression: &str, object: &Value, budget: &Budget) -> Result<bool, Error> {
        let mut context = BASE.new_inner_scope();
        context.add_variable_from_value("self", to_cel(None, object));
        compile(expression).map_err(Error::Compile)?.run(&context, budget).map(|result| result == true.into())
    }

    fn cost(expression: &str) -> u64 {
        let mut context = BASE.new_inner_scope();
        context.add_variable_from_value("self", to_cel(None, &json!({"a": 1, "s": "x".repeat(100), "l": [1, 2, 3]})));
        let ready = super::meter(super::super::rewrite::rewrite(compile(expression).unwrap().expression().clone()));
        let (result, cost) = measure(&ready, &context);
        result.unwrap();
        cost
    }

    #[test]
    fn evaluated_operations_are_charged() {
        let cases = [
            ("self.a < 10", 3),
            ("self.a > 10 && self.s.contains('x')", 3),
            ("self.a < 10 && self.s.contains('x')", 3 + 2 + 10),
            ("self.a < 10 ? self.a == 1 : self.s.contains('x')", 3 + 3),
            ("self.s.matches('^x{9}$')", 2 + 11 * 2),
            ("3 in self.l", 2 + 3),
            // The list; for each iteration the condition, the accumulator and the predicate; and the result.
            ("self.l.all(x, x > 0)", 2 + 3 * (2 + 1 + 2) + 1),
        ];
        for (expression, price) in cases {
            assert_eq!(cost(expression), price, "{expression}");
        }
    }

    #[test]
    fn expensive_expressions_are_stopped() {
        let object = json!({"l": (0..20_000).collect::<Vec<_>>()});
        for expensive in [
            "self.l.all(x, self.l.all(y, y >= 0))",
            "self.l.all(x, self.l.exists(y, y < 0) || self.l.all(y, self.l.all(z, z >= 0)))",
            "self.l.exists(x, self.l.exists(y, self.l.exists(z, z < 0)))",
            "self.l.all(x, x in self.l)",
            "self.l.all(i, x, self.l.all(j, y, x >= 0))",
            "self.l.filter(x, self.l.exists_one(y, y == x)).size() == 0",
        ] {
            assert_eq!(run(expensive, &object, &Budget::of_rules()), Err(Error::CostLimit), "{expensive}");
        }
        assert_eq!(run("self.l.all(x, x >= 0)", &object, &Budget::of_rules()), Ok(true));
    }

    #[test]
    fn budgets_of_a_write_share_a_total() {
        let total = Arc::new(TotalBudget::default());
        let runs = |budget: &Budget| (0..25).take_while(|_| budget.spend(500_000)).count();
        let counts: Vec<_> = (0..4).map(|_| runs(&Budget::of_rules().within(&total))).collect();
        assert_eq!(counts, [20, 20, 7, 0]);
        assert!(total.is_exceeded());
        assert_eq!(run("true", &json!({}), &Budget::of_rules().within(&total)), Err(Error::OutOfBudget));
    }

    #[test]
    fn runs_share_a_budget() {
        let object = json!({"l": (0..100_000).collect::<Vec<_>>()});
        let budget = Budget::of_conditions();
        let runs: Vec<_> = (0..7).map(|_| run("self.l.all(x, x >= 0)", &object, &budget)).collect();
        assert_eq!(runs[..4], [Ok(true), Ok(true), Ok(true), Ok(true)]);
        assert_eq!(runs[5..], [Err(Error::OutOfBudget), Err(Error::OutOfBudget)]);
    }
}
