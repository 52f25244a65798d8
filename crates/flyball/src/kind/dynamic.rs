//! Handles for kinds that are known only at run time.

use super::{Kind, Type};

/// A [kind](Kind) that is known at run time only, in the scope of a [controller](crate::Controller::dynamic), a
/// [context](crate::Context::dynamic) or the [caches](crate::Caches::dynamic).
///
/// It has the methods that take a type there, for [`DynamicObject`](kube::core::DynamicObject)s of the kind.
#[doc(alias = "Unstructured")]
#[doc(alias = "all_with")]
#[doc(alias = "namespaced_with")]
#[derive(Clone, Debug)]
#[must_use = "the handle does nothing by itself"]
pub struct Dynamic<S> {
    pub(crate) scope: S,
    pub(crate) kind: Kind,
}

impl<S> Dynamic<S> {
    pub(crate) fn new(scope: S, kind: &Kind) -> Self {
        Self { scope, kind: kind.clone() }
    }

    pub(crate) fn ty(&self) -> Type {
        Type::dynamic(&self.kind)
    }
}
