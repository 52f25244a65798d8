//! Tests of ledgers: bounds, fields and flaps.

use super::fields::{MAX_FIELDS, path_text};
use super::record::{MAX_READS, MAX_WRITES};
use super::*;
use crate::queue::{Cause, Causes, Effect};
use flyball_core::json::RawJson;
use flyball_core::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("ns"), name)
}

fn reconcile(id: u64, error: Option<&str>) -> ReconcileRecord {
    let mut causes = Causes::default();
    causes.push(Cause::Start);
    ReconcileRecord {
        id,
        key: key("a"),
        version: id,
        generation: 1,
        from_server: false,
        began: Timestamp::UNIX_EPOCH,
        waited: Duration::ZERO,
        took: Duration::ZERO,
        causes,
        accesses: Accesses::default(),
        outcome: if error.is_some() { Outcome::Error } else { Outcome::Success },
        error: error.map(|message| RecordedError { message: message.into(), status: None, denial: None }),
        failures: 0,
        next: Next::Change,
    }
}

#[test]
fn quiet_reconciles_do_not_evict_failures() {
    let ledger = Ledger::new(Counter::default());
    ledger.record(reconcile(1, Some("no such template")));
    for id in 2..3000 {
        ledger.record(reconcile(id, None));
    }
    let kept = ledger.reconciles(usize::MAX, |_| true);
    assert_eq!((kept.len(), kept[0].id, kept[kept.len() - 1].id), (MAX_RECONCILES + 1, 2999, 1));
    let size = ledger.size();
    assert_eq!((size.reconciles, size.dropped), (MAX_RECONCILES + 1, 2998 - MAX_RECONCILES as u64));
}

#[test]
fn bytes_are_bounded() {
    let ledger = Ledger::new(Counter::default());
    let error = "x".repeat(100_000);
    for id in 0..200 {
        ledger.record(reconcile(id, Some(&error)));
    }
    let size = ledger.size();
    assert!(size.bytes <= MAX_BYTES && size.bytes > MAX_BYTES - 200_000 && size.reconciles == 31, "{size:?}");
}

#[test]
fn full_ring_stores_in_place() {
    let mut ring = Ring::new(10, usize::MAX);
    for id in 0..1000 {
        ring.push(id, reconcile(id, None));
    }
    let ids: Vec<u64> = ring.iter().map(|(_, reconcile)| reconcile.id).collect();
    assert_eq!((ids, ring.capacity()), ((990..1000).collect(), 10));
}

#[test]
fn reconcile_without_writes_is_small() {
    let ledger = MeasuredLedger::new();
    (0..2000).for_each(|id| ledger.record(&key("some-object-with-a-name"), id));
    let (count, bytes) = ledger.size();
    assert!(count == MAX_RECONCILES && bytes / count < 320, "{} bytes each", bytes / count);
}

#[test]
fn accesses_of_a_reconcile_are_bounded() {
    let mut accesses = Accesses::default();
    for version in 0..100 {
        accesses.read(|| Read::Object(Target::Store(0), key("b"), version));
        accesses.write(|| WriteRecord {
            store: 0,
            object: key("b"),
            verb: Verb::Apply,
            subresource: "",
            before: version,
            effect: Effect::Version(version + 1),
            fields: ChangedFields::default(),
        });
    }
    let list = accesses.list();
    assert_eq!((list.reads.len(), list.reads_omitted as usize), (MAX_READS, 100 - MAX_READS));
    assert_eq!((list.writes.len(), list.writes_omitted as usize), (MAX_WRITES, 100 - MAX_WRITES));
}

fn changes(before: &Value, after: &Value, subresource: &str, is_partial: bool) -> Vec<String> {
    let (before, after) = (before.to_string(), after.to_string());
    let changed = changed_fields(RawJson(&before), RawJson(&after), subresource, is_partial);
    let mut texts: Vec<String> = changed.known.iter().map(ToString::to_string).collect();
    texts.extend((changed.omitted > 0).then(|| format!("+{}", changed.omitted)));
    texts
}

#[test]
fn order_of_members_is_no_change() {
    let before = r#"{"a":{"x":1},"spec":{"a":1,"b":2,"c":3,"d":4},"z":1}"#;
    let after = r#"{"spec":{"a":1,"c":3,"b":5,"e":6},"a":{"x":1},"z":1}"#;
    let changed = changed_fields(RawJson(before), RawJson(after), "", false);
    let texts: Vec<String> = changed.known.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["spec.b", "spec.d", "spec.e"]);
}

#[test]
fn changed_fields_are_leaves_with_names_of_elements() {
    let object = |replicas: u32, images: [&str; 2], more: Value| {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "x", "resourceVersion": replicas.to_string(), "annotations": {"a.b/c": more}},
            "spec": {"replicas": replicas, "containers": [
                {"name": "web", "image": images[0]}, {"name": "side", "image": images[1]},
            ]},
            "status": {"ready": replicas},
        })
    };
    let (one, other) = (object(1, ["a", "b"], json!("1")), object(2, ["a", "c"], json!("2")));
    let expected = ["metadata.annotations[a.b/c]", "spec.containers[name=side].image", "spec.replicas"];
    assert_eq!(changes(&one, &other, "", false), expected);
    assert_eq!(changes(&one, &other, "status", false), ["status.ready"]);
    assert!(changes(&one, &one, "", false).is_empty());
    let mut less = one.clone();
    less["spec"]["containers"].as_array_mut().unwrap().pop();
    less["spec"].as_object_mut().unwrap().remove("replicas");
    assert_eq!(changes(&one, &less, "", false), ["spec.containers[name=side]", "spec.replicas"]);
    assert_eq!(changes(&less, &one, "", false), ["spec.containers[name=side]", "spec.replicas"]);
    assert!(changes(&less, &one, "", true).is_empty(), "fields that the cache lacks are not new");
    let list = |items: Value| json!({"spec": {"args": items}});
    assert_eq!(changes(&list(json!(["a", "b"])), &list(json!(["b", "a"])), "", false), ["spec.args"]);
    let many = |value: u32| json!({"data": (0..20).map(|n| (format!("k{n:02}"), value)).collect::<BTreeMap<_, _>>()});
    let found = changes(&many(1), &many(2), "", false);
    assert_eq!((found.len(), &*found[MAX_FIELDS]), (MAX_FIELDS + 1, "+12"));
}

#[test]
fn paths_are_bounded_and_found_again() {
    let long = "é".repeat(300);
    let (before, after) = (json!({"data": {&*long: 1}}).to_string(), json!({"data": {&*long: 2}}).to_string());
    let changed = changed_fields(RawJson(&before), RawJson(&after), "", false);
    let field = &changed.known[0];
    assert!(path_text(&field.path).len() <= 256);
    assert_eq!(value_at(RawJson(&before), &field.path), field.before);
    assert_eq!(value_at(RawJson(&after), &field.path), field.after);
    assert_eq!(value_at(RawJson("{}"), &field.path), 0);
    for text in ["", "{", "[]", r#"{"data":"#] {
        assert!(changed_fields(RawJson(text), RawJson(&after), "", false).known.is_empty(), "{text}");
    }
}

/// Writes of `spec.replicas` of one object, each from a value to another one, for one spec.
fn flapping(writes: &[(u64, u32, u32)]) -> Vec<bool> {
    let (mut detector, owner, object) = (FlapDetector::default(), key("owner"), key("object"));
    let write = |(spec, from, to): &(u64, u32, u32)| {
        let state = |replicas: u32| json!({"spec": {"replicas": replicas, "paused": false}}).to_string();
        let fields = changed_fields(RawJson(&state(*from)), RawJson(&state(*to)), "", false);
        !detector.record(WrittenObject { key: &owner, spec: (*spec, 0), store: 1, object: &object }, &fields).is_empty()
    };
    writes.iter().map(write).collect()
}

#[test]
fn field_that_another_writer_reverts_flaps() {
    assert_eq!(flapping(&[(1, 3, 1), (1, 3, 1), (1, 3, 1)]), [false, true, true]);
    assert_eq!(flapping(&[(1, 3, 1), (2, 3, 1), (3, 3, 1)]), [false; 3], "the spec changed");
    assert_eq!(flapping(&[(1, 3, 1), (1, 4, 1), (1, 5, 1)]), [false; 3], "another value each time");
}

#[test]
fn field_that_its_writer_reverts_again_and_again_flaps() {
    let writes = [(1, 1, 2), (1, 2, 1), (1, 1, 2), (1, 2, 1)];
    assert_eq!(flapping(&writes), [false, false, false, true]);
    assert_eq!(flapping(&[(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]), [false; 4]);
}

#[test]
fn flap_detector_is_bounded() {
    let mut detector = FlapDetector::default();
    let fields = changed_fields(RawJson(r#"{"a":1}"#), RawJson(r#"{"a":2}"#), "", false);
    for owner in 0..2000 {
        let owner = key(&format!("o{owner}"));
        let written = WrittenObject { key: &owner, spec: (1, 0), store: 0, object: &owner };
        assert!(detector.record(written, &fields).is_empty());
    }
    let known = |owner: &str| {
        let owner = key(owner);
        detector.reverted(WrittenObject { key: &owner, spec: (1, 0), store: 0, object: &owner }).len()
    };
    assert_eq!((known("o0"), known("o1999")), (0, 1));
}

#[test]
fn owners_of_a_field_are_its_managers() {
    let fields = json!([
        {"manager": "op", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "hpa", "subresource": "scale", "fieldsV1": {"f:spec": {".": {}, "f:replicas": {}}}},
        {"manager": "kubelet", "fieldsV1": {"f:status": {"f:ready": {}}}},
        {"manager": "web", "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:image": {}}}}}},
    ]);
    let path = |names: &[&str]| names.iter().map(|name| Segment::Field((*name).into())).collect::<Vec<_>>();
    let owners = |path: &[Segment]| owners_of(&fields, path).iter().map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(owners(&path(&["spec", "replicas"])), ["op", "hpa"]);
    let mut image = path(&["spec", "containers"]);
    image.push(Segment::Element("name", "web".into()));
    image.push(Segment::Field("image".into()));
    assert_eq!(owners(&image), ["web"]);
    assert!(owners(&path(&["data"])).is_empty());
}
