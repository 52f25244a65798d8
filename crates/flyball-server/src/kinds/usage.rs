//! Amounts of resources, as quotas count them.

use flyball_core::time::Timestamp;
use flyball_core::{Object, Quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by their names in quotas, such as `requests.cpu` and `count/secrets`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads amounts by name.
pub(crate) fn amounts(value: &Value) -> Amounts {
    let amounts = value.as_object().into_iter().flatten();
    amounts.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

/// The usage of kinds whose objects are only counted, for [`Kind::quota_usage`](super::kind::Kind::quota_usage).
pub(super) fn counted(_: &Object, _: Timestamp) -> Option<Amounts> {
    Some(Amounts::new())
}
