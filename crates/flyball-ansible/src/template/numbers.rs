//! Filters of numbers.

use super::reject;
use minijinja::{Environment, Error};

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("log", |number: f64, base: Option<f64>| {
        finite(match base {
            None => number.ln(),
            Some(10.0) => number.log10(),
            Some(2.0) => number.log2(),
            Some(base) => number.log(base),
        })
    });
    env.add_filter("pow", |number: f64, exponent: f64| finite(number.powf(exponent)));
    env.add_filter("root", |number: f64, base: Option<f64>| match base {
        None | Some(2.0) => finite(number.sqrt()),
        Some(3.0) => finite(number.cbrt()),
        Some(base) => finite(number.powf(base.recip())),
    });
}

fn finite(number: f64) -> Result<f64, Error> {
    number.is_finite().then_some(number).ok_or_else(|| reject("the result is not a finite number"))
}
