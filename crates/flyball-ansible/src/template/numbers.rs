//! Filters of numbers, and random values.

use super::{Scope, from_json, reject, to_json, weigh};
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, State};

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
    env.add_filter("random", random);
}

fn finite(number: f64) -> Result<f64, Error> {
    number.is_finite().then_some(number).ok_or_else(|| reject("the result is not a finite number"))
}

/// Returns a random number below a limit, or a random item of a list.
fn random(
    state: &State<'_, '_>,
    end: Value,
    start: Option<i64>,
    step: Option<i64>,
    options: Kwargs,
) -> Result<Value, Error> {
    let start = start.or(options.get("start")?).unwrap_or(0);
    let step = step.or(options.get("step")?).unwrap_or(1);
    options.assert_all_used()?;
    let scope = Scope::of(state)?;
    let below = |bound: u64| match bound {
        0 => Err(reject("random: the range is empty")),
        bound => scope.sources().below(bound).map_err(reject),
    };
    match i64::try_from(end.clone()) {
        Ok(end) if step > 0 => {
            let span = u64::try_from(end.saturating_sub(start)).unwrap_or(0);
            let drawn = below(span.div_ceil(step.unsigned_abs()))?;
            Ok(Value::from(start.saturating_add(i64::try_from(drawn).unwrap_or(i64::MAX).saturating_mul(step))))
        }
        Ok(_) => Err(reject("random: step must be positive")),
        Err(_) => {
            weigh(state, &end)?;
            let serde_json::Value::Array(mut items) = to_json(&end)? else {
                return Err(reject("random: the value must be a number or a list"));
            };
            let drawn = below(items.len() as u64)?;
            Ok(from_json(items.swap_remove(drawn as usize)))
        }
    }
}
