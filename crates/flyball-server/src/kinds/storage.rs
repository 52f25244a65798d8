//! Kinds of `storage.k8s.io`.

mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

pub(crate) use storage_class::KIND as STORAGE_CLASS;

use crate::kinds::kind::Kind;

const GROUP: &str = "storage.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[
    &csi_driver::KIND,
    &csi_node::KIND,
    &csi_storage_capacity::KIND,
    &storage_class::KIND,
    &volume_attachment::KIND,
    &volume_attributes_class::KIND,
];
