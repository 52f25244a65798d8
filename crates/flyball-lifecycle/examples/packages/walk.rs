//! A walk through a channel.

use crate::manifests::catalog;
use crate::sample::{Bundle, Package, ends};
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{self, ClusterServiceVersion, ClusterServiceVersionPhase as Phase, Subscription};
use flyball_lifecycle::content::{Content, PackageBundle};
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError};
use flyball_lifecycle::{Settings, operator};
use futures_util::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time in which the newest bundle is installed after the one before.
const STEP: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_secs(1);
/// Namespace of the operator and of the tests.
const NAMESPACE: &str = "test";

/// The result of a walk.
pub(crate) enum Walk {
    Done {
        /// Installed bundles.
        steps: usize,
        requests: usize,
        /// Computing time since the Subscription was created.
        time: Duration,
    },
    /// The channel, or a bundle, is invalid.
    Refused(String),
    /// The bundles after an installed one are skipped by others, so that neither OLM nor the manager selects them.
    Ends(String),
    Hangs(String),
}

/// Measures the computing time of this thread, which runs everything; elapsed time on systems without `/proc`.
struct Stopwatch {
    computed: Option<Duration>,
    began: std::time::Instant,
}

impl Stopwatch {
    fn start() -> Self {
        Self { computed: Self::computed(), began: std::time::Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        match (self.computed, Self::computed()) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => self.began.elapsed(),
        }
    }

    fn computed() -> Option<Duration> {
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(statistics.split(' ').next()?.parse().ok()?))
    }
}

/// A catalog in memory.
struct Fixed(Arc<Content>);

impl CatalogClient for Fixed {
    fn load<'c>(&'c self, _: &'c Location, _: Option<&'c str>) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        let loaded = Loaded { content: self.0.clone(), revision: "1".to_owned() };
        Box::pin(async move { Ok(Some(loaded)) })
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        _: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        let name = bundle.name().to_owned();
        let manifests = bundle.manifests().expect("the bundles contain their objects");
        Box::pin(async move { manifests.map_err(|source| SourceError::Manifests { bundle: name, source }) })
    }
}

async fn start(content: Content) -> Test {
    let content = Arc::new(content);
    let make = move || {
        let settings = Settings::new(Arc::new(Fixed(content.clone())));
        operator(&Settings { global_namespace: NAMESPACE.to_owned(), ..settings })
    };
    Test::of(make)
        .nodes(1)
        .allows_changes_of::<Namespace>()
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .allows_changes_of::<CustomResourceDefinition>()
        .allows_changes_of::<api::Operator>()
        .allows_changes_of::<MutatingWebhookConfiguration>()
        .allows_changes_of::<ValidatingWebhookConfiguration>()
        .allows_changes_in("kube-system")
        .start()
        .await
}

/// Subscribes to a channel of a package with its oldest bundle, and waits for its newest.
pub(crate) async fn walk(package: &Package, channel: &str) -> Walk {
    let entries = package.entries(channel);
    let ends = ends(&entries);
    let test = start(catalog(package, channel, &entries)).await;
    let object = |kind: &str, name: &str, spec: Value| {
        let (version, metadata) = ("operators.coreos.com/v1alpha1", json!({"name": name}));
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    };
    group(&test, mode(&entries)).await;
    let source = object("CatalogSource", "catalog", json!({"sourceType": "grpc", "address": "catalog:50051"}));
    test.apply(&source.to_string()).await;
    let oldest = ends.as_ref().map(|(oldest, _)| oldest.as_str());
    let spec = json!({
        "name": package.name, "channel": channel, "source": "catalog", "sourceNamespace": NAMESPACE,
        "startingCSV": oldest,
    });
    let (before, began) = (test.requests().total, Stopwatch::start());
    test.apply(&object("Subscription", "walk", spec).to_string()).await;
    let Some((_, newest)) = ends else { return refused(&test).await };
    let (mut installed, mut end) = (String::new(), Instant::now() + STEP);
    loop {
        sleep(POLL).await;
        let status = test.api::<Subscription>().get("walk").await.unwrap().status;
        let csv = match status.installed_csv.as_str() {
            "" => None,
            name => test.api::<ClusterServiceVersion>().get_opt(name).await.unwrap(),
        };
        if let Some(csv) = csv {
            if csv.status.phase == Phase::Succeeded && status.installed_csv != installed {
                (installed, end) = (status.installed_csv.clone(), Instant::now() + STEP);
            }
            if csv.status.reason == "UnsupportedOperatorGroup" {
                // The remedy that a user has.
                let bundle = entries.iter().find(|bundle| bundle.name == status.installed_csv);
                group(&test, bundle.map_or("OwnNamespace", |bundle| mode(std::slice::from_ref(bundle)))).await;
            }
        }
        if installed == newest {
            let requests = test.requests().total - before;
            let requests = usize::try_from(requests).unwrap_or(usize::MAX);
            // Each bundle has a plan of its own; some run for less than the interval of the polls.
            let steps = usize::try_from(status.install_plan_generation).unwrap_or_default();
            return Walk::Done { steps, requests, time: began.elapsed() };
        }
        if Instant::now() >= end {
            return match gap_after(&entries, &installed) {
                Some(gap) => Walk::Ends(gap),
                None => Walk::Hangs(describe(&test, &installed).await),
            };
        }
    }
}

/// Describes why a bundle has no upgrade, if all bundles that replace it are skipped.
fn gap_after(entries: &[Bundle], installed: &str) -> Option<String> {
    let skipper = |name: &String| entries.iter().find(|bundle| bundle.skips.contains(name));
    let skips_it = |bundle: &Bundle| bundle.skips.iter().any(|name| name == installed);
    if entries.iter().any(|bundle| skips_it(bundle) && skipper(&bundle.name).is_none()) {
        return None;
    }
    let next: Vec<&Bundle> = entries.iter().filter(|bundle| bundle.replaces == installed).collect();
    let gaps: Option<Vec<String>> =
        next.iter().map(|bundle| Some(format!("{} skips {}", skipper(&bundle.name)?.name, bundle.name))).collect();
    gaps.filter(|gaps| !gaps.is_empty()).map(|gaps| format!("ends at {installed}: {}", gaps.join(", ")))
}

/// Returns a mode that all bundles support; that of the first one if there is none.
fn mode(bundles: &[Bundle]) -> &'static str {
    let supports = |bundle: &Bundle, mode: &str| bundle.install_modes.iter().any(|own| own == mode);
    let modes = ["AllNamespaces", "OwnNamespace"];
    let all = modes.into_iter().find(|mode| bundles.iter().all(|bundle| supports(bundle, mode)));
    let first = || modes.into_iter().find(|mode| bundles.first().is_some_and(|bundle| supports(bundle, mode)));
    all.or_else(first).unwrap_or("OwnNamespace")
}

async fn group(test: &Test, mode: &str) {
    let spec = if mode == "AllNamespaces" { json!({}) } else { json!({"targetNamespaces": [NAMESPACE]}) };
    let group = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": {"name": "group"}, "spec": spec,
    });
    test.apply(&group.to_string()).await;
}

/// Returns the reason why a channel is refused.
async fn refused(test: &Test) -> Walk {
    let end = Instant::now() + STEP;
    loop {
        sleep(POLL).await;
        let status = test.api::<Subscription>().get("walk").await.unwrap().status;
        if let Some(condition) = status.conditions.iter().find(|condition| condition.kind == "ResolutionFailed") {
            return Walk::Refused(condition.message.clone());
        }
        if Instant::now() >= end {
            return Walk::Hangs("an invalid channel is not refused".to_owned());
        }
    }
}

/// Describes where a walk hangs.
async fn describe(test: &Test, installed: &str) -> String {
    let status = test.api::<Subscription>().get("walk").await.unwrap().status;
    let csv = match status.current_csv.as_str() {
        "" => None,
        name => test.api::<ClusterServiceVersion>().get_opt(name).await.unwrap(),
    };
    let csv = csv.map(|csv| format!("{:?} {}: {}", csv.status.phase, csv.status.reason, csv.status.message));
    let conditions: Vec<String> =
        status.conditions.iter().map(|condition| format!("{}: {}", condition.kind, condition.message)).collect();
    format!("after {installed:?}: {} {csv:?} {}", status.current_csv, conditions.join(", "))
}
