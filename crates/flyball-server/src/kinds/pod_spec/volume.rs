//! Volumes of pods and their sources.

use super::super::field::Field;
use super::super::rules::{label, path, text};
use super::env::{object_field, resource_field};
use flyball_core::field::FieldError;
use flyball_core::names::{self, dns_label};
use serde_json::Value;
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;
type Rule = fn(&Field<'_>) -> Errors;

/// The sources of volumes with their rules.
const SOURCES: &[(&str, Rule)] = &[
    ("emptyDir", empty_dir),
    ("hostPath", host_path),
    ("gitRepo", |source| required(source, &["repository"])),
    ("gcePersistentDisk", |source| required(source, &["pdName"])),
    ("awsElasticBlockStore", |source| required(source, &["volumeID"])),
    ("secret", |source| files(source, "secretName")),
    ("nfs", nfs),
    ("iscsi", |source| required(source, &["targetPortal", "iqn"])),
    ("glusterfs", |source| required(source, &["endpoints", "path"])),
    ("flocker", |_| Errors::new()),
    ("persistentVolumeClaim", |source| required(source, &["claimName"])),
    ("rbd", |source| required(source, &["monitors", "image"])),
    ("cinder", |source| required(source, &["volumeID"])),
    ("cephfs", |source| required(source, &["monitors"])),
    ("quobyte", |source| required(source, &["registry", "volume"])),
    ("downwardAPI", downward),
    ("fc", fibre_channel),
    ("flexVolume", |source| required(source, &["driver"])),
    ("configMap", |source| files(source, "name")),
    ("azureFile", |source| required(source, &["secretName", "shareName"])),
    ("vsphereVolume", |source| required(source, &["volumePath"])),
    ("photonPersistentDisk", |source| required(source, &["pdID"])),
    ("portworxVolume", |source| required(source, &["volumeID"])),
    ("azureDisk", |source| required(source, &["diskName", "diskURI"])),
    ("storageos", |_| Errors::new()),
    ("projected", projected),
    ("scaleIO", |source| required(source, &["gateway", "system", "volumeName"])),
    ("csi", csi),
    ("ephemeral", ephemeral),
    ("image", |source| required(source, &["reference"])),
];

fn fibre_channel(source: &Field<'_>) -> Errors {
    let (names, ids, unit) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    let mut errors = Errors::new();
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => errors.push(names.required("must specify either targetWWNs or wwids, but not both")),
        (false, false) => {
            errors.push(names.invalid("targetWWNs and wwids can not be specified simultaneously"));
        }
        (false, true) => match unit.int_if_set() {
            None => errors.push(unit.required("lun is required if targetWWNs is specified")),
            Some(lun) if !(0..=255).contains(&lun) => errors.push(unit.invalid("must be between 0 and 255, inclusive")),
            Some(_) => {}
        },
        (true, false) => {}
    }
    errors
}

fn required(source: &Field<'_>, names: &[&str]) -> Errors {
    names.iter().filter_map(|name| source.at(name).must_be_set()).collect()
}

/// Validates volumes; returns the valid ones with the errors.
pub(super) fn volumes<'a>(volumes: &'a Field<'a>, pod: &str) -> (Vec<&'a Value>, Errors) {
    let (mut good, mut errors) = (Vec::new(), Errors::new());
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let created: BTreeSet<String> = volumes
        .list()
        .iter()
        .filter(|volume| volume["ephemeral"].is_object())
        .map(|volume| format!("{pod}-{}", volume["name"].as_str().unwrap_or_default()))
        .collect();
    for volume in volumes.items() {
        let name = volume.at("name");
        let mut wrong = source(&volume);
        wrong.extend(name.must_obey(dns_label));
        if names.contains(name.text()) {
            wrong.push(name.duplicate());
        }
        if wrong.is_empty() {
            names.insert(volume.value()["name"].as_str().unwrap_or_default());
            good.push(volume.value());
        }
        errors.extend(wrong);
        let claim = volume.at("persistentVolumeClaim");
        let claim = claim.at("claimName");
        if !pod.is_empty() && claim.is_set() && created.contains(claim.text()) {
            errors.push(claim.invalid("must not reference a PVC that gets created for an ephemeral volume"));
        }
    }
    (good, errors)
}

/// Validates that a volume has exactly one source.
fn source(volume: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut found = false;
    for (name, rule) in SOURCES {
        let source = volume.at(name);
        if !source.is_set() {
            continue;
        }
        if found {
            errors.push(source.forbidden("may not specify more than 1 volume type"));
        } else {
            found = true;
            errors.extend(rule(&source));
        }
    }
    if !found {
        errors.push(volume.required("must specify a volume type"));
    }
    errors
}

fn empty_dir(source: &Field<'_>) -> Errors {
    let limit = source.at("sizeLimit");
    let negative = limit.text().starts_with('-');
    negative.then(|| limit.forbidden("SizeLimit field must be a valid resource quantity")).into_iter().collect()
}

const HOST_PATHS: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

pub(crate) fn host_path(source: &Field<'_>) -> Errors {
    let at = source.at("path");
    if at.is_empty() {
        return vec![at.required("")];
    }
    path::no_backsteps(&at).into_iter().chain(source.at("type").may_be_one_of(HOST_PATHS)).collect()
}

pub(crate) fn nfs(source: &Field<'_>) -> Errors {
    let mut errors = required(source, &["server", "path"]);
    let at = source.at("path");
    if !at.text().starts_with('/') {
        errors.push(at.invalid_as(at.text(), "must be an absolute path"));
    }
    errors
}

pub(crate) fn csi(source: &Field<'_>) -> Errors {
    let mut errors = text::csi_driver(&source.at("driver"));
    let secret = source.at("nodePublishSecretRef");
    if secret.is_set() {
        errors.extend(secret.at("name").must_obey(names::dns_subdomain));
    }
    errors
}

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

fn mode(source: &Field<'_>, name: &str) -> Option<FieldError> {
    let mode = source.at(name);
    (!(0..=0o777).contains(&mode.int())).then(|| mode.invalid(MODE))
}

/// Validates files from a secret or a config map.
fn files(source: &Field<'_>, name: &str) -> Errors {
    let mut errors: Errors = source.at(name).must_be_set().into_iter().collect();
    errors.extend(mode(source, "defaultMode"));
    errors.extend(source.at("items").items().flat_map(|item| key_to_path(&item)));
    errors
}

fn key_to_path(item: &Field<'_>) -> Errors {
    let mut errors = required(item, &["key", "path"]);
    errors.extend(path::unreserved(&item.at("path")));
    errors.extend(mode(item, "mode"));
    errors
}

fn downward(source: &Field<'_>) -> Errors {
    let mut errors: Errors = mode(source, "defaultMode").into_iter().collect();
    errors.extend(source.at("items").list().iter().flat_map(|file| downward_file(source, file)));
    errors
}

const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Validates a downward API file; errors have the path of the volume, not of the file.
fn downward_file(at: &Field<'_>, file: &Value) -> Errors {
    let shown = Field::new(*at.path(), file);
    let mut errors: Errors = shown.at("path").must_be_set().into_iter().collect();
    errors.extend(path::unreserved(&shown.at("path")));
    let (field, resource) = (shown.at("fieldRef"), shown.at("resourceFieldRef"));
    if field.is_set() {
        errors.extend(object_field(&field, VOLUME_FIELDS));
        if resource.is_set() {
            errors.push(
                shown.invalid_as("resource", "fieldRef and resourceFieldRef can not be specified simultaneously"),
            );
        }
    } else if resource.is_set() {
        errors.extend(resource_field(&resource, true));
    } else {
        errors.push(shown.required("one of fieldRef and resourceFieldRef is required"));
    }
    errors.extend(mode(&shown, "mode"));
    errors
}

fn projected(volume: &Field<'_>) -> Errors {
    let mut errors: Errors = mode(volume, "defaultMode").into_iter().collect();
    let mut paths: BTreeSet<String> = BTreeSet::new();
    let mut taken = |path: &str, shown: &str| {
        let conflicts = !path.is_empty() && !paths.insert(path.to_owned());
        conflicts.then(|| volume.invalid_as(shown, "conflicting duplicate paths"))
    };
    for source in volume.at("sources").items() {
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let files = source.at(kind);
            if files.is_set() {
                count += 1;
                errors.extend(files.at("name").must_be_set());
                for item in files.at("items").items() {
                    errors.extend(key_to_path(&item));
                    errors.extend(taken(item.at("path").text(), files.at("name").text()));
                }
            }
        }
        let files = source.at("downwardAPI");
        if files.is_set() {
            count += 1;
            for file in files.at("items").list() {
                errors.extend(downward_file(&files, file));
                let path = file["path"].as_str().unwrap_or_default();
                errors.extend(taken(path, path));
            }
        }
        let token = source.at("serviceAccountToken");
        if token.is_set() {
            count += 1;
            let seconds = token.at("expirationSeconds");
            if seconds.int() < 600 {
                errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
            }
            if seconds.int() > 1 << 32 {
                errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
            }
            let text = token.at("path");
            let shown = volume.at("path");
            if text.is_empty() {
                errors.push(shown.required(""));
            } else {
                errors.extend(path::unreserved(&Field::new(*shown.path(), text.value())));
            }
        }
        let bundle = source.at("clusterTrustBundle");
        if bundle.is_set() {
            count += 1;
            errors.extend(trust_bundle(&bundle));
            let path = bundle.at("path").text().to_owned();
            errors.extend(taken(&path, &path));
        }
        if count > 1 {
            errors.push(source.forbidden("may not specify more than 1 volume type per source"));
        }
    }
    errors
}

fn trust_bundle(bundle: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let (name, signer) = (bundle.at("name"), bundle.at("signerName"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => errors.push(bundle.invalid("only one of name and signerName may be used")),
        (true, false) => {
            if name.is_empty() {
                errors.push(name.required("must be a valid object name"));
            }
        }
        (false, true) => {
            if signer.is_empty() {
                errors.push(signer.required("must be a valid signer name"));
            }
            errors.extend(label::selector(&bundle.at("labelSelector")));
        }
        (false, false) => errors.push(bundle.required("either name or signerName must be specified")),
    }
    errors.extend(bundle.at("path").must_be_set());
    errors.extend(path::unreserved(&bundle.at("path")));
    errors
}

fn ephemeral(source: &Field<'_>) -> Errors {
    let template = source.at("volumeClaimTemplate");
    if !template.is_set() {
        return vec![template.required("")];
    }
    super::super::claim_spec::claim_spec(&template.at("spec"))
}
