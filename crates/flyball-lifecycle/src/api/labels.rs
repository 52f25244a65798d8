//! Names of labels, annotations and finalizers of the lifecycle manager.

/// Label of objects that the lifecycle manager made.
pub const MANAGED: &str = "olm.managed";
/// Label of the name of the owner.
pub const OWNER: &str = "olm.owner";
/// Label of the kind of the owner.
pub const OWNER_KIND: &str = "olm.owner.kind";
/// Label of the namespace of the owner.
pub const OWNER_NAMESPACE: &str = "olm.owner.namespace";
/// Label of copied ClusterServiceVersions: the namespace of the original.
pub const COPIED_FROM: &str = "olm.copiedFrom";
/// Label of a Deployment: hash of its spec.
pub const DEPLOYMENT_SPEC_HASH: &str = "olm.deployment-spec-hash";
/// Label of a Role or binding: hash of its content.
pub const PERMISSIONS_HASH: &str = "olm.permissions.hash";
/// Label of a webhook configuration: hash of its content.
pub const WEBHOOK_HASH: &str = "olm.webhook-description-hash";
/// Label of a webhook configuration: the generate name in the ClusterServiceVersion.
pub const WEBHOOK_GENERATE_NAME: &str = "olm.webhook-description-generate-name";
/// Prefix of the label on ClusterServiceVersions, Subscriptions and their objects that belong to an Operator.
pub const COMPONENT_PREFIX: &str = "operators.coreos.com/";
/// Prefix of the label on namespaces that an OperatorGroup targets, followed by its UID.
pub const OPERATOR_GROUP_UID_PREFIX: &str = "olm.operatorgroup.uid/";
/// Prefix of the label of the aggregated ClusterRoles of an API.
pub const AGGREGATE_PREFIX: &str = "olm.opgroup.permissions/aggregate-to-";

/// Annotation of the OperatorGroup of a ClusterServiceVersion.
pub const OPERATOR_GROUP: &str = "olm.operatorGroup";
/// Annotation of the namespace of the OperatorGroup.
pub const OPERATOR_NAMESPACE: &str = "olm.operatorNamespace";
/// Annotation of the target namespaces of the OperatorGroup, separated by commas.
pub const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// Annotation of an OperatorGroup: APIs that its operators provide, as `Kind.version.group`, separated by commas.
pub const PROVIDED_APIS: &str = "olm.providedAPIs";
/// Annotation of pod templates: hash of the certificate authority that signs the serving certificate.
pub const CA_HASH: &str = "olmcahash";
/// Annotation of a ClusterServiceVersion: properties of its bundle.
pub const PROPERTIES: &str = "operatorframework.io/properties";
/// Annotation of a ClusterServiceVersion: versions that it upgrades from.
pub const SKIP_RANGE: &str = "olm.skipRange";

/// Finalizer of ClusterServiceVersions, which removes their cluster-scoped objects.
pub const CSV_CLEANUP: &str = "operators.coreos.com/csv-cleanup";
/// Annotation of a Subscription that an InstallPlan made for a dependency: the InstallPlan.
pub const GENERATED_BY: &str = "olm.generated-by";
/// Annotation of an OperatorGroup: `true` if its namespace does not use the catalogs of the global namespace.
pub const SKIP_GLOBAL_CATALOGS: &str = "olm.operatorframework.io/exclude-global-namespace-resolution";
/// Annotation of a Subscription: range of the versions that it may install.
pub const VERSIONS: &str = "olm.flyball.dev/versions";
/// Annotation of a Subscription: name of the ClusterServiceVersion to go back to, and to stay at.
pub const ROLLBACK: &str = "olm.flyball.dev/rollback";
/// Prefix of the annotations of a Subscription about its rollout.
pub const ROLLOUT_PREFIX: &str = "olm.flyball.dev/rollout-";
/// Annotation of a Subscription: the Subscriptions that have to run a version before, as `namespace/name`, separated by
/// commas.
pub const ROLLOUT_AFTER: &str = "olm.flyball.dev/rollout-after";
/// Annotation of a Subscription: the time that these have to run it.
pub const ROLLOUT_SOAK: &str = "olm.flyball.dev/rollout-soak";
/// Annotation of a Subscription: conditions of the custom resources of its operator, as `plural.group=Condition`,
/// separated by commas, without which no newer version is installed.
pub const ROLLOUT_PROBES: &str = "olm.flyball.dev/rollout-probes";
/// Annotation of a Subscription: the namespaces whose Subscriptions may follow it, separated by commas; `*` for all.
pub const ROLLOUT_LEADS: &str = "olm.flyball.dev/rollout-leads";
/// Annotation of a Subscription: name of a ClusterServiceVersion that is approved, without those of other Subscriptions
/// in the same InstallPlan.
pub const APPROVED: &str = "olm.flyball.dev/approved";
/// Annotation of an InstallPlan: `None` if its CRDs are not checked.
pub const CRD_UPGRADE_SAFETY: &str = "olm.flyball.dev/crd-upgrade-safety";
/// Prefix of the annotation of a CRD with a ClusterServiceVersion that it was installed with.
pub const INSTALLED_ALONGSIDE_PREFIX: &str = "operatorframework.io/installed-alongside-";
/// Prefix of the annotation of a shared ClusterRole or ClusterRoleBinding with what a ClusterServiceVersion that it was
/// installed with needs: rules or subjects, as JSON.
pub const NEEDS_PREFIX: &str = "olm.flyball.dev/needs-";
/// Label of a ConfigMap with the content of a CatalogSource, and of a CatalogSource whose server is in the namespace of
/// other users; any value. Only users who may grant any permission may set it, and change ConfigMaps that have it.
pub const CATALOG: &str = "olm.flyball.dev/catalog";
