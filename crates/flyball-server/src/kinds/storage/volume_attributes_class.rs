//! Volume attributes classes.

use super::GROUP;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Row, View};

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "VolumeAttributesClass", "volumeattributesclasses")
    .printed(row)
    .short(&["vac"])
    .cluster()
    .deleted_as_object();

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("driverName").into(), view.age()])
}
