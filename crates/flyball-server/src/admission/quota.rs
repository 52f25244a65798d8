//! ResourceQuota: enforces the quotas of namespaces.
//!
//! The usage of a write is added to the status of the quota before the write, so that concurrent writes cannot exceed
//! it together. A controller recounts the usage later, also after failed writes and deletions. See
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

use super::{Attributes, Operation, Plugin, PluginResult, WriteCost, is_long_read, pass};
use crate::auth::User;
use crate::catalog::Target;
use crate::codec::Codec;
use crate::kinds::{self, PERSISTENT_VOLUME_CLAIM, POD, Part, RESOURCE_QUOTA, SERVICE, pod_usage};
use crate::quota::{self, Amounts};
use crate::storage::{Entry, Store};
use flyball_core::{Clock, Object, Quantity, Status};
use futures_util::future::{BoxFuture, Either};
use std::sync::{Arc, Weak};

/// A change of an object, repeated after a conflict.
pub(crate) type Edit = Box<dyn Fn(&mut Object) -> Result<(), Status> + Send + Sync>;

/// Writes objects on behalf of plugins. The registry implements it.
pub(crate) trait Editor: Send + Sync {
    /// Changes an object on behalf of a user, past webhooks and policies.
    fn edit<'a>(&'a self, target: &'a Target, user: &'a User, edit: Edit) -> BoxFuture<'a, Result<(), Status>>;
}

/// Enforces quotas.
pub(super) struct ResourceQuota {
    store: Arc<Store>,
    codec: Arc<Codec>,
    clock: Clock,
    editor: Weak<dyn Editor>,
}

impl ResourceQuota {
    pub(super) fn new(store: Arc<Store>, codec: Arc<Codec>, clock: Clock, editor: Weak<dyn Editor>) -> Self {
        Self { store, codec, clock, editor }
    }
}

impl WriteCost for ResourceQuota {
    fn is_slow(&self, _: &str, namespace: Option<&str>) -> bool {
        namespace.is_some() && is_long_read(&self.store, &RESOURCE_QUOTA, namespace)
    }
}

impl Plugin for ResourceQuota {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        let recounted = [&SERVICE, &PERSISTENT_VOLUME_CLAIM].iter().any(|kind| attributes.writes(kind));
        let creates = attributes.operation == Operation::Create;
        let is_whole = !attributes.is_action() && attributes.part == Part::Whole;
        let takes = is_whole && (creates || attributes.operation == Operation::Update && recounted);
        let takes = takes || attributes.sizes_pod();
        let (Some(object), Some(namespace), true) = (object, attributes.namespace, takes) else { return pass() };
        let quotas = self.store.list(&RESOURCE_QUOTA.table(), Some(namespace)).entries;
        if quotas.is_empty() {
            return pass();
        }
        Either::Right(Box::pin(self.reserve(attributes, namespace, object, quotas)))
    }
}

impl ResourceQuota {
    /// Charges a write to the quotas of its namespace, or rejects it.
    async fn reserve(
        &self,
        attributes: &Attributes<'_>,
        namespace: &str,
        object: &Object,
        all: Vec<Arc<Entry>>,
    ) -> Result<(), Status> {
        let resource = attributes.resource.group_resource();
        let quotas = self.codec.catalog().of(&RESOURCE_QUOTA);
        let now = self.clock.now();
        let mut requested = quota::usage(&resource, object, now);
        if let Some(old) = attributes.old {
            for (name, amount) in quota::usage(&resource, old, now) {
                let rest = requested.get(&name).copied().unwrap_or(Quantity::ZERO).minus(&amount);
                requested.insert(name, rest);
            }
        }
        requested.retain(|_, amount| *amount != Quantity::ZERO);
        let reject = |why: String| Status::forbidden(&resource, attributes.known_name(), why);
        let mut changes = Vec::new();
        // All quotas are checked before one is changed.
        for entry in &all {
            let Ok(known) = entry.object() else { continue };
            let spec = known.at(&["spec"]).cloned().unwrap_or_default();
            if !quota::applies_to(&spec, &resource, object) {
                continue;
            }
            let hard = amounts(&known, "hard");
            if attributes.writes(&POD) {
                check_requirements(&known, &hard, object).map_err(&reject)?;
            }
            let requested: Amounts =
                requested.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(n, a)| (n.clone(), *a)).collect();
            if !requested.is_empty() {
                fits(&known, &requested).map_err(&reject)?;
                changes.push((known.name().to_owned(), requested));
            }
        }
        if attributes.dry_run {
            return Ok(());
        }
        for (name, requested) in changes {
            let target = Target {
                resource: quotas.clone(),
                namespace: Some(namespace.to_owned()),
                name: Some(name),
                part: Part::Status,
            };
            let (resource, of) = (resource.clone(), attributes.name.to_owned());
            let add = move |known: &mut Object| {
                let used = fits(known, &requested).map_err(|why| Status::forbidden(&resource, &of, why))?;
                known.change(|value| {
                    for (name, amount) in used {
                        value["status"]["used"][name] = amount.to_string().into();
                    }
                });
                Ok(())
            };
            // Without a registry, the server has ended.
            if let Some(editor) = self.editor.upgrade() {
                editor.edit(&target, attributes.user, Box::new(add)).await?;
            }
        }
        Ok(())
    }
}

fn amounts(quota: &Object, field: &str) -> Amounts {
    quota.at(&["status", field]).map(kinds::amounts).unwrap_or_default()
}

/// Returns the usage with the requested amounts, or why they exceed the quota.
fn fits(quota: &Object, requested: &Amounts) -> Result<Amounts, String> {
    let (hard, used) = (amounts(quota, "hard"), amounts(quota, "used"));
    let name = quota.name();
    let unknown: Vec<&str> = requested.keys().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(format!("status unknown for quota: {name}, resources: {}", unknown.join(",")));
    }
    let sums: Amounts = requested.iter().map(|(name, amount)| (name.clone(), used[name].plus(amount))).collect();
    let is_over =
        |name: &String| hard.get(name).is_some_and(|most| sums[name] > *most) && !requested[name].is_negative();
    let over: Vec<&String> = requested.keys().filter(|name| is_over(name)).collect();
    if over.is_empty() {
        return Ok(sums);
    }
    let print =
        |amounts: &Amounts| over.iter().map(|name| format!("{name}={}", amounts[*name])).collect::<Vec<_>>().join(",");
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        print(requested),
        print(&used),
        print(&hard)
    ))
}

/// Rejects a pod without the requests or limits that a quota counts.
fn check_requirements(quota: &Object, hard: &Amounts, pod: &Object) -> Result<(), String> {
    let missing = pod_usage::missing_requirements(pod, hard.keys());
    if missing.is_empty() {
        return Ok(());
    }
    let mut by_name: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for (container, names) in missing {
        for name in names {
            by_name.entry(name).or_default().push(container.clone());
        }
    }
    let names: Vec<String> = by_name.iter().map(|(name, of)| format!("{name} for: {}", of.join(","))).collect();
    Err(format!("failed quota: {}: must specify {}", quota.name(), names.join("; ")))
}
