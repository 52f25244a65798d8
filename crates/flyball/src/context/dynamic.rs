//! Reads of kinds that are known at run time only.

use super::Context;
use crate::cache::KindIndex;
use crate::error::Result;
use crate::kind::{AnyResource, Kind, Type};
use flyball_core::ObjectKey;
use kube::core::DynamicObject;

impl<K: AnyResource> Context<K> {
    /// Returns an object of a [kind](Kind) that is known at run time only, `None` if it does not exist.
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

    /// Returns the objects of a [kind](Kind) that is known at run time only that an index has for a value, as
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

    /// Returns the objects of a [kind](Kind) that is known at run time only whose owner is the one being reconciled,
    /// as [`children`](Self::children) does.
    ///
    /// # Errors
    ///
    /// As for [`children`](Self::children).
    pub async fn children_of(&self, kind: &Kind) -> Result<Vec<DynamicObject>> {
        self.children_as(&Type::dynamic(kind)).await
    }
}
