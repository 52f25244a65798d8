//! Kinds of `events.k8s.io`.

use crate::kinds::kind::{Checks, Kind};
use crate::kinds::{event, printers};

const GROUP: &str = "events.k8s.io";

/// The group that objects are stored in.
const CORE: &str = "";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "Event", "events")
    .printed(printers::event::new)
    .checks(Checks::Once)
    .validate(event::validate_new)
    .short(&["ev"])
    .create_on_update()
    .fields(event::NEW_FIELDS, event::field)
    .stored_as(CORE, event::to_core, event::from_core)];
