//! Semantic versions.

use super::{STR, Table, cost, text};
use crate::semver::{Constraints, Version};
use crate::template::object::Object;
use crate::template::value::Value;

pub(super) fn add(table: &mut Table) {
    table.add("semver", cost::deep, &[STR], |_, args| {
        Version::parse(&text(&args[0])).map(|version| Value::object(Object::Version(version)))
    });
    table.add("semverCompare", cost::deep, &[STR, STR], |_, args| {
        let constraints = Constraints::parse(&text(&args[0]))?;
        Ok(Value::Bool(constraints.allow(&Version::parse(&text(&args[1]))?)))
    });
}
