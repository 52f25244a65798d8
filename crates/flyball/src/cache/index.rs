//! Indexes of objects by values other than their names.

use super::DecodedEntry;
use crate::kind::{Kind, Resource, Type};
use crate::panics::guarded;
use flyball_core::ObjectKey;
use kube::core::DynamicObject;
use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// An index over the objects in a cache, by values in them.
///
/// Each index is a type: [`Controller::index`](crate::Controller::index) declares it,
/// [`Context::list_by`](crate::Context::list_by) and [`Caches::list_by`](crate::Caches::list_by) read it,
/// [`Caches::range_by`](crate::Caches::range_by) reads it without decoding objects. Controllers that declare the same
/// index share it.
///
/// ```
/// # use flyball::{Action, Context, Controller, Reconcile, Result};
/// use flyball::{Index, ObjectKey};
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use kube::ResourceExt;
///
/// /// Pods by the node that they run on.
/// struct OnNode;
///
/// impl Index for OnNode {
///     type Resource = Pod;
///     type Value = String;
///
///     fn values(pod: &Pod) -> Vec<String> {
///         pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
///     }
/// }
///
/// struct Nodes;
///
/// impl Reconcile for Nodes {
///     type Resource = Node;
///
///     async fn reconcile(&self, node: &Node, cx: &Context<Node>) -> Result<Action> {
///         println!("{} pods", cx.list_by::<OnNode>(&node.name_any()).await?.len());
///         Ok(Action::done())
///     }
/// }
///
/// let controller = Controller::new(Nodes).index::<OnNode>().watches::<Pod>(|pod, _| {
///     Ok(OnNode::values(pod).iter().map(|node| ObjectKey::new(None, node)).collect())
/// });
/// ```
///
/// # Guarantees
///
/// - An index changes together with its objects, before listeners are notified.
/// - Objects come in the order of their keys, those of one namespace together.
/// - [`Context::list_by`](crate::Context::list_by) includes the writes of the reconcile itself.
/// - An object that cannot be decoded, or whose values panic, is in no index, and is logged.
///
/// Values are kept in memory twice, and computed at each change of an object: keep them small, and the function fast
/// and deterministic. It sees the fields that [the cache keeps](crate::Cache).
#[doc(alias = "kopf.index")]
#[doc(alias = "IndexField")]
#[doc(alias = "FieldIndexer")]
pub trait Index: 'static {
    /// The kind of the objects.
    type Resource: Resource;
    /// Type of the values by which objects are found.
    type Value: Ord + Clone + Send + Sync + 'static;

    /// Returns the values by which an object is found; none if it is not.
    fn values(object: &Self::Resource) -> Vec<Self::Value>;
}

/// An [`Index`] of a [kind](Kind) that is known only at run time.
///
/// `index` of [`Controller::dynamic`](crate::Controller::dynamic) declares it, `list_by` of
/// [`Context::dynamic`](crate::Context::dynamic) and [`Caches::dynamic`](crate::Caches::dynamic) read it. A clone is
/// the same index; another one with the same function is not.
///
/// ```
/// use flyball::{Action, Context, Controller, DynamicIndex, Kind, Reconcile, Result};
/// use kube::{ResourceExt, core::DynamicObject};
///
/// struct Themes {
///     site: Kind,
///     by_theme: DynamicIndex<String>,
/// }
///
/// impl Reconcile for Themes {
///     type Resource = DynamicObject;
///
///     async fn reconcile(&self, theme: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
///         let sites = cx.dynamic(&self.site).list_by(&self.by_theme, &theme.name_any()).await?;
///         println!("{} sites", sites.len());
///         Ok(Action::done())
///     }
/// }
///
/// let (site, theme) = (Kind::new("example.com", "v1", "Site"), Kind::new("example.com", "v1", "Theme"));
/// let theme_of = |site: &DynamicObject| site.data["spec"]["theme"].as_str().map(str::to_owned);
/// let by_theme = DynamicIndex::new(move |site| theme_of(site).into_iter().collect());
/// let themes = Themes { site: site.clone(), by_theme: by_theme.clone() };
/// let controller = Controller::of(&theme, themes).dynamic(&site).index(&by_theme);
/// ```
#[derive(Clone)]
pub struct DynamicIndex<V> {
    own: Arc<()>,
    values: Arc<ValuesOf<V>>,
}

/// Returns the values by which an object is found.
type ValuesOf<V> = dyn Fn(&DynamicObject) -> Vec<V> + Send + Sync;

impl<V: Ord + Clone + Send + Sync + 'static> DynamicIndex<V> {
    /// Creates an index from a function that returns the values of an object.
    pub fn new(values: impl Fn(&DynamicObject) -> Vec<V> + Send + Sync + 'static) -> Self {
        Self { own: Arc::default(), values: Arc::new(values) }
    }

    pub(crate) fn values(&self, object: &DynamicObject) -> Vec<V> {
        (self.values)(object)
    }

    pub(crate) fn named(&self, kind: &Kind) -> NamedIndex {
        let (ty, id) = (Type::dynamic(kind), IndexId::Own(self.own.clone()));
        NamedIndex { ty, id, name: format!("of {kind}"), declare: "dynamic(&kind).index" }
    }

    pub(crate) fn declared(&self) -> DeclaredIndex {
        let values = self.values.clone();
        DeclaredIndex::new(IndexId::Own(self.own.clone()), move |_, shown| {
            shown.decoded(|object| values(object)).unwrap_or_default()
        })
    }
}

impl<V> fmt::Debug for DynamicIndex<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicIndex").finish_non_exhaustive()
    }
}

/// An index to read.
pub(crate) struct NamedIndex {
    pub(crate) ty: Type,
    pub(crate) id: IndexId,
    /// Name of the index in errors, and the method that declares it.
    pub(crate) name: String,
    pub(crate) declare: &'static str,
}

impl NamedIndex {
    pub(crate) fn of<I: Index>() -> Self {
        let (ty, id) = (Type::of::<I::Resource>(), IndexId::Type(TypeId::of::<I>()));
        Self { ty, id, name: type_name::<I>().to_owned(), declare: "index" }
    }
}

/// Identity of an index.
#[derive(Clone)]
pub(crate) enum IndexId {
    /// An index that is identified by its type.
    Type(TypeId),
    /// An index that is private to its controller.
    Own(Arc<()>),
}

impl PartialEq for IndexId {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Own(a), Self::Own(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A declared index.
#[derive(Clone)]
pub(crate) struct DeclaredIndex {
    pub(crate) id: IndexId,
    make: Arc<dyn Fn() -> Box<dyn AnyIndex> + Send + Sync>,
}

impl DeclaredIndex {
    /// Declares an index that is identified by its type.
    pub(crate) fn of<I: Index>() -> Self {
        Self::new(IndexId::Type(TypeId::of::<I>()), |_, shown| shown.decoded(I::values).unwrap_or_default())
    }

    /// Declares an index by a function that extracts its values.
    pub(crate) fn new<V: Ord + Clone + Send + Sync + 'static>(
        id: IndexId,
        values: impl Fn(&ObjectKey, &DecodedEntry<'_>) -> Vec<V> + Send + Sync + 'static,
    ) -> Self {
        let values: Arc<Values<V>> = Arc::new(values);
        let make = move || {
            let (by_value, by_key) = Default::default();
            Box::new(ValueIndex { values: values.clone(), by_value, by_key }) as Box<dyn AnyIndex>
        };
        Self { id, make: Arc::new(make) }
    }

    /// Creates the index, empty.
    pub(super) fn make(&self) -> Box<dyn AnyIndex> {
        (self.make)()
    }
}

/// An index of a store.
pub(crate) trait AnyIndex: Send + Sync {
    /// Updates the index with the new state of an object, `None` if it was deleted.
    fn change(&mut self, key: &ObjectKey, new: Option<&DecodedEntry<'_>>);
    fn as_any(&self) -> &dyn Any;
}

type Values<V> = dyn Fn(&ObjectKey, &DecodedEntry<'_>) -> Vec<V> + Send + Sync;

struct ValueIndex<V> {
    values: Arc<Values<V>>,
    by_value: BTreeSet<(V, ObjectKey)>,
    by_key: BTreeMap<ObjectKey, Vec<V>>,
}

impl<V: Ord + Clone + Send + Sync + 'static> AnyIndex for ValueIndex<V> {
    fn change(&mut self, key: &ObjectKey, new: Option<&DecodedEntry<'_>>) {
        let values = |shown| {
            guarded(format_args!("an index, object {key}"), || (self.values)(key, shown)).unwrap_or_else(|error| {
                tracing::warn!(%key, %error, "cannot index an object");
                Vec::new()
            })
        };
        let new = new.map(values).unwrap_or_default();
        let old = match new.is_empty() {
            true => self.by_key.remove(key),
            false => self.by_key.insert(key.clone(), new.clone()),
        };
        let old = old.unwrap_or_default();
        if old != new {
            for value in old {
                self.by_value.remove(&(value, key.clone()));
            }
            self.by_value.extend(new.into_iter().map(|value| (value, key.clone())));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The indexes of one store.
#[derive(Default)]
pub(super) struct Indexes(Vec<(IndexId, Box<dyn AnyIndex>)>);

impl Indexes {
    /// Adds an index, unless it exists already.
    pub(super) fn add(&mut self, index: &DeclaredIndex) {
        if !self.0.iter().any(|(id, _)| *id == index.id) {
            self.0.push((index.id.clone(), index.make()));
        }
    }

    pub(super) fn change(&mut self, key: &ObjectKey, new: Option<&DecodedEntry<'_>>) {
        self.0.iter_mut().for_each(|(_, index)| index.change(key, new));
    }

    /// Returns the sorted keys of the objects with a value; `None` if there is no such index.
    pub(super) fn keys<V: Ord + Clone + 'static>(&self, id: &IndexId, value: &V) -> Option<Vec<ObjectKey>> {
        Some(self.range::<V>(id, &(value..=value))?.map(|(_, key)| key.clone()).collect())
    }

    /// Returns the sorted values in a range, each with the key of an object; `None` if there is no such index.
    pub(super) fn range<V: Ord + Clone + 'static>(
        &self,
        id: &IndexId,
        values: &impl RangeBounds<V>,
    ) -> Option<impl Iterator<Item = &(V, ObjectKey)>> {
        let (_, index) = self.0.iter().find(|(known, _)| known == id)?;
        let index: &ValueIndex<V> = index.as_any().downcast_ref()?;
        let first = match values.start_bound() {
            Bound::Included(first) | Bound::Excluded(first) => {
                Bound::Included((first.clone(), ObjectKey::new(None, "")))
            }
            Bound::Unbounded => Bound::Unbounded,
        };
        let is_excluded = |value: &V| matches!(values.start_bound(), Bound::Excluded(first) if first == value);
        let found = index.by_value.range((first, Bound::Unbounded)).skip_while(move |(value, _)| is_excluded(value));
        Some(found.take_while(move |(value, _)| values.contains(value)))
    }
}

impl fmt::Debug for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexes").field("len", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Entry;
    use crate::kind::Kind;
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    /// ConfigMaps by the names of their entries.
    struct ByName;

    impl Index for ByName {
        type Resource = ConfigMap;
        type Value = String;

        fn values(map: &ConfigMap) -> Vec<String> {
            let names: Vec<String> = map.data.iter().flat_map(|data| data.keys().cloned()).collect();
            assert!(!names.contains(&"panic".to_owned()));
            names
        }
    }

    /// A key and its new values, `None` for a deletion.
    fn change() -> impl Strategy<Value = (u8, Option<BTreeSet<u8>>)> {
        (0u8..4, prop::option::of(prop::collection::btree_set(0u8..4, 0..3)))
    }

    proptest! {
        #[test]
        fn index_matches_linear_search(
            changes in prop::collection::vec(change(), 0..40),
        ) {
            let (mut indexes, mut model, kind) = (Indexes::default(), BTreeMap::new(), Kind::of::<ConfigMap>());
            indexes.add(&DeclaredIndex::of::<ByName>());
            indexes.add(&DeclaredIndex::of::<ByName>());
            prop_assert_eq!(indexes.0.len(), 1);
            let id = IndexId::Type(TypeId::of::<ByName>());
            for (object, names) in changes {
                let key = ObjectKey::new(Some("ns"), &object.to_string());
                let json = |names: &BTreeSet<u8>| {
                    let data: BTreeMap<_, _> = names.iter().map(|name| (name.to_string(), "")).collect();
                    serde_json::json!({"metadata": {"name": object.to_string()}, "data": data}).to_string()
                };
                let entry = names.as_ref().map(|names| Entry::parse(json(names).as_bytes(), "").unwrap().1);
                indexes.change(&key, entry.as_ref().map(|entry| DecodedEntry::new(entry, &kind)).as_ref());
                match names {
                    Some(names) => drop(model.insert(key, names)),
                    None => drop(model.remove(&key)),
                }
                for name in 0..4 {
                    let expected: Vec<ObjectKey> =
                        model.iter().filter(|(_, names)| names.contains(&name)).map(|(key, _)| key.clone()).collect();
                    prop_assert_eq!(indexes.keys(&id, &name.to_string()), Some(expected));
                }
                let pairs = |(key, names): (&ObjectKey, &BTreeSet<u8>)| {
                    names.iter().map(|name| (name.to_string(), key.clone())).collect::<Vec<_>>()
                };
                let all: BTreeSet<(String, ObjectKey)> = model.iter().flat_map(pairs).collect();
                let (first, last) = ("1".to_owned(), "2".to_owned());
                for range in [
                    (Bound::Included(&first), Bound::Included(&last)),
                    (Bound::Excluded(&first), Bound::Unbounded),
                    (Bound::Unbounded, Bound::Excluded(&last)),
                    (Bound::Excluded(&last), Bound::Included(&first)),
                ] {
                    let found: Vec<_> = indexes.range(&id, &range).unwrap().collect();
                    let is_in_range = |name: &String| RangeBounds::<String>::contains(&range, name);
                    let expected: Vec<_> = all.iter().filter(|(name, _)| is_in_range(name)).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn objects_that_fail_indexing_do_not_affect_others() {
        let (mut indexes, kind) = (Indexes::default(), Kind::of::<ConfigMap>());
        indexes.add(&DeclaredIndex::of::<ByName>());
        for (name, data) in [("a", r#"{"x":""}"#), ("b", r#"{"panic":"","x":""}"#), ("c", "[]"), ("d", r#"{"x":""}"#)] {
            let json = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{data}}}"#);
            let (key, entry) = Entry::parse(json.as_bytes(), "").unwrap();
            indexes.change(&key, Some(&DecodedEntry::new(&entry, &kind)));
        }
        let found = indexes.keys(&IndexId::Type(TypeId::of::<ByName>()), &"x".to_owned()).unwrap();
        assert_eq!(found, ["a", "d"].map(|name| ObjectKey::new(None, name)));
        assert_eq!(indexes.keys(&IndexId::Own(Arc::default()), &"x".to_owned()), None);
    }
}
