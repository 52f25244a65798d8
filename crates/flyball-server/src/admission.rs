//! Admission: rules that look beyond the object itself.
//!
//! Takes the candidate of a write and what there was before, gives the candidate or a refusal. First all plugins may
//! change it, then all may reject it; the registry runs both again if another write came first. It must not hold a
//! lock while it asks others. See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod attributes;
mod certificates;
mod default_tolerations;
mod device_access;
mod dynamic;
mod escalation;
mod limit_ranger;
mod namespace_lifecycle;
mod node_taint;
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
use crate::storage::Store;
use crate::webhook::Webhooks;
use flyball_core::{Clock, Object, Rng, Status};
use futures_util::future::{BoxFuture, Either, Ready, ready};
use std::sync::{Arc, Weak};

/// The answer of a plugin, which most have at once.
type Answer<'a> = Either<Ready<Result<(), Status>>, BoxFuture<'a, Result<(), Status>>>;

/// Has nothing against a request.
fn pass<'a>() -> Answer<'a> {
    decided(Ok(()))
}

fn decided<'a>(decision: Result<(), Status>) -> Answer<'a> {
    Either::Left(ready(decision))
}

/// A rule for requests. There is no object where one is deleted.
trait Plugin: Send + Sync {
    /// Changes the object of a request, or rejects it.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Object>,
        _reinvocation: &'a mut Reinvocation,
    ) -> Answer<'a> {
        pass()
    }

    /// Rejects a request by what came of its object.
    fn validate<'a>(&'a self, _attributes: &'a Attributes<'a>, _object: Option<&'a Object>) -> Answer<'a> {
        pass()
    }
}

/// The plugins, in the order in which they run.
pub(crate) struct Admission(Vec<Box<dyn Plugin>>);

impl Admission {
    /// Enables all plugins, in the order of kube-apiserver's `AllOrderedPlugins`. The two checks that are no plugins
    /// there, but part of the storage of their kinds, stand before webhooks as well.
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
            Box::new(namespace_lifecycle::NamespaceLifecycle::new(store.clone())),
            Box::new(limit_ranger::LimitRanger::new(store.clone())),
            Box::new(service_account::ServiceAccount::new(store.clone(), rng.clone())),
            Box::new(node_taint::TaintNodesByCondition),
            Box::new(priority::Priority::new(store.clone())),
            Box::new(default_tolerations::DefaultTolerationSeconds),
            Box::new(storage::DefaultStorageClass::new(store.clone())),
            Box::new(storage::StorageObjectInUseProtection),
            Box::new(storage::PersistentVolumeClaimResize::new(store.clone())),
            Box::new(runtime_class::RuntimeClass::new(store.clone())),
            Box::new(certificates::Certificates::new(authorizer.clone())),
            Box::new(escalation::EscalationCheck::new(authorizer.clone())),
            Box::new(device_access::DeviceAdminAccess::new(store.clone())),
            Box::new(dynamic::MutatingAdmissionPolicy::new(env.clone())),
            Box::new(dynamic::MutatingAdmissionWebhook::new(env.clone())),
            Box::new(dynamic::ValidatingAdmissionPolicy::new(env.clone())),
            Box::new(dynamic::ValidatingAdmissionWebhook::new(env)),
            // The last one, as it takes something.
            Box::new(quota::ResourceQuota::new(store.clone(), codec.clone(), clock.clone(), editor)),
        ])
    }

    /// Lets plugins change the object of a request, once more if one that wants to see later changes was run before
    /// them.
    pub(crate) async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
    ) -> Result<(), Status> {
        let mut reinvocation = Reinvocation::default();
        self.admit_once(attributes, object.as_deref_mut(), &mut reinvocation).await?;
        if reinvocation.wanted {
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
        for plugin in &self.0 {
            plugin.admit(attributes, object.as_deref_mut(), reinvocation).await?;
        }
        Ok(())
    }

    /// Lets plugins reject a request.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), Status> {
        for plugin in &self.0 {
            plugin.validate(attributes, object).await?;
        }
        Ok(())
    }
}
