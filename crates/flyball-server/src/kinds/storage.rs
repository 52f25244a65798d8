//! Volumes, claims on them and their classes.

use super::Part;
use super::claim_spec::{VOLUME_MODES, access_modes, claim_spec};
use super::difference::difference;
use super::field::Field;
use super::fill::Fields;
use super::pod::volume as source;
use super::rules::{affinity, label, resource, text};
use super::shown::internal;
use flyball_core::field::{FieldError, Path};
use flyball_core::names::dns_subdomain;
use flyball_core::{Clock, Object};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

type Errors = Vec<FieldError>;
type Rule = fn(&Field<'_>) -> Errors;

pub(super) fn prepare_claim(claim: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    if old.is_none() {
        // What stands in another namespace is no source yet.
        let elsewhere = claim.at(&["spec", "dataSourceRef", "namespace"]).and_then(Value::as_str);
        if elsewhere.is_some_and(|namespace| !namespace.is_empty())
            && let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.remove("dataSourceRef");
        }
        claim.insert("status".into(), json!({"phase": "Pending"}));
    }
}

pub(super) fn prepare_volume(volume: &mut Object, old: Option<&Object>, part: Part, clock: &Clock) {
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

/// A field of a spec that errors take for one of the object itself.
fn at_root<'a>(name: &'a str, spec: &'a Value) -> Field<'a> {
    Field::new(Path::new(name), &spec[name])
}

pub(super) fn validate_claim(claim: &Object, old: Option<&Object>, part: Part) -> Errors {
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
            // It may be set once, and is shown as if it had always been.
            for spec in [&mut earlier, &mut munged] {
                spec["volumeName"] = now["volumeName"].clone();
            }
        }
        let told = difference("PersistentVolumeClaimSpec", &earlier, &munged);
        errors.push(spec.forbidden(format!("spec is immutable after creation except {MUTABLE}\n{told}")));
    }
    let size = |claim: &Field<'_>, path: &str| {
        claim.at(path).value().get("storage").and_then(resource::amount_of).unwrap_or(flyball_core::Quantity::ZERO)
    };
    let path = "spec.resources.requests";
    let (wanted, earlier, held) = (size(&root, path), size(&before, path), size(&before, "status.capacity"));
    if wanted < earlier && wanted <= held {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
    errors.extend(at_root("volumeMode", now).unchanged_from(&then.at("volumeMode")));
    errors
}

/// The sources of volumes, with the rule of each.
const SOURCES: &[(&str, Rule)] = &[
    ("hostPath", source::host_path),
    ("gcePersistentDisk", |field| required(field, &["pdName"])),
    ("awsElasticBlockStore", |field| required(field, &["volumeID"])),
    ("glusterfs", |field| required(field, &["endpoints", "path"])),
    ("flocker", |_| Errors::new()),
    ("nfs", source::nfs),
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

pub(super) fn validate_volume(volume: &Object, old: Option<&Object>, part: Part) -> Errors {
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
        // It may be set once.
        now["csi"].as_object_mut().map(|csi| csi.remove(EXPANSION));
    }
    if SOURCES.iter().any(|(name, _)| now.get(*name) != then.value().get(*name)) {
        let told = difference("PersistentVolumeSource", then.value(), &now);
        let why = format!("spec.persistentvolumesource is immutable after creation\n{told}");
        errors.push(spec.at("persistentvolumesource").forbidden(why));
    }
    errors.extend(at_root("volumeMode", spec.value()).unchanged_from(&then.at("volumeMode")));
    let nodes = then.at("nodeAffinity");
    if nodes.is_set() && spec.at("nodeAffinity").value() != nodes.value() {
        let field = at_root("nodeAffinity", spec.value());
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

/// The most bytes of the parameters of a class.
const MAX_PARAMETERS: usize = 256 * 1024;

/// Validates the topologies in which volumes may be: none is listed twice.
fn topologies(terms: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut seen: HashSet<&Value> = HashSet::new();
    for term in terms.items() {
        let expressions = term.at("matchLabelExpressions");
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for expression in expressions.items() {
            let (key, values) = (expression.at("key"), expression.at("values"));
            if values.is_empty() {
                errors.push(values.required(""));
            }
            let mut seen: HashSet<&Value> = HashSet::new();
            errors.extend(values.items().filter(|value| !seen.insert(value.value())).map(|value| value.duplicate()));
            errors.extend(label::key(&key));
            if keys.contains(key.text()) {
                errors.push(key.duplicate());
            }
            keys.insert(key.text().to_owned());
        }
        if !seen.insert(term.value()) {
            errors.push(expressions.duplicate_of(""));
        }
    }
    errors
}

/// Warns of what volumes better do not do.
pub(super) fn warn_of_volume(volume: &Object, _: Option<&Object>) -> Vec<String> {
    let recycled = volume.at(&["spec", "persistentVolumeReclaimPolicy"]).is_some_and(|policy| policy == "Recycle");
    let why = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
    recycled.then(|| why.to_owned()).into_iter().collect()
}

pub(super) fn validate_class(class: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(class);
    let mut errors = Errors::new();
    let provisioner = root.at("provisioner");
    if provisioner.is_empty() {
        errors.push(provisioner.required(""));
    } else {
        let lower = provisioner.text().to_lowercase();
        let wrong = flyball_core::names::qualified_name(&lower);
        errors.extend(wrong.into_iter().map(|wrong| provisioner.invalid_as(lower.as_str(), wrong)));
    }
    let parameters = root.at("parameters");
    if parameters.len() > 512 {
        errors.push(FieldError::too_long("provisioner.parameters", 512));
    }
    for (key, _) in parameters.entries().filter(|(key, _)| key.is_empty()) {
        errors.push(parameters.invalid_as(key, "field can not be empty."));
    }
    let size: usize = parameters.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > MAX_PARAMETERS {
        errors.push(parameters.too_long(MAX_PARAMETERS as u64));
    }
    let policy = root.at("reclaimPolicy");
    if !policy.is_empty() {
        errors.extend(policy.must_be_in(&["Delete", "Retain"]));
    }
    let mode = root.at("volumeBindingMode");
    if mode.is_set() {
        errors.extend(mode.must_be_in(&["Immediate", "WaitForFirstConsumer"]));
    } else {
        errors.push(mode.required(""));
    }
    errors.extend(topologies(&root.at("allowedTopologies")));
    let Some(old) = old else { return errors };
    let before = Field::root(old);
    errors.extend(parameters.unchanged_from(&before.at("parameters")));
    errors.extend(provisioner.unchanged_from(&before.at("provisioner")));
    errors.extend(policy.unchanged_from(&before.at("reclaimPolicy")));
    errors.extend(mode.unchanged_from(&before.at("volumeBindingMode")));
    errors
}
