//! Cluster roles, and their aggregation.

use super::{GROUP, rules};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::rules::label;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::path_segment;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ClusterRole", "clusterroles")
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .create_on_update()
    .name_rule(path_segment);

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let mut errors = rules(object, false);
    let root = Field::root(object);
    let aggregation = root.at("aggregationRule");
    if aggregation.is_set() {
        let selectors = aggregation.at("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.push(selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil"));
        }
        for selector in selectors.items() {
            errors.extend(label::selector(&selector));
            if label::selects(selector.value(), &Value::Null).is_none() {
                errors.push(selector.invalid_as(Value::Null, "invalid label selector."));
            }
        }
    }
    errors
}
