//! Volume attachments.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::names::dns_subdomain;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "VolumeAttachment", "volumeattachments")
    .printed(COLUMNS, row)
    .validate(validate)
    .cluster()
    .versioned_updates()
    .deleted_as_object()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading {
        format: "name",
        ..Heading::text(
            "Attacher",
            "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned \
         by GetPluginName().",
        )
    },
    Heading::text("PV", "persistentVolumeName represents the name of the persistent volume to attach."),
    Heading::text("Node", "nodeName represents the node that the volume should be attached to."),
    Heading::flag(
        "Attached",
        "attached indicates the volume is successfully attached. This field must only be set by the entity \
         completing the attach operation, i.e. the external-attacher.",
    ),
    Heading::AGE,
];

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let mut errors = Errors::new();
    let root = Field::root(object);
    let spec = root.at("spec");
    if part == Part::Status {
        return errors;
    }
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(spec.unchanged_from(&before.at("spec")));
        return errors;
    }
    let attacher = spec.at("attacher");
    errors.extend(attacher.must_obey(dns_subdomain));
    let node = spec.at("nodeName");
    errors.extend(dns_subdomain(node.text()).into_iter().map(|why| node.invalid_as(node.text(), why)));
    let source = spec.at("source");
    let (inline, volume) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    match (inline.is_set(), volume.text_if_set()) {
        (false, None) => {
            errors.push(source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
        }
        (true, Some(_)) => {
            errors.push(source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
        }
        (false, Some(name)) => {
            if name.is_empty() {
                errors.push(volume.required("must specify non empty persistentVolumeName"));
            }
            errors.extend(volume.obeys(dns_subdomain));
        }
        (true, None) => {}
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    Row::from([
        view.name(),
        view.text("spec.attacher").into(),
        view.text("spec.source.persistentVolumeName").into(),
        view.text("spec.nodeName").into(),
        view.flag("status.attached").into(),
        view.age(),
    ])
}
