//! Creates the objects that pods need in every namespace: the `default` service account and `kube-root-ca.crt`.
//!
//! See <https://kubernetes.io/docs/concepts/security/service-accounts/#default-service-accounts>.

use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Resource, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Debug;

const ROOT_CA: &str = "kube-root-ca.crt";
/// Description of the config map, as on a real server.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
                           internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
                           clusters.";

/// Creates the controller of default service accounts.
pub(super) fn accounts() -> Controller<impl Reconcile> {
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some("default".into()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    let per_namespace = PerNamespace { object: account, is_good: |_, _| true };
    Controller::new(per_namespace).watches_by_key::<ServiceAccount>(|account, _| Ok(namespace_of(account, "default")))
}

/// Creates the controller that publishes a certificate, given in PEM.
pub(super) fn root_ca(certificate: String) -> Controller<impl Reconcile> {
    let annotations = BTreeMap::from([("kubernetes.io/description".to_owned(), DESCRIPTION.to_owned())]);
    let metadata = ObjectMeta { name: Some(ROOT_CA.into()), annotations: Some(annotations), ..ObjectMeta::default() };
    let data = BTreeMap::from([("ca.crt".to_owned(), certificate)]);
    let object = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    let per_namespace = PerNamespace { object, is_good: |current: &ConfigMap, desired| current.data == desired.data };
    Controller::new(per_namespace).watches_by_key::<ConfigMap>(|map, _| Ok(namespace_of(map, ROOT_CA)))
}

/// Returns the namespace of an object, if the object has this name.
fn namespace_of(object: &ObjectKey, name: &str) -> Vec<ObjectKey> {
    let namespace = object.namespace().filter(|_| object.name() == name);
    namespace.map(|namespace| ObjectKey::new(None, namespace)).into_iter().collect()
}

/// Maintains one object in each namespace.
struct PerNamespace<T> {
    object: T,
    is_good: fn(&T, &T) -> bool,
}

impl<T> Reconcile for PerNamespace<T>
where
    T: Resource + kube::Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize,
{
    type Resource = Namespace;

    async fn reconcile(&self, namespace: &Namespace, cx: &Context<Namespace>) -> Result<Action> {
        let (namespace, name) = (namespace.name_any(), self.object.name_any());
        let there = cx.get::<T>(&ObjectKey::new(Some(&namespace), &name)).await?;
        let objects: Api<T> = Api::namespaced(cx.client().clone(), &namespace);
        let params = PostParams { field_manager: Some("kube-controller-manager".into()), ..PostParams::default() };
        let written = match there {
            Some(there) if (self.is_good)(&there, &self.object) => return Ok(Action::done()),
            Some(there) => {
                let mut object = self.object.clone();
                object.meta_mut().resource_version = there.resource_version();
                objects.replace(&name, &params, &object).await?
            }
            None => objects.create(&params, &self.object).await?,
        };
        cx.record_write(&written);
        Ok(Action::done())
    }
}
