//! Methods of semantic versions.

use super::{Method, MethodBody, Object, uint64};
use crate::semver::Version;
use crate::value::{Type, Value};
use std::cmp::Ordering;

/// Finds a method of a version.
pub(super) fn method(name: &str) -> Option<Method> {
    fn this(object: &Object) -> &Version {
        match object {
            Object::Version(version) => version,
            _ => unreachable!("the method was found on a version"),
        }
    }
    fn other(args: &[Value]) -> Result<&Version, String> {
        match args.first() {
            Some(Value::Object(object)) => match object.as_ref() {
                Object::Version(version) => Ok(version),
                _ => Err("not a version".to_owned()),
            },
            _ => Err("runtime error: invalid memory address or nil pointer dereference".to_owned()),
        }
    }
    fn order(object: &Object, args: &[Value]) -> Result<Ordering, String> {
        Ok(this(object).cmp(other(args)?))
    }
    const NONE: &[Type] = &[];
    const ONE: &[Type] = &[Type::Object("*semver.Version")];
    let (params, call): (_, MethodBody) = match name {
        "Major" => (NONE, |object, _| Ok(uint64(this(object).major))),
        "Minor" => (NONE, |object, _| Ok(uint64(this(object).minor))),
        "Patch" => (NONE, |object, _| Ok(uint64(this(object).patch))),
        "Prerelease" => (NONE, |object, _| Ok(Value::str(&this(object).pre))),
        "Metadata" => (NONE, |object, _| Ok(Value::str(&this(object).metadata))),
        "Original" => (NONE, |object, _| Ok(Value::str(&this(object).original))),
        "IncMajor" => (NONE, |object, _| {
            let version = this(object);
            Ok(Value::object(Object::Version(version.with_numbers(version.major + 1, 0, 0))))
        }),
        "IncMinor" => (NONE, |object, _| {
            let version = this(object);
            Ok(Value::object(Object::Version(version.with_numbers(version.major, version.minor + 1, 0))))
        }),
        "IncPatch" => (NONE, |object, _| {
            let version = this(object);
            // The successor of a pre-release is the version itself.
            let step = u64::from(version.pre.is_empty());
            Ok(Value::object(Object::Version(version.with_numbers(version.major, version.minor, version.patch + step))))
        }),
        "Compare" => (ONE, |object, args| Ok(Value::int(order(object, args)? as i64))),
        "LessThan" => (ONE, |object, args| Ok(Value::Bool(order(object, args)?.is_lt()))),
        "LessThanEqual" => (ONE, |object, args| Ok(Value::Bool(order(object, args)?.is_le()))),
        "GreaterThan" => (ONE, |object, args| Ok(Value::Bool(order(object, args)?.is_gt()))),
        "GreaterThanEqual" => (ONE, |object, args| Ok(Value::Bool(order(object, args)?.is_ge()))),
        "Equal" => (ONE, |object, args| Ok(Value::Bool(order(object, args)?.is_eq()))),
        _ => return None,
    };
    Some(Method { params, call })
}
