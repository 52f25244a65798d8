//! Admission: rules that depend on more than the object itself.
//!
//! Takes the candidate of a write and the previous object, returns the candidate or an error. First all plugins may
//! change the candidate, then all may reject it; the registry runs both steps again after a conflict. Invariant: no
//! lock is held while a webhook is called. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod attributes;
mod certificates;
mod default_tolerations;
mod device_access;
mod dynamic;
mod escalation;
mod limit_ranger;
mod namespace_lifecycle;
mod node_taint;
mod parameters;
mod pod;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod storage;

pub(crate) use attributes::{Attributes, Operation, Reinvocation, Writer};
pub(crate) use quota::{Edit, Editor};

use crate::auth::Authorizer;
use crate::codec::Codec;
use crate::kinds::{Kind, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD};
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

    /// Returns true if writes of a resource in a namespace may be long computations.
    fn is_slow(&self, _plural: &str, _namespace: Option<&str>) -> bool {
        false
    }

    /// Returns true if writes of a resource may call webhooks.
    fn calls_webhooks(&self, _plural: &str) -> bool {
        false
    }

    /// Returns true if users configured it to change objects.
    fn is_configured(&self) -> bool {
        false
    }

    /// Rejects a request because of its final object.
    fn validate<'a>(&'a self, _attributes: &'a Attributes<'a>, _object: Option<&'a Object>) -> PluginResult<'a> {
        pass()
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
    plugin: Box<dyn Plugin>,
    kinds: Box<[&'static Kind]>,
}

impl EnabledPlugin {
    fn on_all(plugin: impl Plugin + 'static) -> Self {
        Self::on([], plugin)
    }

    fn on<const N: usize>(kinds: [&'static Kind; N], plugin: impl Plugin + 'static) -> Self {
        Self { plugin: Box::new(plugin), kinds: kinds.into() }
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| attributes.writes(kind))
    }
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
        let env = dynamic::Environment {
            store: store.clone(),
            codec: codec.clone(),
            authorizer: authorizer.clone(),
            webhooks: webhooks.clone(),
        };
        Self(vec![
            EnabledPlugin::on_all(namespace_lifecycle::NamespaceLifecycle::new(store.clone())),
            EnabledPlugin::on([&POD, &PERSISTENT_VOLUME_CLAIM], limit_ranger::LimitRanger::new(store.clone())),
            EnabledPlugin::on([&POD], service_account::ServiceAccount::new(store.clone(), rng.clone())),
            EnabledPlugin::on([&NODE], node_taint::TaintNodesByCondition),
            EnabledPlugin::on([&POD], priority::Priority::new(store.clone())),
            EnabledPlugin::on([&POD], default_tolerations::DefaultTolerationSeconds),
            EnabledPlugin::on([&PERSISTENT_VOLUME_CLAIM], storage::DefaultStorageClass::new(store.clone())),
            EnabledPlugin::on([&PERSISTENT_VOLUME_CLAIM, &PERSISTENT_VOLUME], storage::StorageObjectInUseProtection),
            EnabledPlugin::on([&PERSISTENT_VOLUME_CLAIM], storage::PersistentVolumeClaimResize::new(store.clone())),
            EnabledPlugin::on([&POD], runtime_class::RuntimeClass::new(store.clone())),
            EnabledPlugin::on(certificates::KINDS, certificates::Certificates::new(authorizer.clone())),
            EnabledPlugin::on(escalation::KINDS, escalation::EscalationCheck::new(authorizer.clone())),
            EnabledPlugin::on(
                parameters::KINDS,
                parameters::ParameterAccess::new(store.clone(), codec.clone(), authorizer.clone()),
            ),
            EnabledPlugin::on(device_access::KINDS, device_access::DeviceAdminAccess::new(store.clone())),
            EnabledPlugin::on_all(dynamic::MutatingAdmissionPolicy::new(env.clone())),
            EnabledPlugin::on_all(dynamic::MutatingAdmissionWebhook::new(env.clone())),
            EnabledPlugin::on_all(dynamic::ValidatingAdmissionPolicy::new(env.clone())),
            EnabledPlugin::on_all(dynamic::ValidatingAdmissionWebhook::new(env)),
            // The last one, since it reserves quota.
            EnabledPlugin::on_all(quota::ResourceQuota::new(store.clone(), codec.clone(), clock.clone(), editor)),
        ])
    }

    /// Returns true if writes of a resource in a namespace may be long computations.
    pub(crate) fn is_slow(&self, plural: &str, namespace: Option<&str>) -> bool {
        self.0.iter().any(|enabled| enabled.plugin.is_slow(plural, namespace))
    }

    /// Returns true if writes of a resource may call webhooks.
    pub(crate) fn calls_webhooks(&self, plural: &str) -> bool {
        self.0.iter().any(|enabled| enabled.plugin.calls_webhooks(plural))
    }

    /// Returns true if users configured changes of objects.
    pub(crate) fn is_configured(&self) -> bool {
        self.0.iter().any(|enabled| enabled.plugin.is_configured())
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
