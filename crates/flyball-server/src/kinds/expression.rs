//! CEL expressions in the configuration of admission: their variables and result types.

use super::field::Field;
use flyball_core::field::FieldError;
use flyball_schema::cel::{self, AUTHORIZER, Type, check_among};

/// The variables of an expression, with their types.
pub(super) type Variables<'n> = Vec<(&'n str, Type<'static>)>;

/// Returns the variables of all admission expressions.
pub(super) fn variables() -> Variables<'static> {
    vec![("object", Type::Dyn), ("oldObject", Type::Dyn), ("request", cel::request()), ("authorizer", AUTHORIZER)]
}

/// The result type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultType {
    Bool,
    Text,
    TextOrNull,
    Object,
    Patches,
}

impl ResultType {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Text => "string",
            Self::TextOrNull => "one of [string null_type]",
            Self::Object => "Object",
            Self::Patches => "list(JSONPatch)",
        }
    }

    /// Returns true if a result has this type; `dyn` does not match.
    fn takes(self, ty: &Type<'_>) -> bool {
        match (self, ty) {
            (Self::Bool, _) => ty.is("bool"),
            (Self::Text, _) => ty.is("string"),
            (Self::TextOrNull, _) => ty.is("string") || ty.is("null"),
            (Self::Object, _) => ty.is("Object"),
            (Self::Patches, Type::List(items)) => items.is("JSONPatch"),
            (Self::Patches, _) => false,
        }
    }
}

/// Validates an expression with these variables.
pub(super) fn check(expression: &Field<'_>, variables: &Variables<'_>, expected: ResultType) -> Option<FieldError> {
    check_text(expression, expression.text(), variables, expected)
}

/// Like [`check`], without surrounding white space.
pub(super) fn check_trimmed(
    expression: &Field<'_>,
    variables: &Variables<'_>,
    expected: ResultType,
) -> Option<FieldError> {
    check_text(expression, expression.text().trim(), variables, expected)
}

fn check_text(
    expression: &Field<'_>,
    text: &str,
    variables: &Variables<'_>,
    expected: ResultType,
) -> Option<FieldError> {
    let why = match check_among(text, variables) {
        Ok(ty) if expected.takes(&ty) => return None,
        Ok(ty) => format!("must evaluate to {} but got {}", expected.name(), ty.declared_name()),
        Err(why) => format!("compilation failed: {why}"),
    };
    Some(expression.invalid_as(text, why))
}

/// Returns the type of an expression's result, or its compile error.
pub(super) fn result_type(expression: &Field<'_>, variables: &Variables<'_>) -> Result<Type<'static>, FieldError> {
    let text = expression.text();
    check_among(text, variables).map_err(|why| expression.invalid_as(text, format!("compilation failed: {why}")))
}
