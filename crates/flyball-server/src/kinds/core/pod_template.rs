//! Stand-alone pod templates.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::pod_spec;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "PodTemplate", "podtemplates")
    .printed(COLUMNS, row)
    .pod_template(&["template"])
    .default(default)
    .warn(warn)
    .validate(validate)
    .generation()
    .deleted_as_object();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Containers", "Names of each container in the template."),
    Heading::text("Images", "Images referenced by each container in the template."),
    Heading::text("Pod Labels", "The labels for the pod template."),
];

fn default(object: &mut Object) {
    object.inner("template").into_iter().for_each(pod_spec::template);
}

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    pod_spec::check_template(&root.at("template"))
}

/// Returns the warnings of a pod template.
fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    let root = Field::root(object);
    let template = root.at("template");
    if old.and_then(|old| old.get("template")) == Some(template.value()) {
        return Vec::new();
    }
    pod_spec::warn_of(&template.at("metadata"), &template.at("spec"), true)
}

fn row(view: &View<'_>) -> Row {
    let [names, images] = view.containers("template.spec.containers");
    Row::from([view.name(), names, images, view.labels("template.metadata.labels")])
}
