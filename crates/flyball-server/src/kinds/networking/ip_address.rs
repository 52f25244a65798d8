//! IP addresses, which are created only by clients: services allocate addresses without them.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, NONE, Row, View, text};
use crate::kinds::rules::address;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::field::Path;
use flyball_core::names::{dns_subdomain, path_segment};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "IPAddress", "ipaddresses")
    .name_rule(address_name)
    .printed(COLUMNS, row)
    .validate(validate)
    .short(&["ip"])
    .cluster();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "ParentRef",
        "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent \
         object.",
    ),
];

/// Validates a name that must be an address in canonical form.
fn address_name(name: &str) -> Vec<String> {
    let name = name.into();
    address::check_canonical(&Field::new(Path::ROOT, &name)).into_iter().map(|error| error.detail).collect()
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let parent = spec.at("parentRef");
    if let Some(old) = old {
        return parent.unchanged_from(&Field::root(old).at("spec.parentRef")).into_iter().collect();
    }
    if !parent.is_set() {
        return vec![parent.required("")];
    }
    let mut errors = parent.at("group").may_obey(dns_subdomain);
    errors.extend(parent.at("resource").must_obey(path_segment));
    errors.extend(parent.at("name").must_obey(path_segment));
    errors.extend(parent.at("namespace").may_obey(path_segment));
    errors
}

/// Returns the cells of a row. The last cell, the age, has no column.
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
