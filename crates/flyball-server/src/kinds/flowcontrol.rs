//! Kinds of `flowcontrol.apiserver.k8s.io`: configuration of API priority and fairness.
//!
//! They are stored and validated, but have no effect: `bounds` limits requests. See
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.

kinds! {
    mod flow_schema;
    mod priority_level_configuration;
}

mod bootstrap;

use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::Kind;
use flyball_core::field::FieldError;
use serde_json::Value;
use std::collections::HashSet;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Returns the initial objects of every cluster with their kinds.
pub(crate) fn objects() -> impl Iterator<Item = (&'static Kind, Value)> {
    let levels = bootstrap::levels().map(|level| (&priority_level_configuration::KIND, level));
    levels.chain(bootstrap::flow_schemas().map(|schema| (&flow_schema::KIND, schema)))
}

/// The names of the mandatory objects of both kinds.
const EXEMPT: &str = "exempt";

/// Validates the status, which is the same for all kinds of the group.
fn check_status(root: &Field<'_>) -> Errors {
    let status = root.at("status");
    let conditions = status.at("conditions");
    let mut errors = Errors::new();
    let mut types = HashSet::new();
    for (condition, value) in conditions.items().zip(conditions.list()) {
        let ty = condition.at("type");
        if !types.insert(&value["type"]) {
            errors.push(ty.duplicate());
        }
        if ty.is_empty() {
            errors.push(ty.required("must not be empty"));
        }
    }
    errors
}

/// Rejects a change of a mandatory object.
fn fixed(spec: &Field<'_>, name: &str, expected: Option<Value>) -> Option<FieldError> {
    let differs = expected.is_some_and(|expected| expected != *spec.value());
    differs.then(|| spec.invalid(format!("spec of '{name}' must equal the fixed value")))
}
