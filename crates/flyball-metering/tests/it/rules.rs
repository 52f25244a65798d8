//! The documented rules: late data, pods that move, restarts, clock skew, and an operator that was down for two hours.

use crate::trace::{Directory, column, report};
use flyball_metering::collect::{Collector, Event};
use flyball_metering::meter::{Meter, Subject};
use flyball_metering::observation::{Observation, OwnerReference};
use flyball_metering::store::{Cell, STATE, Sample, Series, Store, USAGE_SINCE, USAGE_UNTIL};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

const HOUR: i64 = 3600;

fn time(seconds: i64) -> String {
    format!(
        "1970-01-{:02}T{:02}:{:02}:{:02}Z",
        1 + seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// A pod that requests one core, was created and bound at these times, and ended at another.
fn pod(uid: &str, name: &str, node: &str, created: i64, bound: i64, ended: Option<i64>) -> Value {
    let terminated = ended.map(|ended| {
        json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "finishedAt": time(ended)}}}])
    });
    json!({
        "metadata": {"uid": uid, "namespace": "shop", "name": name, "creationTimestamp": time(created)},
        "spec": {"nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": if ended.is_some() { "Succeeded" } else { "Running" }, "containerStatuses": terminated,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time(bound)}]},
    })
}

fn observe(pod: &Value, now: i64) -> Box<Observation> {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    Box::new(Observation::of_pod(&pod, now))
}

/// A store with its collector.
struct World {
    _directory: Directory,
    store: Store,
    collector: Collector,
}

impl World {
    fn new() -> Self {
        let directory = Directory::new();
        let store = Store::open(&directory.0).unwrap();
        Self { _directory: directory, store, collector: Collector::default() }
    }

    fn observe(&mut self, pod: &Value, now: i64) {
        let observed = observe(pod, now);
        self.collector.add(Subject::Pod, &observed.uid.clone(), now, Event::Observed(observed));
    }

    fn delete(&mut self, uid: &str, now: i64) {
        self.collector.add(Subject::Pod, uid, now, Event::Deleted);
    }

    fn flush(&mut self, now: i64) {
        for subject in [Subject::Pod, Subject::Claim, Subject::Node] {
            self.collector.synced(subject);
        }
        self.store.set_gauges(&self.collector.drain(now, true)).unwrap();
        self.store.set_progress(STATE, self.collector.complete_until(now).unwrap()).unwrap();
    }

    /// Restarts the operator: only the store survives.
    fn restart(&mut self) {
        self.collector = Collector::default();
        let ended = self.store.ends_of_pods().unwrap();
        self.collector.restore(self.store.open_gauges().unwrap(), ended, self.store.progress(STATE).unwrap());
    }

    /// Returns the seconds for which each pod requested its core.
    fn seconds(&self, since: i64, until: i64) -> Vec<(String, i128)> {
        let found = column(
            &report(&self.store, "pod-cpu-request", since, until),
            &["pod", "node"],
            "pod_request_cpu_core_microseconds",
        );
        found.into_iter().map(|(key, amount)| (key.join("@"), amount / 1_000_000)).collect()
    }
}

#[test]
fn usage_without_an_observation_is_unknown() {
    let mut world = World::new();
    world.observe(&pod("u1", "web", "n1", 10, 10, None), 900);
    world.flush(HOUR);
    for (query, columns) in [
        ("pod-cpu-usage", ["pod_usage_cpu_core_microseconds", "pod_usage_cpu_core_seconds"]),
        ("namespace-memory-usage", ["pod_usage_memory_byte_seconds", "pod_usage_memory_byte_seconds"]),
        ("cluster-cpu-usage", ["avg_cluster_usage_cpu_cores", "avg_pod_count"]),
    ] {
        let usage = report(&world.store, query, 0, HOUR);
        for name in columns {
            let at = usage.columns.iter().position(|column| column.name == name).unwrap();
            assert_eq!(usage.rows[0][at], Cell::Null, "{query} {name}");
        }
    }
}

#[test]
fn state_is_exact_to_the_second_even_if_it_is_observed_late() {
    let mut world = World::new();
    world.observe(&pod("u1", "web", "n1", 10, 17, None), 900);
    world.delete("u1", 1717);
    world.flush(1720);
    assert_eq!(world.seconds(0, HOUR), [("web@n1".to_owned(), 1700)]);
    // A pod that has ended when it is observed.
    world.observe(&pod("u2", "job", "n1", 100, 200, Some(500)), 2000);
    world.flush(2000);
    assert_eq!(world.seconds(0, HOUR)[0], ("job@n1".to_owned(), 300));
}

#[test]
fn a_pod_that_moves_counts_on_both_nodes() {
    let mut world = World::new();
    world.observe(&pod("u1", "db-0", "n1", 0, 0, None), 5);
    world.delete("u1", 1000);
    world.observe(&pod("u2", "db-0", "n2", 1005, 1010, None), 1012);
    world.flush(2010);
    assert_eq!(world.seconds(0, 2010), [("db-0@n1".to_owned(), 1000), ("db-0@n2".to_owned(), 1000)]);
}

#[test]
fn restarts_of_containers_and_of_the_operator_count_nothing_twice() {
    let mut world = World::new();
    let web = pod("u1", "web", "n1", 0, 100, None);
    world.observe(&web, 110);
    world.observe(&pod("u2", "job", "n1", 0, 100, Some(400)), 450);
    world.flush(500);
    for now in [600, 700, 800] {
        world.restart();
        let mut restarted = web.clone();
        restarted["status"]["containerStatuses"] =
            json!([{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": now}]);
        world.observe(&restarted, now);
        world.observe(&pod("u2", "job", "n1", 0, 100, Some(400)), now);
        world.flush(now);
    }
    world.flush(1100);
    assert_eq!(world.seconds(0, HOUR), [("job@n1".to_owned(), 300), ("web@n1".to_owned(), 1000)]);
}

#[test]
fn times_of_other_clocks_lie_between_creation_and_observation() {
    let mut world = World::new();
    // The clock of the scheduler is an hour ahead, that of the kubelet ends the pod before its creation.
    world.observe(&pod("ahead", "ahead", "n1", 100, 100 + HOUR, None), 150);
    world.observe(&pod("behind", "behind", "n1", 1000, 990, Some(20)), 1100);
    // Our own clock is behind the API server.
    world.observe(&pod("future", "future", "n1", 5000, 5000, None), 1100);
    world.delete("future", 1150);
    world.delete("ahead", 250);
    world.flush(1200);
    let seconds = world.seconds(0, 2 * HOUR);
    assert_eq!(seconds, [("ahead@n1".to_owned(), 100), ("future@n1".to_owned(), 50)]);
    // A clock that is set back does not make the store less complete.
    world.store.set_progress(STATE, 10).unwrap();
    assert_eq!(world.store.progress(STATE).unwrap(), Some(1200));
}

#[test]
fn two_hours_without_the_operator_are_bridged() {
    let mut world = World::new();
    for (uid, name) in [("u1", "stays"), ("u2", "goes"), ("u3", "ends")] {
        world.observe(&pod(uid, name, "n1", 0, 0, None), 10);
    }
    let web = |until| Sample {
        series: Series { node: "n1".into(), ..Series::new(Subject::Pod, "u1", "shop", "stays") },
        meter: Meter::PodCpuUsage,
        since: until - 60,
        until,
        amount: 60_000_000,
    };
    world.store.import(&[web(HOUR - 60), web(HOUR)]).unwrap();
    world.flush(HOUR);
    // From hour 1 to hour 3 the operator is down. In this time `goes` is deleted, `ends` ends at 01:30, `new` is
    // created at 02:00, and a job runs from 01:10 to 01:20.
    world.restart();
    let now = 3 * HOUR;
    world.observe(&pod("u1", "stays", "n1", 0, 0, None), now);
    world.observe(&pod("u3", "ends", "n1", 0, 0, Some(HOUR + 1800)), now);
    world.observe(&pod("u4", "new", "n1", 2 * HOUR, 2 * HOUR, None), now);
    world.observe(&pod("u5", "job", "n1", HOUR, HOUR + 600, Some(HOUR + 1200)), now);
    world.flush(now);
    world.store.import(&[web(now + 60)]).unwrap();
    world.flush(4 * HOUR);
    let expected = [("ends", HOUR + 1800), ("goes", HOUR), ("job", 600), ("new", 2 * HOUR), ("stays", 4 * HOUR)];
    let expected: Vec<_> =
        expected.iter().map(|(name, seconds)| (format!("{name}@n1"), i128::from(*seconds))).collect();
    assert_eq!(world.seconds(0, 4 * HOUR), expected);
    // Usage is not invented: it is missing for the rest of the time.
    let usage = report(&world.store, "pod-cpu-usage", 0, 4 * HOUR);
    let of = |name: &str| column(&usage, &["pod"], name)[&vec!["stays".to_owned()]];
    assert_eq!(of("pod_usage_cpu_core_microseconds"), 180_000_000);
    assert_eq!((of("observed_seconds"), of("missing_seconds")), (180, i128::from(4 * HOUR - 180)));
}

#[test]
fn usage_of_the_collected_part_of_a_bucket_counts_completely() {
    let world = World::new();
    let sample = |since, until, amount| Sample {
        series: Series::new(Subject::Pod, "u1", "shop", "web"),
        meter: Meter::PodCpuUsage,
        since,
        until,
        amount,
    };
    // The window of the first value began before the watch at 1000.
    assert_eq!(sample(900, 990, 90).after(1000), None);
    let first = sample(970, 1030, 600).after(1000).unwrap();
    assert_eq!(first, sample(1000, 1030, 300));
    world.store.import(&[first, sample(1030, 1210, 1800)]).unwrap();
    let usage = |since, until| {
        let report = report(&world.store, "pod-cpu-usage", since, until);
        let of = |name: &str| column(&report, &["pod"], name)[&vec!["web".to_owned()]];
        (of("pod_usage_cpu_core_microseconds"), of("observed_seconds"))
    };
    // Nothing is known about the collection: buckets count in proportion.
    assert_eq!(usage(1000, 1210), (1337, 134));
    world.store.set_progress(USAGE_SINCE, 1000).unwrap();
    world.store.set_progress(USAGE_UNTIL, 1210).unwrap();
    assert_eq!(usage(1000, 1210), (2100, 210));
    assert_eq!(usage(900, 1500), (2100, 210));
    assert_eq!(usage(1000, 1100), (1000, 100));
}

#[test]
fn late_and_repeated_samples_of_a_series_are_not_counted() {
    let world = World::new();
    let sample = |since, until, amount| Sample {
        series: Series::new(Subject::Pod, "u1", "shop", "web"),
        meter: Meter::PodCpuUsage,
        since,
        until,
        amount,
    };
    world.store.import(&[sample(0, 60, 600), sample(120, 180, 600)]).unwrap();
    let late = world.store.import(&[sample(60, 120, 600), sample(120, 180, 600)]).unwrap();
    assert_eq!((late.stored, late.late), (0, 2));
    // A sample that overlaps counts in part.
    let part = world.store.import(&[sample(150, 210, 600)]).unwrap();
    assert_eq!((part.stored, part.late), (1, 0));
    // Samples without a length, and those that are too long.
    let invalid =
        world.store.import(&[sample(300, 300, 1), sample(300, 300 + 2 * HOUR, 1), sample(300, 360, -1)]).unwrap();
    assert_eq!(invalid.invalid, 3);
    let usage = report(&world.store, "pod-cpu-usage", 0, HOUR);
    assert_eq!(column(&usage, &[], "pod_usage_cpu_core_microseconds")[&vec![]], 1500);
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        group: api_version.split_once('/').map_or("", |(group, _)| group).into(),
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: uid.into(),
        is_controller: true,
    }
}

#[test]
fn pods_count_for_the_custom_resource_at_the_root_of_their_owners() {
    let mut world = World::new();
    let mut web = pod("p1", "web-1", "n1", 0, 0, None);
    web["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]);
    web["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let claim = json!({"metadata": {"uid": "c1", "namespace": "shop", "name": "data", "creationTimestamp": time(0)},
        "spec": {"resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "fast"},
        "status": {"phase": "Bound"}});
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    world.collector.add(Subject::Claim, "c1", 5, Event::Observed(Box::new(Observation::of_claim(&claim, 5))));
    // The pod waits until its owners are known; nothing is lost.
    world.observe(&web, 5);
    world.flush(6);
    assert_eq!(world.store.progress(STATE).unwrap(), Some(0));
    world.collector.owners.insert("rs", Some(owner("apps/v1", "Deployment", "web", "d")));
    world.collector.owners.insert("d", Some(owner("example.com/v1", "Site", "blog", "s")));
    assert_eq!(world.collector.unknown_owners().len(), 1);
    world.collector.owners.insert("s", Some(owner("example.com/v1", "Tenant", "acme", "t")));
    world.collector.owners.insert("t", None);
    world.observe(&pod("p2", "alone", "n1", 0, 0, None), 5);
    world.flush(1000);
    let results = report(&world.store, "custom-resource-usage", 0, 1000);
    let found = column(&results, &["owner_kind", "owner_name"], "pod_request_cpu_core_microseconds");
    let key = |kind: &str, name: &str| vec![kind.to_owned(), name.to_owned()];
    assert_eq!(found[&key("Tenant", "acme")], 1_000_000_000);
    assert_eq!(found[&key("", "")], 1_000_000_000);
    // The claim counts for the resource since the pod that mounts it was observed.
    let storage = column(&results, &["owner_kind", "owner_name"], "volume_request_storage_byte_seconds");
    assert_eq!(storage.values().sum::<i128>(), (10 << 30) * 1000);
    assert!(storage[&key("Tenant", "acme")] >= (10 << 30) * 994);
}

#[test]
fn requests_are_those_that_the_scheduler_reserves() {
    let mut web = pod("p1", "web", "n1", 0, 0, None);
    let container = |name: &str, cpu: &str, policy: Option<&str>| {
        let resources = json!({"requests": {"cpu": cpu}});
        json!({"name": name, "restartPolicy": policy, "resources": resources})
    };
    web["spec"]["containers"] = json!([container("a", "100m", None), container("b", "200m", None)]);
    let mut check = |init: Value, expected: i64| {
        web["spec"]["initContainers"] = init;
        assert_eq!(observe(&web, 10).values[&Meter::PodCpuRequest], expected * 1000);
    };
    check(json!([]), 300);
    check(json!([container("i", "250m", None)]), 300);
    check(json!([container("i", "1", None)]), 1000);
    check(json!([container("s", "500m", Some("Always")), container("i", "400m", None)]), 900);
    check(json!([container("i", "400m", None), container("s", "50m", Some("Always"))]), 400);
    web["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
    assert_eq!(observe(&web, 10).values[&Meter::PodCpuRequest], 2_000_000);
}

#[test]
fn retention_removes_old_data_only() {
    let world = World::new();
    let day = 86_400;
    let sample = |since: i64| Sample {
        series: Series::new(Subject::Pod, "u1", "shop", "web"),
        meter: Meter::PodCpuUsage,
        since,
        until: since + 300,
        amount: 300,
    };
    world.store.import(&[sample(0), sample(day), sample(200 * day)]).unwrap();
    let before = world.store.sizes().unwrap();
    let retention = flyball_metering::store::Retention {
        fine: std::time::Duration::from_secs(86_400),
        history: std::time::Duration::from_secs(100 * 86_400),
    };
    world.store.prune(200 * day, retention).unwrap();
    let after = world.store.sizes().unwrap();
    assert_eq!((before.buckets, after.buckets, after.series), (9, 3, 1));
    let usage = |since, until| {
        let found =
            column(&report(&world.store, "pod-cpu-usage", since, until), &[], "pod_usage_cpu_core_microseconds");
        found.values().sum::<i128>()
    };
    assert_eq!((usage(0, 199 * day), usage(199 * day, 201 * day)), (0, 300));
}

#[test]
fn oldest_periods_of_a_report_make_room_for_new_ones() {
    use flyball_metering::store::{Cell, MAX_REPORT_ROWS, PeriodResult, Quota};
    let world = World::new();
    let put = |until: i64, rows: i64| {
        let rows = (0..rows).map(|row| vec![Cell::Integer(row)]).collect();
        let result = PeriodResult { since: until - 1, until, rows };
        world.store.put_result(("u", "shop", "r"), &["x".to_owned()], &result, false, &Quota::default()).unwrap();
    };
    for period in 1..=6 {
        put(period, MAX_REPORT_ROWS / 5);
    }
    put(7, 1);
    // The same period again replaces its result.
    put(7, 2);
    let stored = world.store.report("shop", "r").unwrap().unwrap();
    let periods: Vec<(i64, usize)> =
        world.store.results(&stored, 0, 9).unwrap().iter().map(|result| (result.until, result.rows.len())).collect();
    let full = usize::try_from(MAX_REPORT_ROWS / 5).unwrap();
    assert_eq!(periods, [(3, full), (4, full), (5, full), (6, full), (7, 2)]);
}

#[test]
fn labels_that_change_without_end_do_not_fill_the_store() {
    let mut world = World::new();
    world.collector = Collector::new(Some("team".into()));
    let mut web = pod("u1", "web", "n1", 0, 0, None);
    for now in 1..500 {
        web["metadata"]["labels"] = json!({"team": format!("team-{now}")});
        world.observe(&web, now);
    }
    world.flush(1000);
    assert!(world.store.sizes().unwrap().series <= 101);
    assert_eq!(world.seconds(0, HOUR), [("web@n1".to_owned(), 1000)]);
}
