//! Operators made of charts: what operator-sdk's Helm operator is, on Flyball's runtime.
//!
//! ```text
//!   watches.yaml ──► chart ──► kinds ──► controllers          once, when the operator starts
//!   custom resource ──► values ──► revision ──► hooks, objects ──► status       in each reconcile
//! ```
//!
//! Each custom resource becomes a release of its chart, whose values are the custom resource's spec. What is kept of a release is what
//! Helm keeps, in [`storage`](crate::storage). The words of conditions and annotations are those of the
//! [operator-sdk](https://sdk.operatorframework.io/docs/building-operators/helm/).
//!
//! | What | How |
//! |---|---|
//! | an upgrade | when chart or values are others than before, and give other objects |
//! | drift | what a release consists of is watched, and put right at once |
//! | a hook, or a definition that is to be established | is not waited for within a reconcile: it wakes the next one |
//! | a hook that fails | fails the revision; it is tried again after 10 s, 20 s … 1 h |
//! | a template that fails | nothing is tried again before the custom resource, or the chart, changes |
//! | an object that the custom resource cannot own | has annotations that say whose it is, and is deleted with the release |
//! | random values | are drawn once for a release, and stay what they are in upgrades |
//! | text of the custom resource | is data: `tpl` does not evaluate it, unless `evaluateTemplates` says so in `watches.yaml` |
//! | `lookup` | in the release's namespace; elsewhere for a namespace and a name that stand in the call, with a kind that does |
//! | a revision in a Secret | is made only if the chart renders it: others may write Secrets there, too |
//! | an object elsewhere | needs version, kind and namespace in the chart's own words, and is not taken over |
//! | text of the custom resource in it | is a scalar, unless `structureFromValues` says otherwise in `watches.yaml` |
//! | a rendering | may take some 50 million steps and 64 MiB, on a thread of its own |
//!
//! Annotations of custom resources that are heeded, all with the prefix `helm.sdk.operatorframework.io/`: `reconcile-period` (such as
//! `5m`), `uninstall-wait` and `pause-reconcile` (`true`).

mod current;
mod definition;
mod discovery;
mod history;
mod hooks;
mod install;
mod kinds;
mod lookup;
mod places;
mod record;
mod releases;
mod rendering;
mod resources;
mod rights;
mod selector;
mod source;
mod stages;
mod status;
mod verified;
mod watches;

pub use definition::DefinitionError;
pub use resources::ManifestError;
pub use watches::{Watch, Watches, WatchesError};

use crate::ChartError;
use current::Current;
use flyball::{Cache, Controller, GroupVersionKind, Kind, ObjectKey, Operator, Predicate, Source, Task};
use history::ByRelease;
use k8s_openapi::api::core::v1::Secret;
use kinds::Kinds;
use kube::core::DynamicObject;
use releases::Releases;
use rendering::Slots;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use verified::Verified;

/// The finalizer of custom resources.
const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// The annotation of a custom resource that is to be left alone.
const PAUSED: &str = "helm.sdk.operatorframework.io/pause-reconcile";
/// The annotation of a custom resource that says how often its release is looked at without a change.
const PERIOD: &str = "helm.sdk.operatorframework.io/reconcile-period";
/// The annotation of a custom resource that is to stay until all objects of its release are gone.
const WAITS: &str = "helm.sdk.operatorframework.io/uninstall-wait";
/// The annotation of an object with the custom resource that it belongs to but that cannot own it.
const OWNER: &str = "operator-sdk/primary-resource";
/// The annotation of such an object with the kind of that.
const OWNER_KIND: &str = "operator-sdk/primary-resource-type";
/// Helm's annotation of an object with its release.
const RELEASE_ANNOTATION: &str = "meta.helm.sh/release-name";
/// Helm's annotation of an object with the namespace of its release.
const NAMESPACE_ANNOTATION: &str = "meta.helm.sh/release-namespace";

/// How often is looked whether charts have changed, if they are read again.
const LOOK: Duration = Duration::from_secs(1);

/// Why a project is no operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A chart cannot be opened.
    #[error("the chart {} of {kind} cannot be opened", chart.display())]
    Chart {
        /// The chart.
        chart: PathBuf,
        /// The kind of the custom resources that it is for.
        kind: String,
        /// Why not.
        source: ChartError,
    },
    /// The files of a chart, a definition or a sample cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A definition is of no use.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

/// Makes the operator of a `watches.yaml`: a controller for each entry.
///
/// Its name is that of the project's folder. Its [manifests](Operator::manifests) hold the definitions that are in
/// `config/crd/bases`, or, of a kind that has none there, one with an open schema. What it watches and may do follows from the kinds that
/// the charts render with their own values and with the samples in `config/samples`, and that their templates name literally.
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
/// When a chart cannot be opened, or a definition is of no use.
pub fn operator(watches: &Watches) -> Result<Operator, OperatorError> {
    let folder = watches.folder();
    let definitions = definition::read(folder)?;
    let samples = definition::samples(folder)?;
    let slots = Arc::new(Slots::new(watches.repeats()));
    let mut operator = Operator::new(watches.name());
    for watch in watches.entries() {
        let chart = Arc::new(Current::open(watch)?);
        let source = chart.get();
        let crd = definition::of(watch, &definitions)?;
        let defined: Vec<_> = definitions.iter().chain(source.definitions()).cloned().collect();
        let kinds = source.kinds(watch, &defined, &samples);
        let primary = kinds.kind_of(&watch.kind.api_version(), &watch.kind.kind);
        let mut cache = Cache::of(&primary);
        if !watch.selector.is_empty() {
            cache = cache.labels(&watch.selector);
        }
        if watch.evaluate_templates {
            operator = operator.task(warning("evaluateTemplates", &watch.kind, "runs templates in the operator"));
        }
        if watch.structure_from_values {
            let right = "chooses the structure of objects in other namespaces and of cluster-scoped objects";
            operator = operator.task(warning("structureFromValues", &watch.kind, right));
        }
        operator = operator.crd(crd).cache(cache).controller(controller(
            watch,
            primary,
            chart.clone(),
            kinds,
            watches,
            &slots,
        ));
    }
    Ok(operator)
}

/// Warns of what a setting in `watches.yaml` allows once the operator runs: before, nothing is logged.
fn warning(setting: &'static str, kind: &GroupVersionKind, right: &'static str) -> Task {
    let kind = kind.clone();
    let warn = move |_| async move {
        tracing::warn!(%kind, "{setting}: whoever writes such custom resources {right}");
        Ok(())
    };
    Task::new(setting, warn).on_every_replica()
}

fn controller(
    watch: &Watch,
    primary: Kind,
    chart: Arc<Current>,
    kinds: Kinds,
    watches: &Watches,
    slots: &Arc<Slots>,
) -> Controller<Releases> {
    let kinds = Arc::new(kinds);
    let name = format!("{}-controller", watch.kind.kind.to_lowercase());
    let releases = Releases {
        watch: watch.clone(),
        repeats: watches.repeats(),
        primary: primary.clone(),
        chart: chart.clone(),
        kinds: Arc::clone(&kinds),
        slots: Arc::clone(slots),
        verified: Verified::default(),
    };
    let mut controller = Controller::of(&primary, releases).name(name).owns::<Secret>().index::<ByRelease>();
    if watches.reloads() {
        let (watch, primary) = (watch.clone(), primary.clone());
        controller = controller.source(Source::timer(LOOK, move |caches| match chart.reload(&watch)? {
            true => caches.keys_of(&primary, None),
            false => Ok(Vec::new()),
        }));
    }
    for known in kinds.iter() {
        controller = controller.owns_kind(&known.kind);
        if known.unowned && watch.watch_dependent_resources {
            let kind = resources::qualified(&primary);
            controller = controller.watches_kind(&known.kind, move |object, _| Ok(belongs_to(object, &kind)));
        }
        if !watch.watch_dependent_resources && !matches!(known.kind.name(), "Job" | "Pod") {
            controller = controller.filter_kind(&known.kind, Predicate::never());
        }
    }
    for kind in kinds.read_only() {
        controller = controller.reads_kind(kind);
    }
    for rule in kinds.rules.iter().cloned().chain(kinds.named_rules()) {
        controller = controller.allows(rule);
    }
    match watch.max_concurrent_reconciles {
        Some(workers) => controller.concurrency(workers),
        None => controller,
    }
}

/// Returns the custom resource of this kind that an object says it belongs to.
fn belongs_to(object: &DynamicObject, kind: &str) -> Vec<ObjectKey> {
    let note = |name: &str| object.metadata.annotations.as_ref()?.get(name).map(String::as_str);
    let owner = note(OWNER).filter(|_| note(OWNER_KIND) == Some(kind));
    owner
        .map(|owner| match owner.split_once('/') {
            Some((namespace, name)) => ObjectKey::new(Some(namespace), name),
            None => ObjectKey::new(None, owner),
        })
        .into_iter()
        .collect()
}
