//! Storage classes.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{self, Heading, Row, View};
use crate::kinds::rules::label;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::field::FieldError;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "StorageClass", "storageclasses")
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .validate(validate)
    .short(&["sc"])
    .cluster()
    .deleted_as_object();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Provisioner", "provisioner indicates the type of the provisioner."),
    Heading::text(
        "ReclaimPolicy",
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage \
         class. Defaults to Delete.",
    ),
    Heading::text(
        "VolumeBindingMode",
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, \
         VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling \
         feature.",
    ),
    Heading::text("AllowVolumeExpansion", "allowVolumeExpansion shows whether the storage class allow volume expand."),
    Heading::AGE,
];

fn default(class: &mut Object) {
    class.fill("reclaimPolicy", "Delete");
    class.fill("volumeBindingMode", "Immediate");
}

/// Maximum number of bytes of the parameters of a class.
const MAX_PARAMETERS: usize = 256 * 1024;

fn validate(class: &Object, old: Option<&Object>, _: Part) -> Errors {
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

/// Validates the allowed topologies, which must be unique.
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

fn row(view: &View<'_>) -> Row {
    let default = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let named = default.map(|annotation| printer::marked(view, annotation));
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
