//! Rules of jobs and of what makes them at set times.

use super::Part;
use super::cron;
use super::field::{Field, IMMUTABLE};
use super::fill::Fields;
use super::pod;
use super::rules::{label, text};
use super::shown::{internal, selector};
use flyball_core::field::{FieldError, Shown};
use flyball_core::names::{dns_label, qualified_name};
use flyball_core::{Clock, Object};
use serde_json::{Value, json};

type Errors = Vec<FieldError>;

const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Labels the pods of a new job, and selects them.
pub(super) fn prepare_job(job: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    if old.is_some() || job.at(&["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return;
    }
    let (name, uid) = (job.name().to_owned(), job.uid().to_owned());
    let unlabelled = job.labels().is_none_or(serde_json::Map::is_empty);
    let spec = job.inner_or_new("spec");
    let labels = spec.inner_or_new("template").inner_or_new("metadata").inner_or_new("labels");
    let own = JOB_NAME.iter().map(|key| (key, &name)).chain(CONTROLLER.iter().map(|key| (key, &uid)));
    for (key, value) in own {
        labels.entry(*key).or_insert_with(|| value.as_str().into());
    }
    let labels = labels.clone();
    spec.inner_or_new("selector").inner_or_new("matchLabels").entry(CONTROLLER[1]).or_insert_with(|| uid.into());
    // What has no labels shows those of its pods, as every reader fills them in.
    if unlabelled {
        job.metadata_mut().insert("labels".into(), Value::Object(labels));
    }
}

pub(super) fn job(job: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(job);
    if part == Part::Status {
        return status(&root, old);
    }
    let spec = root.at("spec");
    let Some(old) = old else {
        let mut errors = generated_selector(job, &root);
        errors.extend(whole(&spec));
        let completions = spec.at("completions").int();
        if spec.at("completionMode").text() == "Indexed" && completions > 0 {
            let host = format!("{}-{}", job.name(), completions - 1);
            if !dns_label(&host).is_empty() {
                let why = format!("will not able to create pod with invalid DNS label: {host}");
                errors.push(FieldError::invalid("metadata.name", job.name(), why));
            }
        }
        return errors;
    };
    let mut errors = whole(&spec);
    let before = Field::root(old);
    let then = before.at("spec");
    errors.extend(completions(&spec, &then));
    let wanted = spec.at("selector");
    if wanted.value() != then.at("selector").value() {
        errors.push(wanted.invalid_as(selector(wanted.value()), IMMUTABLE));
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
            let shown = if plain { Shown::Json(field.value().clone()) } else { internal(ty, field.value()) };
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

/// The template stays, but where a job is suspended that has not begun.
fn template(spec: &Field<'_>, old: &Field<'_>, job: &Field<'_>) -> Option<FieldError> {
    let (now, mut then) = (spec.at("template"), old.at("template").value().clone());
    let suspended = old.at("suspend").flag() && !job.at("status.startTime").is_set();
    if suspended {
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
    (*now.value() != then).then(|| now.invalid_as(internal("PodTemplateSpec", now.value()), IMMUTABLE))
}

fn generated_selector(job: &Object, root: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let spec = root.at("spec");
    let wanted = spec.at("selector");
    if spec.at("manualSelector").flag() || !wanted.is_set() {
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
            if !label.is_set() {
                errors.push(labels.key(key).required(format!("must be '{value}'")));
            } else if label.text() != value {
                errors.push(labels.invalid(format!("must be '{value}'")));
            }
        }
    }
    if label::selects(wanted.value(), &Value::Object(expected)) == Some(false) {
        errors.push(wanted.invalid_as(selector(wanted.value()), "`selector` not auto-generated"));
    }
    errors
}

/// The spec of a job that has a selector.
fn whole(spec: &Field<'_>) -> Errors {
    let mut errors = job_spec(spec);
    let wanted = spec.at("selector");
    if wanted.is_set() {
        errors.extend(label::selector(&wanted));
    } else {
        errors.push(wanted.required(""));
    }
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    if label::selects(wanted.value(), labels.value()) == Some(false) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    errors
}

const MAX_PARALLEL: i64 = 100_000;
const MANY: i64 = 100_000;
const FEW: i64 = 10_000;

/// What jobs have in common with the templates of jobs.
fn job_spec(spec: &Field<'_>) -> Errors {
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
        errors.extend(failure_policy(spec, &failure));
    }
    if success.is_set() {
        if mode.text() == "Indexed" {
            errors.extend(success_policy(spec, &success));
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
    errors.extend(pod::check_template(&template));
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
    if completions.int() > MANY && spec.at("backoffLimitPerIndex").is_set() {
        if !failed.is_set() {
            errors.push(failed.required(format!("must be specified when completions is above {MANY}")));
        }
        for field in [&parallel, &failed].into_iter().filter(|field| field.int() > FEW) {
            let why = format!(
                "must be less than or equal to {FEW} when completions are above {MANY} and used with backoff limit per index"
            );
            errors.push(field.invalid(why));
        }
    }
    errors
}

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];

fn failure_policy(spec: &Field<'_>, policy: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let rules = policy.at("rules");
    if rules.len() > 20 {
        errors.push(rules.too_many(20));
    }
    let template = spec.at("template.spec");
    let lists = [template.at("containers"), template.at("initContainers")];
    let names: Vec<&str> =
        lists.iter().flat_map(|list| list.list()).filter_map(|container| container["name"].as_str()).collect();
    for rule in rules.items() {
        let action = rule.at("action");
        match action.text() {
            "" => errors.push(action.required(format!("valid values: {}", text::quoted(ACTIONS)))),
            "FailIndex" if !spec.at("backoffLimitPerIndex").is_set() => {
                errors.push(action.invalid("requires the backoffLimitPerIndex to be set"))
            }
            _ => errors.extend(action.must_be_in(ACTIONS)),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set() {
            errors.extend(exit_codes(&codes, &names));
        }
        if conditions.len() > 20 {
            errors.push(conditions.too_many(20));
        }
        for pattern in conditions.items() {
            errors.extend(pattern.at("type").obeys(qualified_name));
            const KNOWN: &[&str] = &["False", "True", "Unknown"];
            let status = pattern.at("status");
            if status.is_empty() {
                errors.push(status.required(format!("valid values: {}", text::quoted(KNOWN))));
            } else {
                errors.extend(status.must_be_in(KNOWN));
            }
        }
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => {
                errors.push(rule.wrong("specifying both OnExitCodes and OnPodConditions is not supported"))
            }
            (false, true) => errors.push(rule.wrong("specifying one of OnExitCodes and OnPodConditions is required")),
            _ => {}
        }
    }
    errors
}

fn exit_codes(codes: &Field<'_>, containers: &[&str]) -> Errors {
    const OPERATORS: &[&str] = &["In", "NotIn"];
    let mut errors = Errors::new();
    let operator = codes.at("operator");
    if operator.is_empty() {
        errors.push(operator.required(format!("valid values: {}", text::quoted(OPERATORS))));
    } else {
        errors.extend(operator.must_be_in(OPERATORS));
    }
    let container = codes.at("containerName");
    if container.is_set() && !containers.contains(&container.text()) {
        errors.push(container.invalid("must be one of the container or initContainer names in the pod template"));
    }
    let values = codes.at("values");
    if values.is_empty() {
        errors.push(values.invalid("at least one value is required"));
    } else if values.len() > 255 {
        errors.push(values.too_many(255));
    }
    let mut seen: Vec<i64> = Vec::new();
    for value in values.items() {
        if operator.text() == "In" && value.int() == 0 {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if seen.contains(&value.int()) {
            errors.push(value.duplicate());
        }
        seen.push(value.int());
    }
    if !seen.is_sorted() {
        errors.push(values.invalid("must be ordered"));
    }
    errors
}

fn success_policy(spec: &Field<'_>, policy: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let rules = policy.at("rules");
    if rules.is_empty() {
        errors.push(rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    if rules.len() > 20 {
        errors.push(rules.too_many(20));
    }
    let all = spec.at("completions").int();
    for rule in rules.items() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            errors.push(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
        }
        let mut total = 0;
        if indexes.is_set() {
            match count_indexes(indexes.text(), all) {
                Ok(count) => total = count,
                Err(why) => errors.push(indexes.invalid(format!("error parsing succeededIndexes: {why}"))),
            }
        }
        if count.is_set() {
            errors.extend(count.not_negative());
            if count.int() > all {
                errors.push(
                    count.invalid(format!("must be less than or equal to {all} (the number of specified completions)")),
                );
            }
            if indexes.is_set() && count.int() > total {
                errors.push(count.invalid(format!("must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)")));
            }
        }
    }
    errors
}

/// Counts the indexes in a text such as `1,3-5`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    let number = |part: &str| -> Result<i64, String> {
        let number: i64 = part.parse().map_err(|_| {
            format!("cannot convert string to integer for index: {}", flyball_core::field::go_quote(part))
        })?;
        if number >= completions {
            Err(format!("too large index: {}", flyball_core::field::go_quote(part)))
        } else {
            Ok(number)
        }
    };
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let parts: Vec<&str> = interval.split('-').collect();
        if parts.len() > 2 {
            return Err(format!(
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                flyball_core::field::go_quote(interval)
            ));
        }
        let start = number(parts[0])?;
        if let Some(last) = last.filter(|last| start <= *last) {
            return Err(format!("non-increasing order, previous: {last}, current: {start}"));
        }
        let end = parts.get(1).map_or(Ok(start), |part| number(part))?;
        if parts.len() == 2 && end <= start {
            return Err(format!("non-increasing order, previous: {start}, current: {end}"));
        }
        total += end - start + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The status of a job: it counts up, and what has ended stays so.
fn status(job: &Field<'_>, old: Option<&Object>) -> Errors {
    let status = job.at("status");
    let mut errors = Errors::new();
    for count in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.extend(status.at(count).not_negative());
    }
    let is = |job: &Field<'_>, condition: &str| {
        let conditions = job.at("status");
        let conditions = conditions.at("conditions");
        conditions.items().any(|known| known.at("type").text() == condition && known.at("status").text() == "True")
    };
    let finished = is(job, "Complete") || is(job, "Failed");
    let conditions = status.at("conditions");
    if is(job, "Complete") && is(job, "Failed") {
        errors.push(conditions.wrong("cannot set Complete=True and Failed=true conditions"));
    }
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    if end.is_set() {
        if !is(job, "Complete") {
            errors.push(end.invalid("cannot set completionTime when there is no Complete=True condition"));
        }
        if start.is_set() && end.text() < start.text() {
            errors.push(end.invalid("completionTime cannot be set before startTime"));
        }
    } else if is(job, "Complete") {
        errors.push(end.required("completionTime is required for Complete jobs"));
    }
    if finished && !start.is_set() {
        errors.push(start.required("startTime is required for finished job"));
    }
    if finished && status.at("active").int() > 0 {
        errors.push(status.at("active").invalid("active>0 is invalid for finished job"));
    }
    if finished && status.at("terminating").int() > 0 {
        errors.push(status.at("terminating").invalid("terminating>0 is invalid for finished job"));
    }
    if status.at("ready").int() > status.at("active").int() {
        errors.push(status.at("ready").invalid("cannot set more ready pods than active"));
    }
    if is(job, "Complete") && is(job, "FailureTarget") {
        errors.push(conditions.wrong("cannot set Complete=True and FailureTarget=true conditions"));
    }
    if is(job, "SuccessCriteriaMet") && is(job, "Failed") {
        errors.push(conditions.wrong("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if is(job, "SuccessCriteriaMet") && is(job, "FailureTarget") {
        errors.push(conditions.wrong("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    if is(job, "Complete") && !is(job, "SuccessCriteriaMet") {
        errors
            .push(conditions.wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"));
    }
    if is(job, "Failed") && !is(job, "FailureTarget") {
        errors.push(conditions.wrong("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    let Some(old) = old else { return errors };
    let before = Field::root(old);
    for condition in ["Failed", "Complete", "FailureTarget"]
        .into_iter()
        .filter(|condition| is(&before, condition) && !is(job, condition))
    {
        errors.push(conditions.wrong(format!("cannot disable the terminal {condition}=True condition")));
    }
    for counter in ["failed", "succeeded"] {
        let field = status.at(counter);
        if field.int() < before.at("status").at(counter).int() {
            errors.push(field.invalid_as(field.int(), format!("cannot decrease the {counter} counter")));
        }
    }
    let earlier = before.at("status.completionTime");
    if end.is_set() && earlier.is_set() && end.value() != earlier.value() {
        errors.push(end.invalid("field is immutable"));
    }
    let earlier = before.at("status.startTime");
    if earlier.is_set() && start.value() != earlier.value() && !job.at("spec.suspend").flag() {
        errors.push(start.invalid("field is immutable for unsuspended job once set"));
    }
    if is(&before, "SuccessCriteriaMet") && !is(job, "SuccessCriteriaMet") {
        errors.push(conditions.wrong("cannot disable the SuccessCriteriaMet=True condition"));
    }
    errors
}

pub(super) fn cron_job(job: &Object, old: Option<&Object>, part: Part) -> Errors {
    if part == Part::Status {
        return Errors::new();
    }
    let root = Field::root(job);
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let (schedule, zone) = (spec.at("schedule"), spec.at("timeZone"));
    if schedule.is_empty() {
        errors.push(schedule.required(""));
    } else {
        errors.extend(cron::check(schedule.text()).err().map(|why| schedule.invalid(why)));
        let before = old.and_then(|old| old.at(&["spec", "schedule"])).and_then(Value::as_str).unwrap_or_default();
        if schedule.text().contains("TZ") {
            if !before.contains("TZ") {
                errors.push(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
            } else if zone.is_set() {
                errors.push(schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
            }
        }
    }
    errors.extend(spec.at("startingDeadlineSeconds").not_negative());
    if zone.is_set() && old.is_none_or(|old| old.at(&["spec", "timeZone"]) != Some(zone.value())) {
        errors.extend(time_zone(&zone));
    }
    errors.extend(spec.at("concurrencyPolicy").must_be_one_of(&["Allow", "Forbid", "Replace"]));
    let template = spec.at("jobTemplate.spec");
    let outer = spec.at("jobTemplate");
    let inner = outer.at("spec");
    let _ = template;
    errors.extend(job_spec(&inner));
    let wanted = inner.at("selector");
    if wanted.is_set() {
        errors.push(wanted.invalid_as(selector(wanted.value()), "`selector` will be auto-generated"));
    }
    if inner.at("manualSelector").flag() {
        errors.push(inner.at("manualSelector").not_supported(&["nil", "false"]));
    }
    for limit in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.extend(spec.at(limit).not_negative());
    }
    if old.is_none() && job.name().len() > 52 {
        errors.push(FieldError::invalid("metadata.name", job.name(), "must be no more than 52 characters"));
    }
    errors
}

/// Time zones are known by a city, or by few other names.
fn time_zone(zone: &Field<'_>) -> Errors {
    let name = zone.text();
    if name.is_empty() {
        return vec![zone.invalid("timeZone must be nil or non-empty string")];
    }
    let good = |part: &str| {
        let plain =
            (1..=14).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b));
        plain && !matches!(part, "." | "..") && !part.starts_with('-')
    };
    if !name.split('/').all(good) {
        return vec![zone.invalid(format!("unknown time zone {name}"))];
    }
    let mut errors = Errors::new();
    if name.eq_ignore_ascii_case("local") {
        errors
            .push(zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"));
    }
    if name != "Local" && !flyball_core::time::is_time_zone(name) {
        errors.push(zone.invalid(format!("unknown time zone {name}")));
    }
    errors
}

/// Warns of names that become host names, and of what is unwise in pods.
pub(super) fn warn_of_job(job: &Object, old: Option<&Object>) -> Vec<String> {
    warn(job, old, &["spec", "template"])
}

pub(super) fn warn_of_cron_job(job: &Object, old: Option<&Object>) -> Vec<String> {
    warn(job, old, &["spec", "jobTemplate", "spec", "template"])
}

fn warn(job: &Object, old: Option<&Object>, path: &[&str]) -> Vec<String> {
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
    let name = format!("{}.spec", path.join("."));
    let root = flyball_core::field::Path::new(&name);
    let spec = template.get("spec").unwrap_or(&Value::Null);
    warnings.extend(pod::warn_of_spec(&Field::new(root, spec), false));
    warnings
}
