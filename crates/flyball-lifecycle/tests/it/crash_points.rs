//! Crashes of the manager at each of its writes, from a Subscription to its removal: an installation, an upgrade and an
//! uninstallation by the catalog, the Subscription, its InstallPlans and their ClusterServiceVersions.
//!
//! A request that writes nothing leaves the state of the write before it, so that a crash at it is the crash after that
//! write. The crash points are taken from the trace of an undisturbed run. `FLYBALL_LIFECYCLE_CRASHES=all` also tries
//! each read and each dry run.

use crate::fixture::{SUCCEEDED, delete, until};
use crate::subscriptions::{begin, plans, setup, subscribe, subscription};
use flyball_cluster::testing::{Setup, Test};
use flyball_lifecycle::api::{ClusterServiceVersion, InstallPlanPhase, Subscription, SubscriptionState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results that all runs have in common.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// The objects before the removal, by name.
    installed: Vec<String>,
    subscription: (SubscriptionState, String),
    /// The operators of each plan.
    plans: Vec<(Vec<String>, InstallPlanPhase)>,
    /// The objects after the removal.
    removed: BTreeMap<String, Value>,
}

/// Installs, upgrades and removes an operator; also returns the trace, and whether the manager crashed.
async fn play(setup: Setup) -> (Outcome, String, bool) {
    let test = setup.start().await;
    begin(&test).await;
    subscribe(&test, "memo", json!({"channel": "stable", "startingCSV": "memo.v1.1.0"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    test.assert_converges().await;
    let status = subscription(&test, "memo").await.status;
    let installed = test.state().await.into_keys().collect();
    let plans = operators_of_plans(&test).await;
    delete(&test.api::<Subscription>(), "memo").await;
    delete(&test.api::<ClusterServiceVersion>(), "memo.v2.0.0").await;
    test.assert_converges().await;
    let mut removed = test.state().await;
    // A plan that is executed again may find that the version before is gone.
    for (_, definition) in removed.iter_mut().filter(|(name, _)| name.contains("customresourcedefinitions")) {
        definition["metadata"]["annotations"].take();
    }
    let outcome = Outcome { installed, subscription: (status.state, status.installed_csv), plans, removed };
    (outcome, test.trace(), test.crashed())
}

async fn operators_of_plans(test: &Test) -> Vec<(Vec<String>, InstallPlanPhase)> {
    let plans = plans(test).await.into_iter();
    plans.map(|plan| (plan.spec.cluster_service_version_names, plan.status.phase)).collect()
}

/// Returns the numbers of the requests after which the manager crashes: those that change an object.
fn crash_points(trace: &str) -> Vec<u64> {
    let is_tried_anyway = std::env::var("FLYBALL_LIFECYCLE_CRASHES").is_ok_and(|value| value == "all");
    // Lines of requests are `TIME #NUMBER > USER METHOD URI BODY`.
    let point = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let number = words.next()?.strip_prefix('#')?.parse().ok()?;
        let (arrow, _user, method, uri) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let is_read = matches!(method, "GET" | "HEAD") || uri.contains("dryRun=All");
        let changes = !is_read && !uri.contains("/leases") && !uri.contains("/events");
        (arrow == ">" && (is_tried_anyway || changes)).then_some(number)
    };
    trace.lines().filter_map(point).collect()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

#[test]
fn chaos_crash_at_any_write_from_installation_to_removal_is_harmless() {
    let (expected, trace, _) = run(play(setup()));
    let points = crash_points(&trace);
    assert!(points.len() > 40, "{}", points.len());
    let (next, crashes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(request) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (found, _, crashed) = run(play(setup().crash_after(*request)));
                    assert_eq!(found, expected, "Setup::crash_after({request}) repeats it");
                    crashes.fetch_add(usize::from(crashed), Ordering::Relaxed);
                }
            });
        }
    });
    // The first write has not happened before it.
    let (found, _, _) = run(play(setup().crash_before(points[0])));
    assert_eq!(found, expected, "Setup::crash_before({}) repeats it", points[0]);
    assert_eq!(crashes.into_inner(), points.len(), "the manager crashed in each run");
    println!("{} crash points", points.len());
}
