//! Cron jobs: a schedule, a time zone and a template of jobs.

use super::{GROUP, job};
use crate::kinds::display::selector;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, NONE, Row, UNSET, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::cron::Schedule;
use flyball_core::field::FieldError;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "CronJob", "cronjobs")
    .printed(COLUMNS, row)
    .pod_template(&["spec", "jobTemplate", "spec", "template"])
    .default(default)
    .warn(warn)
    .validate(validate)
    .short(&["cj"])
    .category("all")
    .generation()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Schedule", "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."),
    Heading::text(
        "Timezone",
        "The time zone name for the given schedule, see \
         https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default to the \
         time zone of the kube-controller-manager process. The set of valid time zone names and the time zone offset \
         is loaded from the system-wide time zone database by the API server during CronJob validation and the \
         controller manager during execution. If no system-wide time zone database can be found a bundled version of \
         the database is used instead. If the time zone name becomes invalid during the lifetime of a CronJob or due \
         to a change in host configuration, the controller will stop creating new new Jobs and will create a system \
         event with the reason UnknownTimeZone. More information can be found in \
         https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
    ),
    Heading::flag(
        "Suspend",
        "This flag tells the controller to suspend subsequent executions, it does not apply to already started \
         executions.  Defaults to false.",
    ),
    Heading::number("Active", "A list of pointers to currently running jobs."),
    Heading::text("Last Schedule", "Information when was the last time the job was successfully scheduled."),
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

fn default(job: &mut Object) {
    let spec = job.inner_or_new("spec");
    if let Some(template) = spec.inner("jobTemplate").and_then(|template| template.inner("spec")) {
        job::default_spec(template);
    }
    spec.fill("concurrencyPolicy", "Allow");
    spec.fill("suspend", false);
    spec.fill("successfulJobsHistoryLimit", 3);
    spec.fill("failedJobsHistoryLimit", 1);
}

fn validate(job: &Object, old: Option<&Object>, part: Part) -> Errors {
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
        errors.extend(Schedule::parse(schedule.text()).err().map(|why| schedule.invalid(why)));
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
    let outer = spec.at("jobTemplate");
    let inner = outer.at("spec");
    errors.extend(job::spec(&inner));
    let label_selector = inner.at("selector");
    if label_selector.is_set() {
        errors.push(label_selector.invalid_as(selector(label_selector.value()), "`selector` will be auto-generated"));
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

/// Validates a time zone: names of cities, and a few other names.
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

fn warn(job: &Object, old: Option<&Object>) -> Vec<String> {
    job::warn_of_template(job, old, &["spec", "jobTemplate", "spec", "template"])
}

fn row(view: &View<'_>) -> Row {
    let last = view.text("status.lastScheduleTime");
    let [names, images] = view.containers("spec.jobTemplate.spec.template.spec.containers");
    let suspended = match view.at("spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    };
    Row::from([
        view.name(),
        view.text("spec.schedule").into(),
        view.at("spec.timeZone").as_str().unwrap_or(NONE).into(),
        suspended.into(),
        view.list("status.active").len().into(),
        if last.is_empty() { NONE.into() } else { view.since(last).into() },
        view.age(),
        names,
        images,
        view.selector("spec.jobTemplate.spec.selector"),
    ])
}
