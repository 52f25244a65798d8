//! Expressions in the configuration of admission, which are independent of a schema.

use super::authorizer::{AuthorizationCheck, AuthorizeFn, REQUEST_RESOURCE, authorizer, request_resource};
use super::budget::Budget;
use super::error::Error;
use super::{BASE, Program, compile};
use kube_cel::cel::objects::{Key, Map as CelMap, Value as Cel};
use kube_cel::cel::{Context, ExecutionError, ResolveResult};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A compiled expression.
pub struct Expression {
    text: String,
    program: Result<Program, String>,
}

/// The variables of an expression.
pub struct Scope(Context<'static>);

impl Scope {
    /// Creates a scope with functions only.
    pub fn new() -> Self {
        Self(BASE.new_inner_scope())
    }

    /// Sets a variable to an object's fields.
    pub fn set_fields(&mut self, name: &str, fields: &[(String, Cel)]) {
        let fields = fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), value.clone()));
        self.set(name, Cel::Map(CelMap { map: Arc::new(fields.collect()) }));
    }

    /// Sets `authorizer`, and `authorizer.requestResource` for the resource of the request.
    pub fn set_authorizer(&mut self, request: AuthorizationCheck, decide: Arc<AuthorizeFn>) {
        self.set("authorizer", authorizer(decide.clone()));
        self.set(REQUEST_RESOURCE, request_resource(request, decide));
    }

    /// Adds a function that compares two strings, with a negative, zero or positive result.
    pub fn set_comparison(&mut self, name: &str, compare: fn(&str, &str) -> Result<Ordering, String>) {
        let function = name.to_owned();
        self.0.add_function(name, move |one: Arc<String>, other: Arc<String>| -> ResolveResult {
            let order = compare(&one, &other).map_err(|why| ExecutionError::function_error(&function, why))?;
            Ok(Cel::Int(order as i64))
        });
    }

    /// Sets the value of a variable.
    pub fn set(&mut self, name: &str, value: Cel) {
        self.0.add_variable_from_value(name.to_owned(), value);
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl Expression {
    /// Compiles an expression; an invalid expression fails on each evaluation.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), program: compile(text) }
    }

    /// Returns the source of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the errors of an invalid expression.
    pub fn check(&self) -> Result<(), &str> {
        self.program.as_ref().map(|_| ()).map_err(String::as_str)
    }

    /// Evaluates the expression, and charges the budget.
    pub fn run(&self, scope: &Scope, budget: &Budget) -> Result<Cel, Error> {
        match &self.program {
            Ok(program) => program.run(&scope.0, budget),
            Err(why) => Err(Error::Compile(why.clone())),
        }
    }

    /// Returns the message of an error of this expression, which names the expression.
    pub fn message(&self, error: &Error) -> String {
        match error {
            Error::Compile(_) | Error::OutOfBudget => error.to_string(),
            _ => format!("expression '{}' resulted in error: {error}", self.text),
        }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}
