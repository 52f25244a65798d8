//! Default classes: the class of objects that name none.

use crate::kinds::Kind;
use crate::storage::Store;
use flyball_core::Object;
use serde_json::Value;
use std::cmp::Reverse;

/// Returns the name of the default class: of the newest one with an annotation of these; of the first one by name if
/// several are equally new.
pub(super) fn newest(store: &Store, kind: &Kind, annotations: &[&str]) -> Option<String> {
    let all = store.list(&kind.table(), None).entries;
    let is_default = |class: &Object| annotations.iter().any(|key| class.annotation(key) == Some("true"));
    let created = |class: &Object| {
        class.at(&["metadata", "creationTimestamp"]).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let classes = all.iter().filter_map(|entry| entry.object().ok()).filter(is_default);
    let newest = classes.max_by_key(|class| (created(class), Reverse(class.name().to_owned())));
    newest.map(|class| class.name().to_owned())
}
