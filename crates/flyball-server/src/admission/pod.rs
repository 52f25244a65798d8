//! Access to the spec of a pod in admission, which may be malformed.

use crate::limits::MAX_DECODED_BYTES;
use crate::request::body;
use flyball_core::memory;
use flyball_core::{Object, Status};
use serde_json::{Map, Value, json};

pub(super) fn spec(pod: &mut Object) -> &mut Map<String, Value> {
    let spec = pod.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    spec.as_object_mut().expect("just made one")
}

pub(super) fn list<'s>(spec: &'s mut Map<String, Value>, field: &str) -> &'s mut Vec<Value> {
    let list = spec.entry(field).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().expect("just made one")
}

/// Rejects a pod with more containers than the memory limit allows, given the memory that is added to each.
pub(super) fn check_room(pod: &Object, bytes_each: usize) -> Result<(), Status> {
    let containers = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| pod.at(&["spec", list])?.as_array())
        .map(Vec::len)
        .sum::<usize>();
    let growth = containers.saturating_mul(bytes_each);
    // The objects of almost all requests are far from the limit, and need not be weighed.
    if growth > MAX_DECODED_BYTES / 16 && growth.saturating_add(memory::of(pod.as_value())) > MAX_DECODED_BYTES {
        return Err(Status::too_large(body::Error::TooLarge.to_string()));
    }
    Ok(())
}
