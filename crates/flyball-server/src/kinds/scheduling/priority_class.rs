//! Priority classes.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use flyball_core::field::FieldError;
use flyball_core::{Clock, Object};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "PriorityClass", "priorityclasses")
    .printed(COLUMNS, row)
    .default(default)
    .prepare(prepare)
    .validate(validate)
    .short(&["pc"])
    .cluster();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number(
        "Value",
        "value represents the integer value of this priority class. This is the actual priority that pods receive \
         when they have the name of this class in their pod spec.",
    ),
    Heading::flag(
        "Global-Default",
        "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods \
         that do not have any priority class. Only one PriorityClass can be marked as `globalDefault`. However, if \
         more than one PriorityClasses exists with their `globalDefault` field set to true, the smallest value of \
         such global default PriorityClasses will be used as the default priority.",
    ),
    Heading::AGE,
    Heading::text(
        "PreemptionPolicy",
        "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. \
         Defaults to PreemptLowerPriority if unset.",
    ),
];

fn default(class: &mut Object) {
    class.fill("preemptionPolicy", "PreemptLowerPriority");
}

/// Sets the generation of a new object; it is never incremented.
fn prepare(class: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    if old.is_none() {
        class.metadata_mut().insert("generation".into(), 1.into());
    }
}

/// Maximum priority of user-defined classes.
const MAX_USER_DEFINABLE_PRIORITY: i64 = 1_000_000_000;

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let (value, policy) = (root.at("value"), root.at("preemptionPolicy"));
    let mut errors = Errors::new();
    if let Some(old) = old {
        let before = Field::root(old);
        if value.int() != before.at("value").int() {
            errors.push(value.forbidden("may not be changed in an update."));
        }
        errors.extend(policy.unchanged_from(&before.at("preemptionPolicy")));
        return errors;
    }
    if object.name().starts_with("system-") {
        let why = match (object.name(), value.int()) {
            ("system-node-critical", 2_000_001_000) | ("system-cluster-critical", 2_000_000_000) => None,
            ("system-node-critical", _) => {
                Some("value of system-node-critical PriorityClass must be 2000001000".to_owned())
            }
            ("system-cluster-critical", _) => {
                Some("value of system-cluster-critical PriorityClass must be 2000000000".to_owned())
            }
            (name, _) => Some(format!("{name} is not a known system priority class")),
        };
        if let Some(why) = why {
            let text =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(FieldError::forbidden("metadata.name", text));
        }
    } else if value.int() > MAX_USER_DEFINABLE_PRIORITY {
        errors.push(
            value.forbidden(format!(
                "maximum allowed value of a user defined priority is {MAX_USER_DEFINABLE_PRIORITY}"
            )),
        );
    }
    errors.extend(policy.may_be_one_of(&["PreemptLowerPriority", "Never"]));
    errors
}

fn row(view: &View<'_>) -> Row {
    let policy = view.text("preemptionPolicy").into();
    Row::from([view.name(), view.int("value").into(), view.flag("globalDefault").into(), view.age(), policy])
}
