//! Result types of functions and operators.

use super::typing::{BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, TYPE, Type, UINT};

/// Namespaces of functions, whose names are reserved.
pub(super) const NAMESPACES: [&str; 10] =
    ["base64", "cidr", "format", "ip", "jsonpatch", "lists", "optional", "regex", "sets", "strings"];

/// Returns the result type of an operator; `None` if it does not accept the operands.
pub(super) fn operator<'s>(name: &str, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    let (a, b) = match arguments {
        [a] if name == "!_" => return (a.is_dyn() || a.is("bool")).then_some(BOOL),
        [a] => return (a.is_dyn() || a.is("int") || a.is("double")).then(|| a.clone()),
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
            Type::Dyn | Type::Object { .. } | Type::Metadata | Type::Fields(_) => Some(BOOL),
            Type::Plain(_) | Type::Optional(_) => None,
        },
        "_[_]" => entry(a, b),
        _ if unknown => {
            if a.is_dyn() {
                beside_unknown(name, b, false)
            } else {
                beside_unknown(name, a, true)
            }
        }
        "_+_" if same(&["string", "bytes", "duration"]) => Some(a.clone()),
        "_+_" if a.is("timestamp") && b.is("duration") || a.is("duration") && b.is("timestamp") => Some(TIMESTAMP),
        "_+_" if matches!((a, b), (Type::List(_), Type::List(_))) => a.fits(b).then(|| a.clone().join(b.clone())),
        "_-_" if same(&["duration", "timestamp"]) => Some(DURATION),
        "_-_" if a.is("timestamp") && b.is("duration") => Some(TIMESTAMP),
        "_%_" => same(&["int", "uint"]).then(|| a.clone()),
        _ => same(&["int", "uint", "double"]).then(|| a.clone()),
    }
}

/// Returns the type of the entry at an index or key; `None` if indexing is not possible.
pub(super) fn entry<'s>(of: &Type<'s>, at: &Type<'s>) -> Option<Type<'s>> {
    match of {
        Type::List(items) => (at.is_dyn() || at.is("int")).then(|| (**items).clone()),
        Type::Map(keys, values) => at.fits(keys).then(|| (**values).clone()),
        Type::Optional(inner) => entry(inner, at).map(Type::optional),
        Type::Dyn => Some(Type::Dyn),
        Type::Object { .. } | Type::Metadata | Type::Fields(_) | Type::Plain(_) => None,
    }
}

/// Returns the result type of arithmetic with an unknown operand: it is known if only one overload accepts the other
/// one.
fn beside_unknown<'s>(name: &str, known: &Type<'s>, is_first: bool) -> Option<Type<'s>> {
    match (name, known) {
        (_, Type::Dyn) => Some(Type::Dyn),
        ("_+_", Type::Plain("string" | "bytes" | "timestamp") | Type::List(_)) => Some(known.clone()),
        ("_-_", Type::Plain("timestamp")) => Some(if is_first { Type::Dyn } else { DURATION }),
        ("_-_", Type::Plain("duration")) => Some(if is_first { DURATION } else { Type::Dyn }),
        ("_+_", Type::Plain("duration")) => Some(Type::Dyn),
        (_, Type::Plain("int" | "uint")) => Some(known.clone()),
        (_, Type::Plain("double")) => (name != "_%_").then_some(DOUBLE),
        _ => None,
    }
}

/// Returns the result type of a function of a namespace, such as `sets.contains`.
pub(super) fn in_namespace<'s>(namespace: &str, name: &str, arguments: &[Type<'s>]) -> Type<'s> {
    match (namespace, name) {
        ("optional", _) => arguments.first().cloned().map_or(Type::Dyn.optional(), |of| Type::Optional(of.into())),
        ("sets", _) | ("ip", "isCanonical") => BOOL,
        ("strings", "quote") => STRING,
        ("lists", "range") => Type::List(INT.into()),
        _ => Type::Dyn,
    }
}

/// Returns the result type of a method; `None` if the target has no such method.
pub(super) fn method<'s>(name: &str, target: &Type<'s>, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    if super::authorizer::is_own(target) {
        return super::authorizer::method(name, target, arguments);
    }
    if let Type::Optional(inner) = target {
        return match (name, arguments) {
            ("hasValue", []) => Some(BOOL),
            ("value", []) => Some((**inner).clone()),
            ("orValue", [other]) => inner.fits(other).then(|| (**inner).clone().join(other.clone())),
            ("or", [other]) => target.fits(other).then(|| target.clone().join(other.clone())),
            _ => None,
        };
    }
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
    if name == "reverse" && !target.is_dyn() && !matches!(target, Type::List(_)) {
        return None;
    }
    let counted = matches!(name, "size" | "indexOf" | "lastIndexOf");
    if counted && ["bool", "int", "uint", "double"].iter().any(|ty| target.is(ty)) {
        return None;
    }
    Some(match (name, target) {
        ("add" | "sub", _) | ("distinct" | "reverse" | "slice" | "sort" | "sortBy", Type::List(_)) => target.clone(),
        ("max" | "min" | "sum", Type::List(items)) => (**items).clone(),
        ("first" | "last", Type::List(items)) => (**items).clone().optional(),
        ("or" | "orValue", Type::Dyn) => arguments.first().cloned().unwrap_or(Type::Dyn),
        _ => result(name),
    })
}

/// Returns the result type of a function; `None` if it does not accept the arguments.
pub(super) fn function<'s>(name: &str, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    let lengthless = |ty: &Type<'_>| ["bool", "int", "uint", "double"].iter().any(|name| ty.is(name));
    (name != "size" || !arguments.iter().any(lengthless)).then(|| result(name))
}

/// Returns the result type of a function whose result does not depend on its arguments.
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
        "charAt" | "find" | "format" | "getEscapedPath" | "getHost" | "getHostname" | "getPort" | "getScheme"
        | "join" | "lowerAscii" | "replace" | "string" | "substring" | "trim" | "upperAscii" => STRING,
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

/// Returns true if a function with this name exists.
pub(super) fn is_function(name: &str) -> bool {
    const OTHERS: [&str; 45] = [
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
