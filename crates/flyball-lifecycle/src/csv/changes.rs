//! Changes of objects that concern operators.

use crate::install::Definition;
use flyball::Predicate;

/// Returns the changes of a CRD that concern its operators. A plan also writes labels and annotations, several for each
/// CRD: a reconcile for each of them would check all objects of the operator.
pub(super) fn definition_changes() -> Predicate<Definition> {
    let is_served = Predicate::new(|old: &Definition, new: &Definition| old.is_established() != new.is_established());
    let is_deleted = Predicate::new(|old: &Definition, new: &Definition| {
        old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
    });
    Predicate::generation().or(is_served).or(is_deleted)
}
