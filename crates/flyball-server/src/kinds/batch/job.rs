//! Jobs: their selector is generated, and their pods are orphaned by default on deletion.

mod policy;
mod status;

use super::GROUP;
use crate::kinds::display::{internal, selector};
use crate::kinds::field::{Errors, Field, IMMUTABLE};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Deletion, Kind};
use crate::kinds::pod_spec;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{label, text};
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::workload::{self, CONTAINERS};
use flyball_core::field::{BadValue, FieldError};
use flyball_core::names::dns_label;
use flyball_core::time::{human_duration, parse_rfc3339};
use flyball_core::{Clock, Object};
use serde_json::{Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Job", "jobs")
    .deletion(DELETION)
    .printed(COLUMNS, row)
    .pod_template(&["spec", "template"])
    .default(default)
    .checks(Checks::Whole)
    .warn(warn)
    .prepare(prepare)
    .validate(validate)
    .category("all")
    .generation()
    .subresources(&[Sub::STATUS])
    .fields(&["status.successful"], successful);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Status", "Status of the job."),
    Heading::text(
        "Completions",
        "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. \
         However, it may decrease in reaction to scale down of elastic indexed jobs.",
    ),
    Heading::text("Duration", "Time required to complete the job."),
    Heading::AGE,
    Heading::text("Containers", "Names of each container in the template.").wide(),
    Heading::text("Images", "Images referenced by each container in the template.").wide(),
    Heading::text(
        "Selector",
        "A label query over pods that should match the pod count. Normally, the system sets this field for you. More \
         info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    )
    .wide(),
];

/// Orphans the pods of a job by default.
const DELETION: Deletion = Deletion {
    orphans: true,
    warning: Some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
    ),
    ..Deletion::AT_ONCE
};

/// Returns the number of succeeded pods of a job.
fn successful(job: &Object, _: &str) -> String {
    job.at(&["status", "succeeded"]).and_then(Value::as_i64).unwrap_or_default().to_string()
}

fn default(job: &mut Object) {
    default_spec(job.inner_or_new("spec"));
    let labels = job.at(&["spec", "template", "metadata", "labels"]).filter(|labels| labels.is_object()).cloned();
    if let Some(labels) = labels {
        workload::label(job, labels);
    }
    let spec = job.inner_or_new("spec");
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.set("completions", 1);
    }
    spec.fill("parallelism", 1);
    let tries = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    spec.fill("backoffLimit", tries);
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    let replaced = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.fill("podReplacementPolicy", replaced);
    spec.fill("manualSelector", false);
}

/// Sets defaults of the fields shared by jobs and job templates.
pub(super) fn default_spec(spec: &mut serde_json::Map<String, Value>) {
    spec.inner("template").into_iter().for_each(pod_spec::template);
    if let Some(policy) = spec.inner("podFailurePolicy") {
        for rule in policy.each("rules") {
            rule.each("onPodConditions").for_each(|pattern| pattern.fill("status", "True"));
        }
    }
}

const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

const CONTROLLER: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Labels the pods of a new job, and selects them.
fn prepare(job: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    if old.is_some() || job.at(&["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return;
    }
    let (name, uid) = (job.name().to_owned(), job.uid().to_owned());
    let given = job.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object);
    let unlabelled = job.labels().is_none_or(serde_json::Map::is_empty) || job.labels() == given;
    let spec = job.inner_or_new("spec");
    let labels = spec.inner_or_new("template").inner_or_new("metadata").inner_or_new("labels");
    let own = JOB_NAME.iter().map(|key| (key, &name)).chain(CONTROLLER.iter().map(|key| (key, &uid)));
    for (key, value) in own {
        labels.entry(*key).or_insert_with(|| value.as_str().into());
    }
    let labels = labels.clone();
    spec.inner_or_new("selector").inner_or_new("matchLabels").entry(CONTROLLER[1]).or_insert_with(|| uid.into());
    // A job without labels gets those of its pods, because defaults are applied on each read.
    if unlabelled {
        job.metadata_mut().insert("labels".into(), Value::Object(labels));
    }
}

fn validate(job: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(job);
    if part == Part::Status {
        return status::status(&root, old);
    }
    let spec = root.at("spec");
    // Updates are validated like new objects, and then as updates.
    let mut errors = generated_selector(job, &root, old.is_none());
    errors.extend(selecting_spec(&spec));
    let count = spec.at("completions").int();
    let Some(old) = old else {
        if spec.at("completionMode").text() == "Indexed" && count > 0 {
            let host = format!("{}-{}", job.name(), count - 1);
            if !dns_label(&host).is_empty() {
                let why = format!("will not able to create pod with invalid DNS label: {host}");
                errors.push(FieldError::invalid("metadata.name", job.name(), why));
            }
        }
        return errors;
    };
    errors.extend(selecting_spec(&spec));
    let before = Field::root(old);
    let then = before.at("spec");
    errors.extend(completions(&spec, &then));
    let label_selector = spec.at("selector");
    if label_selector.value() != then.at("selector").value() {
        errors.push(label_selector.invalid_as(selector(label_selector.value()), IMMUTABLE));
    }
    errors.extend(template(&spec, &then, &before));
    for (field, ty) in [
        ("completionMode", ""),
        ("podFailurePolicy", "PodFailurePolicy"),
        ("backoffLimitPerIndex", ""),
        ("managedBy", ""),
        ("successPolicy", "SuccessPolicy"),
    ] {
        let field = spec.at(field);
        if field.value()
            != then.value().get(field.path().to_string().trim_start_matches("spec.")).unwrap_or(&Value::Null)
        {
            let plain = ty.is_empty() || field.value().is_null();
            let shown = if plain { BadValue::Json(field.value().clone()) } else { internal(ty, field.value()) };
            errors.push(field.invalid_as(shown, IMMUTABLE));
        }
    }
    errors
}

fn completions(spec: &Field<'_>, old: &Field<'_>) -> Option<FieldError> {
    let (now, then) = (spec.at("completions"), old.at("completions"));
    if spec.at("completionMode").text() != "Indexed" {
        return now.unchanged_from(&then);
    }
    let tandem = now.value() == then.value() || !now.is_set() || now.int() == spec.at("parallelism").int();
    (!tandem).then(|| now.invalid("can only be modified in tandem with spec.parallelism"))
}

/// Requires the template to be unchanged, except for suspended jobs that have not started.
fn template(spec: &Field<'_>, old: &Field<'_>, job: &Field<'_>) -> Option<FieldError> {
    let (now, mut then) = (spec.at("template"), old.at("template").value().clone());
    let suspended = old.at("suspend").flag();
    if suspended && !job.at("status.startTime").is_set() {
        for (outer, fields) in [
            ("metadata", &["labels", "annotations"][..]),
            ("spec", &["nodeSelector", "tolerations", "schedulingGates", "affinity"][..]),
        ] {
            let current = now.value().get(outer).and_then(Value::as_object).cloned().unwrap_or_default();
            if let Some(inner) = then.get_mut(outer).and_then(Value::as_object_mut) {
                fields.iter().for_each(|field| inner.keep(field, &current));
            }
        }
    }
    if !suspended {
        return (*now.value() != then).then(|| now.invalid_as(internal("PodTemplateSpec", now.value()), IMMUTABLE));
    }
    // The resources of a suspended job's containers may change.
    let inner = now.at("spec");
    for list in ["containers", "initContainers"] {
        let given = inner.at(list);
        if let Some(spec) = then.get_mut("spec").and_then(Value::as_object_mut) {
            for (container, given) in spec.each(list).zip(given.list()) {
                if let Some(given) = given.as_object().filter(|given| given.text("name") == container.text("name")) {
                    container.keep("resources", given);
                }
            }
        }
    }
    (*inner.value() != then["spec"]).then(|| inner.invalid_as(internal("PodSpec", inner.value()), IMMUTABLE))
}

/// Requires the pod template of a new job to have the labels of a generated selector.
fn generated_selector(job: &Object, root: &Field<'_>, is_new: bool) -> Errors {
    let mut errors = Errors::new();
    let spec = root.at("spec");
    let label_selector = spec.at("selector");
    if spec.at("manualSelector").flag() || !label_selector.is_set() {
        return errors;
    }
    let template = spec.at("template");
    let metadata = template.at("metadata");
    let labels = metadata.at("labels");
    let mut expected = serde_json::Map::new();
    for i in 0..2 {
        for (key, value) in [(CONTROLLER[i], job.uid()), (JOB_NAME[i], job.name())] {
            expected.insert(key.into(), value.into());
            let label = labels.key(key);
            if !is_new {
                continue;
            }
            if !label.is_set() {
                errors.push(labels.key(key).required(format!("must be '{value}'")));
            } else if label.text() != value {
                errors.push(label.invalid_as(labels.value().clone(), format!("must be '{value}'")));
            }
        }
    }
    if label::selects(label_selector.value(), &Value::Object(expected)) == Some(false) {
        errors.push(label_selector.invalid_as(selector(label_selector.value()), "`selector` not auto-generated"));
    }
    errors
}

/// Validates the spec of a job with a selector.
fn selecting_spec(spec: &Field<'_>) -> Errors {
    let mut errors = self::spec(spec);
    let selector = spec.at("selector");
    if selector.is_set() {
        errors.extend(label::selector(&selector));
    } else {
        errors.push(selector.required(""));
    }
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    if label::selects(selector.value(), labels.value()) == Some(false) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    errors
}

const MAX_PARALLEL: i64 = 100_000;

/// Number of completions above which a job with a backoff limit per index has stricter limits.
const MANY_COMPLETIONS: i64 = 100_000;
/// Maximum parallelism and number of failed indexes of such a job.
const MAX_OF_MANY_COMPLETIONS: i64 = 10_000;

/// Validates the fields shared by jobs and job templates.
pub(super) fn spec(spec: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for count in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.extend(spec.at(count).not_negative());
    }
    let (per_index, failed) = (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"));
    if failed.is_set() && !per_index.is_set() {
        errors.push(per_index.required("when maxFailedIndexes is specified"));
    }
    let manager = spec.at("managedBy");
    if manager.is_set() {
        errors.extend(text::domain_prefixed(&manager));
        if manager.text().len() > 63 {
            errors.push(manager.too_long(63));
        }
    }
    let mode = spec.at("completionMode");
    errors.extend(mode.may_be_one_of(&["NonIndexed", "Indexed"]));
    if mode.text() == "Indexed" {
        errors.extend(indexed(spec));
    } else if matches!(mode.text(), "" | "NonIndexed") {
        for field in [&per_index, &failed].into_iter().filter(|field| field.is_set()) {
            errors.push(field.invalid("requires indexed completion mode"));
        }
    }
    let (failure, success) = (spec.at("podFailurePolicy"), spec.at("successPolicy"));
    if failure.is_set() {
        errors.extend(policy::failure_policy(spec, &failure));
    }
    if success.is_set() {
        if mode.text() == "Indexed" {
            errors.extend(policy::success_policy(spec, &success));
        } else {
            errors.push(
                success.invalid_as(internal("SuccessPolicy", success.value()), "requires indexed completion mode"),
            );
        }
    }
    let replacement = spec.at("podReplacementPolicy");
    if replacement.is_set() {
        let known: &[&str] = if failure.is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        errors.extend(replacement.must_be_in(known));
    }
    let template = spec.at("template");
    errors.extend(pod_spec::check_template(&template));
    let policy = template.at("spec.restartPolicy");
    match policy.text() {
        "Always" | "" => errors.push(policy.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if failure.is_set() => {
            errors.push(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"))
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(policy.not_supported(&["OnFailure", "Never"])),
    }
    errors
}

fn indexed(spec: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let (completions, parallel, failed) = (spec.at("completions"), spec.at("parallelism"), spec.at("maxFailedIndexes"));
    if !completions.is_set() {
        errors.push(completions.required("when completion mode is Indexed"));
    }
    if parallel.int() > MAX_PARALLEL {
        errors.push(
            parallel.invalid(format!("must be less than or equal to {MAX_PARALLEL} when completion mode is Indexed")),
        );
    }
    if completions.is_set() && failed.int() > completions.int() {
        errors.push(failed.invalid("must be less than or equal to completions"));
    }
    if failed.int() > MAX_PARALLEL {
        errors.push(failed.invalid(format!("must be less than or equal to {MAX_PARALLEL}")));
    }
    if completions.int() > MANY_COMPLETIONS && spec.at("backoffLimitPerIndex").is_set() {
        if !failed.is_set() {
            errors.push(failed.required(format!("must be specified when completions is above {MANY_COMPLETIONS}")));
        }
        for field in [&parallel, &failed].into_iter().filter(|field| field.int() > MAX_OF_MANY_COMPLETIONS) {
            let why = format!(
                "must be less than or equal to {MAX_OF_MANY_COMPLETIONS} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            );
            errors.push(field.invalid(why));
        }
    }
    errors
}

/// Warns about names that are invalid as host names, and about pod templates.
fn warn(job: &Object, old: Option<&Object>) -> Vec<String> {
    warn_of_template(job, old, &["spec", "template"])
}

pub(super) fn warn_of_template(job: &Object, old: Option<&Object>, path: &[&str]) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = dns_label(job.name());
    if old.is_none() && !wrong.is_empty() {
        let wrong = wrong.join(" ");
        warnings.push(format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{wrong}]"));
    }
    let template = job.at(path).cloned().unwrap_or_else(|| json!({}));
    if old.is_some_and(|old| old.at(path) == Some(&template)) {
        return warnings;
    }
    let name = path.join(".");
    let template = Field::new(flyball_core::field::Path::new(&name), &template);
    warnings.extend(pod_spec::warn_of(&template.at("metadata"), &template.at("spec"), true));
    warnings
}

/// The conditions that determine the printed status of a job; the first true one applies.
const CONDITIONS: [&str; 2] = ["Complete", "Failed"];

const LATER_CONDITIONS: [(&str, &str); 3] =
    [("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet")];

fn row(view: &View<'_>) -> Row {
    let succeeded = view.int("status.succeeded");
    let completions = match (view.at("spec.completions").as_i64(), view.int("spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let later = LATER_CONDITIONS.iter().find(|(condition, _)| view.is_true(condition)).map(|(_, status)| *status);
    let status = match CONDITIONS.iter().find(|condition| view.is_true(condition)) {
        Some(status) => status,
        None if view.is_deleted() => "Terminating",
        None => later.unwrap_or("Running"),
    };
    let start = parse_rfc3339(view.text("status.startTime"));
    let end = parse_rfc3339(view.text("status.completionTime")).unwrap_or_else(|| view.clock.now());
    let duration = start.map_or_else(String::new, |start| human_duration(end.duration_since(start)));
    let [names, images] = view.containers(CONTAINERS);
    Row::from([
        view.name(),
        status.into(),
        completions.into(),
        duration.into(),
        view.age(),
        names,
        images,
        view.selector("spec.selector"),
    ])
}
