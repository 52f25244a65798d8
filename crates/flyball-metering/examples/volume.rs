//! Measures import, size and report times: `volume PODS DAYS STEP [DIRECTORY]`. A directory is kept, and if it exists
//! already, only the times are measured.
//!
//! Every pod has a sample of CPU and memory each STEP seconds until two days before the end, and each 5 minutes then,
//! so that all buckets exist as in operation. Pods are replaced daily.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark")]

use flyball_metering::meter::{Meter, Subject};
use flyball_metering::query::{Builtins, Inputs, Request, builtin, run};
use flyball_metering::store::{Gauge, OwnerRecord, Retention, STATE, Sample, Series, Store};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const DAY: i64 = 86_400;

fn main() {
    let argument =
        |at: usize, default: i64| std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (pods, days, step) = (argument(1, 1000), argument(2, 3), argument(3, 300));
    let kept = std::env::args().nth(4).map(PathBuf::from);
    let temporary = std::env::temp_dir().join(format!("flyball-volume-{}", std::process::id()));
    let directory = kept.clone().unwrap_or(temporary);
    let is_filled = directory.exists();
    let store = Store::open(&directory).unwrap();
    if !is_filled {
        fill(&store, pods, days, step);
    }
    measure(&store, days);
    drop(store);
    if kept.is_none() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

/// Imports the samples of all days.
fn fill(store: &Store, pods: i64, days: i64, step: i64) {
    let (mut samples, mut busy, mut pruned) = (0, Duration::ZERO, Duration::ZERO);
    for day in 0..days {
        let series: Vec<Series> = (0..pods).map(|pod| series(day, pod)).collect();
        let gauges = |since: i64, scale: i64| -> Vec<Gauge> {
            let all = [
                (Meter::PodPresence, 1),
                (Meter::PodCpuRequest, 250_000),
                (Meter::PodMemoryRequest, 256 << 20),
                (Meter::PodCpuLimit, 500_000),
                (Meter::PodMemoryLimit, 512 << 20),
            ];
            let of = |series: &Series| {
                all.map(|(meter, value)| Gauge { series: series.clone(), meter, since, value: value * scale })
            };
            series.iter().flat_map(of).collect()
        };
        store.set_gauges(&gauges(day * DAY, 1)).unwrap();
        let step = if day + 2 >= days { 300 } else { step };
        for slot in 0..DAY / step {
            let (since, until) = (day * DAY + slot * step, day * DAY + (slot + 1) * step);
            let sample =
                |series: &Series, meter, amount| Sample { series: series.clone(), meter, since, until, amount };
            let batch: Vec<Sample> = series
                .iter()
                .zip(0_i64..)
                .flat_map(|(series, at)| {
                    [
                        sample(series, Meter::PodCpuUsage, 12_345_678 + at * 17 + slot),
                        sample(series, Meter::PodMemoryUsage, (200 << 20) * step + at),
                    ]
                })
                .collect();
            let began = Instant::now();
            let done = store.import(&batch).unwrap();
            busy += began.elapsed();
            samples += done.stored;
        }
        store.set_gauges(&gauges((day + 1) * DAY, 0)).unwrap();
        store.set_progress(STATE, (day + 1) * DAY).unwrap();
        let began = Instant::now();
        store.prune((day + 1) * DAY, Retention::default()).unwrap();
        pruned = pruned.max(began.elapsed());
    }
    println!("pods {pods}, days {days}, step {step} s: {samples} samples");
    println!("import        {:.0} samples/s", samples as f64 / busy.as_secs_f64());
    println!("prune         {:.0} ms at most", pruned.as_secs_f64() * 1e3);
}

/// Measures size and times of reports.
fn measure(store: &Store, days: i64) {
    let sizes = store.sizes().unwrap();
    println!(
        "size          {:.1} MiB, {} buckets, {} gauges, {} series",
        sizes.bytes as f64 / (1 << 20) as f64,
        sizes.buckets,
        sizes.gauges,
        sizes.series
    );
    for name in [
        "pod-cpu-request",
        "pod-cpu-usage",
        "pod-memory-usage",
        "namespace-cpu-utilization",
        "custom-resource-usage",
        "tenant-usage",
    ] {
        let query = builtin(name).unwrap();
        for (label, since, until, is_scoped) in [
            ("last hour", days * DAY - 3600, days * DAY, false),
            ("last day", (days - 1) * DAY, days * DAY, false),
            ("all", 0, days * DAY, false),
            ("all, odd ends", 4321, days * DAY - 5432, false),
            ("all of a namespace", 0, days * DAY, true),
        ] {
            let inputs = Inputs::new();
            let request = Request {
                query: &query,
                since,
                until,
                inputs: &inputs,
                namespace: "tenant-7",
                is_scoped,
                catalog: &Builtins,
            };
            let began = Instant::now();
            let results = run(store, &request).unwrap();
            println!(
                "{name:<26} {label:<18} {:>8.1} ms, {} rows",
                began.elapsed().as_secs_f64() * 1e3,
                results.rows.len()
            );
        }
    }
}

fn series(day: i64, pod: i64) -> Series {
    let namespace = format!("tenant-{}", pod % 50);
    let mut series = Series::new(
        Subject::Pod,
        &format!("{day:08x}-0000-4000-8000-{pod:012x}"),
        &namespace,
        &format!("app-{}-{day:x}-{pod:05x}", pod / 3),
    );
    series.node = format!("node-{}", pod % 100);
    series.operator = format!("operator-{}", pod % 10);
    series.owner = Some(OwnerRecord {
        group: "example.com".into(),
        kind: "Application".into(),
        namespace,
        name: format!("app-{}", pod / 3),
        uid: format!("00000000-0000-4000-8000-{:012x}", pod / 3),
    });
    series
}
