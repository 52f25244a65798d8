//! Costs of function calls: each call is charged to the budget before it runs.
//!
//! Every function in the table has a cost. Most costs are the size of the arguments. A function whose work depends on
//! more than that, such as on the number of matches, charges the rest itself before it does the work.

use crate::context::Call;
use crate::value::Value;

/// Charges a call to the budget.
///
/// # Errors
///
/// Fails if the budget is exhausted.
pub(crate) type Cost = fn(&Call<'_>, &[Value]) -> Result<(), String>;

/// Cost of a function that does not iterate over its arguments.
pub(super) fn constant(call: &Call<'_>, _: &[Value]) -> Result<(), String> {
    call.context.charge(1, 0)
}

/// Cost of a function that iterates over lists and maps, without descending into their items.
pub(super) fn shallow(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    call.context.charge_shallow(1, args)
}

/// Cost of a function that traverses its first argument completely.
pub(super) fn first(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    deep(call, &args[..args.len().min(1)])
}

/// Cost of a function that traverses its arguments completely.
pub(super) fn deep(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    slow::<1>(call, args)
}

/// Cost of a function that processes each character of its texts, and builds something from each value.
pub(super) fn letters(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    call.context.weigh_letters(args)
}

/// Cost of a function like [`letters`] that may escape each character of its texts.
pub(super) fn escapes(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    letters(call, args)?;
    call.context.charge_escapes(args)
}

/// Cost of a function that takes this number of steps of about 20 ns, and traverses its arguments completely.
pub(super) fn slow<const STEPS: u64>(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    call.context.charge(STEPS, 0)?;
    call.context.weigh(args).map(drop)
}
