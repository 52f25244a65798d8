//! Names of annotations and of the finalizer.

/// The finalizer of custom resources.
pub(crate) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// The annotation that pauses reconciliation of a custom resource.
pub(crate) const PAUSED: &str = "helm.sdk.operatorframework.io/pause-reconcile";
/// The annotation of a custom resource with the reconcile period of its release.
pub(crate) const RECONCILE_PERIOD: &str = "helm.sdk.operatorframework.io/reconcile-period";
/// The annotation of a custom resource that keeps it until all objects of its release are deleted.
pub(crate) const UNINSTALL_WAIT: &str = "helm.sdk.operatorframework.io/uninstall-wait";
/// The annotation of a custom resource whose upgrades recreate objects that cannot be changed.
pub(crate) const UPGRADE_FORCE: &str = "helm.sdk.operatorframework.io/upgrade-force";
/// The same for rollbacks, which recreate them unless it is `false`.
pub(crate) const ROLLBACK_FORCE: &str = "helm.sdk.operatorframework.io/rollback-force";
/// The annotation of an object with the custom resource that it belongs to, if that cannot be its owner reference.
pub(crate) const OWNER: &str = "operator-sdk/primary-resource";
/// The annotation of such an object with the kind of that custom resource.
pub(crate) const OWNER_KIND: &str = "operator-sdk/primary-resource-type";
/// Helm's annotation of an object with the name of its release.
pub(crate) const RELEASE: &str = "meta.helm.sh/release-name";
/// Helm's annotation of an object with the namespace of its release.
pub(crate) const NAMESPACE: &str = "meta.helm.sh/release-namespace";
/// The annotation with the groups that an object depends on, as a JSON list.
pub(crate) const DEPENDS_ON: &str = "helm.sh/depends-on/resource-groups";
/// Helm's annotation of an object that the uninstallation keeps, with the value `keep`. See
/// <https://helm.sh/docs/howto/charts_tips_and_tricks/#tell-helm-not-to-uninstall-a-resource>.
pub(crate) const RESOURCE_POLICY: &str = "helm.sh/resource-policy";
