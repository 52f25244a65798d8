//! Devices that pods claim.

use super::{Row, View};

pub(crate) fn claim(view: &View<'_>) -> Row {
    let allocated = view.at("status.allocation").is_object();
    let states = [
        (view.is_deleted(), "deleted"),
        (!allocated && !view.is_deleted(), "pending"),
        (allocated, "allocated"),
        (allocated && !view.list("status.reservedFor").is_empty(), "reserved"),
    ];
    let states: Vec<&str> = states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect();
    Row::from([view.name(), states.join(",").into(), view.age()])
}

pub(crate) fn slice(view: &View<'_>) -> Row {
    let text = |path: &str| view.text(path).into();
    Row::from([view.name(), text("spec.nodeName"), text("spec.driver"), text("spec.pool.name"), view.age()])
}
