//! Capacities of devices, and policies of their consumption.

use super::{Errors, set};
use crate::kinds::field::Field;
use crate::kinds::rules::resource::amount;
use flyball_core::Quantity;
use flyball_core::field::FieldError;

const MAX_OPTIONS: usize = 10;

/// Validates a capacity of a shared or exclusive device.
pub(super) fn check(capacity: &Field<'_>, shared: bool) -> Errors {
    let (value, policy) = (capacity.at("value"), capacity.at("requestPolicy"));
    match (policy.is_set(), shared) {
        (false, _) => Errors::new(),
        (true, false) => vec![policy.forbidden("allowMultipleAllocations must be true")],
        (true, true) => self::policy(&policy, &amount(&value)),
    }
}

fn policy(policy: &Field<'_>, capacity: &Quantity) -> Errors {
    let (default, values, range) = (policy.at("default"), policy.at("validValues"), policy.at("validRange"));
    let required = |by: &str| vec![default.required(format!("required when {by} is defined"))];
    match (!values.is_empty(), range.is_set(), default.is_set()) {
        (true, true, _) => vec![policy.forbidden(
            r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
        )],
        (true, false, false) => required("validValues"),
        (true, false, true) => options(&values, &amount(&default), capacity),
        (false, true, false) => required("validRange"),
        (false, true, true) => self::range(&range, &amount(&default), capacity),
        (false, false, _) => Errors::new(),
    }
}

fn options(values: &Field<'_>, default: &Quantity, capacity: &Quantity) -> Errors {
    let mut errors = Errors::new();
    let amounts: Vec<Quantity> = values.items().map(|value| amount(&value)).collect();
    for (later, pair) in amounts.windows(2).enumerate().filter(|(_, pair)| pair[0] > pair[1]) {
        let item = values.index(later + 1);
        errors.push(item.invalid_as(pair[1].to_string(), "values must be sorted in ascending order"));
    }
    errors.extend(set(
        values,
        MAX_OPTIONS,
        |value| amount(value).value().to_string(),
        |value| {
            let option = amount(value);
            let why = || format!("option is larger than capacity value: {capacity}");
            (option > *capacity).then(|| value.invalid_as(option.to_string(), why())).into_iter().collect()
        },
    ));
    if amounts.len() > MAX_OPTIONS || !amounts.contains(default) {
        const INVALID_DEFAULT: &str = "default value is not valid according to the requestPolicy";
        errors.push(values.invalid_as(default.to_string(), INVALID_DEFAULT));
    }
    errors
}

fn range(range: &Field<'_>, default: &Quantity, capacity: &Quantity) -> Errors {
    let (lowest, highest, step) = (range.at("min"), range.at("max"), range.at("step"));
    let mut errors = Errors::new();
    let mut wrong = |field: &str, shown: &Quantity, why: String| {
        errors.push(range.at(field).invalid_as(shown.to_string(), why));
    };
    if !lowest.is_set() {
        return vec![lowest.required("required when validRange is defined")];
    }
    let min = amount(&lowest);
    if min > *capacity {
        wrong("min", &min, format!("min is larger than capacity value: {capacity}"));
    }
    if *default < min {
        wrong("default", default, format!("default is less than min: {min}"));
    }
    let max = highest.is_set().then(|| amount(&highest));
    if let Some(max) = &max {
        if min > *max {
            wrong("max", &min, format!("min is larger than max: {max}"));
        }
        if max > capacity {
            wrong("max", max, format!("max is larger than capacity value: {capacity}"));
        }
        if default > max {
            wrong("default", default, format!("default is more than max: {max}"));
        }
    }
    if step.is_set() {
        errors.extend(steps(&step, &min, default, max.as_ref(), capacity));
    }
    errors
}

/// Validates that default and maximum differ from the minimum by multiples of the step.
fn steps(
    step: &Field<'_>,
    min: &Quantity,
    default: &Quantity,
    max: Option<&Quantity>,
    capacity: &Quantity,
) -> Vec<FieldError> {
    let size = amount(step);
    if size <= Quantity::ZERO {
        return vec![step.invalid_as(size.to_string(), "must be greater than zero")];
    }
    let mut errors = Errors::new();
    let first = min.plus(&size);
    if first > *capacity {
        let why = format!("one step {first} is larger than capacity value: {capacity}");
        errors.push(step.invalid_as(size.to_string(), why));
    }
    for amount in std::iter::once(default).chain(max) {
        let whole = |amount: &Quantity| i128::from(amount.value());
        if (whole(amount) - whole(min)) % whole(&size) != 0 {
            let why = format!("value is not a multiple of a given step ({size}) from ({min})");
            errors.push(step.invalid_as(amount.to_string(), why));
        }
    }
    errors
}
