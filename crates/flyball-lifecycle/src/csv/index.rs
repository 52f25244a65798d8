//! Indexes, so that no reconcile decodes the objects of the whole cluster.

use crate::api::{ClusterServiceVersion, labels};
use crate::install::owners;
use flyball::{Index, Resource};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use std::marker::PhantomData;

/// Namespace and name of a ClusterServiceVersion.
pub(super) type CsvName = (String, String);

/// Finds the objects that a ClusterServiceVersion owns, by reference or by label.
pub(super) struct ByOwner<T>(PhantomData<fn(T)>);

impl<T: Resource> Index for ByOwner<T> {
    type Resource = T;
    type Value = CsvName;

    fn values(object: &T) -> Vec<CsvName> {
        let name = |owner: flyball::ObjectKey| (owner.namespace().unwrap_or_default().into(), owner.name().into());
        owners(object.meta()).into_iter().map(name).collect()
    }
}

/// Finds the copies of a ClusterServiceVersion.
pub(super) struct CopiesOf;

impl Index for CopiesOf {
    type Resource = ClusterServiceVersion;
    type Value = CsvName;

    fn values(copy: &ClusterServiceVersion) -> Vec<CsvName> {
        copy.copied_from().map(|from| (from.to_owned(), copy.name_any())).into_iter().collect()
    }
}

/// Finds the components of an Operator.
pub(super) struct ByOperator<T>(PhantomData<fn(T)>);

impl<T: Resource> Index for ByOperator<T> {
    type Resource = T;
    type Value = String;

    fn values(object: &T) -> Vec<String> {
        operators(object.meta())
    }
}

/// Returns the names of the Operators that an object belongs to.
pub(super) fn operators(meta: &ObjectMeta) -> Vec<String> {
    let labels = meta.labels.iter().flatten();
    labels.filter_map(|(label, _)| label.strip_prefix(labels::COMPONENT_PREFIX)).map(str::to_owned).collect()
}

/// Returns the value by which the objects of a ClusterServiceVersion are found.
pub(super) fn name_of(csv: &ClusterServiceVersion) -> CsvName {
    (csv.namespace().unwrap_or_default(), csv.name_any())
}
