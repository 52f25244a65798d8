//! Admission: rules that depend on more than the object itself.
//!
//! Takes the candidate of a write and the previous object, returns the candidate or an error. First all plugins may
//! change the candidate, then all may reject it; the registry runs both steps again after a conflict. Invariant: no
//! lock is held while a webhook is called. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod attributes;
mod certificates;
mod default_class;
mod default_ingress_class;
mod default_tolerations;
mod device_access;
mod dynamic;
mod escalation;
mod limit_ranger;
mod namespace_lifecycle;
mod node_taint;
mod parameters;
mod pod;
mod pod_resize;
mod pod_security;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod storage;
#[cfg(test)]
mod tests;
mod topology_labels;

pub(crate) use attributes::{Attributes, Operation, Reinvocation, Writer};
pub(crate) use quota::{Edit, Editor};

use self::certificates::{
    CertificateApproval, CertificateRequester, CertificateSigning, CertificateSubjectRestriction,
};
use self::default_ingress_class::DefaultIngressClass;
use self::default_tolerations::DefaultTolerationSeconds;
use self::device_access::DeviceAdminAccess;
use self::dynamic::{
    MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy, ValidatingAdmissionWebhook,
};
use self::escalation::EscalationCheck;
use self::limit_ranger::LimitRanger;
use self::namespace_lifecycle::NamespaceLifecycle;
use self::node_taint::TaintNodesByCondition;
use self::parameters::ParameterAccess;
use self::pod_resize::PodResizeValidator;
use self::pod_security::PodSecurity;
use self::priority::Priority;
use self::quota::ResourceQuota;
use self::runtime_class::RuntimeClass;
use self::service_account::ServiceAccount;
use self::storage::{DefaultStorageClass, PersistentVolumeClaimResize, StorageObjectInUseProtection};
use self::topology_labels::PodTopologyLabels;
use crate::auth::Authorizer;
use crate::codec::Codec;
use crate::kinds::{CERTIFICATE_SIGNING_REQUEST, INGRESS, Kind, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD};
use crate::storage::Store;
use crate::webhook::Webhooks;
use flyball_core::{Clock, Object, Rng, Status};
use futures_util::future::{BoxFuture, Either, Ready, ready};
use std::sync::{Arc, Weak};

/// The result of a plugin, which most compute at once.
type PluginResult<'a> = Either<Ready<Result<(), Status>>, BoxFuture<'a, Result<(), Status>>>;

/// Allows a request.
fn pass<'a>() -> PluginResult<'a> {
    decided(Ok(()))
}

fn decided<'a>(decision: Result<(), Status>) -> PluginResult<'a> {
    Either::Left(ready(decision))
}

/// A rule for requests. Deletions have no object. It runs for the resources that it is enabled for.
trait Plugin: Send + Sync {
    /// Changes the object of a request, or rejects it.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Object>,
        _reinvocation: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        pass()
    }

    /// Rejects a request because of its final object.
    fn validate<'a>(&'a self, _attributes: &'a Attributes<'a>, _object: Option<&'a Object>) -> PluginResult<'a> {
        pass()
    }
}

/// The cost of writes that a plugin handles, for plugins that read objects or follow the configuration of users.
///
/// The server requests it before it decodes the object of a write, to select a thread and to decide about copies.
trait WriteCost: Send + Sync {
    /// Returns true if writes of a resource in a namespace may be long computations.
    fn is_slow(&self, plural: &str, namespace: Option<&str>) -> bool;

    /// Returns true if writes of a resource may call webhooks.
    fn calls_webhooks(&self, _plural: &str) -> bool {
        false
    }

    /// Returns true if users configured the plugin to change objects.
    fn changes_objects(&self) -> bool {
        false
    }
}

/// Bytes of the objects that a plugin decodes from which this is a long computation.
const LONG_READ_BYTES: usize = 64 << 10;

/// Returns true if decoding the objects of a kind in a namespace is a long computation.
fn is_long_read(store: &Store, kind: &Kind, namespace: Option<&str>) -> bool {
    let entries = store.list(&kind.table(), namespace).entries;
    entries.iter().map(|entry| entry.body.len()).sum::<usize>() >= LONG_READ_BYTES
}

/// A plugin, and the built-in kinds whose writes it handles; all requests if there are none.
struct EnabledPlugin {
    /// The name in kube-apiserver, or that of a check which kube-apiserver runs in the storage of its kinds.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the comparison with kube-apiserver's list"))]
    name: &'static str,
    plugin: Arc<dyn Plugin>,
    /// The plugin, if its cost depends on stored objects.
    cost: Option<Arc<dyn WriteCost>>,
    kinds: Box<[&'static Kind]>,
}

impl EnabledPlugin {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| attributes.writes(kind))
    }
}

/// The kinds of volumes.
static VOLUMES: [&Kind; 2] = [&PERSISTENT_VOLUME_CLAIM, &PERSISTENT_VOLUME];

/// Enables a plugin for all requests.
fn on_all(name: &'static str, plugin: impl Plugin + 'static) -> EnabledPlugin {
    on(name, [], plugin)
}

/// Enables a plugin for writes of kinds.
fn on<const N: usize>(name: &'static str, kinds: [&'static Kind; N], plugin: impl Plugin + 'static) -> EnabledPlugin {
    EnabledPlugin { name, plugin: Arc::new(plugin), cost: None, kinds: kinds.into() }
}

/// Enables a plugin that states its cost, for writes of kinds; for all requests if there are none.
fn with_cost<const N: usize>(
    name: &'static str,
    kinds: [&'static Kind; N],
    plugin: impl Plugin + WriteCost + 'static,
) -> EnabledPlugin {
    let plugin = Arc::new(plugin);
    EnabledPlugin { name, cost: Some(plugin.clone()), plugin, kinds: kinds.into() }
}

/// The plugins, in the order in which they run.
pub(crate) struct Admission(Vec<EnabledPlugin>);

impl Admission {
    /// Enables all plugins, in the order of kube-apiserver's `AllOrderedPlugins`. Checks that kube-apiserver runs in
    /// the storage of their kinds run before webhooks as well.
    pub(crate) fn new(
        store: &Arc<Store>,
        codec: &Arc<Codec>,
        authorizer: &Arc<Authorizer>,
        webhooks: &Arc<Webhooks>,
        (clock, rng): (&Clock, &Rng),
        editor: Weak<dyn Editor>,
    ) -> Self {
        let (store, codec, authorizer) = (|| store.clone(), || codec.clone(), || authorizer.clone());
        let env = || dynamic::Environment {
            store: store(),
            codec: codec(),
            authorizer: authorizer(),
            webhooks: webhooks.clone(),
        };
        let quota = ResourceQuota::new(store(), codec(), clock.clone(), editor);
        Self(vec![
            on_all("NamespaceLifecycle", NamespaceLifecycle::new(store())),
            with_cost("LimitRanger", [&POD, &PERSISTENT_VOLUME_CLAIM], LimitRanger::new(store())),
            with_cost("ServiceAccount", [&POD], ServiceAccount::new(store(), rng.clone())),
            on("TaintNodesByCondition", [&NODE], TaintNodesByCondition),
            with_cost("PodSecurity", [], PodSecurity::new(store())),
            on("Priority", [&POD], Priority::new(store())),
            on("DefaultTolerationSeconds", [&POD], DefaultTolerationSeconds),
            on("DefaultStorageClass", [&PERSISTENT_VOLUME_CLAIM], DefaultStorageClass::new(store())),
            on("StorageObjectInUseProtection", VOLUMES, StorageObjectInUseProtection),
            on("PersistentVolumeClaimResize", [&PERSISTENT_VOLUME_CLAIM], PersistentVolumeClaimResize::new(store())),
            on("RuntimeClass", [&POD], RuntimeClass::new(store())),
            on("CertificateApproval", [&CERTIFICATE_SIGNING_REQUEST], CertificateApproval::new(authorizer())),
            on("CertificateSigning", [&CERTIFICATE_SIGNING_REQUEST], CertificateSigning::new(authorizer())),
            on("CertificateSubjectRestriction", [&CERTIFICATE_SIGNING_REQUEST], CertificateSubjectRestriction),
            on("DefaultIngressClass", [&INGRESS], DefaultIngressClass::new(store())),
            on_all("PodTopologyLabels", PodTopologyLabels::new(store())),
            on("PodResizeValidator", [&POD], PodResizeValidator::new(store())),
            on("CertificateRequester", [&CERTIFICATE_SIGNING_REQUEST], CertificateRequester),
            on("EscalationCheck", escalation::KINDS, EscalationCheck::new(authorizer())),
            on("ParameterAccess", parameters::KINDS, ParameterAccess::new(store(), codec(), authorizer())),
            on("DeviceAdminAccess", device_access::KINDS, DeviceAdminAccess::new(store())),
            with_cost("MutatingAdmissionPolicy", [], MutatingAdmissionPolicy::new(env())),
            with_cost("MutatingAdmissionWebhook", [], MutatingAdmissionWebhook::new(env())),
            with_cost("ValidatingAdmissionPolicy", [], ValidatingAdmissionPolicy::new(env())),
            with_cost("ValidatingAdmissionWebhook", [], ValidatingAdmissionWebhook::new(env())),
            // The last one, since it reserves quota.
            with_cost("ResourceQuota", [], quota),
        ])
    }

    fn costs(&self) -> impl Iterator<Item = &dyn WriteCost> {
        self.0.iter().filter_map(|enabled| enabled.cost.as_deref())
    }

    /// Returns true if writes of a resource in a namespace may be long computations.
    pub(crate) fn is_slow(&self, plural: &str, namespace: Option<&str>) -> bool {
        self.costs().any(|cost| cost.is_slow(plural, namespace))
    }

    /// Returns true if writes of a resource may call webhooks.
    pub(crate) fn calls_webhooks(&self, plural: &str) -> bool {
        self.costs().any(|cost| cost.calls_webhooks(plural))
    }

    /// Returns true if users configured plugins that change objects.
    pub(crate) fn changes_objects(&self) -> bool {
        self.costs().any(WriteCost::changes_objects)
    }

    /// Runs the mutating step of the plugins; a second time if a plugin with reinvocation ran before the last change.
    pub(crate) async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
    ) -> Result<(), Status> {
        let mut reinvocation = Reinvocation::default();
        self.admit_once(attributes, object.as_deref_mut(), &mut reinvocation).await?;
        if reinvocation.is_due {
            reinvocation.again = true;
            self.admit_once(attributes, object, &mut reinvocation).await?;
        }
        Ok(())
    }

    async fn admit_once(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
        reinvocation: &mut Reinvocation,
    ) -> Result<(), Status> {
        for enabled in self.0.iter().filter(|enabled| enabled.handles(attributes)) {
            enabled.plugin.admit(attributes, object.as_deref_mut(), reinvocation).await?;
        }
        Ok(())
    }

    /// Runs the validating step of the plugins.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), Status> {
        for enabled in self.0.iter().filter(|enabled| enabled.handles(attributes)) {
            enabled.plugin.validate(attributes, object).await?;
        }
        Ok(())
    }
}
