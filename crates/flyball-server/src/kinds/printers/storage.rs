//! Volumes, claims and their classes.

use super::{NONE, Row, UNSET, View, text};
use serde_json::Value;

/// Access modes in short, in an order of their own.
const MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

fn modes(given: &[Value]) -> Value {
    let given = |mode: &str| given.iter().any(|given| given == mode);
    let short: Vec<&str> = MODES.iter().filter(|(mode, _)| given(mode)).map(|(_, short)| *short).collect();
    short.join(",").into()
}

/// Names the class of a volume or a claim, which an annotation named once.
fn class(view: &View<'_>) -> Value {
    let old = view.object.annotation("volume.beta.kubernetes.io/storage-class");
    old.unwrap_or_else(|| view.text("spec.storageClassName")).into()
}

fn phase(view: &View<'_>) -> Value {
    if view.is_deleted() { "Terminating".into() } else { view.text("status.phase").into() }
}

fn given(view: &View<'_>, path: &str) -> Value {
    view.at(path).as_str().unwrap_or(UNSET).into()
}

pub(crate) fn volume(view: &View<'_>) -> Row {
    let claim = view.at("spec.claimRef");
    let claim =
        if claim.is_null() { String::new() } else { format!("{}/{}", text(claim, "namespace"), text(claim, "name")) };
    Row::from([
        view.name(),
        view.text_or("spec.capacity.storage", "0"),
        modes(view.list("spec.accessModes")),
        view.text("spec.persistentVolumeReclaimPolicy").into(),
        phase(view),
        claim.into(),
        class(view),
        given(view, "spec.volumeAttributesClassName"),
        view.text("status.reason").into(),
        view.age(),
        given(view, "spec.volumeMode"),
    ])
}

pub(crate) fn claim(view: &View<'_>) -> Row {
    let volume = view.text("spec.volumeName");
    let bound = !volume.is_empty();
    Row::from([
        view.name(),
        phase(view),
        volume.into(),
        if bound { view.text_or("status.capacity.storage", "0") } else { "".into() },
        if bound { modes(view.list("status.accessModes")) } else { "".into() },
        class(view),
        given(view, "spec.volumeAttributesClassName"),
        view.age(),
        given(view, "spec.volumeMode"),
    ])
}

pub(crate) fn storage_class(view: &View<'_>) -> Row {
    let default = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let named = default.map(|annotation| super::marked(view, annotation));
    let [new, old] = named;
    Row::from([
        if new == view.name() { old } else { new },
        view.text("provisioner").into(),
        view.at("reclaimPolicy").as_str().unwrap_or("Delete").into(),
        view.at("volumeBindingMode").as_str().unwrap_or("Immediate").into(),
        view.flag("allowVolumeExpansion").into(),
        view.age(),
    ])
}

pub(crate) fn attributes_class(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("driverName").into(), view.age()])
}

pub(crate) fn attachment(view: &View<'_>) -> Row {
    Row::from([
        view.name(),
        view.text("spec.attacher").into(),
        view.text("spec.source.persistentVolumeName").into(),
        view.text("spec.nodeName").into(),
        view.flag("status.attached").into(),
        view.age(),
    ])
}

pub(crate) fn csi_node(view: &View<'_>) -> Row {
    Row::from([view.name(), view.list("spec.drivers").len().into(), view.age()])
}

pub(crate) fn csi_driver(view: &View<'_>) -> Row {
    let texts =
        |values: &[Value]| values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>().join(",");
    let modes = texts(view.list("spec.volumeLifecycleModes"));
    let requests = view.at("spec.tokenRequests");
    let audiences: Vec<&str> =
        view.list("spec.tokenRequests").iter().map(|request| text(request, "audience")).collect();
    Row::from([
        view.name(),
        view.at("spec.attachRequired").as_bool().unwrap_or(true).into(),
        view.flag("spec.podInfoOnMount").into(),
        view.flag("spec.storageCapacity").into(),
        if requests.is_null() { UNSET.into() } else { audiences.join(",").into() },
        view.flag("spec.requiresRepublish").into(),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        view.age(),
    ])
}
