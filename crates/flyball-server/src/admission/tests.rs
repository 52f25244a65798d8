//! The enabled plugins are those of kube-apiserver, except for documented ones.

use super::Admission;
use crate::auth::{Authorizer, PolicyImage};
use crate::bounds::Bounds;
use crate::catalog::{Catalog, CurrentCatalog};
use crate::codec::Codec;
use crate::registry::Registry;
use crate::storage::{Limits, Store};
use crate::webhook::{OfflineCaller, Webhooks};
use flyball_core::time::Timestamp;
use flyball_core::{Clock, Rng};
use std::sync::{Arc, Weak};

/// The plugins that kube-apiserver 1.36 enables by default, in its order, as `kube-apiserver --help` lists them.
const ENABLED_BY_DEFAULT: [&str; 27] = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// Plugins of kube-apiserver that are absent here, with the reason that `docs/divergences.md` lists.
const ABSENT: [(&str, &str); 5] = [
    ("PodGroupProtection", "its feature gate is off by default, and its kinds are not served"),
    ("ClusterTrustBundleAttest", "its kind is served only if its feature gate is on, which is off by default"),
    ("PodGroupWorkloadExists", "its feature gate is off by default, and its kinds are not served"),
    (
        "NodeDeclaredFeatureValidator",
        "simulated nodes declare no features: a resize of the resources of a whole pod is accepted on every node",
    ),
    ("JobValidation", "its feature gate is off by default"),
];

/// Checks that kube-apiserver runs in the storage of their kinds, and not as plugins.
const OF_STORAGE: [&str; 4] = ["CertificateRequester", "EscalationCheck", "ParameterAccess", "DeviceAdminAccess"];

fn enabled() -> Vec<&'static str> {
    let bounds = Bounds::default();
    let (clock, rng) = (Clock::new(Timestamp::default), Rng::from_seed(1));
    let store = Arc::new(Store::new(Limits::of(&bounds)));
    let webhooks = Arc::new(Webhooks::new(Arc::new(OfflineCaller), store.clone(), rng.clone(), &bounds));
    let catalog = Arc::new(CurrentCatalog::new(Catalog::built_in().into()));
    let codec = Arc::new(Codec::new(catalog, webhooks.clone()));
    let authorizer = Arc::new(Authorizer::new(PolicyImage::default(), store.clone()));
    let admission = Admission::new(&store, &codec, &authorizer, &webhooks, (&clock, &rng), Weak::<Registry>::new());
    admission.0.iter().map(|enabled| enabled.name).collect()
}

#[test]
fn plugins_of_kube_apiserver_are_enabled_in_its_order() {
    let is_absent = |name: &&str| ABSENT.iter().any(|(absent, _)| absent == name);
    let expected: Vec<&str> = ENABLED_BY_DEFAULT.into_iter().filter(|name| !is_absent(name)).collect();
    let (of_storage, plugins): (Vec<&str>, Vec<&str>) =
        enabled().into_iter().partition(|name| OF_STORAGE.contains(name));
    assert_eq!(plugins, expected);
    assert_eq!(of_storage, OF_STORAGE);
}

#[test]
fn absent_plugins_are_documented_with_the_reason() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/divergences.md"));
    let document = document.expect("the documentation");
    let section = document.split("## Admission plugins").nth(1).expect("a section about plugins");
    let rows: Vec<&str> = section.lines().skip_while(|line| !line.starts_with("| `")).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = ABSENT.iter().map(|(name, why)| format!("| `{name}` | {why} |")).collect();
    assert_eq!(rows, expected);
    assert!(ABSENT.iter().all(|(name, _)| ENABLED_BY_DEFAULT.contains(name)));
}
