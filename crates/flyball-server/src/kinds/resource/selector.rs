//! Selectors of devices: CEL expressions with the variable `device`.

use super::{Errors, list};
use crate::kinds::field::Field;
use flyball_schema::cel::{Type, check_among};

const MAX_SELECTORS: usize = 32;
const MAX_EXPRESSION: usize = 10 * 1024;

/// Validates selectors; unchanged stored expressions are accepted.
pub(super) fn check(selectors: &Field<'_>, stored: bool) -> Errors {
    list(selectors, MAX_SELECTORS, |selector| {
        let cel = selector.at("cel");
        if !cel.is_set() {
            return vec![cel.required("")];
        }
        if stored { Errors::new() } else { expression(&cel) }
    })
}

fn expression(cel: &Field<'_>) -> Errors {
    let expression = cel.at("expression");
    let text = expression.text();
    if text.len() > MAX_EXPRESSION {
        return vec![expression.too_long(MAX_EXPRESSION as u64)];
    }
    // The checker has no macro for local variables, which kube-apiserver's environment has.
    if text.contains("cel.bind") {
        return Errors::new();
    }
    let why = match check_among(text, &[("device", device())]) {
        Ok(made) if made.is("bool") || made.is_dyn() => return Errors::new(),
        Ok(made) => format!("must evaluate to bool or the unknown type, not {made}"),
        Err(why) => format!("compilation failed: {why}"),
    };
    vec![expression.invalid_as(text, why)]
}

/// The type of `device`: its attributes and capacities by domain and name.
fn device() -> Type<'static> {
    let text = || Type::Plain("string");
    let named = |values: Type<'static>| Type::Map(text().into(), Type::Map(text().into(), values.into()).into());
    let fields = vec![
        ("allowMultipleAllocations".to_owned(), Type::Plain("bool")),
        ("attributes".to_owned(), named(Type::Dyn)),
        ("capacity".to_owned(), named(Type::Plain("kubernetes.Quantity"))),
        ("driver".to_owned(), text()),
    ];
    Type::Fields(fields.into())
}
