//! Priority: sets the priority of a pod to that of its class, and rejects changes.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#priority>.

use super::pod::spec;
use super::{Attributes, Plugin, PluginResult, Reinvocation, decided, pass};
use crate::kinds::{PRIORITY_CLASS, Part};
use crate::storage::Store;
use flyball_core::{Object, ObjectKey, Status};
use serde_json::Value;
use std::sync::Arc;

/// Sets the priority of pods.
pub(super) struct Priority {
    store: Arc<Store>,
}

impl Priority {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for Priority {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        match (object.filter(|_| attributes.part == Part::Whole), attributes.old) {
            (Some(pod), None) => decided(priority(&self.store, attributes, pod)),
            (Some(pod), Some(old)) => {
                keep_priority(pod, old);
                pass()
            }
            (None, _) => pass(),
        }
    }
}

/// Restores the priority of a changed pod, where the change leaves it out.
fn keep_priority(pod: &mut Object, old: &Object) {
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.at(&["spec", field]) {
            spec(pod).entry(field).or_insert_with(|| value.clone());
        }
    }
}

/// Sets the priority of a new pod by its class.
fn priority(store: &Store, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    let spec = spec(pod);
    let classes = PRIORITY_CLASS.table();
    let named =
        spec.get("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    let (value, policy) = match named {
        Some(name) => {
            let Some(class) = store.get(&classes, &ObjectKey::new(None, &name)).and_then(|entry| entry.object().ok())
            else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(attributes.forbidden(why));
            };
            (class.get("value").and_then(Value::as_i64).unwrap_or(0), class.get("preemptionPolicy").cloned())
        }
        None => {
            let all = store.list(&classes, None).entries;
            let default = all
                .iter()
                .filter_map(|entry| entry.object().ok())
                .find(|class| class.get("globalDefault") == Some(&Value::Bool(true)));
            match default {
                Some(class) => {
                    spec.insert("priorityClassName".into(), class.name().into());
                    (class.get("value").and_then(Value::as_i64).unwrap_or(0), class.get("preemptionPolicy").cloned())
                }
                None => (0, None),
            }
        }
    };
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(why));
    }
    spec.insert("priority".into(), value.into());
    let policy = policy.unwrap_or_else(|| "PreemptLowerPriority".into());
    if let Some(given) = spec.get("preemptionPolicy").filter(|given| !given.is_null() && **given != policy) {
        let (given, policy) = (given.as_str().unwrap_or_default(), policy.as_str().unwrap_or_default());
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(why));
    }
    spec.insert("preemptionPolicy".into(), policy);
    Ok(())
}
