//! Functions in Rust that extend the releases of a kind: mappers of values, and hooks of reconciles.

use crate::storage::Revision;
use flyball::{Context, Result};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::fmt;
use std::pin::Pin;

/// The future of a hook.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

type Mapper = dyn Fn(&DynamicObject, Map<String, Value>) -> Result<Map<String, Value>> + Send + Sync;
type PreHook = dyn for<'a> Fn(&'a Context<DynamicObject>, &'a DynamicObject, &'a Map<String, Value>) -> HookFuture<'a>
    + Send
    + Sync;
type PostHook =
    dyn for<'a> Fn(&'a Context<DynamicObject>, &'a DynamicObject, &'a Revision) -> HookFuture<'a> + Send + Sync;

/// The functions of one kind, in their order.
#[derive(Default)]
pub(crate) struct Extensions {
    pub(crate) mappers: Vec<Box<Mapper>>,
    pub(crate) pre_hooks: Vec<Box<PreHook>>,
    pub(crate) post_hooks: Vec<Box<PostHook>>,
    /// Permissions that the functions need.
    pub(crate) rules: Vec<PolicyRule>,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Extensions {
    /// Maps the spec of a custom resource to values.
    pub(crate) fn values(&self, object: &DynamicObject, spec: Map<String, Value>) -> Result<Map<String, Value>> {
        self.mappers.iter().try_fold(spec, |values, map| map(object, values))
    }

    /// Runs the hooks before a release is compared with its custom resource.
    pub(crate) async fn run_pre_hooks(
        &self,
        cx: &Context<DynamicObject>,
        object: &DynamicObject,
        values: &Map<String, Value>,
    ) -> Result<()> {
        for hook in &self.pre_hooks {
            hook(cx, object, values).await?;
        }
        Ok(())
    }

    /// Runs the hooks after a release is deployed.
    pub(crate) async fn run_post_hooks(
        &self,
        cx: &Context<DynamicObject>,
        object: &DynamicObject,
        revision: &Revision,
    ) -> Result<()> {
        for hook in &self.post_hooks {
            hook(cx, object, revision).await?;
        }
        Ok(())
    }
}
