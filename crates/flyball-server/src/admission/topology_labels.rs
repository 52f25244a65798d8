//! PodTopologyLabels: copies the zone and the region of a node to the pods that are assigned to it.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#podtopologylabels>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, pass};
use crate::kinds::{NODE, POD, Part, Subresource};
use crate::storage::Store;
use flyball_core::{Object, ObjectKey};
use serde_json::{Value, json};
use std::sync::Arc;

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Labels bindings, from which the labels are copied to the pod, and new pods that name their node.
pub(super) struct PodTopologyLabels {
    store: Arc<Store>,
}

impl PodTopologyLabels {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// Copies the labels of a node to an object. Existing labels are replaced; a missing node has none.
    fn copy(&self, node: &str, object: &mut Object) {
        let Some(node) = self.store.get(&NODE.table(), &ObjectKey::new(None, node)) else { return };
        let found = LABELS.iter().filter_map(|key| Some((*key, node.facts.label(key)?)));
        for (key, value) in found {
            let labels = object.metadata_mut().entry("labels").or_insert_with(|| json!({}));
            if !labels.is_object() {
                *labels = json!({});
            }
            labels[key] = value.into();
        }
    }
}

impl Plugin for PodTopologyLabels {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        let Some(object) = object.filter(|_| attributes.operation == Operation::Create && attributes.is(&POD)) else {
            return pass();
        };
        let is_binding = attributes.subresource == Subresource::BINDING.name;
        let node = match (is_binding, attributes.is_action()) {
            (true, _) if object.at(&["target", "kind"]) == Some(&NODE.kind.into()) => object.at(&["target", "name"]),
            (false, false) if attributes.part == Part::Whole => object.at(&["spec", "nodeName"]),
            _ => None,
        };
        if let Some(node) = node.and_then(Value::as_str).map(str::to_owned).filter(|node| !node.is_empty()) {
            self.copy(&node, object);
        }
        pass()
    }
}
