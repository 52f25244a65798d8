//! Declarations for kinds that are known at run time only.

use super::{Controller, ObjectChange, Predicate, Reconcile};
use crate::cache::{Caches, DynamicIndex};
use crate::error::Result;
use crate::kind::{Dynamic, Kind, Type};
use flyball_core::ObjectKey;
use kube::core::DynamicObject;
use tower::BoxError;

impl<R: Reconcile<Resource = DynamicObject>> Controller<R> {
    /// Creates a controller for the objects of a [kind](Kind) that is known at run time only, named after the kind.
    #[doc(alias = "new_with")]
    pub fn of(kind: &Kind, reconciler: R) -> Self {
        Self::with(Type::dynamic(kind), kind.clone(), reconciler)
    }

    /// Creates such a controller whose reconciler is constructed when the operator starts, as with
    /// [`deferred`](Self::deferred).
    pub fn deferred_of<E: Into<BoxError>>(kind: &Kind, make: impl FnOnce() -> Result<R, E> + Send + 'static) -> Self {
        let make = || Ok(Box::new(make().map_err(Into::into)?) as _);
        Self::made_by(Type::dynamic(kind), kind.clone(), Box::new(make))
    }

    /// Sets a finalizer whose name is known at run time only, as [`Reconcile::FINALIZER`] does.
    pub fn finalizer(self, name: impl Into<String>) -> Self {
        self.finalizes(name.into())
    }
}

impl<R: Reconcile> Controller<R> {
    /// Returns a handle to declare the use of a [kind](Kind) that is known at run time only.
    ///
    /// ```
    /// # use flyball::{Action, Context, Controller, Kind, Predicate, Reconcile, Result};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # struct Sites;
    /// # impl Reconcile for Sites {
    /// #     type Resource = ConfigMap;
    /// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
    /// # }
    /// let certificate = Kind::new("cert-manager.io", "v1", "Certificate");
    /// let controller = Controller::new(Sites)
    ///     .dynamic(&certificate).owns()
    ///     .dynamic(&certificate).filter(Predicate::generation());
    /// ```
    #[doc(alias = "owns_with")]
    #[doc(alias = "watches_with")]
    pub fn dynamic(self, kind: &Kind) -> Dynamic<Self> {
        Dynamic::new(self, kind)
    }
}

impl<R: Reconcile> Dynamic<Controller<R>> {
    /// Allows the controller to create, change and delete objects of the kind, and reconciles the owner when one of
    /// them changes, as [`Controller::owns`] does.
    pub fn owns(self) -> Controller<R> {
        let ty = self.ty();
        self.scope.owns_as(ty, self.kind)
    }

    /// Allows the controller to [create](crate::Context::create_unowned) objects of the kind without an owner. They are
    /// neither changed nor deleted.
    pub fn creates(self) -> Controller<R> {
        let ty = self.ty();
        self.scope.creates_as(ty, self.kind)
    }

    /// Reconciles the objects that `map` returns when an object of the kind changes, as [`Controller::watches`] does.
    pub fn watches(
        self,
        map: impl Fn(&DynamicObject, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Controller<R> {
        let ty = self.ty();
        self.scope.watches_as(ty, self.kind, map)
    }

    /// Reconciles the objects that `map` returns for the key of a changed object of the kind, as
    /// [`Controller::watches_by_key`] does.
    pub fn watches_by_key(
        self,
        map: impl Fn(&ObjectKey, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Controller<R> {
        let ty = self.ty();
        self.scope.watches_by_key_as(&ty, self.kind, map)
    }

    /// Reconciles the objects that `map` returns for a creation, update or deletion of an object of the kind, as
    /// [`Controller::watches_changes`] does.
    pub fn watches_changes(
        self,
        map: impl Fn(ObjectChange<'_, DynamicObject>, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Controller<R> {
        let ty = self.ty();
        self.scope.watches_changes_as(&ty, self.kind, map)
    }

    /// Allows the controller to replace objects of the kind, as [`Controller::replaces`] does.
    pub fn replaces(self) -> Controller<R> {
        let ty = self.ty();
        self.scope.replaces_as(ty, self.kind)
    }

    /// Allows the controller to read objects of the kind from the API server, without a cache, as [`Controller::reads`]
    /// does.
    pub fn reads(self) -> Controller<R> {
        let ty = self.ty();
        self.scope.reads_as(ty, self.kind)
    }

    /// Reconciles the objects that refer to an object of the kind by name, as [`Controller::refers_to`] does.
    pub fn refers_to(self, names: impl Fn(&R::Resource) -> Vec<ObjectKey> + Send + Sync + 'static) -> Controller<R> {
        let ty = self.ty();
        self.scope.refers_to_as(&ty, self.kind, names)
    }

    /// Maintains an [index](DynamicIndex) of the objects of the kind, as [`Controller::index`] does.
    pub fn index<V: Ord + Clone + Send + Sync + 'static>(self, index: &DynamicIndex<V>) -> Controller<R> {
        let ty = self.ty();
        self.scope.index_as(&ty, self.kind, index.declared())
    }

    /// Ignores updates of objects of the kind for which the predicate is false, as [`Controller::filter`] does.
    pub fn filter(self, predicate: Predicate<DynamicObject>) -> Controller<R> {
        let ty = self.ty();
        self.scope.filter_as(ty, self.kind, predicate)
    }
}
