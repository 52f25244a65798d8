//! Persistent volumes, each with one immutable source.

use super::{GROUP, volume_cells};
use crate::kinds::claim_spec::{self, VOLUME_MODES, access_modes};
use crate::kinds::difference::difference;
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::pod_spec::volume;
use crate::kinds::printer::{self, Heading, Row, View};
use crate::kinds::rules::{affinity, resource, text};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::field::FieldError;
use flyball_core::names::dns_subdomain;
use flyball_core::{Clock, Object};
use serde_json::{Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "PersistentVolume", "persistentvolumes")
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .prepare(prepare)
    .warn(warn)
    .validate(validate)
    .short(&["pv"])
    .cluster()
    .subresources(&[Sub::STATUS])
    .deleted_as_object();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Capacity",
        "capacity is the description of the persistent volume's resources and capacity. More info: \
         https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
    ),
    Heading::text(
        "Access Modes",
        "accessModes contains all ways the volume can be mounted. More info: \
         https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
    ),
    Heading::text(
        "Reclaim Policy",
        "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. \
         Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically \
         provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin \
         underlying this PersistentVolume. More info: \
         https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming",
    ),
    Heading::text(
        "Status",
        "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: \
         https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase",
    ),
    Heading::text(
        "Claim",
        "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected \
         to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: \
         https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding",
    ),
    Heading::text("StorageClass", "StorageClass of the pv"),
    Heading::text("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
    Heading::text(
        "Reason",
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy \
         display in the CLI.",
    ),
    Heading::AGE,
    Heading::text(
        "VolumeMode",
        "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block \
         state. Value of Filesystem is implied when not included in spec.",
    )
    .wide(),
];

fn default(volume: &mut Object) {
    volume.inner_or_new("status").fill("phase", "Pending");
    let spec = volume.inner_or_new("spec");
    spec.fill("persistentVolumeReclaimPolicy", "Retain");
    spec.fill("volumeMode", "Filesystem");
    spec.inner("hostPath").into_iter().for_each(|path| path.fill("type", ""));
}

fn prepare(volume: &mut Object, old: Option<&Object>, part: Part, clock: &Clock) {
    if old.is_none() {
        volume.insert("status".into(), json!({"phase": "Pending", "lastPhaseTransitionTime": clock.now_rfc3339()}));
    } else if part == Part::Status {
        let (phase, before) =
            (volume.at(&["status", "phase"]).cloned(), old.and_then(|old| old.at(&["status", "phase"])));
        if phase.as_ref() != before {
            let now = clock.now_rfc3339();
            volume.inner_or_new("status").set("lastPhaseTransitionTime", now);
        }
    }
}

type Rule = fn(&Field<'_>) -> Errors;

/// The sources of volumes with their rules.
const SOURCES: &[(&str, Rule)] = &[
    ("hostPath", volume::host_path),
    ("gcePersistentDisk", |field| required(field, &["pdName"])),
    ("awsElasticBlockStore", |field| required(field, &["volumeID"])),
    ("glusterfs", |field| required(field, &["endpoints", "path"])),
    ("flocker", |_| Errors::new()),
    ("nfs", volume::nfs),
    ("rbd", |field| required(field, &["monitors", "image"])),
    ("quobyte", |field| required(field, &["registry", "volume"])),
    ("cephfs", |field| required(field, &["monitors"])),
    ("iscsi", |field| required(field, &["targetPortal", "iqn"])),
    ("cinder", |field| required(field, &["volumeID"])),
    ("fc", |_| Errors::new()),
    ("flexVolume", |field| required(field, &["driver"])),
    ("azureFile", |field| required(field, &["secretName", "shareName"])),
    ("vsphereVolume", |field| required(field, &["volumePath"])),
    ("photonPersistentDisk", |field| required(field, &["pdID"])),
    ("portworxVolume", |field| required(field, &["volumeID"])),
    ("azureDisk", |field| required(field, &["diskName", "diskURI"])),
    ("scaleIO", |field| required(field, &["gateway", "system", "volumeName"])),
    ("local", |field| required(field, &["path"])),
    ("storageos", |_| Errors::new()),
    ("csi", csi),
];

fn required(source: &Field<'_>, names: &[&str]) -> Errors {
    names.iter().filter_map(|name| source.at(name).must_be_set()).collect()
}

fn csi(source: &Field<'_>) -> Errors {
    let mut errors = text::csi_driver(&source.at("driver"));
    errors.extend(source.at("volumeHandle").must_be_set());
    for secret in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let secret = source.at(secret);
        if secret.is_set() {
            errors.extend(required(&secret, &["name", "namespace"]));
        }
    }
    errors
}

fn validate(volume: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(volume);
    if part == Part::Status {
        return Errors::new();
    }
    let spec = root.at("spec");
    let mut errors = volume_spec(&spec);
    let Some(old) = old else { return errors };
    let before = Field::root(old);
    let then = before.at("spec");
    let mut now = spec.value().clone();
    const EXPANSION: &str = "controllerExpandSecretRef";
    if then.at("csi").is_set() && !then.at("csi").at(EXPANSION).is_set() {
        // The field may be set once.
        now["csi"].as_object_mut().map(|csi| csi.remove(EXPANSION));
    }
    if SOURCES.iter().any(|(name, _)| now.get(*name) != then.value().get(*name)) {
        let diff = difference("PersistentVolumeSource", then.value(), &now);
        let why = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        errors.push(spec.at("persistentvolumesource").forbidden(why));
    }
    errors.extend(claim_spec::at_root("volumeMode", spec.value()).unchanged_from(&then.at("volumeMode")));
    let nodes = then.at("nodeAffinity");
    if nodes.is_set() && spec.at("nodeAffinity").value() != nodes.value() {
        let field = claim_spec::at_root("nodeAffinity", spec.value());
        let shown = if field.is_set() { internal("VolumeNodeAffinity", field.value()) } else { Value::Null.into() };
        errors.push(field.invalid_as(shown, "field is immutable, except for updating from beta label to GA"));
    }
    errors
}

fn volume_spec(spec: &Field<'_>) -> Errors {
    let mut errors = access_modes(&spec.at("accessModes"), "");
    let capacity = spec.at("capacity");
    if capacity.is_empty() {
        errors.push(capacity.required(""));
    }
    if !capacity.key("storage").is_set() || capacity.len() > 1 {
        errors.push(FieldError::not_supported(capacity.path(), capacity.value().clone(), ["storage"]));
    }
    for (_, amount) in capacity.entries() {
        errors.extend(resource::basic_amount(&amount));
        errors.extend(resource::positive_amount(&amount));
    }
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        errors.extend(policy.must_be_in(&["Delete", "Recycle", "Retain"]));
    }
    let nodes = spec.at("nodeAffinity");
    if nodes.is_set() {
        let required = nodes.at("required");
        if required.is_set() {
            errors.extend(affinity::node_selector(&required, true));
        } else {
            errors.push(required.required("must specify required node constraints"));
        }
    }
    let mut found = false;
    for (name, rule) in SOURCES {
        let source = spec.at(name);
        if !source.is_set() {
            continue;
        }
        if found {
            errors.push(source.forbidden("may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        errors.extend(rule(&source));
        if *name == "local" && !nodes.at("required").is_set() {
            errors.push(nodes.required("Local volume requires node affinity"));
        }
    }
    if !found {
        errors.push(spec.required("must specify a volume type"));
    }
    if spec.at("hostPath.path").text() == "/" && policy.text() == "Recycle" {
        errors.push(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
    errors.extend(spec.at("storageClassName").may_obey(dns_subdomain));
    errors.extend(spec.at("volumeMode").may_be_one_of(VOLUME_MODES));
    let attributes = spec.at("volumeAttributesClassName");
    if attributes.is_set() {
        if attributes.is_empty() {
            errors.push(attributes.required("an empty string is disallowed"));
        } else {
            errors.extend(attributes.obeys(dns_subdomain));
        }
        if !spec.at("csi").is_set() {
            errors.push(spec.at("csi").required("has to be specified when using volumeAttributesClassName"));
        }
    }
    errors
}

/// Returns the warnings of a volume.
fn warn(volume: &Object, _: Option<&Object>) -> Vec<String> {
    let recycled = volume.at(&["spec", "persistentVolumeReclaimPolicy"]).is_some_and(|policy| policy == "Recycle");
    let why = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
    recycled.then(|| why.to_owned()).into_iter().collect()
}

fn row(view: &View<'_>) -> Row {
    let claim = view.at("spec.claimRef");
    let claim = if claim.is_null() {
        String::new()
    } else {
        format!("{}/{}", printer::text(claim, "namespace"), printer::text(claim, "name"))
    };
    Row::from([
        view.name(),
        view.text_or("spec.capacity.storage", "0"),
        volume_cells::modes(view.list("spec.accessModes")),
        view.text("spec.persistentVolumeReclaimPolicy").into(),
        volume_cells::phase(view),
        claim.into(),
        volume_cells::class(view),
        volume_cells::text_or_unset(view, "spec.volumeAttributesClassName"),
        view.text("status.reason").into(),
        view.age(),
        volume_cells::text_or_unset(view, "spec.volumeMode"),
    ])
}
