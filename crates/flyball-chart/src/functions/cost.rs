//! Costs of function calls: each is charged to the budget before it is made.
//!
//! The table takes no function without a cost. Most cost what it takes to go through what they are given; what depends
//! on more than that, such as on the number of matches, is charged by the function itself as well, before it does the
//! work.

use crate::value::Value;
use crate::world::Call;

/// Charges a call to the budget.
///
/// # Errors
/// The budget does not allow it.
pub(crate) type Cost = fn(&Call<'_>, &[Value]) -> Result<(), String>;

/// Cost of a function that goes through none of its arguments.
pub(super) fn constant(call: &Call<'_>, _: &[Value]) -> Result<(), String> {
    call.world.charge(1, 0)
}

/// Cost of a function that goes through lists and maps, without looking into what they hold.
pub(super) fn shallow(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    call.world.charge_shallow(1, args)
}

/// Cost of a function that goes through all that its arguments hold.
pub(super) fn deep(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    slow::<1>(call, args)
}

/// Cost of a function that looks at each letter of its texts, and makes something of each value.
pub(super) fn letters(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    call.world.weigh_letters(args)
}

/// Cost of a function that takes so many steps of about 20 ns, and goes through all that its arguments hold.
pub(super) fn slow<const STEPS: u64>(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    call.world.charge(STEPS, 0)?;
    call.world.weigh(args).map(drop)
}
