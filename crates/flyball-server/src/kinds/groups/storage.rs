//! Kinds of `storage.k8s.io`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{attachment, defaults, printers, storage};

const GROUP: &str = "storage.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "CSIDriver", "csidrivers")
        .printed(printers::storage::csi_driver)
        .default(defaults::csi_driver)
        .validate(attachment::driver)
        .cluster()
        .versioned_updates()
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "CSINode", "csinodes")
        .printed(printers::storage::csi_node)
        .validate(attachment::node)
        .cluster()
        .versioned_updates()
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "CSIStorageCapacity", "csistoragecapacities").versioned_updates(),
    Kind::new(GROUP, "v1", "StorageClass", "storageclasses")
        .printed(printers::storage::storage_class)
        .default(defaults::storage_class)
        .checks(Checks::Whole)
        .validate(storage::validate_class)
        .short(&["sc"])
        .cluster()
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "VolumeAttachment", "volumeattachments")
        .printed(printers::storage::attachment)
        .validate(attachment::attachment)
        .cluster()
        .versioned_updates()
        .deleted_as_object()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "VolumeAttributesClass", "volumeattributesclasses")
        .printed(printers::storage::attributes_class)
        .short(&["vac"])
        .cluster()
        .deleted_as_object(),
];
