//! Plays scenarios that were recorded on a real API server, and compares the responses.
//!
//! Each file of the directory `tests/conformance` is a scenario: requests, watches and waits, with the responses of a
//! kube-apiserver. Values that differ between runs are placeholders (`<uid:1>`, `<time>`). Each step gets three
//! verdicts: on the semantics, on message texts, and on `managedFields`.
//!
//! The test fails if a verdict is not that of the recording. `FLYBALL_SCENARIO=<regex>` plays only the scenarios that
//! match. Differences are written to `target/tmp/conformance.txt`.
//!
//! The comparison does not depend on a server: it takes a function that creates one, so that a server with controllers
//! can be tested as well.

mod judge;
mod names;
mod play;
mod scenario;
mod webhook;

use bytes::Bytes;
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp};
use flyball_server::Caller;
use http::{Request, Response};
use http_body_util::Full;
use judge::{Verdict, judge};
use scenario::Scenario;
use std::convert::Infallible;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;
use webhook::Endpoint;

/// An API server, called as one is over HTTP.
pub(crate) trait Api:
    Service<Request<Full<Bytes>>, Response = Response<flyball_server::Body>, Error = Infallible, Future: Send> + Clone
{
}

impl<S> Api for S where
    S: Service<Request<Full<Bytes>>, Response = Response<flyball_server::Body>, Error = Infallible, Future: Send>
        + Clone
{
}

/// Plays all scenarios, each on a server of its own, and compares their responses.
///
/// `max_wait` bounds the time for which a step repeats its request, in the time of the simulation.
pub(crate) fn check<S: Api>(recordings: &Path, max_wait: Duration, server: impl AsyncFn(Clock, Arc<dyn Caller>) -> S) {
    let chosen = std::env::var("FLYBALL_SCENARIO").ok().map(|regex| regex::Regex::new(&regex).expect("a regex"));
    let mut verdicts = Vec::new();
    for scenario in scenario::read_all(recordings) {
        if chosen.as_ref().is_none_or(|chosen| chosen.is_match(&scenario.name)) {
            let rows = replay(&scenario, max_wait, &server);
            verdicts.push((scenario.name, rows));
        }
    }
    assert!(!verdicts.is_empty(), "no scenario was played");
    let differences = differences(&verdicts);
    report(&differences, &verdicts);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Returns a line for each difference.
fn differences(verdicts: &[(String, Vec<Verdict>)]) -> Vec<String> {
    let steps = verdicts.iter().flat_map(|(name, rows)| rows.iter().enumerate().map(move |(n, row)| (name, n, row)));
    let lines =
        steps.flat_map(|(name, step, row)| row.reasons().map(move |(what, why)| format!("{name} {step} {what} {why}")));
    lines.collect()
}

/// Plays one scenario in paused time.
fn replay<S: Api>(
    scenario: &Scenario,
    max_wait: Duration,
    server: &impl AsyncFn(Clock, Arc<dyn Caller>) -> S,
) -> Vec<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built").block_on(async {
        let began = tokio::time::Instant::now();
        let start = Timestamp::from_second(1_800_000_000).expect("a valid time");
        let clock =
            Clock::new(move || start + SignedDuration::try_from(began.elapsed()).expect("no test takes that long"));
        let endpoint = Endpoint::default();
        let api = server(clock, Arc::new(endpoint.clone())).await;
        judge(&scenario.steps, play::play(scenario, api, endpoint, max_wait).await)
    })
}

/// Writes the differences, and the parts of steps without one.
fn report(differences: &[String], verdicts: &[(String, Vec<Verdict>)]) {
    let all: Vec<&Verdict> = verdicts.iter().flat_map(|(_, rows)| rows).collect();
    let share = |passes: fn(&Verdict) -> bool| {
        let passed = all.iter().filter(|verdict| passes(verdict)).count();
        format!("{:.1} %", 100.0 * passed as f64 / all.len().max(1) as f64)
    };
    let whole = verdicts.iter().filter(|(_, rows)| rows.iter().all(|row| row.semantic.is_none())).count();
    let (semantic, message, managed) =
        (share(|v| v.semantic.is_none()), share(|v| v.message.is_none()), share(|v| v.managed.is_none()));
    let mut text = differences.join("\n");
    writeln!(
        text,
        "scenarios {whole}/{}; steps {}: semantic {semantic}, message {message}, managed {managed}",
        verdicts.len(),
        all.len()
    )
    .expect("a text takes all");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(folder.join("conformance.txt"), text).expect("cargo made the folder");
}
