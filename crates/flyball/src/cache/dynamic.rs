//! Reads of kinds that are known only at run time.

use super::{Caches, DynamicIndex};
use crate::error::Result;
use crate::kind::{Dynamic, Kind};
use flyball_core::ObjectKey;
use kube::core::DynamicObject;

impl Caches {
    /// Returns a handle to read objects of a [kind](Kind) that is known only at run time.
    pub fn dynamic(&self, kind: &Kind) -> Dynamic<&Self> {
        Dynamic::new(self, kind)
    }
}

impl Dynamic<&Caches> {
    /// Returns an object; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// As for [`Caches::get`].
    pub fn get(&self, key: &ObjectKey) -> Result<Option<DynamicObject>> {
        self.scope.get_as(&self.ty(), key)
    }

    /// Returns the objects of one namespace, or of all namespaces, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As for [`Caches::get`].
    pub fn list(&self, namespace: Option<&str>) -> Result<Vec<DynamicObject>> {
        self.scope.list_as(&self.ty(), namespace)
    }

    /// Returns the keys of the objects of one namespace, or of all namespaces, in order, like [`Caches::keys`].
    ///
    /// # Errors
    ///
    /// As for [`Caches::keys`].
    pub fn keys(&self, namespace: Option<&str>) -> Result<Vec<ObjectKey>> {
        self.scope.keys_as(&self.ty(), namespace)
    }

    /// Returns the objects that an index has for a value, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As for [`Caches::list_by`].
    pub fn list_by<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        index: &DynamicIndex<V>,
        value: &V,
    ) -> Result<Vec<DynamicObject>> {
        self.scope.list_named(&index.named(&self.kind), value)
    }
}
