//! Finds what is wrong with an expression before it runs: fields that the schema does not have, operators that do not
//! take such values, functions that do not exist.
//!
//! What is not known for sure passes: an expression is refused only for what the real server refuses too.

use super::places::Places;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// A schema as a CRD writes it.
type Schema = Map<String, Value>;

/// The type of a value that an expression works with.
#[derive(Clone, Debug)]
pub enum Type<'s> {
    /// Any, as far as is known.
    Dyn,
    /// A type that is told by its name alone.
    Plain(&'static str),
    /// A list of such values.
    List(Arc<Type<'s>>),
    /// A map from such keys to such values.
    Map(Arc<Type<'s>>, Arc<Type<'s>>),
    /// An object of a schema; a whole object has metadata besides.
    Object {
        /// What its fields are.
        schema: &'s Schema,
        /// Whether it has apiVersion, kind and metadata.
        whole: bool,
    },
    /// What rules see of an object's metadata: its name.
    Metadata,
}

/// Checks what comes of an expression about values of a schema; `Err` says all that is wrong with it, as `cel-go` does.
pub fn check<'s>(text: &str, schema: &'s Schema, whole: bool, optional_old: bool) -> Result<Type<'s>, String> {
    let program = super::compile(text)?;
    let own = Type::of(schema, whole);
    let old = if optional_old { Type::Dyn } else { own.clone() };
    let scope = vec![("self".into(), own), ("oldSelf".into(), old)];
    let mut checker = Checker { scope, places: Places::of(text), errors: Vec::new() };
    let found = checker.visit(program.expression());
    checker.errors.sort();
    let shown: Vec<String> = checker.errors.iter().map(|(at, why)| point_at(text, *at, why)).collect();
    if shown.is_empty() { Ok(found) } else { Err(shown.join("\n")) }
}

/// Checks an expression about variables of which no more is known than their names.
pub fn check_among(text: &str, variables: &[&str]) -> Result<Type<'static>, String> {
    let program = super::compile(text)?;
    let scope = variables.iter().map(|name| ((*name).to_owned(), Type::Dyn)).collect();
    let mut checker = Checker { scope, places: Places::of(text), errors: Vec::new() };
    let found = checker.visit(program.expression());
    checker.errors.sort();
    let shown: Vec<String> = checker.errors.iter().map(|(at, why)| point_at(text, *at, why)).collect();
    if shown.is_empty() { Ok(found) } else { Err(shown.join("\n")) }
}

/// Shows where in a text something is wrong.
fn point_at(source: &str, at: usize, why: &str) -> String {
    let before: String = source.char_indices().take_while(|(i, _)| *i < at).map(|(_, c)| c).collect();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let text = source.lines().nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{}: {why}\n | {text}\n | {}^", line + 1, column + 1, ".".repeat(column))
}

const BOOL: Type<'_> = Type::Plain("bool");
const INT: Type<'_> = Type::Plain("int");
const UINT: Type<'_> = Type::Plain("uint");
const DOUBLE: Type<'_> = Type::Plain("double");
const STRING: Type<'_> = Type::Plain("string");
const BYTES: Type<'_> = Type::Plain("bytes");
const TIMESTAMP: Type<'_> = Type::Plain("timestamp");
const DURATION: Type<'_> = Type::Plain("duration");
const TYPE: Type<'_> = Type::Plain("type");
const NULL: Type<'_> = Type::Plain("null");

impl<'s> Type<'s> {
    fn of(schema: &'s Schema, whole: bool) -> Self {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        if flag("x-kubernetes-int-or-string") {
            return Self::Dyn;
        }
        let inner = |name: &str| schema.get(name).and_then(Value::as_object);
        match (text("type"), text("format")) {
            ("array", _) => Self::List(inner("items").map_or(Self::Dyn, Self::part).into()),
            ("object", _) => match inner("additionalProperties") {
                Some(values) => Self::Map(STRING.into(), Self::part(values).into()),
                None => Self::Object { schema, whole },
            },
            ("string", "byte") => BYTES,
            ("string", "duration") => DURATION,
            ("string", "date" | "date-time") => TIMESTAMP,
            ("string", _) => STRING,
            ("boolean", _) => BOOL,
            ("number", _) => DOUBLE,
            ("integer", _) => INT,
            _ => Self::Dyn,
        }
    }

    fn part(schema: &'s Schema) -> Self {
        Self::of(schema, schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)))
    }

    /// Tells whether this is known to be a type of this name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Self::Plain(known) if *known == name)
    }

    /// Tells whether nothing is known.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    /// Tells whether one may stand where the other is wanted.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (null, other) | (other, null) if null.is("null") => other.takes_null(),
            (Self::Plain(a), Self::Plain(b)) => a == b,
            (Self::List(a), Self::List(b)) => a.fits(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.fits(c) && b.fits(d),
            (Self::Object { .. } | Self::Map(..), Self::Object { .. } | Self::Map(..)) => true,
            _ => false,
        }
    }

    /// Tells whether null may stand for a value: never for one of a plain type.
    fn takes_null(&self) -> bool {
        match self {
            Self::Plain(name) => !["bool", "bytes", "double", "int", "string", "type", "uint"].contains(name),
            Self::List(_) | Self::Map(..) => false,
            Self::Object { .. } | Self::Metadata | Self::Dyn => true,
        }
    }

    fn join(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Dyn, _) => other,
            (Self::List(items), _) if items.is_dyn() => other,
            _ => self,
        }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Plain(name) => f.write_str(name),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(keys, values) => write!(f, "map({keys}, {values})"),
            Self::Object { .. } | Self::Metadata => f.write_str("object"),
        }
    }
}

/// Names that stand before functions, not for values.
const NAMESPACES: [&str; 11] =
    ["base64", "cidr", "format", "ip", "jsonpatch", "lists", "math", "optional", "regex", "sets", "strings"];

struct Checker<'s> {
    scope: Vec<(String, Type<'s>)>,
    places: Places,
    errors: Vec<(usize, String)>,
}

impl<'s> Checker<'s> {
    fn wrong(&mut self, at: usize, why: String) -> Type<'s> {
        self.errors.push((at, why));
        Type::Dyn
    }

    fn known(&self, name: &str) -> Option<Type<'s>> {
        self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty.clone())
    }

    fn visit(&mut self, at: &IdedExpr) -> Type<'s> {
        match &at.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => BOOL,
                LiteralValue::Bytes(_) => BYTES,
                LiteralValue::Double(_) => DOUBLE,
                LiteralValue::Int(_) => INT,
                LiteralValue::Null => NULL,
                LiteralValue::String(_) => STRING,
                LiteralValue::UInt(_) => UINT,
            },
            Expr::Ident(name) => {
                let place = self.places.next(name);
                match self.known(name) {
                    Some(ty) => ty,
                    None if super::types::NAMES.contains(&name.as_str()) || name.contains(['@', '#', '.']) => TYPE,
                    None => self.wrong(place, format!("undeclared reference to '{name}' (in container '')")),
                }
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(inner) => self.comprehension(inner),
            Expr::List(list) => {
                let types: Vec<Type<'s>> = list.elements.iter().map(|item| self.visit(item)).collect();
                Type::List(common(types).into())
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.visit(&entry.key));
                        values.push(self.visit(&entry.value));
                    }
                }
                Type::Map(common(keys).into(), common(values).into())
            }
            Expr::Struct(_) | Expr::Unspecified => Type::Dyn,
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Type<'s> {
        if let Expr::Ident(name) = &select.operand.expr
            && self.known(name).is_none()
            && (NAMESPACES.contains(&name.as_str()) || name == "google")
        {
            return Type::Dyn;
        }
        let operand = self.visit(&select.operand);
        let mut place = self.places.next(&format!(".{}", select.field));
        if select.test {
            place = self.places.next("has(");
        }
        let found = match &operand {
            Type::Object { schema, whole } => match field(schema, *whole, &select.field) {
                Some(ty) => ty,
                None => self.wrong(place, format!("undefined field '{}'", select.field)),
            },
            Type::Metadata if matches!(select.field.as_str(), "name" | "generateName") => STRING,
            Type::Metadata => self.wrong(place, format!("undefined field '{}'", select.field)),
            Type::Map(_, values) => (**values).clone(),
            Type::Plain("bool" | "int" | "uint" | "double" | "string" | "bytes") | Type::List(_) => {
                self.wrong(place, format!("type '{operand}' does not support field selection"))
            }
            Type::Plain(_) | Type::Dyn => Type::Dyn,
        };
        if select.test { BOOL } else { found }
    }

    fn comprehension(&mut self, of: &ComprehensionExpr) -> Type<'s> {
        let (first, second) = match self.visit(&of.iter_range) {
            Type::List(items) if of.iter_var2.is_some() => (INT, (*items).clone()),
            Type::List(items) => ((*items).clone(), Type::Dyn),
            Type::Map(keys, values) => ((*keys).clone(), (*values).clone()),
            Type::Object { .. } | Type::Metadata => (STRING, Type::Dyn),
            Type::Dyn | Type::Plain(_) => (Type::Dyn, Type::Dyn),
        };
        let begin = self.visit(&of.accu_init);
        let depth = self.scope.len();
        self.scope.push((of.accu_var.clone(), begin.clone()));
        self.scope.push((of.iter_var.clone(), first));
        self.scope.extend(of.iter_var2.clone().map(|name| (name, second)));
        self.visit(&of.loop_cond);
        let step = self.visit(&of.loop_step);
        self.scope.truncate(depth);
        self.scope.push((of.accu_var.clone(), begin.join(step)));
        let result = self.visit(&of.result);
        self.scope.truncate(depth);
        result
    }

    fn call(&mut self, call: &CallExpr) -> Type<'s> {
        let name = call.func_name.as_str();
        let is_operator = call.target.is_none() && name.starts_with(|c: char| !c.is_ascii_alphabetic());
        let namespaced = call.target.as_ref().is_some_and(|target| match &target.expr {
            Expr::Ident(name) => self.known(name).is_none() && NAMESPACES.contains(&name.as_str()),
            _ => false,
        });
        // In the order of the text: an operator stands after its first operand, a function before its arguments.
        let (before, after) = call.args.split_at(usize::from(is_operator).min(call.args.len()));
        let target = call.target.as_ref().filter(|_| !namespaced).map(|target| self.visit(target));
        let mut arguments: Vec<Type<'s>> = before.iter().map(|argument| self.visit(argument)).collect();
        // What a macro made stands nowhere.
        let made = call.args.iter().any(|argument| matches!(&argument.expr, Expr::Ident(name) if is_accumulator(name)));
        let place = match is_operator {
            _ if made => 0,
            true => self.places.next(name),
            false => self.places.next(&format!("{name}(")),
        };
        arguments.extend(after.iter().map(|argument| self.visit(argument)));
        if namespaced {
            return Type::Dyn;
        }
        if name.starts_with('@') && name != "@in" || name.contains("?._") || name.contains("[?") {
            return if name == "@not_strictly_false" { BOOL } else { Type::Dyn };
        }
        let found = match &target {
            None if is_operator => operator(name, &arguments),
            _ if !is_function(name) => {
                return self.wrong(place, format!("undeclared reference to '{name}' (in container '')"));
            }
            Some(target) => method(name, target, &arguments),
            None => function(name, &arguments),
        };
        found.unwrap_or_else(|| {
            let list: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let target = target.map_or_else(String::new, |target| format!("{target}."));
            self.wrong(
                place,
                format!("found no matching overload for '{name}' applied to '{target}({})'", list.join(", ")),
            )
        })
    }
}

/// Tells the name under which a macro gathers its result.
fn is_accumulator(name: &str) -> bool {
    matches!(name, "@result" | "__result__")
}

fn common(types: Vec<Type<'_>>) -> Type<'_> {
    let mut types = types.into_iter();
    let first = types.next().unwrap_or(Type::Dyn);
    types.fold(first, |known, next| if known.fits(&next) { known.join(next) } else { Type::Dyn })
}

/// Returns the type of a field, by its name as expressions write it.
fn field<'s>(schema: &'s Schema, whole: bool, name: &str) -> Option<Type<'s>> {
    if whole && matches!(name, "apiVersion" | "kind") {
        return Some(STRING);
    }
    if whole && name == "metadata" {
        return Some(Type::Metadata);
    }
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let reserved =
        name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__")).filter(|bare| super::RESERVED.contains(bare));
    let (_, found) = properties.iter().find(|(own, _)| super::escape(own) == name || reserved == Some(own.as_str()))?;
    found.as_object().map(Type::part)
}

/// Returns what comes of an operator; `None` if it does not take such values.
fn operator<'s>(name: &str, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    let (a, b) = match arguments {
        [a] => {
            let taken: &[&str] = if name == "!_" { &["bool"] } else { &["int", "double"] };
            return (a.is_dyn() || taken.iter().any(|ty| a.is(ty))).then(|| a.clone());
        }
        [a, b] => (a, b),
        [condition, a, b] => {
            return ((condition.is_dyn() || condition.is("bool")) && a.fits(b)).then(|| a.clone().join(b.clone()));
        }
        _ => return Some(Type::Dyn),
    };
    let unknown = a.is_dyn() || b.is_dyn();
    let same = |names: &[&str]| names.iter().any(|ty| a.is(ty) && b.is(ty));
    match name {
        "_==_" | "_!=_" => a.fits(b).then_some(BOOL),
        "_&&_" | "_||_" => [a, b].iter().all(|ty| ty.is_dyn() || ty.is("bool")).then_some(BOOL),
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            let number = |ty: &Type<'_>| ["int", "uint", "double"].iter().any(|name| ty.is(name));
            let ordered = same(&["bool", "string", "bytes", "timestamp", "duration"]) || number(a) && number(b);
            (unknown || ordered).then_some(BOOL)
        }
        "@in" => match b {
            Type::List(items) => a.fits(items).then_some(BOOL),
            Type::Map(keys, _) => a.fits(keys).then_some(BOOL),
            Type::Dyn | Type::Object { .. } | Type::Metadata => Some(BOOL),
            Type::Plain(_) => None,
        },
        "_[_]" => match a {
            Type::List(items) => (b.is_dyn() || b.is("int")).then(|| (**items).clone()),
            Type::Map(keys, values) => b.fits(keys).then(|| (**values).clone()),
            Type::Dyn => Some(Type::Dyn),
            Type::Object { .. } | Type::Metadata | Type::Plain(_) => None,
        },
        _ if unknown => Some(Type::Dyn),
        "_+_" if same(&["string", "bytes", "duration"]) => Some(a.clone()),
        "_+_" if a.is("timestamp") && b.is("duration") || a.is("duration") && b.is("timestamp") => Some(TIMESTAMP),
        "_+_" if matches!((a, b), (Type::List(_), Type::List(_))) => a.fits(b).then(|| a.clone().join(b.clone())),
        "_-_" if same(&["duration", "timestamp"]) => Some(DURATION),
        "_-_" if a.is("timestamp") && b.is("duration") => Some(TIMESTAMP),
        "_%_" => same(&["int", "uint"]).then(|| a.clone()),
        _ => same(&["int", "uint", "double"]).then(|| a.clone()),
    }
}

/// What a function makes of a value that it is called on; `None` if it cannot be called on it.
fn method<'s>(name: &str, target: &Type<'s>, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    let text = matches!(
        name,
        "charAt"
            | "contains"
            | "endsWith"
            | "find"
            | "findAll"
            | "lowerAscii"
            | "matches"
            | "replace"
            | "split"
            | "startsWith"
            | "substring"
            | "trim"
            | "upperAscii"
    );
    if text && !target.is_dyn() && !target.is("string") {
        return None;
    }
    let of_text =
        matches!(name, "contains" | "endsWith" | "find" | "findAll" | "matches" | "replace" | "split" | "startsWith");
    if of_text && arguments.first().is_none_or(|first| !first.is_dyn() && !first.is("string"))
        || name == "size" && !arguments.is_empty()
    {
        return None;
    }
    let counted = matches!(name, "size" | "indexOf" | "lastIndexOf");
    if counted && ["bool", "int", "uint", "double"].iter().any(|ty| target.is(ty)) {
        return None;
    }
    Some(match name {
        "add" | "sub" => target.clone(),
        _ => result(name),
    })
}

/// What a function makes of its arguments; `None` if it does not take them.
fn function<'s>(name: &str, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    let lengthless = |ty: &Type<'_>| ["bool", "int", "uint", "double"].iter().any(|name| ty.is(name));
    (name != "size" || !arguments.iter().any(lengthless)).then(|| result(name))
}

/// The functions whose results are known by their names; those of others depend on what they are given.
fn result<'s>(name: &str) -> Type<'s> {
    match name {
        "bool"
        | "contains"
        | "containsCIDR"
        | "containsIP"
        | "endsWith"
        | "hasValue"
        | "isCIDR"
        | "isGlobalUnicast"
        | "isGreaterThan"
        | "isIP"
        | "isInteger"
        | "isLessThan"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isLoopback"
        | "isQuantity"
        | "isSemver"
        | "isSorted"
        | "isURL"
        | "isUnspecified"
        | "matches"
        | "startsWith" => BOOL,
        "asInteger" | "compareTo" | "family" | "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear"
        | "getFullYear" | "getHours" | "getMilliseconds" | "getMinutes" | "getMonth" | "getSeconds" | "indexOf"
        | "int" | "lastIndexOf" | "major" | "minor" | "patch" | "prefixLength" | "sign" | "size" => INT,
        "charAt" | "find" | "getEscapedPath" | "getHost" | "getHostname" | "getPort" | "getScheme" | "join"
        | "lowerAscii" | "replace" | "string" | "substring" | "trim" | "upperAscii" => STRING,
        "asApproximateFloat" | "double" => DOUBLE,
        "uint" => UINT,
        "bytes" => BYTES,
        "timestamp" => TIMESTAMP,
        "duration" => DURATION,
        "type" => TYPE,
        "quantity" => Type::Plain("kubernetes.Quantity"),
        "url" => Type::Plain("kubernetes.URL"),
        "semver" => Type::Plain("kubernetes.Semver"),
        "cidr" | "masked" => Type::Plain("net.CIDR"),
        "ip" => Type::Plain("net.IP"),
        "findAll" | "split" => Type::List(STRING.into()),
        _ => Type::Dyn,
    }
}

/// Tells whether a function exists at all, whatever it takes.
fn is_function(name: &str) -> bool {
    const OTHERS: [&str; 46] = [
        "allowed",
        "all",
        "check",
        "distinct",
        "dyn",
        "error",
        "errored",
        "exists",
        "existsOne",
        "exists_one",
        "fieldSelector",
        "filter",
        "first",
        "flatten",
        "format",
        "getQuery",
        "group",
        "has",
        "labelSelector",
        "last",
        "map",
        "max",
        "min",
        "name",
        "namespace",
        "optFlatMap",
        "optMap",
        "or",
        "orValue",
        "path",
        "range",
        "reason",
        "resource",
        "reverse",
        "serviceAccount",
        "slice",
        "sort",
        "sortBy",
        "subresource",
        "sum",
        "transformList",
        "transformMap",
        "transformMapEntry",
        "unwrap",
        "validate",
        "value",
    ];
    matches!(name, "add" | "sub" | "unwrapOpt" | "none" | "of" | "ofNonZeroValue" | "named")
        || OTHERS.contains(&name)
        || !result(name).is_dyn()
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
        check(expression, schema.as_object().unwrap(), false, false).map(|found| found.to_string())
    }

    #[test]
    fn what_fits_passes() {
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
            ("math.greatest(self.a, 3) == 3", "bool"),
            ("self.l[0].n + string(self.a)", "string"),
            ("self == oldSelf", "bool"),
        ];
        for (expression, ty) in cases {
            assert_eq!(checked(expression), Ok(ty.to_owned()), "{expression}");
        }
    }

    #[test]
    fn what_does_not_fit_is_pointed_at() {
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
            ("self.a ? 1 : 2", "1:8: found no matching overload for '_?_:_' applied to '(int, int, int)'"),
            ("self.a == null", "1:8: found no matching overload for '_==_' applied to '(int, null)'"),
            ("self.s.startsWith(1)", "1:18: found no matching overload for 'startsWith' applied to 'string.(int)'"),
            ("self.a in ['x']", "1:8: found no matching overload for '@in' applied to '(int, list(string))'"),
        ];
        for (expression, why) in cases {
            let error = checked(expression).expect_err(expression);
            assert_eq!(error.lines().next(), Some(format!("ERROR: <input>:{why}").as_str()), "{expression}");
        }
    }
}
