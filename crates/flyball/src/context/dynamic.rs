//! Reads of kinds that are known at run time only.

use super::Context;
use crate::cache::DynamicIndex;
use crate::error::Result;
use crate::kind::{AnyResource, Dynamic, Kind};
use flyball_core::ObjectKey;
use kube::core::DynamicObject;

impl<K: AnyResource> Context<K> {
    /// Returns a handle to read objects of a [kind](Kind) that is known at run time only. [`apply`](Self::apply) and
    /// other writes take such objects without a handle.
    pub fn dynamic(&self, kind: &Kind) -> Dynamic<&Self> {
        Dynamic::new(self, kind)
    }
}

impl<K: AnyResource> Dynamic<&Context<K>> {
    /// Returns an object, `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// As for [`Context::get`].
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<DynamicObject>> {
        self.scope.get_as(&self.ty(), key).await
    }

    /// Returns the objects of one namespace, or of all, in the order of their keys, as [`Context::list`] does.
    ///
    /// # Errors
    ///
    /// As for [`Context::get`].
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<DynamicObject>> {
        self.scope.list_as(&self.ty(), namespace).await
    }

    /// Returns the objects that an index has for a value, as [`Context::list_by`] does.
    ///
    /// # Errors
    ///
    /// As for [`Context::list_by`].
    pub async fn list_by<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        index: &DynamicIndex<V>,
        value: &V,
    ) -> Result<Vec<DynamicObject>> {
        self.scope.list_named(index.named(&self.kind), value, |object| index.values(object), Some).await
    }

    /// Returns the objects whose owner is the one being reconciled, as [`Context::children`] does.
    ///
    /// # Errors
    ///
    /// As for [`Context::children`].
    pub async fn children(&self) -> Result<Vec<DynamicObject>> {
        self.scope.children_as(&self.ty()).await
    }
}
