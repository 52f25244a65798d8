//! Predicates: filters of updates.

use crate::cache::DecodedEntry;
use crate::kind::{AnyResource, key_of, reads_metadata};
use crate::panics::guarded;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A test that decides which updates of a kind trigger a reconcile; see
/// [`Controller::filter`](crate::Controller::filter).
///
/// It tests updates only. Creations, deletions and the start of a deletion always trigger a reconcile, so a predicate
/// on the generation cannot hide a deletion, as it can in other frameworks.
///
/// ```
/// # use flyball::Predicate;
/// use k8s_openapi::api::apps::v1::Deployment;
///
/// // Not every change of a Deployment's status, but the spec, and the number of ready replicas.
/// let ready = |d: &Deployment| d.status.as_ref().and_then(|status| status.ready_replicas);
/// let predicate = Predicate::generation().or(Predicate::new(move |old, new| ready(old) != ready(new)));
/// ```
#[doc(alias = "EventFilter")]
#[doc(alias = "when")]
#[must_use = "a predicate does nothing until it is added to a controller"]
pub struct Predicate<T> {
    test: Arc<Test>,
    kind: PhantomData<fn(T)>,
}

type Test = dyn Fn(&DecodedEntry<'_>, &DecodedEntry<'_>) -> bool + Send + Sync;

impl<T: AnyResource> Predicate<T> {
    /// Passes updates for which `test` of the old and the new object returns true. Objects that do not decode pass,
    /// and so do updates at which `test` panics, and [secrets](crate::Cache#secrets) whose data is not kept.
    #[doc(alias = "Funcs")]
    pub fn new(test: impl Fn(&T, &T) -> bool + Send + Sync + 'static) -> Self {
        let test = move |old: &T, new: &T| {
            guarded(format_args!("a predicate, update of {}", key_of(new)), || test(old, new)).unwrap_or_else(|error| {
                tracing::warn!(key = %key_of(new), %error, "predicate failed, reconciling the object");
                true
            })
        };
        Self::raw(move |old, new| {
            // The data that is not kept may have changed.
            if (old.is_withheld() || new.is_withheld()) && !reads_metadata::<T>() {
                return true;
            }
            old.decoded(|old| new.decoded(|new| test(old, new))).and_then(|passes| passes).unwrap_or(true)
        })
    }

    /// Passes no update: only creations and deletions trigger a reconcile.
    pub fn never() -> Self {
        Self::raw(|_, _| false)
    }

    /// Passes updates of `metadata.generation`, which changes with the spec. Kinds without a generation never change
    /// it.
    #[doc(alias = "GenerationChangedPredicate")]
    pub fn generation() -> Self {
        Self::raw(|old, new| old.generation() != new.generation())
    }

    /// Passes updates of the labels.
    #[doc(alias = "LabelChangedPredicate")]
    pub fn labels() -> Self {
        Self::raw(|old, new| old.labels() != new.labels())
    }

    /// Passes updates of the annotations.
    #[doc(alias = "AnnotationChangedPredicate")]
    pub fn annotations() -> Self {
        Self::raw(|old, new| old.annotations() != new.annotations())
    }

    /// Passes updates of one annotation.
    pub fn annotation(name: &'static str) -> Self {
        Self::raw(move |old, new| {
            old.annotations() != new.annotations() && old.annotation(name) != new.annotation(name)
        })
    }

    /// Passes updates with another resource version, and not those that a watch repeats after an interruption.
    ///
    /// The cache skips most of these itself; combine it with others by [`or`](Self::or).
    #[doc(alias = "ResourceVersionChangedPredicate")]
    pub fn resource_version() -> Self {
        Self::raw(|old, new| old.resource_version() != new.resource_version())
    }

    /// Passes updates that this predicate or `other` passes.
    #[doc(alias = "combine")]
    pub fn or(self, other: Self) -> Self {
        Self::raw(move |old, new| (self.test)(old, new) || (other.test)(old, new))
    }

    fn raw(test: impl Fn(&DecodedEntry<'_>, &DecodedEntry<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { test: Arc::new(test), kind: PhantomData }
    }

    /// Returns the predicate for a change of any object of the kind.
    pub(crate) fn erased(self) -> Filter {
        Filter(self.test)
    }
}

impl<T> fmt::Debug for Predicate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// A predicate whose type is erased.
#[derive(Clone)]
pub(crate) struct Filter(Arc<Test>);

impl Filter {
    /// Returns true if a change passes.
    pub(crate) fn passes(&self, old: Option<&DecodedEntry<'_>>, new: Option<&DecodedEntry<'_>>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) if old.is_deleting() == new.is_deleting() => (self.0)(old, new),
            _ => true,
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Entry;
    use crate::kind::Kind;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn entry(metadata: &str) -> Entry {
        Entry::parse(format!(r#"{{"metadata":{{"name":"a",{metadata}}}}}"#).as_bytes(), "").unwrap().1
    }

    fn passes(predicate: Predicate<ConfigMap>, old: Option<&Entry>, new: Option<&Entry>) -> bool {
        let kind = Kind::of::<ConfigMap>();
        let shown = |entry| DecodedEntry::new(entry, &kind);
        predicate.erased().passes(old.map(shown).as_ref(), new.map(shown).as_ref())
    }

    #[test]
    fn each_predicate_compares_its_field() {
        let old = entry(r#""generation":1,"resourceVersion":"5","labels":{"a":"1"},"annotations":{"b":"1"}"#);
        let check = |predicate: Predicate<ConfigMap>, metadata: &str, expected: bool| {
            assert_eq!(passes(predicate, Some(&old), Some(&entry(metadata))), expected, "{metadata}");
        };
        let labels = r#""generation":1,"labels":{"a":"2"},"annotations":{"b":"1"}"#;
        check(Predicate::labels(), labels, true);
        check(Predicate::annotations(), labels, false);
        check(Predicate::generation(), labels, false);
        check(Predicate::annotation("b"), r#""annotations":{"b":"2"}"#, true);
        check(Predicate::annotation("b"), r#""labels":{}"#, true);
        check(Predicate::annotation("b"), r#""annotations":{"a":"1","b":"1"}"#, false);
        check(Predicate::annotation("c"), r#""annotations":{"b":"2"}"#, false);
        check(Predicate::generation().or(Predicate::labels()), labels, true);
        check(Predicate::generation(), r#""generation":2"#, true);
        check(Predicate::new(|old: &ConfigMap, new| old.metadata.labels != new.metadata.labels), labels, true);
        check(Predicate::never(), labels, false);
        check(Predicate::resource_version(), r#""resourceVersion":"5""#, false);
        check(Predicate::resource_version(), r#""resourceVersion":"6""#, true);
    }

    #[test]
    fn predicates_pass_deletions() {
        let never = Predicate::never;
        let same = r#""generation":1,"deletionTimestamp":"2026-01-01T00:00:00Z""#;
        for kind in [Predicate::generation, Predicate::labels, Predicate::annotations, Predicate::resource_version] {
            let predicate = || kind().or(never());
            let (old, going) = (entry(r#""generation":1"#), entry(same));
            assert!(passes(predicate(), Some(&old), Some(&going)) && passes(predicate(), Some(&going), None));
        }
        let (old, going) = (entry(r#""generation":1"#), entry(r#""deletionTimestamp":"2026-01-01T00:00:00Z""#));
        assert!(passes(never(), Some(&old), None));
        assert!(passes(never(), None, Some(&old)));
        assert!(passes(never(), Some(&old), Some(&going)));
        assert!(!passes(never(), Some(&going), Some(&going)));
    }
}
