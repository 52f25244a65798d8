//! A step whose manifest is not yet in its final form.

use crate::api::Step;

/// A step with the package of its bundle.
pub(super) struct Draft<'c> {
    pub(super) step: Step,
    pub(super) package: &'c str,
    /// True if the bundle contains the object as it is in the step.
    pub(super) is_from_bundle: bool,
}
