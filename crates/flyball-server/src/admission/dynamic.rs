//! Dynamic admission: configured webhooks and policies.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>.

mod condition;
mod configured;
mod matching;
mod policy;
mod review;
mod webhook;

pub(super) use policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
pub(super) use webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, WriteCost, pass};
use crate::auth::Authorizer;
use crate::catalog::{Resource, scale};
use crate::codec::Codec;
use crate::kinds::Part;
use crate::storage::Store;
use crate::webhook::Webhooks;
use flyball_core::{Object, Status};
use std::sync::Arc;

/// The components that look up conditions, selectors and parameters, and call webhooks.
#[derive(Clone)]
pub(super) struct Environment {
    pub(super) store: Arc<Store>,
    pub(super) codec: Arc<Codec>,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) webhooks: Arc<Webhooks>,
}

/// Returns the objects of a request in one version, as the written part.
async fn as_version(
    codec: &Codec,
    attributes: &Attributes<'_>,
    shown_as: &Resource,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(Option<Object>, Option<Object>), Status> {
    let convert = async |object: Option<&Object>| match object {
        None => Ok(None),
        Some(object) if attributes.part == Part::Scale => scale::of(attributes.resource, object).map(Some),
        Some(object) if attributes.is_action() => Ok(Some(object.clone())),
        Some(object) => codec.as_version(attributes.resource, shown_as, object.clone()).await.map(Some),
    };
    Ok((convert(object).await?, convert(old).await?))
}

/// Applies the object that a webhook or policy returned to the request.
async fn write_back(
    codec: &Codec,
    attributes: &Attributes<'_>,
    shown_as: &Resource,
    patched: Object,
    object: &mut Object,
) -> Result<(), Status> {
    if attributes.part == Part::Scale {
        return scale::write(attributes.resource, object, &patched);
    }
    if attributes.is_action() {
        *object = patched;
        return Ok(());
    }
    *object = codec.as_version(shown_as, attributes.resource, patched).await?;
    Ok(())
}
