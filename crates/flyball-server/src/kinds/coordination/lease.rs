//! Leases.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use flyball_core::{Clock, Object};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Lease", "leases")
    .printed(COLUMNS, row)
    .prepare(prepare)
    .validate(validate)
    .create_on_update()
    .versioned_updates();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Holder",
        "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is \
         used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.",
    ),
    Heading::AGE,
];

/// Drops the fields of coordinated leader election, which is behind a disabled feature gate.
fn prepare(lease: &mut Object, _: Option<&Object>, _: Part, _: &Clock) {
    if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let seconds = spec.at("leaseDurationSeconds");
    if seconds.int_if_set().is_some_and(|seconds| seconds <= 0) {
        errors.push(seconds.invalid("must be greater than 0"));
    }
    errors.extend(spec.at("leaseTransitions").not_negative());
    errors
}

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("spec.holderIdentity").into(), view.age()])
}
