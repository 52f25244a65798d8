//! Stateful sets, and their claim templates.

use super::{GROUP, check_selector, selected};
use crate::kinds::display::{internal, selector};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::label;
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::workload::{self, CONTAINERS, Counts};
use crate::kinds::{claim_spec, pod_spec};
use flyball_core::names::dns_label;
use flyball_core::{Clock, Object};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "StatefulSet", "statefulsets")
    .printed(COLUMNS, row)
    .pod_template(&["spec", "template"])
    .default(default)
    .name_rule(dns_label)
    .prepare(prepare)
    .warn(warn)
    .validate(validate)
    .short(&["sts"])
    .category("all")
    .generation()
    .subresources(&[Sub::SCALE, Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Ready", "Number of the pod with ready state"),
    Heading::AGE,
    Heading::text("Containers", "Names of each container in the template.").wide(),
    Heading::text("Images", "Images referenced by each container in the template.").wide(),
];

fn default(set: &mut Object) {
    workload::template(set);
    let spec = set.inner_or_new("spec");
    spec.fill("podManagementPolicy", "OrderedReady");
    let strategy = spec.inner_or_new("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.set("type", "RollingUpdate");
        strategy.fill("rollingUpdate", json!({}));
    }
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = strategy.inner("rollingUpdate")
    {
        rolling.fill("partition", 0);
    }
    let retention = spec.inner_or_new("persistentVolumeClaimRetentionPolicy");
    retention.fill("whenDeleted", "Retain");
    retention.fill("whenScaled", "Retain");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    for claim in spec.each("volumeClaimTemplates") {
        claim.fill("apiVersion", "v1");
        claim.fill("kind", "PersistentVolumeClaim");
        claim.inner_or_new("spec").fill("volumeMode", "Filesystem");
        claim.inner_or_new("status").fill("phase", "Pending");
    }
}

/// Drops `maxUnavailable`, which is behind a disabled feature gate.
fn prepare(object: &mut Object, _: Option<&Object>, _: Part, _: &Clock) {
    let rolling = object
        .inner("spec")
        .and_then(|spec| spec.inner("updateStrategy"))
        .and_then(|strategy| strategy.inner("rollingUpdate"));
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        of_replicas: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        ready: "status.readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, old);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let management = spec.at("podManagementPolicy");
    if !matches!(management.text(), "OrderedReady" | "Parallel") {
        errors.push(management.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    errors.extend(strategy(&spec.at("updateStrategy")));
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    for when in ["whenDeleted", "whenScaled"] {
        errors.extend(retention.at(when).must_be_in(&["Retain", "Delete"]));
    }
    if old.is_none() {
        errors.extend(
            spec.at("volumeClaimTemplates").items().flat_map(|claim| claim_spec::claim_spec(&claim.at("spec"))),
        );
    }
    errors.extend(workload::not_negative(&spec, &["replicas", "minReadySeconds", "ordinals.start"]));
    if old.is_none() {
        errors.extend(spec.at("serviceName").may_obey(dns_label));
    }
    let label_selector = spec.at("selector");
    errors.extend(check_selector(&label_selector, "statefulset"));
    if label::selects(label_selector.value(), &Value::Null).is_none() {
        errors.push(label_selector.invalid_as(selector(label_selector.value()), ""));
    } else {
        errors.extend(selected(&spec, false));
        let template = spec.at("template");
        let filled = with_claims(template.value(), spec.at("volumeClaimTemplates").list());
        let template = Field::new(*template.path(), &filled);
        errors.extend(pod_spec::check_template(&template));
        errors.extend(pod_spec::check_template_metadata(&template));
    }
    errors.extend(workload::endless(&spec.at("template"), "StatefulSet"));
    if let Some(old) = old {
        const FREE: [&str; 7] = [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ];
        let rest = |object: &Object| {
            let mut spec = object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
            spec.retain(|field, _| !FREE.contains(&field.as_str()));
            spec
        };
        if rest(object) != rest(old) {
            let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(spec.forbidden(why));
        }
    }
    errors
}

/// Returns the template with the volumes of the claim templates.
fn with_claims(template: &Value, claims: &[Value]) -> Value {
    let mut template = template.clone();
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    spec.remove("hostname");
    spec.remove("subdomain");
    if claims.is_empty() {
        return template;
    }
    let names: Vec<&str> = claims.iter().filter_map(|claim| claim.pointer("/metadata/name")?.as_str()).collect();
    let mut volumes: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    let given = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    let names: BTreeSet<&str> = names.into_iter().collect();
    volumes.extend(given.into_iter().filter(|volume| !names.contains(volume["name"].as_str().unwrap_or_default())));
    spec.set("volumes", volumes);
    template
}

fn strategy(strategy: &Field<'_>) -> Errors {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" if rolling.is_set() => {
            let shown = internal("RollingUpdateStatefulSetStrategy", rolling.value());
            vec![rolling.invalid_as(shown, "only allowed for updateStrategy 'RollingUpdate'")]
        }
        "OnDelete" => Errors::new(),
        "RollingUpdate" => rolling.at("partition").not_negative().into_iter().collect(),
        _ => {
            let shown = internal("StatefulSetUpdateStrategy", strategy.value());
            vec![strategy.invalid_as(shown, "must be 'RollingUpdate' or 'OnDelete'")]
        }
    }
}

/// Warns about an unlimited history.
fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    let mut warnings = workload::warn(object, old);
    if object.at(&["spec", "revisionHistoryLimit"]).and_then(Value::as_i64).is_some_and(|limit| limit < 0) {
        let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.push(format!("spec.revisionHistoryLimit: {why}"));
    }
    warnings
}

fn row(view: &View<'_>) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    let ready = format!("{}/{}", view.int("status.readyReplicas"), view.int("spec.replicas"));
    Row::from([view.name(), ready.into(), view.age(), names, images])
}
