//! Declarations for kinds that are known at run time only.

use super::{Controller, Predicate, Reconcile};
use crate::cache::{Caches, KindIndex};
use crate::error::Result;
use crate::kind::{Kind, Type};
use flyball_core::ObjectKey;
use kube::core::DynamicObject;

impl<R: Reconcile<Resource = DynamicObject>> Controller<R> {
    /// Makes a controller for the objects of a [kind](Kind) that is known at run time only, named after the kind.
    pub fn of(kind: &Kind, reconciler: R) -> Self {
        Self::with(Type::dynamic(kind), kind.clone(), reconciler)
    }

    /// Sets a finalizer whose name is known at run time only, as [`Reconcile::FINALIZER`] does.
    pub fn finalizer(self, name: impl Into<String>) -> Self {
        self.finalizes(name.into())
    }
}

impl<R: Reconcile> Controller<R> {
    /// Lets the controller create, change and delete objects of a [kind](Kind) that is known at run time only, and
    /// reconciles the owner when one of them changes, as [`owns`](Self::owns) does.
    pub fn owns_kind(self, kind: &Kind) -> Self {
        self.owns_as(Type::dynamic(kind), kind.clone())
    }

    /// Reconciles the objects that `map` returns when an object of a [kind](Kind) that is known at run time only
    /// changes, as [`watches`](Self::watches) does.
    pub fn watches_kind(
        self,
        kind: &Kind,
        map: impl Fn(&DynamicObject, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.watches_as(Type::dynamic(kind), kind.clone(), map)
    }

    /// Lets the controller replace objects of a [kind](Kind) that is known at run time only, as
    /// [`replaces`](Self::replaces) does.
    pub fn replaces_kind(self, kind: &Kind) -> Self {
        self.replaces_as(Type::dynamic(kind), kind.clone())
    }

    /// Lets the controller read objects of a [kind](Kind) that is known at run time only from the API server, without
    /// a cache.
    pub fn reads_kind(self, kind: &Kind) -> Self {
        self.reads_as(Type::dynamic(kind), kind.clone())
    }

    /// Reconciles the objects that refer to an object of a [kind](Kind) that is known at run time only by name, as
    /// [`refers_to`](Self::refers_to) does.
    pub fn refers_to_kind(
        self,
        kind: &Kind,
        names: impl Fn(&R::Resource) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.refers_to_as(&Type::dynamic(kind), kind.clone(), names)
    }

    /// Maintains an [index](KindIndex) of a [kind](Kind) that is known at run time only, as [`index`](Self::index)
    /// does.
    pub fn index_kind<V: Ord + Clone + Send + Sync + 'static>(self, index: &KindIndex<V>) -> Self {
        self.index_as(&Type::dynamic(index.kind()), index.kind().clone(), index.declared())
    }

    /// Ignores updates of objects of a [kind](Kind) that is known at run time only, as [`filter`](Self::filter) does.
    pub fn filter_kind(self, kind: &Kind, predicate: Predicate<DynamicObject>) -> Self {
        self.filter_as(Type::dynamic(kind), kind.clone(), predicate)
    }
}
