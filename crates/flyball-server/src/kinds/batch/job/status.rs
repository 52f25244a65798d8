//! The status of jobs.

use crate::kinds::field::{Errors, Field};
use flyball_core::Object;

/// Validates the status of a job: counters do not decrease, and a finished job stays finished.
pub(super) fn status(job: &Field<'_>, old: Option<&Object>) -> Errors {
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
        errors.push(conditions.invalid_without_value("cannot set Complete=True and Failed=true conditions"));
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
        errors.push(conditions.invalid_without_value("cannot set Complete=True and FailureTarget=true conditions"));
    }
    if is(job, "SuccessCriteriaMet") && is(job, "Failed") {
        errors.push(conditions.invalid_without_value("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if is(job, "SuccessCriteriaMet") && is(job, "FailureTarget") {
        errors.push(
            conditions.invalid_without_value("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        );
    }
    if is(job, "Complete") && !is(job, "SuccessCriteriaMet") {
        errors.push(
            conditions.invalid_without_value(
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            ),
        );
    }
    if is(job, "Failed") && !is(job, "FailureTarget") {
        errors.push(
            conditions
                .invalid_without_value("cannot set Failed=True condition without the FailureTarget=true condition"),
        );
    }
    let Some(old) = old else { return errors };
    let before = Field::root(old);
    for condition in ["Failed", "Complete", "FailureTarget"]
        .into_iter()
        .filter(|condition| is(&before, condition) && !is(job, condition))
    {
        errors
            .push(conditions.invalid_without_value(format!("cannot disable the terminal {condition}=True condition")));
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
        errors.push(conditions.invalid_without_value("cannot disable the SuccessCriteriaMet=True condition"));
    }
    errors
}
