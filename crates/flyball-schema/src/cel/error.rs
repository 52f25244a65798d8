//! Errors of evaluations.

/// The reason why an evaluation returns no value, with the message of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The expression does not compile.
    #[error("compilation error: {0}")]
    Compile(String),
    /// The evaluation exceeds the cost limit of one run, or its memory limit.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// Several evaluations together exceed their budget.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
    /// A map has no such key, or an object no such field.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A function or an operator does not accept these types of arguments.
    #[error("no such overload")]
    NoSuchOverload,
    /// Another error of a function or an operator.
    #[error("{0}")]
    Function(String),
}
