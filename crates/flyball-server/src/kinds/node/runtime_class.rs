//! Runtime classes.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::pod_spec;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{label, resource};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::dns_label;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "RuntimeClass", "runtimeclasses")
    .printed(COLUMNS, row)
    .validate(validate)
    .checks(Checks::Whole)
    .cluster()
    .create_on_update()
    .versioned_updates();

const COLUMNS: &[Heading] = &[Heading::NAME, Heading::text("Handler", ""), Heading::AGE];

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let handler = root.at("handler");
    match old {
        Some(old) => {
            let before = Field::root(old);
            handler.unchanged_from(&before.at("handler")).into_iter().collect()
        }
        None => {
            let mut errors = handler.must_obey(dns_label);
            let amounts = root.at("overhead.podFixed");
            let overhead = root.at("overhead");
            let shown = overhead.at_as("podFixed", "limits");
            for (name, amount) in amounts.value().as_object().into_iter().flatten() {
                let at = shown.key(name);
                errors.extend(resource::amount_for(&Field::new(*at.path(), amount), name));
            }
            let scheduling = root.at("scheduling");
            errors.extend(label::labels(&scheduling.at("nodeSelector")));
            errors.extend(pod_spec::tolerations(&scheduling.at("tolerations")));
            errors
        }
    }
}

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("handler").into(), view.age()])
}
