//! DefaultIngressClass: sets the class of new ingresses without one.
//!
//! See <https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, default_class, pass};
use crate::kinds::{INGRESS_CLASS, Part};
use crate::storage::Store;
use flyball_core::Object;
use serde_json::{Value, json};
use std::sync::Arc;

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// The annotation that selected a class before the field.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// Sets the class of new ingresses without one to the default class.
pub(super) struct DefaultIngressClass {
    store: Arc<Store>,
}

impl DefaultIngressClass {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for DefaultIngressClass {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        let is_new = attributes.operation == Operation::Create && attributes.part == Part::Whole;
        if let Some(ingress) = object.filter(|_| is_new) {
            set_class(&self.store, ingress);
        }
        pass()
    }
}

fn set_class(store: &Store, ingress: &mut Object) {
    let named = ingress.at(&["spec", "ingressClassName"]).is_some_and(|class| !class.is_null());
    if named || ingress.annotation(OLD_CLASS).is_some() {
        return;
    }
    let Some(class) = default_class::newest(store, &INGRESS_CLASS, &[DEFAULT]) else { return };
    if let Some(spec) = ingress.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
        spec.insert("ingressClassName".into(), Value::String(class));
    }
}
