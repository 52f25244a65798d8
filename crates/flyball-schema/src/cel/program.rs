//! An expression, parsed and made ready to run.

use super::rewrite::rewrite;
use kube_cel::cel::objects::Value as Cel;
use kube_cel::cel::parser::{ExpressionReferences, Parser};
use kube_cel::cel::{Context, ExecutionError, IdedExpr};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Program {
    /// As it was written, but for the language's own macros.
    written: IdedExpr,
    /// In the words that the interpreter knows.
    ready: IdedExpr,
}

/// Compiles an expression; `Err` says what is wrong with it.
pub fn compile(expression: &str) -> Result<Program, String> {
    // The parser is another's code and its input a user's: a panic in it is a refusal like any other.
    let parse = AssertUnwindSafe(|| Parser::new().enable_optional_syntax(true).parse(expression));
    match catch_unwind(parse) {
        Ok(Ok(written)) => {
            let ready = rewrite(written.clone());
            Ok(Program { written, ready })
        }
        Ok(Err(errors)) => Err(errors.to_string().replace("\n| ", "\n | ")),
        Err(_) => Err("the expression cannot be parsed".into()),
    }
}

impl Program {
    /// Returns the syntax tree as it was written.
    pub(super) fn expression(&self) -> &IdedExpr {
        &self.written
    }

    /// Returns the names that the expression uses.
    pub fn references(&self) -> ExpressionReferences<'_> {
        self.written.references()
    }

    /// Runs the program; an error says why in the words of the real server.
    pub(super) fn run(&self, context: &Context<'_>) -> Result<Cel, String> {
        match catch_unwind(AssertUnwindSafe(|| Cel::resolve(&self.ready, context))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(explain(error)),
            Err(_) => Err("the expression could not be evaluated".into()),
        }
    }
}

fn explain(error: ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".into(),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {index:?}"),
        ExecutionError::FunctionError { function, message } => match &*function {
            "quantity" => {
                r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()
            }
            "duration" => "type conversion error from 'string' to 'google.protobuf.Duration'".into(),
            "timestamp" => "type conversion error from 'string' to 'google.protobuf.Timestamp'".into(),
            _ => message,
        },
        error => error.to_string(),
    }
}
