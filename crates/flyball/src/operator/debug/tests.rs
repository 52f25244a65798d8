//! Tests of the debug pages.

use super::*;
use crate::backoff::Backoff;
use crate::cache::Delta;
use crate::external::ExternalCalls;
use crate::kind::Type;
use crate::ledger::{
    Accesses, ChangedFields, Denial, FilteredChange, Next, Outcome, Read, RecordedError, Target, Verb, WriteRecord,
};
use crate::queue::{Cause, Causes, Effect, NextStep, Priority, RetryRate, Trigger, Workers};
use flyball_core::Rng;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use prometheus_client::metrics::counter::Counter;
use std::time::Duration;

/// Creates the pages of an operator with these controllers.
pub(in crate::operator) fn pages(controllers: Vec<DebuggedController>, caches: Arc<Caches>) -> DebugPages {
    DebugPages {
        operator: "site-operator".into(),
        instance: "site-operator-1".into(),
        field_manager: "site-operator".into(),
        version: Some("1.2.0"),
        started: Timestamp::UNIX_EPOCH,
        clock: Clock::new(|| Timestamp::from_second(100).expect("in range")),
        controllers,
        caches,
        leadership: None,
        stop: Arc::default(),
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("ns"), name)
}

/// A controller of ConfigMaps with a reconcile of `a`, caused by a pod, that wrote the pod.
fn operator() -> DebugPages {
    let types = [(Type::of::<ConfigMap>(), Kind::of::<ConfigMap>()), (Type::of::<Pod>(), Kind::of::<Pod>())];
    let (caches, mut writers) = Caches::new(types, &std::collections::BTreeSet::new());
    for writer in &mut writers {
        writer.apply(Delta::Restart);
        writer.apply(Delta::Complete(7));
    }
    let pods = writers.iter().find(|writer| writer.store().kind().name() == "Pod").expect("declared").store().id();
    let workers = Workers { count: 2, are_shared: false };
    let (backoff, rate, rng) = (Backoff::default(), RetryRate::default(), Rng::from_seed(1));
    let queue = Arc::new(Queue::new(backoff, rate, Duration::from_secs(10), workers, &rng));
    queue.add(&key("a"), Priority::Fresh, Cause::Start);
    let ledger = Arc::new(Ledger::new(Counter::default()));
    let mut causes = Causes::default();
    causes.push(Cause::Change(Trigger { store: pods, object: key("p"), before: 3, version: 5 }));
    let mut accesses = Accesses::default();
    accesses.read(|| Read::List(Target::Store(pods), Some("ns".into()), 2));
    accesses.write(|| WriteRecord {
        store: pods,
        object: key("p"),
        verb: Verb::Apply,
        subresource: "",
        before: 5,
        effect: Effect::Version(6),
        fields: ChangedFields::default(),
    });
    accesses.list_mut().external =
        vec![ExternalCalls { system: "vcenter", calls: 3, failures: 1, took: Duration::from_millis(250) }];
    ledger.record(ReconcileRecord {
        id: 0xab,
        key: key("a"),
        version: 4,
        generation: 0,
        from_server: false,
        began: Timestamp::from_second(50).expect("in range"),
        waited: Duration::ZERO,
        took: Duration::from_secs(1),
        causes,
        accesses,
        outcome: Outcome::RequeueAfter,
        error: Some(RecordedError {
            message: "pods is forbidden".into(),
            status: Some(403),
            denial: Some(Denial::Admission),
        }),
        failures: 0,
        next: Next::RequeueAfter(Duration::from_secs(30)),
    });
    let at = Timestamp::from_second(60).expect("in range");
    ledger.record_filtered(FilteredChange { store: pods, object: key("p"), before: 6, after: 8, at });
    let stores = caches.stores().to_vec();
    let (name, kind) = ("configmap".to_owned(), Kind::of::<ConfigMap>());
    let controller = DebuggedController { name, kind, workers: 2, on_all_replicas: false, queue, ledger, stores };
    pages(vec![controller], Arc::new(caches))
}

fn get(pages: &DebugPages, path: &str, query: &str) -> Value {
    let (code, text) = pages.page(path, query);
    assert_eq!(code, StatusCode::OK, "{text}");
    serde_json::from_str(&text).expect("the page is JSON")
}

#[tokio::test(start_paused = true)]
async fn overview_has_queues_ledgers_and_stores() {
    let page = get(&operator(), "/debug/flyball", "");
    assert_eq!(
        (&page["operator"], &page["version"], &page["shuttingDown"]),
        (&json!("site-operator"), &json!("1.2.0"), &json!(false))
    );
    let controller = &page["controllers"][0];
    assert_eq!((&controller["active"], &controller["ledger"]["reconciles"]), (&json!(true), &json!(1)));
    let queued = json!({
        "namespace": "ns", "name": "a", "state": "ready", "since": "1970-01-01T00:01:40.000000Z",
        "causes": [{"type": "start"}], "causesOmitted": 0,
    });
    assert_eq!((&controller["queue"]["ready"], &controller["queue"]["keys"][0]), (&json!(1), &queued));
    assert_eq!((&page["stores"][0]["synced"], &page["stores"][0]["revision"]), (&json!(true), &json!("7")));
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_selected_by_object_and_involvement() {
    let pages = operator();
    let count = |query: &str| get(&pages, "/debug/flyball/reconciles", query)["reconciles"].as_array().map(Vec::len);
    for (query, expected) in [
        ("", 1),
        ("kind=ConfigMap&namespace=ns&name=a", 1),
        ("kind=Pod&name=p", 0),
        ("kind=Pod&name=p&involves=true", 1),
        ("group=apps&kind=Pod&name=p&involves=true", 0),
        ("id=00000000000000ab", 1),
        ("id=ac", 0),
        ("since=1970-01-01T00%3A00%3A51Z", 0),
        ("controller=configmap&limit=0", 1),
        ("controller=other", 0),
    ] {
        assert_eq!(count(query), Some(expected), "{query}");
    }
    let found = get(&pages, "/debug/flyball/reconciles", "");
    let pod = json!({"group": "", "version": "v1", "kind": "Pod", "namespace": "ns", "name": "p"});
    let expected = json!({
        "id": "00000000000000ab", "controller": "configmap",
        "object": {"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "a"},
        "resourceVersion": "4", "began": "1970-01-01T00:00:50.000000Z", "waited": 0.0, "took": 1.0,
        "causes": [{"type": "change", "object": pod, "before": "3", "after": "5"}], "causesOmitted": 0,
        "reads": [{"list": {"group": "", "version": "v1", "kind": "Pod", "namespace": "ns"}, "objects": 2}],
        "readsOmitted": 0,
        "writes": [{"object": pod, "verb": "apply", "result": "changed", "before": "5", "after": "6", "fields": [],
            "fieldsOmitted": 0}],
        "writesOmitted": 0, "externalCalls": [{"system": "vcenter", "calls": 3, "failures": 1, "took": 0.25}],
        "outcome": "requeue_after", "error": "pods is forbidden", "status": 403, "denial": "admission",
        "next": {"type": "requeueAfter", "seconds": 30.0, "at": "1970-01-01T00:01:21.000000Z"},
    });
    assert_eq!(found["reconciles"][0], expected);
}

#[tokio::test(start_paused = true)]
async fn object_page_tells_what_each_controller_knows() {
    let pages = operator();
    let page = get(&pages, "/debug/flyball/object", "kind=ConfigMap&namespace=ns&name=a");
    let controller = &page["controllers"][0];
    assert_eq!((&controller["cached"], &controller["key"]["state"]), (&json!(false), &json!("ready")));
    assert_eq!(controller["last"]["id"], "00000000000000ab");
    let page = get(&pages, "/debug/flyball/object", "kind=Pod&namespace=ns&name=p");
    assert_eq!((&page["controllers"], &page["writes"][0]["after"]), (&json!([]), &json!("6")));
    assert_eq!(page["writes"][0]["of"]["name"], "a");
    let taken = pages.controllers[0].queue.next().await.expect("a key is ready");
    pages.controllers[0].queue.done(&taken.item, NextStep::Retry, Vec::new(), |_, _, _| false);
    let page = get(&pages, "/debug/flyball/object", "kind=ConfigMap&namespace=ns&name=a");
    let state = &page["controllers"][0]["key"];
    assert_eq!((&state["state"], &state["failures"]), (&json!("backoff"), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn invalid_parameters_are_rejected() {
    let pages = operator();
    for (path, query, expected) in [
        ("/debug/flyball/reconciles", "limit=x", "limit: invalid value \"x\", expected a number\n"),
        ("/debug/flyball/reconciles", "since=now", "since: invalid value \"now\", expected a time in RFC 3339\n"),
        ("/debug/flyball/object", "name=a", "kind and name are required\n"),
    ] {
        assert_eq!(pages.page(path, query), (StatusCode::BAD_REQUEST, expected.to_owned()));
    }
    assert_eq!(pages.page("/debug/flyball/reconciles", "nome=a").0, StatusCode::BAD_REQUEST);
    assert_eq!(pages.page("/debug/flyball/else", "").0, StatusCode::NOT_FOUND);
    assert!(is_page("/debug/flyball") && is_page("/debug/flyball/object") && !is_page("/debug/flyballs"));
}
