//! Controller revisions, whose data is immutable.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, NONE, Row, View};
use crate::kinds::subresource::Part;
use crate::kinds::workload;
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ControllerRevision", "controllerrevisions")
    .printed(COLUMNS, row)
    .checks(Checks::Whole)
    .validate(validate);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Controller", "Controller of the object"),
    Heading::text("Revision", "Revision indicates the revision of the state represented by Data."),
    Heading::AGE,
];

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let mut errors = workload::not_negative(&root, &["revision"]);
    let data = root.at("data");
    match old {
        None if !data.is_set() => errors.push(data.required("data is mandatory")),
        None if !data.value().is_object() => errors.push(data.required("data must be a valid JSON object")),
        None => {}
        Some(old) => {
            let before = Field::root(old);
            errors.extend(data.unchanged_from(&before.at("data")));
        }
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let controller = view.object.owner_references().find(|owner| owner.controller);
    let controller = controller.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let group = owner.api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{}{group}/{}", owner.kind.to_lowercase(), owner.name)
        },
    );
    Row::from([view.name(), controller.into(), view.int("revision").into(), view.age()])
}
