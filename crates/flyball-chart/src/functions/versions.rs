//! Semantic versions.

use super::{STR, Table, cost, text};
use crate::semver::{Constraints, Version};
use crate::value::Value;
use crate::value::object::Object;

pub(super) fn add(table: &mut Table) {
    table.add("semver", cost::letters, &[STR], |_, args| {
        Version::parse(&text(&args[0])).map(|version| Value::object(Object::Version(version)))
    });
    table.add("semverCompare", cost::letters, &[STR, STR], |call, args| {
        // Each condition is parsed several times.
        call.context.charge(text(&args[0]).len() * 2, 0)?;
        let constraints = Constraints::parse(&text(&args[0])).map_err(|error| error.message(call.context.helm))?;
        Ok(Value::Bool(constraints.allow(&Version::parse(&text(&args[1]))?)))
    });
}
