//! The context of a container: the fields of its pod that its validation needs.

use serde_json::Value;
use std::collections::BTreeMap;

/// The fields of a pod that the validation of its containers needs.
pub(super) struct PodContext<'a> {
    pub(super) volumes: BTreeMap<&'a str, &'a Value>,
    pub(super) claims: Vec<&'a str>,
    pub(super) grace: Option<i64>,
    pub(super) restart_policy: &'a str,
    pub(super) host_users: bool,
    pub(super) os: Option<&'a str>,
}
