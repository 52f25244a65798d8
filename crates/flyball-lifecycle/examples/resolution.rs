//! Time and memory of resolutions in a catalog of 333 packages and 7,000 bundles.
//!
//! ```text
//! cargo run --release -p flyball-lifecycle --example resolution
//! ```
//!
//! The last three lines are the figures with an aim: *cold* is the index of the catalog and a Subscription to each
//! package, below 100 ms; *warm* is a Subscription with the index, below 5 ms; *memory* is that of content and index,
//! below 100 MiB. The lines before have the same aims for other cases. The exit code is 1 if any is missed.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a tool that measures real time")]

use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::{Bundle, CatalogKey, Catalogs, Files, Isolation, Request, Resolution, Subscription, resolve};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PACKAGES: usize = 333;
const BUNDLES: usize = 7_000;
/// APIs of each bundle.
const APIS: usize = 6;
/// Versions that are also in the second channel.
const CANDIDATES: usize = 5;
/// Size of the description of each bundle, in bytes.
const DESCRIPTION: usize = 2_000;
const RUNS: usize = 21;

const COLD: Duration = Duration::from_millis(100);
const WARM: Duration = Duration::from_millis(5);
const MEMORY: u64 = 100 << 20;

fn main() -> ExitCode {
    let before = memory("VmRSS");
    let files = catalog();
    let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
    let began = Instant::now();
    let content = Content::new(Blobs::parse(&files).expect("the catalog is valid"));
    let loaded = began.elapsed();
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    drop(files);
    println!("{PACKAGES} packages, {BUNDLES} bundles, {} MiB of JSON, loaded in {}", bytes >> 20, text(loaded));

    let mut figures = Figures::default();
    let everything: Vec<Subscription> = (0..PACKAGES).map(|package| subscription(package, None)).collect();
    figures.time("index, and one Subscription", COLD, || resolved(&index(&content), &everything[..1], &[]));
    let cold = median(|| resolved(&index(&content), &everything, &[]));
    let catalogs = index(&content);
    let warm = median(|| resolved(&catalogs, &everything[..1], &[]));
    let unknown = [Subscription { channel: Some("stabel".to_owned()), ..subscription(0, None) }];
    figures.time("one Subscription without a solution", WARM, || resolved(&catalogs, &unknown, &[]));
    figures.time("a Subscription to each package", COLD, || resolved(&catalogs, &everything, &[]));
    for (what, behind) in [("nothing to upgrade", 0), ("an upgrade for each", 1), ("the longest way", versions(0) - 1)]
    {
        let installed = installed(&catalogs, behind);
        let subscribed: Vec<Subscription> =
            installed.iter().enumerate().map(|(package, bundle)| subscription(package, Some(bundle.name()))).collect();
        figures.time(&format!("{PACKAGES} installed operators, {what}"), COLD, || {
            resolved(&catalogs, &subscribed, &installed)
        });
    }
    println!("highest memory while loading: {} MiB", memory("VmHWM") >> 20);
    let memory = memory("VmRSS").saturating_sub(before);
    figures.print("cold: index, and a Subscription to each package", &text(cold), &text(COLD), cold <= COLD, "");
    figures.print("warm: one Subscription", &text(warm), &text(WARM), warm <= WARM, "");
    figures.print("memory of content and index", &mib(memory), &mib(MEMORY), memory <= MEMORY, "");
    if figures.are_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The figures, printed one by one.
#[derive(Default)]
struct Figures {
    are_missed: bool,
}

impl Figures {
    fn time(&mut self, what: &str, aim: Duration, run: impl Fn() -> Resolution) {
        let (median, result) = (median(&run), run());
        let counted = format!("{} chosen, {} failed", result.choices.len(), result.failures.len());
        self.print(what, &text(median), &text(aim), median <= aim, &counted);
    }

    fn print(&mut self, what: &str, found: &str, aim: &str, is_met: bool, note: &str) {
        self.are_missed |= !is_met;
        let verdict = if is_met { "" } else { "MISSED" };
        println!("{what:<60} {found:>10}  (aim {aim:>8}) {verdict} {note}");
    }
}

/// Returns the median time of some runs.
fn median(run: impl Fn() -> Resolution) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            drop(black_box(run()));
            began.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn text(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

/// Returns a line of the memory of this process, in bytes; 0 where there is no `/proc`.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() << 10
}

fn key() -> CatalogKey {
    CatalogKey { namespace: "ns".to_owned(), name: "catalog".to_owned() }
}

fn index(content: &Content) -> Catalogs {
    Catalogs::new(vec![content.to_catalog(key(), 0)])
}

fn resolved(catalogs: &Catalogs, subscriptions: &[Subscription], installed: &[Arc<Bundle>]) -> Resolution {
    resolve(&Request { namespace: "ns", catalogs, subscriptions, installed, isolation: Isolation::default() })
}

fn subscription(package: usize, installed: Option<&str>) -> Subscription {
    Subscription {
        name: format!("sub-{package:03}"),
        catalog: key(),
        package: name_of(package),
        channel: Some("stable".to_owned()),
        starting_csv: None,
        installed_csv: installed.map(str::to_owned),
        versions: None,
        target: None,
    }
}

/// Returns a bundle of each package, this number of versions before the newest.
fn installed(catalogs: &Catalogs, behind: usize) -> Vec<Arc<Bundle>> {
    let entries = &catalogs.get(&key()).expect("the catalog is indexed").entries;
    let by_name: BTreeMap<&str, &Arc<Bundle>> = entries.iter().map(|entry| (entry.name(), &entry.bundle)).collect();
    let name = |package: usize| bundle_of(package, versions(package).saturating_sub(1 + behind));
    (0..PACKAGES).map(|package| by_name[name(package).as_str()].clone()).collect()
}

fn name_of(package: usize) -> String {
    format!("package-{package:03}")
}

fn bundle_of(package: usize, version: usize) -> String {
    format!("{}.v1.{version}.0", name_of(package))
}

/// Returns the number of bundles of a package.
fn versions(package: usize) -> usize {
    BUNDLES / PACKAGES + usize::from(package < BUNDLES % PACKAGES)
}

/// Writes the catalog: each fifth package requires an API of the next one, each tenth one a version of the one after.
fn catalog() -> Files {
    let mut files = Files::default();
    for package in 0..PACKAGES {
        let mut text = String::new();
        for blob in package_blobs(package) {
            writeln!(text, "{blob}").expect("writing to a string cannot fail");
        }
        files.insert(format!("{}/catalog.json", name_of(package)), text.into_bytes()).expect("the catalog is small");
    }
    files
}

fn package_blobs(package: usize) -> Vec<Value> {
    let (name, versions) = (name_of(package), versions(package));
    let entry = |version: usize, oldest: usize| {
        let replaces = (version > oldest).then(|| bundle_of(package, version - 1));
        json!({"name": bundle_of(package, version), "replaces": replaces})
    };
    let channel = |channel: &str, oldest: usize| {
        let entries: Vec<Value> = (oldest..versions).map(|version| entry(version, oldest)).collect();
        json!({"schema": "olm.channel", "package": name, "name": channel, "entries": entries})
    };
    let mut blobs = vec![
        json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"}),
        channel("stable", 0),
        channel("candidate", versions - CANDIDATES),
    ];
    blobs.extend((0..versions).map(|version| bundle_blob(package, version)));
    blobs
}

fn bundle_blob(package: usize, version: usize) -> Value {
    let (name, next) = (name_of(package), name_of((package + 1) % PACKAGES));
    let api = |package: &str, kind: usize| {
        let (group, kind) = (format!("{package}.example.com"), format!("Kind{kind}"));
        json!({"group": group, "version": "v1", "kind": kind})
    };
    let property = |kind: &str, value: Value| json!({"type": kind, "value": value});
    let mut properties: Vec<Value> = (0..APIS).map(|kind| property("olm.gvk", api(&name, kind))).collect();
    properties.push(property("olm.package", json!({"packageName": name, "version": format!("1.{version}.0")})));
    if package.is_multiple_of(5) {
        properties.push(property("olm.gvk.required", api(&next, 0)));
    }
    if package.is_multiple_of(10) {
        let after = name_of((package + 2) % PACKAGES);
        properties
            .push(property("olm.package.required", json!({"packageName": after, "versionRange": ">=1.2.0 <2.0.0"})));
    }
    properties.push(property("olm.csv.metadata", json!({"description": "x".repeat(DESCRIPTION)})));
    json!({
        "schema": "olm.bundle", "package": name, "name": bundle_of(package, version),
        "image": format!("quay.io/example/{name}-bundle:v1.{version}.0"), "properties": properties,
    })
}
