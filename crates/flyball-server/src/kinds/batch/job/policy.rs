//! Failure and success policies of jobs.

use crate::kinds::field::{Errors, Field};
use crate::kinds::rules::text;
use flyball_core::names::qualified_name;
use std::collections::BTreeSet;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];

pub(super) fn failure_policy(spec: &Field<'_>, policy: &Field<'_>) -> Errors {
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
            (true, false) => errors
                .push(rule.invalid_without_value("specifying both OnExitCodes and OnPodConditions is not supported")),
            (false, true) => {
                errors.push(rule.invalid_without_value("specifying one of OnExitCodes and OnPodConditions is required"))
            }
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
    let mut seen: BTreeSet<i64> = BTreeSet::new();
    let integers: Vec<i64> = values.items().map(|value| value.int()).collect();
    for value in values.items() {
        if operator.text() == "In" && value.int() == 0 {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if !seen.insert(value.int()) {
            errors.push(value.duplicate());
        }
    }
    if !integers.is_sorted() {
        errors.push(values.invalid("must be ordered"));
    }
    errors
}

pub(super) fn success_policy(spec: &Field<'_>, policy: &Field<'_>) -> Errors {
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

/// Counts the indexes in a string such as `1,3-5`.
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
