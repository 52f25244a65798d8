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

/// Finds the objects that were installed with a ClusterServiceVersion, which may share them with others.
pub(super) struct ByUser<T>(PhantomData<fn(T)>);

impl<T: Resource> Index for ByUser<T> {
    type Resource = T;
    type Value = CsvName;

    fn values(object: &T) -> Vec<CsvName> {
        users(object.meta())
    }
}

/// Returns the ClusterServiceVersions that an object was installed with, according to its annotations. Bundles may
/// contain such annotations: a user without a valid name is left out.
pub(super) fn users(meta: &ObjectMeta) -> Vec<CsvName> {
    let is_valid = |name: &str| {
        let is_in_names = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_in_names)
    };
    let annotations = meta.annotations.iter().flatten();
    let users = annotations.filter(|(name, _)| name.starts_with(labels::INSTALLED_ALONGSIDE_PREFIX));
    let names = users.filter_map(|(_, user)| user.split_once('/'));
    let valid = names.filter(|(namespace, name)| is_valid(namespace) && is_valid(name));
    valid.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_valid_names() {
        let user = |name: &str, user: &str| (format!("{}{name}", labels::INSTALLED_ALONGSIDE_PREFIX), user.to_owned());
        let other = ("note".to_owned(), "b/c.v1".to_owned());
        let annotations = [user("1", "a/memo.v1.0.0"), user("2", "a/b/../c"), user("3", "a"), user("4", "a/"), other];
        let meta = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
        assert_eq!(users(&meta), [("a".to_owned(), "memo.v1.0.0".to_owned())]);
    }
}
