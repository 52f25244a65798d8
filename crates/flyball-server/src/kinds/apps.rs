//! Rules of deployments and of the sets that make pods.

use super::Part;
use super::field::{Field, IMMUTABLE};
use super::fill::Fields;
use super::pod;
use super::rules::{label, number};
use super::shown::{internal, selector};
use flyball_core::field::FieldError;
use flyball_core::names::dns_label;
use flyball_core::{Clock, Object};
use serde_json::{Value, json};
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;

/// A selector must be there, be good and demand something; gives whether it could be read.
fn demanding(field: &Field<'_>, kind: &str) -> Errors {
    if !field.is_set() {
        return vec![field.required("")];
    }
    let mut errors = label::selector(field);
    if label::is_empty(field.value()) {
        errors.push(field.invalid_as(selector(field.value()), format!("empty selector is invalid for {kind}")));
    }
    errors
}

const UNMATCHED: &str = "`selector` does not match template `labels`";

/// The template must have the labels that are selected.
fn selected(spec: &Field<'_>, even_nothing: bool) -> Option<FieldError> {
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    let wanted = spec.at("selector");
    let nothing = wanted.is_set() && label::is_empty(wanted.value());
    let good = label::selects(wanted.value(), labels.value()) != Some(false) || nothing && !even_nothing;
    (!good).then(|| labels.invalid(UNMATCHED))
}

/// Pods of these kinds run for ever.
fn endless(template: &Field<'_>, kind: &str) -> Errors {
    let mut errors = Errors::new();
    let (policy, deadline) = (template.at("spec.restartPolicy"), template.at("spec.activeDeadlineSeconds"));
    if policy.text() != "Always" {
        errors.push(policy.not_supported(&["Always"]));
    }
    if deadline.is_set() {
        errors.push(deadline.forbidden(format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
    errors
}

fn not_negative(spec: &Field<'_>, names: &[&str]) -> Errors {
    names.iter().filter_map(|name| spec.at(name).not_negative()).collect()
}

/// The counts of a status, and those that are no more than others.
struct Counts {
    all: &'static [&'static str],
    of_replicas: &'static [&'static str],
    /// The count that available pods are compared with, as the message says it.
    ready: &'static str,
}

impl Counts {
    fn check(&self, object: &Object, old: Option<&Object>) -> Errors {
        let root = Field::root(object);
        let status = root.at("status");
        let mut errors = number::counts(&status, self.all);
        errors.extend(number::counts_no_more(
            &status,
            self.of_replicas,
            "replicas",
            "cannot be greater than status.replicas",
        ));
        if !self.ready.is_empty() {
            let why = format!("cannot be greater than {}", self.ready);
            errors.extend(number::counts_no_more(&status, &["availableReplicas"], "readyReplicas", &why));
        }
        if let Some(old) = old {
            let before = Field::root(old);
            errors.extend(number::not_decremented(&status.at("collisionCount"), &before.at("status.collisionCount")));
        }
        errors
    }
}

fn same_selector(object: &Field<'_>, old: Option<&Object>) -> Option<FieldError> {
    let before = old?.at(&["spec", "selector"]).cloned().unwrap_or_default();
    let field = object.at("spec.selector");
    (*field.value() != before).then(|| field.invalid_as(selector(field.value()), IMMUTABLE))
}

pub(super) fn deployment(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        of_replicas: &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ready: "readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, old);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = not_negative(&spec, &["replicas"]);
    errors.extend(demanding(&spec.at("selector"), "deployment"));
    errors.extend(replicated(&spec));
    errors.extend(strategy(&spec.at("strategy")));
    errors.extend(not_negative(&spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"]));
    let deadline = spec.at("progressDeadlineSeconds");
    if deadline.is_set() && deadline.int() <= spec.at("minReadySeconds").int() {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    errors.extend(same_selector(&root, old));
    errors
}

/// The template of a set of replicas.
fn replicated(spec: &Field<'_>) -> Errors {
    let wanted = spec.at("selector");
    if label::selects(wanted.value(), &Value::Null).is_none() {
        return vec![wanted.invalid_as(selector(wanted.value()), "invalid label selector")];
    }
    let template = spec.at("template");
    let mut errors: Errors = selected(spec, false).into_iter().collect();
    errors.extend(pod::check_template(&template));
    errors.extend(endless(&template, "ReplicaSet"));
    errors
}

fn strategy(strategy: &Field<'_>) -> Errors {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if rolling.is_set() => {
            vec![rolling.forbidden("may not be specified when strategy `type` is 'Recreate'")]
        }
        "Recreate" => Errors::new(),
        "RollingUpdate" => {
            let (fewer, more) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            let mut errors = number::count_or_percent(&fewer);
            errors.extend(number::count_or_percent(&more));
            if number::count(&fewer) == 0 && number::count(&more) == 0 {
                errors.push(fewer.invalid("may not be 0 when `maxSurge` is 0"));
            }
            errors.extend(number::at_most_all(&fewer));
            errors
        }
        _ => {
            let shown = internal("DeploymentStrategy", strategy.value());
            vec![FieldError::not_supported(strategy.path(), shown, ["Recreate", "RollingUpdate"])]
        }
    }
}

pub(super) fn replica_set(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        of_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ready: "readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, None);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = not_negative(&spec, &["replicas", "minReadySeconds"]);
    errors.extend(demanding(&spec.at("selector"), "deployment"));
    errors.extend(replicated(&spec));
    errors.extend(same_selector(&root, old));
    errors
}

pub(super) fn replication_controller(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
        of_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ready: "readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, None);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = not_negative(&spec, &["minReadySeconds"]);
    let wanted = spec.at("selector");
    errors.extend(wanted.must_be_set());
    errors.extend(not_negative(&spec, &["replicas"]));
    let template = spec.at("template");
    if !template.is_set() {
        errors.push(template.required(""));
        return errors;
    }
    let labels = template.at("metadata.labels");
    let has = |(key, value): (&String, &Value)| labels.value().get(key) == Some(value);
    if !wanted.value().as_object().into_iter().flatten().all(has) {
        errors.push(labels.invalid(UNMATCHED));
    }
    errors.extend(pod::check_template(&template));
    errors.extend(endless(&template, "ReplicationController"));
    errors
}

/// Counts the templates that a daemon set has had, in an annotation.
pub(super) const TEMPLATES: &str = "deprecated.daemonset.template.generation";

pub(super) fn prepare_daemon_set(object: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    let count = |object: &Object| object.annotation(TEMPLATES).and_then(|count| count.parse::<i64>().ok()).unwrap_or(0);
    let template = |object: &Object| object.at(&["spec", "template"]).cloned();
    let number = match old {
        None => count(object).max(1),
        Some(old) if template(old) != template(object) => count(old) + 1,
        Some(old) => count(old),
    };
    object.metadata_mut().inner_or_new("annotations").set(TEMPLATES, number.to_string());
}

pub(super) fn daemon_set(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        of_replicas: &[],
        ready: "",
    };
    if part == Part::Status {
        return STATUS.check(object, old);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let (wanted, template) = (spec.at("selector"), spec.at("template"));
    let mut errors: Errors = same_selector(&root, old).into_iter().collect();
    errors.extend(label::selector(&wanted));
    errors.extend(selected(&spec, true));
    if wanted.is_set() && label::is_empty(wanted.value()) {
        errors.push(wanted.invalid_as(selector(wanted.value()), "empty selector is invalid for daemonset"));
    }
    errors.extend(pod::check_template(&template));
    errors.extend(endless(&template, "DaemonSet"));
    errors.extend(not_negative(&spec, &["minReadySeconds"]));
    errors.extend(daemon_strategy(&spec.at("updateStrategy")));
    errors.extend(not_negative(&spec, &["revisionHistoryLimit"]));
    errors
}

fn daemon_strategy(strategy: &Field<'_>) -> Errors {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => Errors::new(),
        "RollingUpdate" if !rolling.is_set() => vec![rolling.required("")],
        "RollingUpdate" => {
            let (fewer, more) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            let mut errors = number::count_or_percent(&fewer);
            errors.extend(number::count_or_percent(&more));
            errors.extend(number::at_most_all(&fewer));
            errors.extend(number::at_most_all(&more));
            match (number::count(&fewer) != 0, number::count(&more) != 0) {
                (true, true) => errors.push(more.invalid("may not be set when maxUnavailable is non-zero")),
                (false, false) => errors.push(fewer.required("cannot be 0 when maxSurge is 0")),
                _ => {}
            }
            errors
        }
        _ => {
            let shown = internal("DaemonSetUpdateStrategy", strategy.value());
            vec![FieldError::not_supported(strategy.path(), shown, ["RollingUpdate", "OnDelete"])]
        }
    }
}

/// Drops the number of pods that may be missing during an update, which stateful sets cannot set yet.
pub(super) fn prepare_stateful_set(object: &mut Object, _: Option<&Object>, _: Part, _: &Clock) {
    let rolling = object
        .inner("spec")
        .and_then(|spec| spec.inner("updateStrategy"))
        .and_then(|strategy| strategy.inner("rollingUpdate"));
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

pub(super) fn stateful_set(object: &Object, old: Option<&Object>, part: Part) -> Errors {
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
    errors.extend(stateful_strategy(&spec.at("updateStrategy")));
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    for when in ["whenDeleted", "whenScaled"] {
        errors.extend(retention.at(when).must_be_in(&["Retain", "Delete"]));
    }
    if old.is_none() {
        errors.extend(
            spec.at("volumeClaimTemplates").items().flat_map(|claim| super::claim_spec::claim_spec(&claim.at("spec"))),
        );
    }
    errors.extend(not_negative(&spec, &["replicas", "minReadySeconds", "ordinals.start"]));
    if old.is_none() {
        errors.extend(spec.at("serviceName").may_obey(dns_label));
    }
    let wanted = spec.at("selector");
    errors.extend(demanding(&wanted, "statefulset"));
    if label::selects(wanted.value(), &Value::Null).is_none() {
        errors.push(wanted.invalid_as(selector(wanted.value()), ""));
    } else {
        errors.extend(selected(&spec, false));
        let template = spec.at("template");
        let filled = with_claims(template.value(), spec.at("volumeClaimTemplates").list());
        let template = Field::new(*template.path(), &filled);
        errors.extend(pod::check_template(&template));
        errors.extend(pod::check_template_metadata(&template));
    }
    errors.extend(endless(&spec.at("template"), "StatefulSet"));
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

/// A template with the volumes that its claims will become.
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

fn stateful_strategy(strategy: &Field<'_>) -> Errors {
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

pub(super) fn controller_revision(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let mut errors = not_negative(&root, &["revision"]);
    let data = root.at("data");
    match old {
        None if !data.is_set() => errors.push(data.required("data is mandatory")),
        None if !data.value().is_object() => errors.push(data.required("data must be a valid JSON object")),
        None => {}
        Some(old) => {
            let before = Field::root(old);
            errors.extend(data.unchanged_from(&before.at("data")));
        }
    }
    errors
}

pub(super) fn pod_template(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    pod::check_template(&root.at("template"))
}

/// Warns of names that become those of hosts, too.
pub(super) fn warn_of_deployment(object: &Object, old: Option<&Object>) -> Vec<String> {
    let wrong = flyball_core::names::dns_label(object.name());
    let mut warnings = Vec::new();
    if old.is_none() && !wrong.is_empty() {
        let wrong = wrong.join(" ");
        warnings.push(format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{wrong}]"));
    }
    warnings.extend(warn(object, old));
    warnings
}

/// Warns of a history without end, too.
pub(super) fn warn_of_stateful_set(object: &Object, old: Option<&Object>) -> Vec<String> {
    let mut warnings = warn(object, old);
    if object.at(&["spec", "revisionHistoryLimit"]).and_then(Value::as_i64).is_some_and(|limit| limit < 0) {
        let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.push(format!("spec.revisionHistoryLimit: {why}"));
    }
    warnings
}

/// Warns of what is unwise in the template of what makes pods.
pub(super) fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    let root = Field::root(object);
    let template = root.at("spec.template");
    let before = old.and_then(|old| old.at(&["spec", "template"]));
    if before == Some(template.value()) {
        return Vec::new();
    }
    let spec = root.at("spec");
    let template = spec.at("template");
    pod::warn_of(&template.at("metadata"), &template.at("spec"), true)
}

/// Warns of what is unwise in a template that stands for itself.
pub(super) fn warn_of_pod_template(object: &Object, old: Option<&Object>) -> Vec<String> {
    let root = Field::root(object);
    let template = root.at("template");
    if old.and_then(|old| old.get("template")) == Some(template.value()) {
        return Vec::new();
    }
    pod::warn_of(&template.at("metadata"), &template.at("spec"), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: Value, expected: &[&str]) {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        for (field, value) in change.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let mut object = Object::try_from(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap();
        super::super::workload::deployment(&mut object);
        let errors: Vec<String> = deployment(&object, None, Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{change}");
    }

    #[test]
    fn templates_have_what_is_selected() {
        check(json!({}), &[]);
        check(
            json!({"selector": {"matchLabels": {"a": "c"}}}),
            &[
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        );
        check(json!({"selector": {}}), &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]);
        check(
            json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}),
            &["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"],
        );
    }
}
