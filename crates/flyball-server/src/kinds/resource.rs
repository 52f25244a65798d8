//! Kinds of `resource.k8s.io`: device classes, claims of devices, their templates, and the slices of devices that
//! drivers publish.
//!
//! They are stored and validated; devices are not allocated. See
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>.

kinds! {
    mod device_class;
    mod resource_claim;
    mod resource_claim_template;
    mod resource_slice;
}

mod allocation;
mod capacity;
mod condition;
mod configuration;
mod name;
mod selector;
mod taint;

pub(crate) use resource_claim::KIND as RESOURCE_CLAIM;
pub(crate) use resource_claim_template::KIND as RESOURCE_CLAIM_TEMPLATE;

use super::field::{Errors, Field};
use std::collections::BTreeSet;

const GROUP: &str = "resource.k8s.io";

/// Maximum number of requests of a claim, and of its allocated devices.
const MAX_REQUESTS: usize = 32;

/// Validates the items of a list, unless there are too many.
fn list(items: &Field<'_>, max: usize, check: impl Fn(&Field<'_>) -> Errors) -> Errors {
    if items.len() > max {
        return vec![items.too_many(max as u64)];
    }
    items.items().flat_map(|item| check(&item)).collect()
}

/// Validates the items of a list, unless there are too many, and that their keys are unique.
fn set(
    items: &Field<'_>,
    max: usize,
    key: impl Fn(&Field<'_>) -> String,
    check: impl Fn(&Field<'_>) -> Errors,
) -> Errors {
    let mut errors = list(items, max, check);
    if items.len() <= max {
        let mut seen = BTreeSet::new();
        for item in items.items() {
            let key = key(&item);
            if seen.contains(&key) {
                errors.push(item.duplicate_of(key));
            } else {
                seen.insert(key);
            }
        }
    }
    errors
}

/// Returns the key of items with names.
fn by_name(item: &Field<'_>) -> String {
    item.at("name").text().to_owned()
}

/// Returns the key of strings.
fn by_text(item: &Field<'_>) -> String {
    item.text().to_owned()
}
