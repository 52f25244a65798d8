//! Helm operators: the equivalent of operator-sdk's Helm operator, on Flyball's runtime.
//!
//! ```text
//!   watches.yaml ──► chart ──► kinds ──► controllers          once, when the operator starts
//!   custom resource ──► values ──► revision ──► hooks, objects ──► status       in each reconcile
//! ```
//!
//! Each custom resource becomes a release of its chart, with the custom resource's spec as values. Releases are
//! stored in Helm's format, in [`storage`](crate::storage). Conditions and annotations are those of the
//! [operator-sdk](https://sdk.operatorframework.io/docs/building-operators/helm/).
//!
//! | Topic | Behavior |
//! |---|---|
//! | upgrade | if a change of chart or values changes the rendered objects |
//! | drift | objects of releases are watched, and changes are corrected at once |
//! | hooks, CRDs to be established | do not block a reconcile: their changes trigger the next one |
//! | failed hook | fails the revision; it is retried after 10 s, 20 s … 1 h. So does a hook that exceeds `timeout` |
//! | failed upgrade | the deployed revision is installed again, as by `helm upgrade --rollback-on-failure` |
//! | object of another release or custom resource | is neither adopted nor deleted, as by Helm |
//! | test hook | is stored, but not run |
//! | release larger than a Secret | is stored in several, as by helm-operator-plugins |
//! | failed template | no retry before the custom resource or the chart changes |
//! | object that the custom resource cannot own | has annotations with its owner, and is deleted with the release |
//! | random values | are generated once for a release; upgrades keep them |
//! | text of the custom resource | is data: `tpl` does not evaluate it, unless `evaluateTemplates` is set in `watches.yaml` |
//! | `lookup` | in the release's namespace; outside of it only with literal kind, namespace and name in the call |
//! | revision in a Secret | is installed only if the chart renders it: others may write Secrets in the namespace |
//! | object outside of the namespace | needs literal version, kind and namespace in the chart, and is never adopted |
//! | text of the custom resource in such an object | is a scalar, unless `structureFromValues` is set in `watches.yaml` |
//! | rendering | is limited to some 50 million steps and 64 MiB, on a thread of its own |
//!
//! Supported annotations of custom resources, all with the prefix `helm.sdk.operatorframework.io/`:
//! `reconcile-period` (such as `5m`), `uninstall-wait`, `upgrade-force` and `pause-reconcile` (`true`), and
//! `rollback-force` (`false`). A paused custom resource is not uninstalled either.

use crate::annotation;
use crate::current::CurrentChart;
use crate::error::OperatorError;
use crate::extensions::{Extensions, HookFuture};
use crate::history::{ByIndex, ByRelease};
use crate::kinds::Kinds;
use crate::releases::Releases;
use crate::rendering::Slots;
use crate::storage::Revision;
use crate::verified::VerifiedRevisions;
use crate::watches::{Watch, Watches};
use crate::{definition, resources, stages, status};
use flyball::{
    Cache, Context, Controller, GroupVersionKind, Kind, ObjectChange, ObjectKey, Operator, Predicate, Source, Task,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Remedy for objects whose version or kind is unknown.
const UNKNOWN_KIND_REMEDY: &str =
    "the operator has no permission for it: add a sample to config/samples that renders it, then run flyball manifests";

/// Polling interval for changed charts, if reloading is enabled.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Creates the operator of a `watches.yaml`, with a controller for each entry.
///
/// Its name is the `projectName` in the file `PROJECT`, or the name of the project's directory. Its
/// [manifests](Operator::manifests) contain the CRDs in `config/crd/bases`, or, for kinds without a CRD there, one with
/// an open schema. Its watches and permissions are derived from the kinds that the charts render with their default
/// values and with the samples in `config/samples`, and from those that their templates name literally.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let watches = flyball_helm::Watches::read("watches.yaml")?;
/// let operator = flyball_helm::operator(&watches)?;
/// # let _ = operator; Ok(()) }
/// ```
///
/// # Errors
///
/// If a chart cannot be loaded, or a CRD is not usable.
pub fn operator(watches: &Watches) -> Result<Operator, OperatorError> {
    Builder::new(watches).build()
}

/// Creates the [`operator()`] of a `watches.yaml` with functions in Rust, as helm-operator-plugins does.
///
/// Functions belong to a kind, and run in the order of their declaration.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let watches = flyball_helm::Watches::read("watches.yaml")?;
/// let operator = flyball_helm::Builder::new(&watches)
///     .map_values("Site", |_, mut values| {
///         let replicas = if values.get("size").is_some_and(|size| size == "large") { 5 } else { 1 };
///         values.insert("replicas".into(), replicas.into());
///         Ok(values)
///     })
///     .pre_hook("Site", |_, site, values| {
///         Box::pin(async move {
///             tracing::info!(?site.metadata.name, ?values, "reconciling");
///             Ok(())
///         })
///     })
///     .build()?;
/// # let _ = operator; Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<'w> {
    watches: &'w Watches,
    extensions: BTreeMap<String, Extensions>,
}

impl<'w> Builder<'w> {
    /// Creates a builder for the operator of a `watches.yaml`.
    pub fn new(watches: &'w Watches) -> Self {
        Self { watches, extensions: BTreeMap::new() }
    }

    /// Maps the specs of custom resources of a kind to the values of their releases.
    ///
    /// The result must depend on the custom resource only: the mapper is called in each reconcile, and other values
    /// upgrade the release. Text in it is data, which `tpl` does not evaluate. `overrideValues` are applied afterwards.
    /// An error fails the reconcile.
    #[doc(alias = "WithValueMapper")]
    #[doc(alias = "WithValueTranslator")]
    pub fn map_values(
        mut self,
        kind: &str,
        map: impl Fn(&DynamicObject, Map<String, Value>) -> flyball::Result<Map<String, Value>> + Send + Sync + 'static,
    ) -> Self {
        self.of(kind).mappers.push(Box::new(map));
        self
    }

    /// Calls a function in each reconcile of a custom resource, with its values, before its release is installed,
    /// upgraded or compared with the cluster. An error fails the reconcile.
    #[doc(alias = "WithPreHook")]
    pub fn pre_hook(
        mut self,
        kind: &str,
        hook: impl for<'a> Fn(&'a Context<DynamicObject>, &'a DynamicObject, &'a Map<String, Value>) -> HookFuture<'a>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.of(kind).pre_hooks.push(Box::new(hook));
        self
    }

    /// Calls a function in each reconcile of a custom resource, with the deployed revision, once the release is as
    /// desired. An error fails the reconcile, but not the release.
    #[doc(alias = "WithPostHook")]
    pub fn post_hook(
        mut self,
        kind: &str,
        hook: impl for<'a> Fn(&'a Context<DynamicObject>, &'a DynamicObject, &'a Revision) -> HookFuture<'a>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.of(kind).post_hooks.push(Box::new(hook));
        self
    }

    /// Grants the operator a permission that the functions of a kind need.
    pub fn allows(mut self, kind: &str, rule: PolicyRule) -> Self {
        self.of(kind).rules.push(rule);
        self
    }

    fn of(&mut self, kind: &str) -> &mut Extensions {
        self.extensions.entry(kind.to_owned()).or_default()
    }

    /// Creates the operator.
    ///
    /// # Errors
    ///
    /// As for [`operator()`]; and if a function belongs to a kind without an entry.
    pub fn build(self) -> Result<Operator, OperatorError> {
        let watches = self.watches;
        let has_entry = |kind: &&String| watches.entries().iter().any(|watch| *watch.kind.kind == ***kind);
        if let Some(kind) = self.extensions.keys().find(|kind| !has_entry(kind)) {
            return Err(OperatorError::UnknownKind { kind: kind.clone() });
        }
        let extensions = self.extensions.into_iter().map(|(kind, extensions)| (kind, Arc::new(extensions)));
        assemble(watches, &extensions.collect())
    }
}

/// Describes the objects in templates whose kinds the [`operator()`] does not know: it has no permission for them.
///
/// The text of each begins with the template, and ends with a remedy. The operator logs them when it starts.
///
/// # Errors
///
/// As for [`operator()`].
pub fn unknown_kinds(watches: &Watches) -> Result<Vec<String>, OperatorError> {
    let samples = definition::samples(watches.directory())?;
    let mut found = Vec::new();
    for watch in watches.entries() {
        let kinds = CurrentChart::open(watch)?.get().kinds(watch, &Extensions::default(), &[], &samples);
        found.extend(kinds.unknown().map(|unknown| format!("{unknown}: {UNKNOWN_KIND_REMEDY}")));
    }
    Ok(found)
}

/// Returns the names of the CRDs in the directories `crds` of the charts. An uninstallation keeps them, as by Helm.
///
/// # Errors
///
/// As for [`operator()`].
pub fn definitions_of_charts(watches: &Watches) -> Result<Vec<String>, OperatorError> {
    let mut found = Vec::new();
    for watch in watches.entries() {
        let chart = CurrentChart::open(watch)?.get();
        found.extend(chart.crds().iter().map(|definition| definition.name().to_owned()));
    }
    Ok(found)
}

fn assemble(watches: &Watches, extensions: &BTreeMap<String, Arc<Extensions>>) -> Result<Operator, OperatorError> {
    let folder = watches.directory();
    let definitions = definition::read(folder)?;
    let samples = definition::samples(folder)?;
    let slots = Arc::new(Slots::new(watches.is_deterministic()));
    let mut operator = Operator::new(watches.name());
    for watch in watches.entries() {
        let extensions = extensions.get(&*watch.kind.kind).cloned().unwrap_or_default();
        let chart = Arc::new(CurrentChart::open(watch)?);
        let source = chart.get();
        let crd = definition::of(watch, &definitions)?;
        let defined: Vec<_> = definitions.iter().chain(source.definitions()).cloned().collect();
        let kinds = source.kinds(watch, &extensions, &defined, &samples);
        for unknown in kinds.unknown() {
            operator = operator.task(unknown_kind(&watch.kind, unknown));
        }
        let primary = kinds.kind_of(&watch.kind.api_version(), &watch.kind.kind);
        let mut cache = Cache::of(&primary);
        if !watch.selector.is_empty() {
            cache = cache.labels(&watch.selector);
        }
        if watch.evaluate_templates {
            operator = operator.task(warning("evaluateTemplates", &watch.kind, "can run templates in the operator"));
        }
        if watch.structure_from_values {
            let right = "can determine the structure of objects in other namespaces and of cluster-scoped objects";
            operator = operator.task(warning("structureFromValues", &watch.kind, right));
        }
        operator = operator.crd(crd).cache(cache).controller(controller(
            watch,
            primary,
            chart.clone(),
            kinds,
            extensions,
            watches,
            &slots,
        ));
    }
    Ok(operator)
}

/// Logs a warning about a setting in `watches.yaml` when the operator starts: before, there is no logger.
fn warning(setting: &'static str, kind: &GroupVersionKind, right: &'static str) -> Task {
    let kind = kind.clone();
    let warn = move |_| async move {
        tracing::warn!(%kind, "{setting}: any author of these custom resources {right}");
        Ok(())
    };
    Task::new(setting, warn).on_every_replica()
}

/// Logs a warning about an object of a template whose version or kind is unknown.
fn unknown_kind(kind: &GroupVersionKind, unknown: String) -> Task {
    let kind = kind.clone();
    let warn = move |_| async move {
        tracing::warn!(%kind, "unknown kind: {unknown}: {UNKNOWN_KIND_REMEDY}");
        Ok(())
    };
    Task::new("unknown-kind", warn).on_every_replica()
}

fn controller(
    watch: &Watch,
    primary: Kind,
    chart: Arc<CurrentChart>,
    kinds: Kinds,
    extensions: Arc<Extensions>,
    watches: &Watches,
    slots: &Arc<Slots>,
) -> Controller<Releases> {
    let kinds = Arc::new(kinds);
    let name = format!("{}-controller", watch.kind.kind.to_lowercase());
    let releases = Releases {
        watch: watch.clone(),
        is_deterministic: watches.is_deterministic(),
        primary: primary.clone(),
        chart: chart.clone(),
        kinds: Arc::clone(&kinds),
        slots: Arc::clone(slots),
        verified: VerifiedRevisions::default(),
        extensions: Arc::clone(&extensions),
    };
    let mut controller =
        Controller::of(&primary, releases).name(name).owns::<Secret>().index::<ByRelease>().index::<ByIndex>();
    controller = controller.adapts_status(&status::CONDITIONS).memory_budget(&slots.memory, slots.max_bytes());
    if watches.reloads() {
        let (watch, primary, chart) = (watch.clone(), primary.clone(), Arc::clone(&chart));
        controller = controller.source(Source::timer(RELOAD_INTERVAL, move |caches| match chart.reload(&watch)? {
            true => caches.dynamic(&primary).keys(None),
            false => Ok(Vec::new()),
        }));
    }
    for known in kinds.iter() {
        if known.is_created_only {
            controller = controller.dynamic(&known.kind).creates();
            continue;
        }
        controller = controller.dynamic(&known.kind).owns();
        if known.unowned && watch.watch_dependent_resources {
            let (kind, kinds) = (resources::qualified(&primary), Arc::clone(&kinds));
            let owner = move |object: &_| belongs_to(object, &kind, &kinds).into_iter().collect();
            controller = controller.dynamic(&known.kind).watches(move |object, _| Ok(owner(object)));
        }
        if !watch.watch_dependent_resources && !matches!(known.kind.name(), "Job" | "Pod") {
            controller = controller.dynamic(&known.kind).filter(Predicate::never());
        }
    }
    for kind in kinds.read_only() {
        controller = controller.dynamic(kind).reads();
    }
    controller = crds(controller, watch, &primary, &chart, &kinds);
    for rule in kinds.rules.iter().cloned().chain(kinds.named_rules()).chain(extensions.rules.iter().cloned()) {
        controller = controller.allows(rule);
    }
    match watch.max_concurrent_reconciles {
        Some(workers) => controller.concurrency(workers),
        None => controller,
    }
}

/// Declares the CRDs in the chart's directory `crds`: releases continue when they are established.
fn crds(
    mut controller: Controller<Releases>,
    watch: &Watch,
    primary: &Kind,
    chart: &Arc<CurrentChart>,
    kinds: &Kinds,
) -> Controller<Releases> {
    if chart.get().crds().is_empty() {
        return controller;
    }
    let definition = kinds.kind_of("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let (chart, primary) = (Arc::clone(chart), primary.clone());
    controller = controller.dynamic(&definition).watches_changes(move |change, caches| {
        let established = match change {
            ObjectChange::Created(new) => stages::is_established(new).then_some(new),
            ObjectChange::Updated { old, new } => {
                (stages::is_established(new) && !stages::is_established(old)).then_some(new)
            }
            ObjectChange::Deleted(_) => None,
        };
        let is_awaited = |new: &DynamicObject| {
            chart.get().crds().iter().any(|definition| Some(definition.name()) == new.metadata.name.as_deref())
        };
        match established.is_some_and(is_awaited) {
            true => caches.dynamic(&primary).keys(None),
            false => Ok(Vec::new()),
        }
    });
    if watch.upgrade_crds { controller.dynamic(&definition).replaces() } else { controller }
}

/// Returns the custom resource of this kind in an object's annotation.
///
/// Any editor of a namespace can write it, so it counts only where a release of this custom resource may have objects.
fn belongs_to(object: &DynamicObject, kind: &str, kinds: &Kinds) -> Option<ObjectKey> {
    let note = |name: &str| object.metadata.annotations.as_ref()?.get(name).map(String::as_str);
    let owner = note(annotation::OWNER).filter(|_| note(annotation::OWNER_KIND) == Some(kind))?;
    let Some((own, name)) = owner.split_once('/') else { return Some(ObjectKey::new(None, owner)) };
    let is_possible = |namespace: &str| own.is_empty() || namespace == own || kinds.namespaces.contains(namespace);
    object.metadata.namespace.as_deref().is_none_or(is_possible).then(|| ObjectKey::new(Some(own), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_annotation_counts_only_where_its_release_may_have_objects() {
        let mut kinds = Kinds::default();
        kinds.add_literal("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: \"shared\"}\n");
        let find = |namespace: Option<&str>, owner: &str| {
            let mut object = DynamicObject { types: None, metadata: Default::default(), data: Default::default() };
            object.metadata.namespace = namespace.map(str::to_owned);
            let annotations = [(annotation::OWNER, owner), (annotation::OWNER_KIND, "Site.example.com")];
            object.metadata.annotations =
                Some(annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
            belongs_to(&object, "Site.example.com", &kinds).map(|key| key.to_string())
        };
        for namespace in [None, Some("b"), Some("shared")] {
            assert_eq!(find(namespace, "b/victim"), Some("b/victim".to_owned()));
        }
        assert_eq!(find(Some("c"), "b/victim"), None);
    }
}
