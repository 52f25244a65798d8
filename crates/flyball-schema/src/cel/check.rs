//! Type checking of expressions before evaluation: unknown fields and functions, and operators and functions without an
//! overload for their operands.
//!
//! Unknown types pass: an expression is rejected only if kube-apiserver rejects it too.

use super::authorizer;
use super::cost::{self, Estimate, SchemaPosition, Size};
use super::functions::{NAMESPACES, entry, function, in_namespace, is_function, method, operator};
use super::location::located;
use super::positions::SourcePositions;
use super::rewrite;
use super::typing::{BOOL, BYTES, DOUBLE, INT, NULL, STRING, Schema, TYPE, Type, UINT, common, field};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, StructExpr,
};

/// The result of checking a valid expression.
#[derive(Clone, Debug)]
pub struct CheckResult<'s> {
    /// The type of the result.
    pub made: Type<'s>,
    /// The maximum cost.
    pub cost: u64,
}

/// Checks an expression on values of a schema; `Err` lists all errors, as `cel-go` does.
pub fn check<'s>(text: &str, schema: &'s Schema, whole: bool, optional_old: bool) -> Result<CheckResult<'s>, String> {
    let own = Type::of(schema, whole);
    let old = if optional_old { own.clone().optional() } else { own.clone() };
    run(text, Some(SchemaPosition::Schema { schema, whole }), &[("self", own), ("oldSelf", old)])
}

/// Checks an expression on variables of known types without a schema.
pub fn check_among<'s>(text: &str, variables: &[(&str, Type<'s>)]) -> Result<Type<'s>, String> {
    run(text, None, variables).map(|checked| checked.made)
}

fn run<'s>(
    text: &str,
    root: Option<SchemaPosition<'s>>,
    variables: &[(&str, Type<'s>)],
) -> Result<CheckResult<'s>, String> {
    let program = super::compile(text)?;
    let variables = variables.iter().map(|(name, ty)| ((*name).to_owned(), Estimate::at(ty.clone(), 1, root)));
    let mut checker =
        Checker { root, scope: variables.collect(), positions: SourcePositions::of(text), errors: Vec::new() };
    let estimate = program.with_sufficient_stack(|| checker.visit(program.expression()));
    checker.errors.sort();
    let messages: Vec<String> = checker.errors.iter().map(|(at, reason)| point_at(text, *at, reason)).collect();
    if messages.is_empty() {
        Ok(CheckResult { made: estimate.ty, cost: estimate.cost })
    } else {
        Err(messages.join("\n"))
    }
}

/// Formats an error with its position in the source.
fn point_at(source: &str, at: usize, reason: &str) -> String {
    let before: String = source.char_indices().take_while(|(i, _)| *i < at).map(|(_, c)| c).collect();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    located(source, line + 1, column + 1, reason)
}

struct Checker<'s> {
    /// The schema of `self`.
    root: Option<SchemaPosition<'s>>,
    scope: Vec<(String, Estimate<'s>)>,
    positions: SourcePositions,
    errors: Vec<(usize, String)>,
}

impl<'s> Checker<'s> {
    fn report(&mut self, at: usize, reason: String) -> Type<'s> {
        self.errors.push((at, reason));
        Type::Dyn
    }

    fn variable(&self, name: &str) -> Option<Estimate<'s>> {
        self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, estimate)| estimate.clone())
    }

    /// The schema position below a value; as in kube-apiserver, a value without a position counts as the root.
    fn within(
        &self,
        of: Option<SchemaPosition<'s>>,
        step: impl Fn(SchemaPosition<'s>) -> SchemaPosition<'s>,
    ) -> Option<SchemaPosition<'s>> {
        of.map(step).or(self.root)
    }

    fn visit(&mut self, at: &IdedExpr) -> Estimate<'s> {
        match &at.expr {
            Expr::Literal(literal) => {
                let ty = match literal {
                    LiteralValue::Boolean(_) => BOOL,
                    LiteralValue::Bytes(_) => BYTES,
                    LiteralValue::Double(_) => DOUBLE,
                    LiteralValue::Int(_) => INT,
                    LiteralValue::Null => NULL,
                    LiteralValue::String(_) => STRING,
                    LiteralValue::UInt(_) => UINT,
                };
                Estimate { size: Some(cost::literal(literal)), ..Estimate::of(ty, 0) }
            }
            Expr::Ident(name) => {
                let position = self.positions.next(name);
                match self.variable(name) {
                    Some(estimate) => Estimate { cost: 1, ..estimate },
                    None if super::types::NAMES.contains(&name.as_str()) || name.contains(['@', '#', '.']) => {
                        Estimate::at(TYPE, 1, self.root)
                    }
                    None => Estimate::of(
                        self.report(position, format!("undeclared reference to '{name}' (in container '')")),
                        1,
                    ),
                }
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(inner) => self.comprehension(inner),
            Expr::List(list) => {
                let item = |(at, item)| self.visit_part(item, list.optional_indices.contains(&at));
                let items: Vec<Estimate<'s>> = list.elements.iter().enumerate().map(item).collect();
                let (cost, entry) = gathered(&items, 10);
                let size = Some(Size::exactly(items.len() as u64));
                let types = items.into_iter().map(|item| item.ty).collect();
                Estimate { size, entry, ..Estimate::of(Type::List(common(types).into()), cost) }
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.visit(&entry.key));
                        values.push(self.visit_part(&entry.value, entry.optional));
                    }
                }
                let size = Some(Size::exactly(keys.len() as u64));
                let ((cost, _), (more, entry)) = (gathered(&keys, 30), gathered(&values, 0));
                let types = |estimate: Vec<Estimate<'s>>| {
                    common(estimate.into_iter().map(|estimate| estimate.ty).collect()).into()
                };
                let ty = Type::Map(types(keys), types(values));
                Estimate { size, entry, ..Estimate::of(ty, cost.saturating_add(more)) }
            }
            Expr::Struct(of) => self.object(of),
            Expr::Unspecified => Estimate::of(Type::Dyn, 0),
        }
    }

    /// An entry of a list, a map or an object literal; an optional one is omitted if its value is absent.
    fn visit_part(&mut self, at: &IdedExpr, optional: bool) -> Estimate<'s> {
        let estimate = self.visit(at);
        match estimate.ty {
            Type::Optional(inner) if optional => Estimate { ty: (*inner).clone(), ..estimate },
            _ => estimate,
        }
    }

    /// An object literal, as in mutations.
    fn object(&mut self, of: &StructExpr) -> Estimate<'s> {
        let is_patch = of.type_name == "JSONPatch";
        let is_known = is_patch || of.type_name == "Object" || of.type_name.starts_with("Object.");
        let position = self.positions.next(&format!("{}{{", of.type_name.rsplit('.').next().unwrap_or_default()));
        if !is_known {
            let name = &of.type_name;
            self.report(position, format!("undeclared reference to '{name}' (in container '')"));
        }
        let mut cost: u64 = 40;
        for entry in &of.entries {
            let EntryExpr::StructField(entry) = &entry.expr else { continue };
            let position = self.positions.next(&format!("{}:", entry.field));
            let value = self.visit_part(&entry.value, entry.optional);
            cost = cost.saturating_add(value.cost);
            let expected = match entry.field.as_str() {
                "op" | "path" | "from" if is_patch => "string",
                "value" if is_patch => continue,
                _ if is_patch => "",
                _ => continue,
            };
            if expected.is_empty() || !value.ty.is_dyn() && !value.ty.is(expected) {
                let (field, provided) = (&entry.field, &value.ty);
                let reason =
                    format!("expected type of field '{field}' is '{expected}' but provided type is '{provided}'");
                self.report(position, reason);
            }
        }
        let ty = if !is_known {
            Type::Dyn
        } else if is_patch {
            Type::Plain("JSONPatch")
        } else if of.type_name == "Object" {
            Type::Plain("Object")
        } else {
            Type::Dyn
        };
        Estimate::of(ty, cost)
    }

    fn select(&mut self, select: &SelectExpr) -> Estimate<'s> {
        if let Expr::Ident(name) = &select.operand.expr
            && self.variable(name).is_none()
            && (NAMESPACES.contains(&name.as_str()) || name == "google")
        {
            return Estimate::of(Type::Dyn, 1);
        }
        let operand = self.visit(&select.operand);
        let mut position = self.positions.next(&format!(".{}", select.field));
        if select.test {
            position = self.positions.next("has(");
        }
        if authorizer::is_own(&operand.ty) {
            let found = authorizer::field(&operand.ty, &select.field).filter(|_| !select.test);
            let reason = || format!("unexpected failed resolution of '{}'", operand.ty);
            return Estimate::of(found.unwrap_or_else(|| self.report(position, reason())), 1);
        }
        let found = self.field(&operand.ty, &select.field, position);
        if select.test {
            return Estimate::of(BOOL, operand.cost);
        }
        let cost =
            u64::from(matches!(operand.ty, Type::Map(..) | Type::Object { .. } | Type::Metadata | Type::Fields(_)));
        let schema_position =
            self.within(operand.schema_position, |schema_position| schema_position.field(&select.field));
        Estimate::at(found, operand.cost.saturating_add(cost), schema_position)
    }

    fn field(&mut self, of: &Type<'s>, name: &str, position: usize) -> Type<'s> {
        let found = match of {
            Type::Object { schema, whole } => field(schema, *whole, name),
            Type::Fields(fields) => fields.iter().find(|(own, _)| own == name).map(|(_, ty)| ty.clone()),
            Type::Metadata => matches!(name, "name" | "generateName").then_some(STRING),
            Type::Map(_, values) => Some((**values).clone()),
            Type::Optional(inner) => Some(self.field(inner, name, position).optional()),
            Type::Plain("bool" | "int" | "uint" | "double" | "string" | "bytes") | Type::List(_) => {
                return self.report(position, format!("type '{of}' does not support field selection"));
            }
            Type::Plain(_) | Type::Dyn => Some(Type::Dyn),
        };
        found.unwrap_or_else(|| self.report(position, format!("undefined field '{name}'")))
    }

    /// Returns the types of loop variables over a value: indexes or keys, and values.
    fn entries(&self, range: &Estimate<'s>) -> (Estimate<'s>, Estimate<'s>) {
        let is_list = matches!(range.ty, Type::List(_));
        let (key, value) = match &range.ty {
            Type::List(items) => (INT, (**items).clone()),
            Type::Map(keys, values) => ((**keys).clone(), (**values).clone()),
            Type::Object { .. } | Type::Metadata | Type::Fields(_) => (STRING, Type::Dyn),
            Type::Dyn | Type::Plain(_) | Type::Optional(_) => (Type::Dyn, Type::Dyn),
        };
        let value = Estimate::at(value, 1, self.within(range.schema_position, SchemaPosition::items));
        let value = Estimate { size: value.size.or(range.entry), ..value };
        let key = if is_list {
            Estimate::of(key, 1)
        } else {
            Estimate::at(key, 1, self.within(range.schema_position, SchemaPosition::keys))
        };
        (key, value)
    }

    fn comprehension(&mut self, of: &ComprehensionExpr) -> Estimate<'s> {
        let range = self.visit(&of.iter_range);
        let (key, value) = self.entries(&range);
        let is_list = matches!(range.ty, Type::List(_));
        let begin = self.visit(&of.accu_init);
        let depth = self.scope.len();
        self.scope.push((of.accu_var.clone(), begin.clone()));
        self.scope.push((of.iter_var.clone(), if is_list { value } else { key }));
        let condition = self.visit(&of.loop_cond);
        let step = self.visit(&of.loop_step);
        self.scope.truncate(depth);
        let sum = Estimate { ty: begin.ty.clone().join(step.ty.clone()), ..begin.clone() };
        self.scope.push((of.accu_var.clone(), sum));
        let result = self.visit(&of.result);
        self.scope.truncate(depth);
        let round = condition.cost.saturating_add(step.cost).saturating_mul(range.size().max);
        let parts = [range.cost, begin.cost, result.cost, round];
        let size = match &of.accu_init.expr {
            Expr::Literal(_) => begin.size,
            Expr::List(_) | Expr::Map(_) => Some(range.size()),
            _ => result.size,
        };
        let cost = parts.into_iter().fold(0, u64::saturating_add);
        Estimate { ty: result.ty, cost, size, entry: step.entry, schema_position: None }
    }

    /// A loop with variables for both index and value.
    fn two_variables(&mut self, call: &CallExpr, range: &IdedExpr) -> Estimate<'s> {
        let range = self.visit(range);
        self.positions.next(&format!("{}(", call.func_name));
        let (key, value) = self.entries(&range);
        let depth = self.scope.len();
        for (name, estimate) in rewrite::names(call, 2).into_iter().flatten().zip([key.clone(), value]) {
            self.positions.next(name);
            self.scope.push((name.to_owned(), estimate));
        }
        let inner: Vec<Estimate<'s>> = call.args[2..].iter().map(|part| self.visit(part)).collect();
        self.scope.truncate(depth);
        let body = inner.iter().fold(0, |sum: u64, part| sum.saturating_add(part.cost));
        let element = inner.last().map_or(Type::Dyn, |element| element.ty.clone());
        let (ty, round) = match call.func_name.as_str() {
            "all" => (BOOL, 3),
            "exists" => (BOOL, 4),
            "existsOne" | "exists_one" => (BOOL, 2),
            "transformList" => (Type::List(element.into()), 12),
            "transformMap" => (Type::Map(key.ty.into(), element.into()), 3),
            _ => (element, 3),
        };
        let rounds = body.saturating_add(round).saturating_mul(range.size().max);
        let size = Some(range.size()).filter(|_| !ty.is("bool"));
        let estimate = Estimate::of(ty, range.cost.saturating_add(rounds).saturating_add(1));
        Estimate { size: size.or(estimate.size), ..estimate }
    }

    /// `x.optMap(v, e)`.
    fn optional(&mut self, call: &CallExpr, target: &IdedExpr) -> Estimate<'s> {
        let target = self.visit(target);
        self.positions.next(&format!("{}(", call.func_name));
        let depth = self.scope.len();
        for name in rewrite::names(call, 1).into_iter().flatten() {
            self.positions.next(name);
            let ty = if let Type::Optional(inner) = &target.ty { (**inner).clone() } else { Type::Dyn };
            self.scope.push((name.to_owned(), Estimate::of(ty, 1)));
        }
        let inner = call.args.last().map_or(Estimate::of(Type::Dyn, 0), |body| self.visit(body));
        self.scope.truncate(depth);
        let ty = if call.func_name == "optMap" { Type::Optional(inner.ty.into()) } else { inner.ty };
        Estimate::of(ty, target.cost.saturating_add(inner.cost).saturating_add(3))
    }

    /// `a.?b` and `a[?b]`.
    fn optional_part(&mut self, call: &CallExpr) -> Estimate<'s> {
        let [operand, part] = call.args.as_slice() else { return Estimate::of(Type::Dyn, 1) };
        let of = self.visit(operand);
        let (ty, part) = match &part.expr {
            Expr::Literal(LiteralValue::String(name)) if call.func_name == "_?._" => {
                let position = self.positions.next(&format!(".{}", name.inner()));
                (self.field(&of.ty, name.inner(), position), 0)
            }
            _ => {
                self.positions.next("_[_]");
                let part = self.visit(part);
                (entry(&of.ty, &part.ty).unwrap_or(Type::Dyn), part.cost)
            }
        };
        Estimate::of(ty.optional(), of.cost.saturating_add(part).saturating_add(1))
    }

    fn call(&mut self, call: &CallExpr) -> Estimate<'s> {
        let name = call.func_name.as_str();
        match &call.target {
            Some(range) if rewrite::is_two_variable_macro(call) => return self.two_variables(call, range),
            Some(target) if rewrite::is_optional_macro(call) => return self.optional(call, target),
            None if matches!(name, "_?._" | "_[?_]") => return self.optional_part(call),
            _ => {}
        }
        let is_operator = call.target.is_none() && name.starts_with(|c: char| !c.is_ascii_alphabetic());
        let namespace = call.target.as_ref().and_then(|target| match &target.expr {
            Expr::Ident(name) if self.variable(name).is_none() && NAMESPACES.contains(&name.as_str()) => {
                Some(name.as_str())
            }
            _ => None,
        });
        // In source order: an operator follows its first operand, a function precedes its arguments.
        let (before, after) = call.args.split_at(usize::from(is_operator).min(call.args.len()));
        let target = call.target.as_ref().filter(|_| namespace.is_none()).map(|target| self.visit(target));
        let mut arguments: Vec<Estimate<'s>> = before.iter().map(|argument| self.visit(argument)).collect();
        // Expressions that a macro created have no position.
        let is_expanded =
            call.args.iter().any(|argument| matches!(&argument.expr, Expr::Ident(name) if is_accumulator(name)));
        let position = match is_operator {
            _ if is_expanded => 0,
            true => self.positions.next(name),
            false => self.positions.next(&format!("{name}(")),
        };
        arguments.extend(after.iter().map(|argument| self.visit(argument)));
        let (cost, size, entry) =
            cost::of_call(name, target.as_ref(), &arguments, &call.args, namespace == Some("sets"));
        let types: Vec<Type<'s>> = arguments.iter().map(|argument| argument.ty.clone()).collect();
        let found = if let Some(namespace) = namespace {
            Some(in_namespace(namespace, name, &types))
        } else if name.starts_with('@') && name != "@in" {
            Some(if name == "@not_strictly_false" { BOOL } else { Type::Dyn })
        } else {
            match &target {
                None if is_operator => operator(name, &types),
                _ if !is_function(name) => {
                    Some(self.report(position, format!("undeclared reference to '{name}' (in container '')")))
                }
                Some(target) => method(name, &target.ty, &types),
                None => function(name, &types),
            }
        };
        let ty = found.unwrap_or_else(|| {
            let list: Vec<String> = types.iter().map(ToString::to_string).collect();
            let target = target.map_or_else(String::new, |target| format!("{}.", target.ty));
            self.report(
                position,
                format!("found no matching overload for '{name}' applied to '{target}({})'", list.join(", ")),
            )
        });
        let schema_position = match arguments.first() {
            Some(of) if name == "_[_]" => self.within(of.schema_position, SchemaPosition::items),
            _ => None,
        };
        let estimate = Estimate::at(ty, cost, schema_position);
        Estimate { size: size.or(estimate.size), entry, ..estimate }
    }
}

/// Returns the total cost of all parts, and their common size.
fn gathered(parts: &[Estimate<'_>], base: u64) -> (u64, Option<Size>) {
    let cost = parts.iter().fold(base, |sum, part| sum.saturating_add(part.cost));
    let each = parts.iter().map(Estimate::size).reduce(Size::or);
    (cost, Some(each.unwrap_or(Size::exactly(0))))
}

/// Returns true if a name is the accumulator of a macro.
fn is_accumulator(name: &str) -> bool {
    matches!(name, "@result" | "__result__")
}

#[cfg(test)]
mod tests {
    use super::check;
    use serde_json::json;

    fn checked(expression: &str) -> Result<String, String> {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "integer"},
            "s": {"type": "string"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "number"}},
            "p": {"x-kubernetes-int-or-string": true},
            "my-name": {"type": "boolean"},
            "namespace": {"type": "string"},
        }});
        check(expression, schema.as_object().unwrap(), false, false).map(|found| found.made.to_string())
    }

    #[test]
    fn well_typed_expressions_pass() {
        let cases = [
            ("self.a > 1 && self.s.startsWith('x')", "bool"),
            ("self.l.all(x, x.n != '' && self.l.exists_one(y, y.n == x.n))", "bool"),
            ("self.l.map(x, x.n)", "list(string)"),
            ("self.l.filter(x, x.n == 'a').size()", "int"),
            ("self.m['x'] > 1", "bool"),
            ("has(self.m.x) ? self.m.x : 1.5", "double"),
            ("self.p == 5 || self.p == 'x'", "bool"),
            ("self.my__dash__name", "bool"),
            ("self.__namespace__", "string"),
            ("'x' in self.m && self.s in ['a', 'b']", "bool"),
            ("duration('1h') + duration('1m')", "duration"),
            ("quantity(self.s).isLessThan(quantity('1'))", "bool"),
            ("type(self.a) == int", "bool"),
            ("sets.contains([self.a], [3])", "bool"),
            ("!self.p", "bool"),
            ("self.p + 1", "int"),
            ("'a' + self.p", "string"),
            ("'%d'.format([self.a])", "string"),
            ("self.p - timestamp('2026-01-01T00:00:00Z')", "duration"),
            ("timestamp('2026-01-01T00:00:00Z') - self.p", "dyn"),
            ("self.p + [self.a]", "list(int)"),
            ("[self.a, 3].max()", "int"),
            ("self.a > 1 ? 'x' : self.p", "dyn"),
            ("self.a > 1 ? [] : [self.a]", "list(int)"),
            ("self.l[0].n + string(self.a)", "string"),
            ("self == oldSelf", "bool"),
            ("self.?s.orValue('') == 'x' && self.l[?0].?n.hasValue()", "bool"),
            ("self.l.all(i, x, x.n == string(i))", "bool"),
            ("self.m.transformMap(k, v, v > 1.0, k)", "map(string, string)"),
            ("self.l.transformList(i, x, x.n)", "list(string)"),
            ("self.?s.optMap(s, s + 'x').orValue('') == 'x'", "bool"),
            ("self.?s.optMap(s, s == 'x').orValue(true)", "bool"),
            ("self.?s", "optional_type(string)"),
            ("self.l[?0].n", "optional_type(string)"),
            ("self.m[?'x'].orValue(1.0)", "double"),
            ("self.?p.orValue(true)", "dyn"),
            ("self.?a.or(optional.of(3)).value()", "int"),
            ("[?self.?s, 'x'] == ['x']", "bool"),
            ("self.?a.optFlatMap(a, a > 1 ? optional.of(a) : optional.none())", "optional_type(int)"),
            ("[JSONPatch{op: 'add', path: '/a', value: self.a}]", "list(JSONPatch)"),
        ];
        for (expression, ty) in cases {
            assert_eq!(checked(expression), Ok(ty.to_owned()), "{expression}");
        }
    }

    #[test]
    fn type_errors_have_positions() {
        let cases = [
            ("self.b > 1", "1:5: undefined field 'b'"),
            ("self.a == 'x'", "1:8: found no matching overload for '_==_' applied to '(int, string)'"),
            ("self.a.shout()", "1:13: undeclared reference to 'shout' (in container '')"),
            ("self.a == 1 && x", "1:16: undeclared reference to 'x' (in container '')"),
            ("self.l.all(x, x.m == '')", "1:16: undefined field 'm'"),
            ("self.a.startsWith('x')", "1:18: found no matching overload for 'startsWith' applied to 'int.(string)'"),
            ("size(self.a) > 0", "1:5: found no matching overload for 'size' applied to '(int)'"),
            (
                "quantity('1') < quantity('2')",
                "1:15: found no matching overload for '_<_' applied to '(kubernetes.Quantity, kubernetes.Quantity)'",
            ),
            ("has(self.x)", "1:4: undefined field 'x'"),
            ("self.l.all(i, x, x.m == '')", "1:19: undefined field 'm'"),
            ("Foo{}", "1:4: undeclared reference to 'Foo' (in container '')"),
            ("[JSONPatch{op: 1}]", "1:14: expected type of field 'op' is 'string' but provided type is 'int'"),
            ("self.a ? 1 : 2", "1:8: found no matching overload for '_?_:_' applied to '(int, int, int)'"),
            ("self.a == null", "1:8: found no matching overload for '_==_' applied to '(int, null)'"),
            ("self.?a == 1", "1:9: found no matching overload for '_==_' applied to '(optional_type(int), int)'"),
            ("self.p - 'x'", "1:8: found no matching overload for '_-_' applied to '(dyn, string)'"),
            ("self.s.startsWith(1)", "1:18: found no matching overload for 'startsWith' applied to 'string.(int)'"),
            ("self.a in ['x']", "1:8: found no matching overload for '@in' applied to '(int, list(string))'"),
        ];
        for (expression, reason) in cases {
            let error = checked(expression).expect_err(expression);
            assert_eq!(error.lines().next(), Some(format!("ERROR: <input>:{reason}").as_str()), "{expression}");
        }
    }

    #[test]
    fn cost_is_estimated_for_the_largest_object() {
        let schema = json!({"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 20},
            "open": {"type": "array", "items": {"type": "string"}},
            "s": {"type": "string", "maxLength": 256},
            "a": {"type": "integer"},
        }});
        let cost = |text: &str| check(text, schema.as_object().unwrap(), false, false).unwrap().cost;
        // Select and name, and the pattern's eight characters times the text's.
        assert_eq!(cost("self.s.matches('^[a-z]+$')"), 2 + 103 * 2);
        assert_eq!(cost("self.a < 10"), 3);
        assert_eq!(cost("self.s.contains('x')"), 2 + 103);
        assert!(cost("self.l.all(x, self.l.exists_one(y, x == y))") < 10_000);
        assert!(cost("self.open.all(x, self.open.exists_one(y, x == y))") > 1_000_000_000);
        assert!(cost("'a is ' + string(self.a)") > u64::MAX / 11);
    }
}
