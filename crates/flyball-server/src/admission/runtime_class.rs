//! RuntimeClass: sets the overhead and scheduling constraints of a new pod's runtime class.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#runtimeclass>.

use super::pod::{list, spec};
use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, decided, pass};
use crate::kinds::RUNTIME_CLASS;
use crate::storage::Store;
use flyball_core::{Object, ObjectKey, Status};
use serde_json::{Value, json};
use std::sync::Arc;

/// Applies runtime classes to new pods.
pub(super) struct RuntimeClass {
    store: Arc<Store>,
}

impl RuntimeClass {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for RuntimeClass {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        match object.filter(|_| attributes.operation == Operation::Create) {
            Some(pod) => decided(runtime_class(&self.store, attributes, pod)),
            None => pass(),
        }
    }
}

/// Sets the overhead and the scheduling constraints of a pod's runtime class.
fn runtime_class(store: &Store, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    let reject = |why: String| {
        let why = format!("pod rejected: {why}");
        Err(attributes.forbidden(why))
    };
    let spec = spec(pod);
    let costs = |overhead: Option<&Value>| overhead.and_then(Value::as_object).is_some_and(|costs| !costs.is_empty());
    const OVERHEAD_MISMATCH: &str = "Pod Overhead set without corresponding RuntimeClass defined Overhead";
    let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        return if costs(spec.get("overhead")) { reject(OVERHEAD_MISMATCH.into()) } else { Ok(()) };
    };
    let classes = RUNTIME_CLASS.table();
    let Some(class) = store.get(&classes, &ObjectKey::new(None, name)).and_then(|entry| entry.object().ok()) else {
        return reject(format!("RuntimeClass {name:?} not found"));
    };
    let overhead = class.at(&["overhead", "podFixed"]).filter(|overhead| overhead.is_object());
    match (overhead, spec.get("overhead")) {
        (Some(own), Some(given)) if own != given => {
            return reject("Pod's Overhead doesn't match RuntimeClass's defined Overhead".into());
        }
        (Some(own), None) => {
            spec.insert("overhead".into(), own.clone());
        }
        (None, given) if costs(given) => return reject(OVERHEAD_MISMATCH.into()),
        _ => {}
    }
    let class_selector = class.at(&["scheduling", "nodeSelector"]).and_then(Value::as_object);
    for (key, value) in class_selector.into_iter().flatten() {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        let Some(selector) = selector.as_object_mut() else { continue };
        let own = selector.entry(key.clone()).or_insert_with(|| value.clone());
        if own != value {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (own, value) = (text(own), text(value));
            return reject(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
    }
    for toleration in class.at(&["scheduling", "tolerations"]).and_then(Value::as_array).into_iter().flatten() {
        let all = list(spec, "tolerations");
        if !all.contains(toleration) {
            all.push(toleration.clone());
        }
    }
    Ok(())
}
