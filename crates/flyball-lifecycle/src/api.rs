//! The kinds of `operators.coreos.com` and `packages.operators.coreos.com`.
//!
//! The types decode the fields that the controllers read, and keep all others, so that an object that is read and
//! written loses nothing. Pod templates and other objects inside of objects are JSON values. [`crds()`] returns the
//! CRDs, which are those of OLM.

mod catalog_source;
mod cluster_catalog;
mod cluster_extension;
mod cluster_service_version;
mod crds;
mod extension_crds;
mod install_plan;
pub mod labels;
mod olm_config;
mod operator;
mod operator_condition;
mod operator_group;
mod package_manifest;
mod requester;
mod subscription;

pub use catalog_source::{
    CatalogSource, CatalogSourceSpec, CatalogSourceStatus, ConfigMapReference, ConnectionState, ExtractContent,
    GrpcPodConfig, RegistryPoll, RegistryService, UpdateStrategy,
};
pub use cluster_catalog::{
    ClusterCatalog, ClusterCatalogSource, ClusterCatalogSpec, ClusterCatalogStatus, ImageSource,
};
pub use cluster_extension::{
    CatalogFilter, ClusterExtension, ClusterExtensionSpec, ClusterExtensionStatus, CrdUpgradeSafety, ExtensionConfig,
    ExtensionInstall, ExtensionSource, InstalledBundle, InstalledExtension, Preflight, UpgradeConstraintPolicy,
};
pub use cluster_service_version::{
    ApiServiceDescription, ApiServiceDescriptions, ClusterServiceVersion, ClusterServiceVersionCondition,
    ClusterServiceVersionPhase, ClusterServiceVersionSpec, ClusterServiceVersionStatus, CrdDescription,
    CrdDescriptions, DependentStatus, DeploymentDescription, InstallMode, InstallModeType, InstallStrategy, NativeApi,
    Permission, RequirementState, RequirementStatus, StrategyDetails, WebhookDescription, WebhookType,
};
pub use crds::{crd, crds, package_manifest_crd};
pub use extension_crds::extension_crds;
pub use install_plan::{
    Approval, BundleLookup, BundleLookupCondition, InstallPlan, InstallPlanCondition, InstallPlanPhase,
    InstallPlanSpec, InstallPlanStatus, Step, StepResource, StepStatus,
};
pub use olm_config::{Features, OlmConfig, OlmConfigSpec, OlmConfigStatus};
pub use operator::{ComponentReference, Components, Operator, OperatorSpec, OperatorStatus};
pub use operator_condition::{OperatorCondition, OperatorConditionSpec, OperatorConditionStatus};
pub use operator_group::{OperatorGroup, OperatorGroupSpec, OperatorGroupStatus, UpgradeStrategy};
pub use package_manifest::{
    PackageChannel, PackageChannelEntry, PackageManifest, PackageManifestSpec, PackageManifestStatus,
};
pub(crate) use requester::{is_extension, is_requester, is_subscription};
pub use subscription::{
    CatalogHealth, InstallPlanReference, Subscription, SubscriptionCondition, SubscriptionConfig, SubscriptionSpec,
    SubscriptionState, SubscriptionStatus,
};

/// The API group of the lifecycle manager.
pub const GROUP: &str = "operators.coreos.com";

/// The API group of OLM v1.
pub const EXTENSIONS_GROUP: &str = "olm.operatorframework.io";

/// The API group of PackageManifests.
pub const PACKAGES_GROUP: &str = "packages.operators.coreos.com";

/// Declares the type of a kind: metadata, spec and status, each with defaults if it is absent, and its names.
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $name:ident, $kind:literal, $group:expr, $version:literal, $plural:literal, $scope:ty, $spec:ty, $status:ty
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $name {
            /// Metadata of the object.
            #[serde(default)]
            pub metadata: kube::core::ObjectMeta,
            /// Desired state.
            #[serde(default)]
            pub spec: $spec,
            /// Observed state.
            #[serde(default)]
            pub status: $status,
        }

        impl $name {
            /// Creates an object with a name, without a spec.
            pub fn new(namespace: Option<&str>, name: &str) -> Self {
                let metadata = kube::core::ObjectMeta {
                    name: Some(name.into()),
                    namespace: namespace.map(Into::into),
                    ..kube::core::ObjectMeta::default()
                };
                Self { metadata, ..Self::default() }
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct($kind, 5)?;
                object.serialize_field("apiVersion", &<Self as kube::Resource>::api_version(&()))?;
                object.serialize_field("kind", $kind)?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                object.serialize_field("status", &self.status)?;
                object.end()
            }
        }
    };
}
use kind;

/// Returns true if a value is the default of its type, so that it need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
