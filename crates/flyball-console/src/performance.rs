//! The performance of operators: API calls, reconcile time and memory, by operator and kind.
//!
//! The amounts are those of metering (`operator-performance` and `operator-memory`), of the last 15 minutes: API calls
//! are the writes and uncached reads of reconciles, memory is that of caches and ledgers. They are integers, so that
//! the kinds of an operator add up to its total.

use crate::controllers::{PERIOD, STEP_SECONDS, STEPS, is_failure, quantile, seconds};
use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile};
use crate::summary::{bounded, items, text};
use flyball_core::time::{Timestamp, rfc3339_micro, saturating_add};
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Limit of the kinds of an operator.
const MAX_KINDS: usize = 300;
/// Number of targets, systems and objects in the lists of a kind.
const TOP: usize = 12;
/// Limit of the systems of a reconcile that are read; a ledger has at most eight.
const MAX_SYSTEMS: usize = 16;

/// A kind: group and name.
type KindName = (String, String);

/// Amounts that are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Amounts {
    api_calls: u64,
    reconciles: u64,
    errors: u64,
    microseconds: u64,
    external_calls: u64,
    external_failures: u64,
    external_microseconds: u64,
    cached_objects: u64,
    cache_bytes: u64,
    ledger_bytes: u64,
}

impl AddAssign<&Self> for Amounts {
    fn add_assign(&mut self, other: &Self) {
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        add(&mut self.api_calls, other.api_calls);
        add(&mut self.reconciles, other.reconciles);
        add(&mut self.errors, other.errors);
        add(&mut self.microseconds, other.microseconds);
        add(&mut self.external_calls, other.external_calls);
        add(&mut self.external_failures, other.external_failures);
        add(&mut self.external_microseconds, other.external_microseconds);
        add(&mut self.cached_objects, other.cached_objects);
        add(&mut self.cache_bytes, other.cache_bytes);
        add(&mut self.ledger_bytes, other.ledger_bytes);
    }
}

/// The share of one kind.
#[derive(Default)]
struct KindShare {
    amounts: Amounts,
    durations: Vec<f64>,
    controllers: Vec<String>,
    /// API calls and microseconds of each column of a chart.
    columns: BTreeMap<usize, (u64, u64)>,
    /// API calls by verb, with the subresource, and kind.
    targets: BTreeMap<(String, KindName), u64>,
    /// Calls to other systems, by system.
    systems: BTreeMap<String, Amounts>,
    objects: BTreeMap<ObjectRef, Amounts>,
}

/// Describes all operators until `now`.
pub(crate) fn describe(operators: &[Operator], reconciles: &[Reconcile], now: Timestamp) -> Value {
    let from = saturating_add(now, -PERIOD);
    let described = operators.iter().enumerate().map(|(index, operator)| {
        let own = reconciles.iter().filter(|reconcile| reconcile.operator == index && reconcile.began >= from);
        describe_operator(operator, own, now)
    });
    json!({"now": rfc3339_micro(now), "operators": described.collect::<Vec<_>>()})
}

fn describe_operator<'a>(operator: &Operator, own: impl Iterator<Item = &'a Reconcile>, now: Timestamp) -> Value {
    let first = now.as_second() / STEP_SECONDS - (STEPS as i64 - 1);
    let mut kinds: BTreeMap<KindName, KindShare> = BTreeMap::new();
    for controller in items(&operator.state["controllers"]).take(MAX_KINDS) {
        let share = kinds.entry(kind_of(controller)).or_default();
        share.controllers.push(bounded(text(&controller["name"])));
        share.amounts += &Amounts { ledger_bytes: bytes(&controller["ledger"]["bytes"]), ..Amounts::default() };
    }
    for store in items(&operator.state["stores"]) {
        let name = kind_of(store);
        if kinds.len() < MAX_KINDS || kinds.contains_key(&name) {
            let (cache_bytes, cached_objects) = (bytes(&store["bytes"]), bytes(&store["objects"]));
            kinds.entry(name).or_default().amounts += &Amounts { cache_bytes, cached_objects, ..Amounts::default() };
        }
    }
    for reconcile in own {
        let name = kind_of(&reconcile.value["object"]);
        if kinds.len() < MAX_KINDS || kinds.contains_key(&name) {
            let column = usize::try_from(reconcile.began.as_second() / STEP_SECONDS - first).ok();
            kinds.entry(name).or_default().add(&reconcile.value, column);
        }
    }
    let mut durations: Vec<f64> = kinds.values().flat_map(|share| share.durations.iter().copied()).collect();
    let mut total = Amounts::default();
    kinds.values().for_each(|share| total += &share.amounts);
    let begin = saturating_add(now, -PERIOD);
    let since = operator.complete_since.map_or(begin, |since| since.max(begin));
    let mut kinds: Vec<(KindName, KindShare)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(name, share)| (Reverse((share.amounts.microseconds, share.amounts.cache_bytes)), name.clone()));
    json!({
        "name": operator.name(), "address": operator.address, "error": operator.error, "answered": operator.answered,
        "since": rfc3339_micro(since), "seconds": now.duration_since(since).as_secs_f64().max(0.0),
        "start": first * STEP_SECONDS, "step": STEP_SECONDS, "total": total,
        "p50": quantile(&mut durations, 0.5), "p99": quantile(&mut durations, 0.99),
        "kinds": kinds.into_iter().map(|(name, share)| share.describe(name)).collect::<Vec<_>>(),
    })
}

impl KindShare {
    /// Adds a reconcile of an object of this kind.
    fn add(&mut self, reconcile: &Value, column: Option<usize>) {
        let took = seconds(&reconcile["took"]);
        let from_server = reconcile["fromServer"] == true;
        let (mut recorded, omitted) = (0, reconcile["writesOmitted"].as_u64().unwrap_or_default());
        for write in items(&reconcile["writes"]) {
            recorded += 1;
            let (verb, subresource) = (bounded(text(&write["verb"])), bounded(text(&write["subresource"])));
            let verb = if subresource.is_empty() { verb } else { format!("{verb} {subresource}") };
            self.add_calls(verb, kind_of(&write["object"]), 1);
        }
        if from_server {
            self.add_calls("get".to_owned(), kind_of(&reconcile["object"]), 1);
        }
        // Of long reconciles, the ledger has the number of further writes, and not their objects.
        self.add_calls("write".to_owned(), KindName::default(), omitted);
        let external = self.add_external(reconcile);
        let amounts = Amounts {
            api_calls: u64::from(from_server).saturating_add(recorded).saturating_add(omitted),
            reconciles: 1,
            errors: u64::from(is_failure(text(&reconcile["outcome"]))),
            microseconds: (took * 1e6) as u64,
            ..external
        };
        self.amounts += &amounts;
        self.durations.push(took);
        *self.objects.entry(ObjectRef::of(&reconcile["object"])).or_default() += &amounts;
        if let Some(column) = column.filter(|column| *column < STEPS) {
            let (calls, microseconds) = self.columns.entry(column).or_default();
            *calls = calls.saturating_add(amounts.api_calls);
            *microseconds = microseconds.saturating_add(amounts.microseconds);
        }
    }

    /// Adds the calls of a reconcile to other systems, and returns their sum.
    fn add_external(&mut self, reconcile: &Value) -> Amounts {
        let mut sum = Amounts::default();
        for of in items(&reconcile["externalCalls"]).take(MAX_SYSTEMS) {
            let calls = |field: &str| of[field].as_u64().unwrap_or_default().min(u32::MAX.into());
            let amounts = Amounts {
                external_calls: calls("calls"),
                external_failures: calls("failures"),
                external_microseconds: (seconds(&of["took"]) * 1e6) as u64,
                ..Amounts::default()
            };
            *self.systems.entry(bounded(text(&of["system"]))).or_default() += &amounts;
            sum += &amounts;
        }
        sum
    }

    fn add_calls(&mut self, verb: String, kind: KindName, calls: u64) {
        if calls > 0 {
            let known = self.targets.entry((verb, kind)).or_default();
            *known = known.saturating_add(calls);
        }
    }

    fn describe(mut self, (group, kind): KindName) -> Value {
        let column = |at| self.columns.get(&at).copied().unwrap_or_default();
        let (calls, time): (Vec<u64>, Vec<u64>) = (0..STEPS).map(column).unzip();
        let mut targets: Vec<_> = self.targets.iter().collect();
        targets.sort_by_key(|(target, calls)| (Reverse(**calls), *target));
        let omitted = targets.iter().skip(TOP).fold(0, |sum: u64, (_, calls)| sum.saturating_add(**calls));
        let targets = targets.into_iter().take(TOP);
        let targets = targets
            .map(|((verb, (group, kind)), calls)| json!({"verb": verb, "group": group, "kind": kind, "calls": calls}));
        let mut systems: Vec<_> = self.systems.iter().collect();
        systems.sort_by_key(|(system, amounts)| (Reverse(amounts.external_microseconds), *system));
        let others = systems.iter().skip(TOP).fold(0, |sum: u64, (_, of)| sum.saturating_add(of.external_calls));
        let systems = systems.into_iter().take(TOP).map(|(system, amounts)| {
            json!({"system": system, "calls": amounts.external_calls, "failures": amounts.external_failures,
                "microseconds": amounts.external_microseconds})
        });
        let mut objects: Vec<_> = self.objects.iter().collect();
        objects.sort_by_key(|(object, amounts)| (Reverse((amounts.microseconds, amounts.api_calls)), *object));
        let objects = objects.into_iter().take(TOP);
        let objects = objects.map(|(object, amounts)| json!({"object": object, "amounts": amounts}));
        json!({
            "group": group, "kind": kind, "controllers": self.controllers, "amounts": self.amounts,
            "p50": quantile(&mut self.durations, 0.5), "p99": quantile(&mut self.durations, 0.99),
            "calls": calls, "time": time, "targets": targets.collect::<Vec<_>>(), "callsOmitted": omitted,
            "systems": systems.collect::<Vec<_>>(), "externalCallsOmitted": others,
            "objects": objects.collect::<Vec<_>>(), "objectsTotal": self.objects.len(),
        })
    }
}

fn kind_of(value: &Value) -> KindName {
    (bounded(text(&value["group"])), bounded(text(&value["kind"])))
}

/// Returns a number of bytes or objects, which may be any value.
fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default().min(1 << 50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::{SignedDuration, parse_rfc3339};
    use std::sync::Arc;

    const NOW: &str = "2026-01-01T00:15:00Z";

    fn now() -> Timestamp {
        parse_rfc3339(NOW).expect("a time")
    }

    fn reconcile(kind: &str, ago: i64, took: f64, rest: &Value) -> Reconcile {
        let mut value = json!({
            "object": {"group": "g", "kind": kind, "name": format!("{kind}-{ago}")}, "took": took, "outcome": "success",
        });
        for (field, content) in rest.as_object().into_iter().flatten() {
            value[field] = content.clone();
        }
        Reconcile { operator: 0, began: saturating_add(now(), SignedDuration::from_secs(-ago)), value: Arc::new(value) }
    }

    fn operator() -> Operator {
        let state = json!({
            "operator": "op",
            "controllers": [{"name": "a", "group": "g", "kind": "A", "ledger": {"bytes": 7}},
                {"name": "b", "group": "g", "kind": "B", "ledger": {"bytes": 5}}],
            "stores": [{"group": "g", "kind": "A", "objects": 2, "bytes": 100}, {"group": "", "kind": "Pod",
                "objects": 3, "bytes": 50}, {"group": "", "kind": "Pod", "objects": 1, "bytes": 20}],
        });
        Operator { state: Arc::new(state), ..Operator::default() }
    }

    #[test]
    fn kinds_add_up_to_the_total() {
        let pod = json!({"group": "", "kind": "Pod"});
        let writes = json!([
            {"verb": "apply", "object": pod, "result": "changed"},
            {"verb": "apply", "object": pod, "result": "unchanged"},
            {"verb": "apply", "subresource": "status", "object": {"group": "g", "kind": "A"}, "result": "changed"},
        ]);
        let external = |system: &str, calls: u32, failures: u32, took: f64| json!({"system": system, "calls": calls, "failures": failures, "took": took});
        let calls = json!([external("vcenter", 2, 0, 0.11), external("dns", 1, 1, 0.01)]);
        let rest = json!({"writes": writes, "writesOmitted": 4, "fromServer": true, "externalCalls": calls});
        let failed = json!({"outcome": "error", "externalCalls": [external("vcenter", 2, 0, 0.04)]});
        let reconciles = [
            reconcile("A", 1, 0.25, &rest),
            reconcile("A", 20, 0.05, &failed),
            reconcile("B", 21, 0.1, &json!({"fromServer": true})),
            reconcile("A", 2_000, 9.0, &json!({})),
        ];
        let described = describe(&[operator()], &reconciles, now());
        let operator = &described["operators"][0];
        let kinds = operator["kinds"].as_array().expect("kinds");
        let named: Vec<&str> = kinds.iter().map(|kind| text(&kind["kind"])).collect();
        assert_eq!(named, ["A", "B", "Pod"], "ordered by time, then memory");
        let expected = json!({"apiCalls": 8, "reconciles": 2, "errors": 1, "microseconds": 300_000,
            "externalCalls": 5, "externalFailures": 1, "externalMicroseconds": 160_000, "cachedObjects": 2, "cacheBytes": 100, "ledgerBytes": 7});
        assert_eq!(kinds[0]["amounts"], expected);
        assert_eq!(kinds[2]["amounts"]["cacheBytes"], 70);
        assert_eq!((&operator["p99"], &kinds[0]["p50"], &kinds[2]["p99"]), (&json!(0.25), &json!(0.25), &Value::Null));
        for field in [
            "apiCalls",
            "reconciles",
            "errors",
            "microseconds",
            "externalCalls",
            "externalMicroseconds",
            "cacheBytes",
            "ledgerBytes",
        ] {
            let sum: u64 = kinds.iter().filter_map(|kind| kind["amounts"][field].as_u64()).sum();
            assert_eq!(operator["total"][field], sum, "{field}");
        }
        let targets = kinds[0]["targets"].as_array().expect("targets");
        let calls: u64 = targets.iter().filter_map(|target| target["calls"].as_u64()).sum();
        assert_eq!(calls, 8);
        assert_eq!(targets[0], json!({"verb": "write", "group": "", "kind": "", "calls": 4}), "not recorded");
        assert_eq!(targets[1], json!({"verb": "apply", "group": "", "kind": "Pod", "calls": 2}));
        let vcenter = json!({"system": "vcenter", "calls": 4, "failures": 0, "microseconds": 150_000});
        let dns = json!({"system": "dns", "calls": 1, "failures": 1, "microseconds": 10_000});
        assert_eq!(kinds[0]["systems"], json!([vcenter, dns]));
        let columns = |field: &str| kinds[0][field].as_array().map(|all| all[STEPS - 3..].to_vec());
        assert_eq!(columns("calls"), Some(vec![json!(0), json!(8), json!(0)]));
        assert_eq!(columns("time"), Some(vec![json!(50_000), json!(250_000), json!(0)]));
        assert_eq!(kinds[0]["objects"][0]["object"]["name"], "A-1");
    }

    #[test]
    fn period_begins_where_the_ledger_is_complete() {
        let mut known = operator();
        let seconds = |operator: &Operator| {
            describe(std::slice::from_ref(operator), &[], now())["operators"][0]["seconds"].clone()
        };
        assert_eq!(seconds(&known), 900.0);
        known.complete_since = Some(saturating_add(now(), SignedDuration::from_secs(-60)));
        assert_eq!(seconds(&known), 60.0);
    }

    #[test]
    fn hostile_amounts_are_bounded() {
        let huge = json!({"took": 1e300, "writesOmitted": u64::MAX, "writes": "x", "outcome": {}, "object": 3,
            "externalCalls": [{"system": {}, "calls": u64::MAX, "failures": -1, "took": 1e300}, 3]});
        let reconciles = [reconcile("A", 1, 0.0, &huge), reconcile("A", 2, 0.0, &huge)];
        let state = json!({"stores": [{"bytes": u64::MAX}, {"bytes": -1}, 7], "controllers": {"a": 1}});
        let operator = Operator { state: Arc::new(state), ..Operator::default() };
        let described = describe(&[operator], &reconciles, now());
        let total = &described["operators"][0]["total"];
        assert_eq!((&total["apiCalls"], &total["cacheBytes"]), (&json!(u64::MAX), &json!(1_u64 << 50)));
    }
}
