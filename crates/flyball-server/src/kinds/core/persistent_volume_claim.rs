//! Persistent volume claims: their spec is immutable, except for the size of a bound claim.

use super::{GROUP, volume_cells};
use crate::kinds::claim_spec::{self, claim_spec};
use crate::kinds::difference::difference;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::resource;
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::usage::Amounts;
use flyball_core::field::FieldError;
use flyball_core::time::Timestamp;
use flyball_core::{Clock, Object, Quantity};
use serde_json::{Map, Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .quota_usage(quota_usage)
    .prepare(prepare)
    .validate(validate)
    .short(&["pvc"])
    .subresources(&[Sub::STATUS])
    .deleted_as_object();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Status", "phase represents the current phase of PersistentVolumeClaim."),
    Heading::text("Volume", "volumeName is the binding reference to the PersistentVolume backing this claim."),
    Heading::text("Capacity", "capacity represents the actual resources of the underlying volume."),
    Heading::text(
        "Access Modes",
        "accessModes contains the actual access modes the volume backing the PVC has. More info: \
         https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
    ),
    Heading::text("StorageClass", "StorageClass of the pvc"),
    Heading::text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
    Heading::AGE,
    Heading::text(
        "VolumeMode",
        "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not \
         included in claim spec.",
    )
    .wide(),
];

/// Returns the requested storage of a claim, in total and for its class.
fn quota_usage(claim: &Object, _: Timestamp) -> Option<Amounts> {
    let one = Quantity::from_integer(1);
    let storage = claim.at(&["spec", "resources", "requests", "storage"]).and_then(Value::as_str);
    let storage = storage.and_then(|storage| storage.parse().ok()).unwrap_or(Quantity::ZERO);
    let mut used = Amounts::from([("requests.storage".to_owned(), storage)]);
    let class = claim.at(&["spec", "storageClassName"]).and_then(Value::as_str).filter(|class| !class.is_empty());
    if let Some(class) = class {
        used.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one);
        used.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage);
    }
    Some(used)
}

fn default(claim: &mut Object) {
    claim.inner_or_new("status").fill("phase", "Pending");
    let spec = claim.inner_or_new("spec");
    spec.fill("volumeMode", "Filesystem");
    data_source(spec);
}

/// Copies `dataSource` to `dataSourceRef`, or the reverse, if one is absent.
///
/// A source that is neither a claim nor a snapshot is ignored: only references may have other kinds.
fn data_source(spec: &mut Map<String, Value>) {
    let known = |source: &Value| {
        let text = |field: &str| source[field].as_str().unwrap_or_default();
        matches!(
            (text("apiGroup"), text("kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) if source.is_object() && !known(&source) => drop(spec.remove("dataSource")),
        (Some(source), None) if source.is_object() => spec.set("dataSourceRef", source),
        (None, Some(source)) if source.is_object() && source.get("namespace").is_none() => {
            spec.set("dataSource", source)
        }
        _ => {}
    }
}

fn prepare(claim: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    if old.is_none() {
        // Sources in other namespaces are not supported.
        let elsewhere = claim.at(&["spec", "dataSourceRef", "namespace"]).and_then(Value::as_str);
        if elsewhere.is_some_and(|namespace| !namespace.is_empty())
            && let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.remove("dataSourceRef");
        }
        claim.insert("status".into(), json!({"phase": "Pending"}));
    }
}

fn validate(claim: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(claim);
    if part == Part::Status {
        let capacity = root.at("status");
        let capacity = capacity.at("capacity");
        let amounts: Vec<_> = capacity.entries().filter_map(|(_, amount)| resource::basic_amount(&amount)).collect();
        return amounts;
    }
    let spec = root.at("spec");
    let mut errors = claim_spec(&spec);
    let Some(old) = old else { return errors };
    let before = Field::root(old);
    let (now, then) = (spec.value(), before.at("spec"));
    let mut munged = now.clone();
    let bound = root.at("status.phase").text() == "Bound";
    if let (Some(fields), Some(earlier)) = (munged.as_object_mut(), then.value().as_object()) {
        if then.at("volumeName").is_empty() {
            fields.keep("volumeName", earlier);
        }
        if then.at("storageClassName").value().is_null()
            && old.annotation("volume.beta.kubernetes.io/storage-class").is_none()
        {
            fields.keep("storageClassName", earlier);
        }
        if bound {
            fields.keep("volumeAttributesClassName", earlier);
            if let Some(requests) = fields.inner("resources").and_then(|resources| resources.inner("requests")) {
                let none = serde_json::Map::new();
                requests.keep("storage", then.at("resources.requests").value().as_object().unwrap_or(&none));
            }
        }
    }
    if munged != *then.value() {
        const MUTABLE: &str = "resources.requests and volumeAttributesClassName for bound claims";
        let mut earlier = then.value().clone();
        if then.at("volumeName").is_empty() {
            // The field may be set once; the error shows the spec as if it had been set before.
            for spec in [&mut earlier, &mut munged] {
                spec["volumeName"] = now["volumeName"].clone();
            }
        }
        let diff = difference("PersistentVolumeClaimSpec", &earlier, &munged);
        errors.push(spec.forbidden(format!("spec is immutable after creation except {MUTABLE}\n{diff}")));
    }
    let size = |claim: &Field<'_>, path: &str| {
        claim.at(path).value().get("storage").and_then(resource::amount_of).unwrap_or(flyball_core::Quantity::ZERO)
    };
    let path = "spec.resources.requests";
    let (requested, earlier, current_capacity) =
        (size(&root, path), size(&before, path), size(&before, "status.capacity"));
    if requested < earlier && requested <= current_capacity {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
    errors.extend(claim_spec::at_root("volumeMode", now).unchanged_from(&then.at("volumeMode")));
    errors
}

fn row(view: &View<'_>) -> Row {
    let volume = view.text("spec.volumeName");
    let bound = !volume.is_empty();
    Row::from([
        view.name(),
        volume_cells::phase(view),
        volume.into(),
        if bound { view.text_or("status.capacity.storage", "0") } else { "".into() },
        if bound { volume_cells::modes(view.list("status.accessModes")) } else { "".into() },
        volume_cells::class(view),
        volume_cells::text_or_unset(view, "spec.volumeAttributesClassName"),
        view.age(),
        volume_cells::text_or_unset(view, "spec.volumeMode"),
    ])
}
