//! Kinds that are known at run time only: what [`Controller`] and [`Context`] do with a type, by a [`Kind`].

use super::{Context, Controller, Predicate, Reconcile};
use crate::cache::{Caches, KindIndex};
use crate::error::Result;
use crate::kind::{AnyResource, Kind, Type};
use flyball_core::ObjectKey;
use kube::core::DynamicObject;

impl<R: Reconcile<Resource = DynamicObject>> Controller<R> {
    /// Makes a controller for the objects of a [kind](Kind) that is known at run time only, named after the kind.
    pub fn of(kind: &Kind, reconciler: R) -> Self {
        Self::with(Type::dynamic(kind), kind.clone(), reconciler)
    }

    /// Keeps a finalizer on every object whose name is known at run time only, as [`Reconcile::FINALIZER`] does.
    pub fn finalizer(self, name: impl Into<String>) -> Self {
        self.finalizes(name.into())
    }
}

impl<R: Reconcile> Controller<R> {
    /// Lets the controller make, change and delete objects of a [kind](Kind) that is known at run time only, and reconciles the
    /// owner when one of them changes, as [`owns`](Self::owns) does.
    pub fn owns_kind(self, kind: &Kind) -> Self {
        self.owns_as(Type::dynamic(kind), kind.clone())
    }

    /// Reconciles the objects that `map` finds when an object of a [kind](Kind) that is known at run time only changes, as
    /// [`watches`](Self::watches) does.
    pub fn watches_kind(
        self,
        kind: &Kind,
        map: impl Fn(&DynamicObject, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.watches_as(Type::dynamic(kind), kind.clone(), map)
    }

    /// Lets the controller replace objects of a [kind](Kind) that is known at run time only, as [`replaces`](Self::replaces) does.
    pub fn replaces_kind(self, kind: &Kind) -> Self {
        self.replaces_as(Type::dynamic(kind), kind.clone())
    }

    /// Lets the controller read objects of a [kind](Kind) that is known at run time only from the API server, without a cache.
    pub fn reads_kind(self, kind: &Kind) -> Self {
        self.reads_as(Type::dynamic(kind), kind.clone())
    }

    /// Reconciles the objects that refer to an object of a [kind](Kind) that is known at run time only by its name, as
    /// [`refers_to`](Self::refers_to) does.
    pub fn refers_to_kind(
        self,
        kind: &Kind,
        names: impl Fn(&R::Resource) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.refers_to_as(&Type::dynamic(kind), kind.clone(), names)
    }

    /// Keeps an [index](KindIndex) of a [kind](Kind) that is known at run time only, as [`index`](Self::index) does.
    pub fn index_kind<V: Ord + Clone + Send + Sync + 'static>(self, index: &KindIndex<V>) -> Self {
        self.index_as(&Type::dynamic(index.kind()), index.kind().clone(), index.declared())
    }

    /// Passes over updates of objects of a [kind](Kind) that is known at run time only, as [`filter`](Self::filter) does.
    pub fn filter_kind(self, kind: &Kind, predicate: Predicate<DynamicObject>) -> Self {
        self.filter_as(Type::dynamic(kind), kind.clone(), predicate)
    }
}

impl<K: AnyResource> Context<K> {
    /// Returns an object of a [kind](Kind) that is known at run time only, `None` if there is none.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn get_of(&self, kind: &Kind, key: &ObjectKey) -> Result<Option<DynamicObject>> {
        self.get_as(&Type::dynamic(kind), key).await
    }

    /// Returns the objects of a [kind](Kind) that is known at run time only, as [`list`](Self::list) does.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn list_of(&self, kind: &Kind, namespace: Option<&str>) -> Result<Vec<DynamicObject>> {
        self.list_as(&Type::dynamic(kind), namespace).await
    }

    /// Returns the objects of a [kind](Kind) that is known at run time only that an index finds by a value, as
    /// [`list_by`](Self::list_by) does.
    ///
    /// # Errors
    ///
    /// As for [`list_by`](Self::list_by).
    pub async fn list_indexed<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        index: &KindIndex<V>,
        value: &V,
    ) -> Result<Vec<DynamicObject>> {
        self.list_named(index.named(), value, |object| index.values(object)).await
    }

    /// Returns the objects of a [kind](Kind) that is known at run time only which refer to the one being reconciled as their owner, as
    /// [`children`](Self::children) does.
    ///
    /// # Errors
    ///
    /// As for [`children`](Self::children).
    pub async fn children_of(&self, kind: &Kind) -> Result<Vec<DynamicObject>> {
        self.children_as(&Type::dynamic(kind)).await
    }
}
