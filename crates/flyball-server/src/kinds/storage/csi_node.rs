//! CSI nodes, which list the drivers on a node.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use std::collections::HashSet;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "CSINode", "csinodes")
    .printed(COLUMNS, row)
    .validate(validate)
    .cluster()
    .versioned_updates()
    .deleted_as_object();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
    Heading::AGE,
];

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let drivers = spec.at("drivers");
    let mut errors = Errors::new();
    let mut names = HashSet::new();
    for (driver, value) in drivers.items().zip(drivers.list()) {
        let (name, id, keys) = (driver.at("name"), driver.at("nodeID"), driver.at("topologyKeys"));
        errors.extend(name.must_be_set());
        errors.extend(id.must_be_set());
        errors.extend(driver.at("allocatable.count").not_negative());
        let mut seen = HashSet::new();
        let repeated = keys.list().iter().filter(|key| !seen.insert(*key));
        errors.extend(repeated.map(|key| driver.duplicate_of(key.clone())));
        if !name.is_empty() && !names.insert(&value["name"]) {
            errors.push(name.duplicate());
        }
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.list("spec.drivers").len().into(), view.age()])
}
