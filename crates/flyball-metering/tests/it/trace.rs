//! Random traces: totals equal those of a second implementation, which adds up second by second.

use flyball_metering::meter::{Meter, Subject};
use flyball_metering::query::{Builtins, Inputs, Request, Results, builtin, run};
use flyball_metering::store::{Cell, Gauge, OwnerRecord, STATE, Sample, Series, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that is removed with its store.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("flyball-metering-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a built-in query over a period.
pub(crate) fn report(store: &Store, name: &str, since: i64, until: i64) -> Results {
    let query = builtin(name).unwrap();
    let inputs = Inputs::new();
    let request =
        Request { query: &query, since, until, inputs: &inputs, namespace: "", is_scoped: false, catalog: &Builtins };
    run(store, &request).unwrap()
}

/// Returns a column of a result by the values of key columns.
pub(crate) fn column(results: &Results, keys: &[&str], amount: &str) -> BTreeMap<Vec<String>, i128> {
    let at = |name: &str| results.columns.iter().position(|column| column.name == name).unwrap();
    let text = |cell: &Cell| match cell {
        Cell::Text(text) => text.clone(),
        Cell::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let row = |row: &Vec<Cell>| {
        let number = match &row[at(amount)] {
            Cell::Null => 0,
            cell => text(cell).parse().unwrap(),
        };
        (keys.iter().map(|key| text(&row[at(key)])).collect(), number)
    };
    results.rows.iter().map(row).collect()
}

/// A pod of a trace.
#[derive(Clone, Debug)]
struct Pod {
    namespace: usize,
    owner: Option<usize>,
    /// Begin, length in seconds, requested micro-cores and bytes of each interval.
    gauges: Vec<(i64, i64, i64, i64)>,
    /// Length, gap after it, used CPU microseconds and byte-seconds of each sample.
    samples: Vec<(i64, i64, i64, i64)>,
    began: i64,
}

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let gauge = (0_i64..500, 1_i64..9000, 0_i64..5_000_000, 0_i64..1 << 45);
    let sample = (1_i64..400, 0_i64..900, 0_i64..1_000_000_007, 0_i64..1 << 50);
    let pod = (
        0_usize..3,
        prop::option::of(0_usize..4),
        prop::collection::vec(gauge, 1..5),
        prop::collection::vec(sample, 0..40),
        0_i64..90_000,
    );
    let pod =
        pod.prop_map(|(namespace, owner, gauges, samples, began)| Pod { namespace, owner, gauges, samples, began });
    prop::collection::vec(pod, 1..6)
}

fn series(at: usize, pod: &Pod) -> Series {
    let owner = |owner: usize| OwnerRecord {
        group: "example.com".into(),
        kind: if owner.is_multiple_of(2) { "Site" } else { "Shop" }.into(),
        namespace: format!("ns-{}", pod.namespace),
        name: format!("cr-{owner}"),
        uid: format!("uid-{}-{owner}", pod.namespace),
    };
    let mut series =
        Series::new(Subject::Pod, &format!("pod-{at}"), &format!("ns-{}", pod.namespace), &format!("pod-{at}"));
    series.node = format!("node-{}", at % 2);
    series.owner = pod.owner.map(owner);
    series
}

/// Amounts of CPU and memory requests, and of CPU and memory usage.
type Amounts = [i128; 4];

/// Adds up each second of a pod in the period. Samples are distributed so that the first `t` seconds of `n` have the
/// whole part of `amount * t / n`.
fn by_second(pod: &Pod, since: i64, until: i64) -> Amounts {
    let mut amounts = [0; 4];
    let mut time = pod.began;
    for (gap, length, cpu, memory) in &pod.gauges {
        time += gap;
        for second in time..time + length {
            if (since..until).contains(&second) {
                amounts[0] += i128::from(*cpu);
                amounts[1] += i128::from(*memory);
            }
        }
        time += length;
    }
    let mut time = pod.began;
    for (length, gap, cpu, memory) in &pod.samples {
        for second in 0..*length {
            if (since..until).contains(&(time + second)) {
                for (at, amount) in [(2, cpu), (3, memory)] {
                    let up_to = |t: i64| i128::from(*amount) * i128::from(t) / i128::from(*length);
                    amounts[at] += up_to(second + 1) - up_to(second);
                }
            }
        }
        time += length + gap;
    }
    amounts
}

fn store(directory: &Directory, pods: &[Pod]) -> Store {
    let store = Store::open(&directory.0).unwrap();
    let (mut gauges, mut samples) = (Vec::new(), Vec::new());
    for (at, pod) in pods.iter().enumerate() {
        let series = series(at, pod);
        let mut time = pod.began;
        for (gap, length, cpu, memory) in &pod.gauges {
            time += gap;
            for (meter, value) in
                [(Meter::PodCpuRequest, *cpu), (Meter::PodMemoryRequest, *memory), (Meter::PodPresence, 1)]
            {
                gauges.push(Gauge { series: series.clone(), meter, since: time, value });
            }
            time += length;
            for meter in [Meter::PodCpuRequest, Meter::PodMemoryRequest, Meter::PodPresence] {
                gauges.push(Gauge { series: series.clone(), meter, since: time, value: 0 });
            }
        }
        let mut time = pod.began;
        for (length, gap, cpu, memory) in &pod.samples {
            for (meter, amount) in [(Meter::PodCpuUsage, *cpu), (Meter::PodMemoryUsage, *memory)] {
                samples.push(Sample { series: series.clone(), meter, since: time, until: time + length, amount });
            }
            time += length + gap;
        }
    }
    store.set_gauges(&gauges).unwrap();
    // In batches of odd sizes, each twice: the second import changes nothing.
    for batch in samples.chunks(7) {
        store.import(batch).unwrap();
        assert_eq!(store.import(batch).unwrap().stored, 0);
    }
    store.set_progress(STATE, 1 << 30).unwrap();
    store
}

const QUERIES: [(&str, &str); 4] = [
    ("pod-cpu-request", "pod_request_cpu_core_microseconds"),
    ("pod-memory-request", "pod_request_memory_byte_seconds"),
    ("pod-cpu-usage", "pod_usage_cpu_core_microseconds"),
    ("pod-memory-usage", "pod_usage_memory_byte_seconds"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Requests are exact to the second in any period, usage in periods of whole buckets of 5 minutes.
    #[test]
    fn totals_equal_those_of_a_second_implementation(pods in pods(), since in 0_i64..200, length in 1_i64..600) {
        let directory = Directory::new();
        let store = store(&directory, &pods);
        let (since, until) = (since * 300, (since + length) * 300);
        let expected: Vec<Amounts> = pods.iter().map(|pod| by_second(pod, since, until)).collect();
        for (at, (query, amount)) in QUERIES.into_iter().enumerate() {
            let found = column(&report(&store, query, since, until), &["pod"], amount);
            for (pod, expected) in expected.iter().enumerate() {
                let found = found.get(&vec![format!("pod-{pod}")]).copied().unwrap_or_default();
                prop_assert_eq!(found, expected[at], "{} of pod-{}", query, pod);
            }
            let mut owned: BTreeMap<Vec<String>, i128> = BTreeMap::new();
            for (pod, amounts) in pods.iter().zip(&expected) {
                let owner = pod.owner.map(|owner| [format!("ns-{}", pod.namespace), format!("cr-{owner}")]);
                *owned.entry(owner.unwrap_or_default().to_vec()).or_default() += amounts[at];
            }
            let found = report(&store, "custom-resource-usage", since, until);
            for (owner, amount) in column(&found, &["owner_namespace", "owner_name"], amount) {
                prop_assert_eq!(owned.remove(&owner).unwrap_or_default(), amount, "{} of {:?}", query, owner);
            }
            prop_assert!(owned.values().all(|amount| *amount == 0), "{} of {:?}", query, owned);
        }
    }

    #[test]
    fn requests_are_exact_to_the_second(pods in pods(), since in 0_i64..100_000, length in 1_i64..100_000) {
        let directory = Directory::new();
        let store = store(&directory, &pods);
        let found = column(&report(&store, "pod-cpu-request", since, since + length), &["pod"], QUERIES[0].1);
        for (at, pod) in pods.iter().enumerate() {
            let found = found.get(&vec![format!("pod-{at}")]).copied().unwrap_or_default();
            prop_assert_eq!(found, by_second(pod, since, since + length)[0]);
        }
    }

    /// The rows of custom resources, with the row of what none owns, add up to the rows of pods; so do kinds and
    /// tenants, and consecutive periods add up to the whole.
    #[test]
    fn custom_resources_add_up_to_pods(pods in pods(), until in 1_i64..60, cut in 0_i64..60) {
        let directory = Directory::new();
        let store = store(&directory, &pods);
        let (until, cut) = (until * 3600, cut.min(until) * 3600);
        for (query, amount) in QUERIES {
            let total = |query: &str, since, until| -> i128 {
                column(&report(&store, query, since, until), &[], amount).values().sum::<i128>()
            };
            let sum = |query: &str, keys: &[&str], since, until| -> i128 {
                if since == until { return 0; }
                column(&report(&store, query, since, until), keys, amount).values().sum()
            };
            let pods = sum(query, &["pod", "node"], 0, until);
            let resources = sum("custom-resource-usage", &["owner_kind", "owner_namespace", "owner_name"], 0, until);
            prop_assert_eq!(resources, pods, "{}", query);
            prop_assert_eq!(sum("kind-usage", &["owner_kind"], 0, until), pods);
            prop_assert_eq!(sum("tenant-usage", &["tenant"], 0, until), pods);
            prop_assert_eq!(total("operator-usage", 0, until), pods);
            let parts = sum(query, &["pod", "node"], 0, cut) + sum(query, &["pod", "node"], cut, until);
            prop_assert_eq!(parts, pods, "cut at {}", cut);
        }
    }
}

#[test]
fn fixed_trace_equals_hand_computed_amounts() {
    let directory = Directory::new();
    let store = Store::open(&directory.0).unwrap();
    let mut web = Series::new(Subject::Pod, "u1", "shop", "web");
    web.node = "n1".into();
    let gauge = |since, value| Gauge { series: web.clone(), meter: Meter::PodCpuRequest, since, value };
    // 250m from 00:10:00, 500m from 00:30:00, deleted at 00:45:30.
    store.set_gauges(&[gauge(600, 250_000), gauge(1800, 500_000), gauge(2730, 0)]).unwrap();
    store.set_progress(STATE, 3600).unwrap();
    let results = report(&store, "pod-cpu-request", 0, 3600);
    let names: Vec<&str> = results.columns.iter().map(|column| column.name.as_str()).collect();
    let expected = [
        "period_start",
        "period_end",
        "pod",
        "namespace",
        "node",
        "pod_request_cpu_core_microseconds",
        "pod_request_cpu_core_seconds",
    ];
    assert_eq!(names, expected);
    // 1200 s × 0.25 + 930 s × 0.5 = 765 core-seconds.
    let text = |text: &str| Cell::Text(text.into());
    let row = [
        Cell::Integer(0),
        Cell::Integer(3600),
        text("web"),
        text("shop"),
        text("n1"),
        Cell::Integer(765_000_000),
        Cell::Real(765.0),
    ];
    assert_eq!(results.rows, [row]);
}

#[test]
fn sums_beyond_64_bits_are_exact() {
    let directory = Directory::new();
    let store = Store::open(&directory.0).unwrap();
    let four_tebi = 4_i64 << 40;
    let claims = (0..10).map(|at| Gauge {
        series: Series::new(Subject::Claim, &format!("u{at}"), "shop", &format!("data-{at}")),
        meter: Meter::ClaimRequest,
        since: 0,
        value: four_tebi + 1,
    });
    store.set_gauges(&claims.collect::<Vec<_>>()).unwrap();
    let month = 30 * 86_400;
    store.set_progress(STATE, month).unwrap();
    let results = report(&store, "cluster-persistentvolumeclaim-request", 0, month);
    let expected = 10 * i128::from(four_tebi + 1) * i128::from(month);
    assert!(expected > i128::from(i64::MAX));
    assert_eq!(column(&results, &[], "volume_request_storage_byte_seconds")[&vec![]], expected);
}
