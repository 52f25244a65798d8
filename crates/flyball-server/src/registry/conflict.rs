//! The 409 of an apply that conflicts with other managers.

use flyball_core::Status;
use flyball_core::status::{Cause, Details, Reason, first_causes};
use flyball_schema::apply::Conflict;

/// Creates the 409 that lists the conflicts of an applier, at most as many as [`first_causes`] allows.
pub(super) fn status(all: &[Conflict]) -> Status {
    let (conflicts, left_out) = first_causes(all, |conflict| conflict.field().len());
    let message = match all {
        [only] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager.describe(), only.field())
        }
        _ => {
            let mut message = format!("Apply failed with {} conflicts:", all.len());
            for (i, conflict) in conflicts.iter().enumerate() {
                if i == 0 || conflicts[i - 1].manager != conflict.manager {
                    let separator = if i == 0 { " " } else { "\n" };
                    message += &format!("{separator}conflicts with {}:", conflict.manager.describe());
                }
                message += &format!("\n- {}", conflict.field());
            }
            if !left_out.is_empty() {
                message += &format!("\nand {} more", left_out.len());
            }
            message
        }
    };
    let cause = |conflict: &Conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.manager.describe()),
        field: conflict.field(),
    };
    let causes = conflicts.iter().map(cause).collect();
    Status::new(409, Reason::Conflict, message).with_details(Details { causes, ..Details::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::status::MAX_CAUSES;
    use flyball_schema::apply::{Manager, PathElement};

    fn conflict(manager: Manager, field: &str) -> Conflict {
        Conflict { manager, path: vec![PathElement::field("spec"), PathElement::field(field)] }
    }

    #[test]
    fn conflict_names_the_other_manager() {
        let only = status(&[conflict(Manager::applier("a", ""), "replicas")]);
        assert_eq!(only.code, 409);
        assert_eq!(only.message, "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas");
        let updater = || Manager::updater("u", "g/v1", "");
        let two = status(&[conflict(updater(), "replicas"), conflict(updater(), "x")]);
        assert_eq!(
            two.message,
            "Apply failed with 2 conflicts: conflicts with \"u\" using g/v1:\n- .spec.replicas\n- .spec.x"
        );
    }

    #[test]
    fn conflicts_are_listed_up_to_a_bound() {
        let many = vec![conflict(Manager::applier("a", ""), "x"); MAX_CAUSES + 2];
        let many = status(&many);
        assert!(many.message.ends_with("\nand 2 more"), "{}", many.message);
        assert_eq!(many.details.map(|details| details.causes.len()), Some(MAX_CAUSES));
    }
}
