//! Kinds of `resource.k8s.io`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{device, printers};

const GROUP: &str = "resource.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "DeviceClass", "deviceclasses")
        .printed(printers::configuration::named)
        .checks(Checks::Whole)
        .validate(device::class::validate)
        .cluster()
        .generation()
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "ResourceClaim", "resourceclaims")
        .printed(printers::device::claim)
        .default(device::claim::default)
        .prepare(device::claim::prepare)
        .checks(Checks::Whole)
        .validate(device::claim::validate)
        .deleted_as_object()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
        .printed(printers::configuration::named)
        .default(device::template::default)
        .validate(device::template::validate)
        .deleted_as_object(),
    Kind::new(GROUP, "v1", "ResourceSlice", "resourceslices")
        .printed(printers::device::slice)
        .prepare(device::slice::prepare)
        .warn(device::slice::warn)
        .validate(device::slice::validate)
        .cluster()
        .generation()
        .deleted_as_object()
        .paths(&["spec.driver", "spec.nodeName"]),
];
