//! Built-in kinds of Kubernetes, whose types are in k8s-openapi.

/// One of them a line: group, version, kind, plural, scope, module of k8s-openapi.
const KINDS: &str = include_str!("built_in.txt");

/// A built-in kind of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BuiltInKind {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
    module: &'static str,
}

impl BuiltInKind {
    /// Returns the path of its type.
    pub(crate) fn path(&self) -> String {
        format!("k8s_openapi::{}::{}", self.module, self.kind)
    }
}

/// Lists them all.
pub(crate) fn all() -> impl Iterator<Item = BuiltInKind> {
    KINDS.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some(BuiltInKind {
            group: words.next().map(|group| if group == "core" { "" } else { group })?,
            version: words.next()?,
            kind: words.next()?,
            plural: words.next()?,
            namespaced: words.next()? == "namespaced",
            module: words.next()?,
        })
    })
}

/// Finds a kind; its group may be given without `.k8s.io`, the core group as `core`.
pub(crate) fn find(group: &str, version: &str, kind: &str) -> Option<BuiltInKind> {
    let is = |known: &BuiltInKind| {
        let short = known.group.split('.').next().unwrap_or_default();
        let group = if group == "core" { "" } else { group };
        (known.group == group || short == group) && known.version == version && known.kind == kind
    };
    all().find(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_group_version_and_kind() {
        for (group, version, kind, path) in [
            ("apps", "v1", "Deployment", Some("k8s_openapi::api::apps::v1::Deployment")),
            ("core", "v1", "Pod", Some("k8s_openapi::api::core::v1::Pod")),
            ("", "v1", "Node", Some("k8s_openapi::api::core::v1::Node")),
            ("networking", "v1", "Ingress", Some("k8s_openapi::api::networking::v1::Ingress")),
            ("rbac.authorization.k8s.io", "v1", "Role", Some("k8s_openapi::api::rbac::v1::Role")),
            ("apps", "v1alpha1", "Deployment", None),
            ("cache", "v1", "Deployment", None),
        ] {
            assert_eq!(find(group, version, kind).map(|known| known.path()).as_deref(), path, "{group} {kind}");
        }
        assert_eq!(all().count(), KINDS.lines().count());
    }
}
