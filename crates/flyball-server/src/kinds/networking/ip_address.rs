//! IP addresses, which are created only by clients: services allocate addresses without them.

use super::GROUP;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, NONE, Row, View, text};

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "IPAddress", "ipaddresses").printed(COLUMNS, row).short(&["ip"]).cluster();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "ParentRef",
        "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent \
         object.",
    ),
];

/// The last cell, the age, has no column.
fn row(view: &View<'_>) -> Row {
    let parent = view.at("spec.parentRef");
    let mut name = NONE.to_owned();
    if !parent.is_null() {
        let group = Some(text(parent, "group")).filter(|group| !group.is_empty());
        name = text(parent, "resource").to_lowercase()
            + &group.map_or(String::new(), |group| format!(".{}", group.to_lowercase()));
        for step in [text(parent, "namespace"), text(parent, "name")] {
            if !step.is_empty() {
                name += &format!("/{step}");
            }
        }
    }
    Row::from([view.name(), name.into(), view.age()])
}
