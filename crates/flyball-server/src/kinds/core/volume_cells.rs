//! Table cells shared by volumes and claims.

use crate::kinds::printer::{UNSET, View};
use serde_json::Value;

/// Abbreviated access modes in a fixed order.
const MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

pub(super) fn modes(given: &[Value]) -> Value {
    let given = |mode: &str| given.iter().any(|given| given == mode);
    let short: Vec<&str> = MODES.iter().filter(|(mode, _)| given(mode)).map(|(_, short)| *short).collect();
    short.join(",").into()
}

/// Returns the storage class of a volume or claim, including the deprecated annotation.
pub(super) fn class(view: &View<'_>) -> Value {
    let old = view.object.annotation("volume.beta.kubernetes.io/storage-class");
    old.unwrap_or_else(|| view.text("spec.storageClassName")).into()
}

pub(super) fn phase(view: &View<'_>) -> Value {
    if view.is_deleted() { "Terminating".into() } else { view.text("status.phase").into() }
}

pub(super) fn text_or_unset(view: &View<'_>, path: &str) -> Value {
    view.at(path).as_str().unwrap_or(UNSET).into()
}
