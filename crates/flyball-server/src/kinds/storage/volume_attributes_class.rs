//! Volume attributes classes.

use super::GROUP;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "VolumeAttributesClass", "volumeattributesclasses")
    .printed(COLUMNS, row)
    .short(&["vac"])
    .cluster()
    .deleted_as_object();

const COLUMNS: &[Heading] =
    &[Heading::NAME, Heading::text("DriverName", "Name of the CSI driver This field is immutable."), Heading::AGE];

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("driverName").into(), view.age()])
}
