//! An entry that is decoded at most once for all listeners.

use super::Entry;
use crate::kind::{AnyResource, Kind};
use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::ops::Deref;

/// An entry with its decoded object, which the first listener decodes and others of the same type reuse.
pub(crate) struct DecodedEntry<'a> {
    entry: &'a Entry,
    kind: &'a Kind,
    decoded: OnceCell<Box<dyn Any>>,
}

impl<'a> DecodedEntry<'a> {
    pub(crate) fn new(entry: &'a Entry, kind: &'a Kind) -> Self {
        Self { entry, kind, decoded: OnceCell::new() }
    }

    /// Calls `look` with the decoded object.
    pub(crate) fn decoded<T: AnyResource, R>(&self, look: impl FnOnce(&T) -> R) -> serde_json::Result<R> {
        if self.decoded.get().is_none() {
            // No other code can have set it, since decoding has no access to it.
            let _ = self.decoded.set(Box::new(self.entry.object::<T>(self.kind)?));
        }
        match self.decoded.get().and_then(|decoded| decoded.downcast_ref()) {
            Some(object) => Ok(look(object)),
            None => Ok(look(&self.entry.object(self.kind)?)),
        }
    }
}

impl Deref for DecodedEntry<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl fmt::Debug for DecodedEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::ResourceExt;

    #[test]
    fn entry_decodes_as_several_types() {
        let (_, entry) = Entry::parse(br#"{"metadata":{"name":"a"},"type":"t"}"#, "").unwrap();
        let kind = Kind::of::<ConfigMap>();
        let shown = DecodedEntry::new(&entry, &kind);
        for _ in 0..2 {
            assert_eq!(shown.decoded(|map: &ConfigMap| map.name_any()).unwrap(), "a");
            assert_eq!(shown.decoded(|secret: &Secret| secret.type_.clone()).unwrap().as_deref(), Some("t"));
        }
    }

    #[test]
    fn decode_error_of_one_type_does_not_affect_another() {
        let (_, entry) = Entry::parse(br#"{"metadata":{"name":"a"},"type":7}"#, "").unwrap();
        let kind = Kind::of::<ConfigMap>();
        let shown = DecodedEntry::new(&entry, &kind);
        assert!(shown.decoded(|_: &Secret| ()).is_err());
        assert!(shown.decoded(|_: &ConfigMap| ()).is_ok());
    }
}
