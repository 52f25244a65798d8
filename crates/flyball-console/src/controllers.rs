//! The view of controllers: state and queues of the operators, and their last 15 minutes from the ledger.

use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile};
use crate::summary::{bounded, items, text};
use flyball_core::time::{SignedDuration, Timestamp, rfc3339_micro, saturating_add};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Period of the charts.
pub(crate) const PERIOD: SignedDuration = SignedDuration::from_mins(15);
/// Width of a column of a chart, in seconds.
pub(crate) const STEP_SECONDS: i64 = 15;
/// Number of columns.
pub(crate) const STEPS: usize = 60;
/// Number of keys in the lists of slowest and of most failing keys.
const TOP: usize = 8;

/// Returns true for an outcome that is an error.
pub(crate) fn is_failure(outcome: &str) -> bool {
    matches!(outcome, "error" | "terminal" | "panic" | "deadline")
}

/// Describes all operators, with the charts of their controllers until `now`.
pub(crate) fn describe(operators: &[Operator], reconciles: &[Reconcile], now: Timestamp) -> Value {
    let mut by_controller: BTreeMap<(usize, &str), Vec<&Reconcile>> = BTreeMap::new();
    for reconcile in reconciles {
        let controller = text(&reconcile.value["controller"]);
        by_controller.entry((reconcile.operator, controller)).or_default().push(reconcile);
    }
    let operators = operators.iter().enumerate().map(|(index, operator)| {
        let controllers = items(&operator.state["controllers"]).map(|controller| {
            let own = by_controller.get(&(index, text(&controller["name"]))).map(Vec::as_slice).unwrap_or_default();
            let mut described = controller.clone();
            if let Some(fields) = described.as_object_mut() {
                fields.insert("history".into(), history(own, now));
            }
            described
        });
        let controllers: Vec<Value> = controllers.collect();
        json!({
            "address": operator.address, "name": operator.name(), "error": operator.error,
            "answered": operator.answered, "state": without_controllers(&operator.state), "controllers": controllers,
        })
    });
    json!({"operators": operators.collect::<Vec<_>>()})
}

fn without_controllers(state: &Value) -> Value {
    let fields = state.as_object().into_iter().flatten().filter(|(name, _)| *name != "controllers");
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Counts, errors and latencies of the period, and the notable keys.
fn history(reconciles: &[&Reconcile], now: Timestamp) -> Value {
    let first = now.as_second() / STEP_SECONDS - (STEPS as i64 - 1);
    let mut columns: Vec<(u64, u64, Vec<f64>)> = vec![(0, 0, Vec::new()); STEPS];
    let mut keys: BTreeMap<ObjectRef, Key<'_>> = BTreeMap::new();
    let (mut all, mut errors, mut writes) = (Vec::new(), 0_u64, 0);
    let from = saturating_add(now, -PERIOD);
    for reconcile in reconciles.iter().filter(|reconcile| reconcile.began >= from) {
        let value = &reconcile.value;
        let (took, failed) = (seconds(&value["took"]), is_failure(text(&value["outcome"])));
        errors += u64::from(failed);
        writes += items(&value["writes"]).filter(|write| text(&write["result"]) != "unchanged").count();
        all.push(took);
        let at = usize::try_from(reconcile.began.as_second() / STEP_SECONDS - first);
        if let Some((count, errors, latencies)) = at.ok().and_then(|at| columns.get_mut(at)) {
            *count += 1;
            *errors += u64::from(failed);
            latencies.push(took);
        }
        keys.entry(ObjectRef::of(&value["object"])).or_default().add(reconcile, took, failed);
    }
    let column = |of: fn(&mut (u64, u64, Vec<f64>)) -> Value, columns: &mut [(u64, u64, Vec<f64>)]| {
        columns.iter_mut().map(of).collect::<Vec<_>>()
    };
    json!({
        "start": first * STEP_SECONDS, "step": STEP_SECONDS,
        "counts": column(|(count, ..)| json!(count), &mut columns),
        "errors": column(|(_, errors, _)| json!(errors), &mut columns),
        "median": column(|(.., latencies)| quantile(latencies, 0.5), &mut columns),
        "slow": column(|(.., latencies)| quantile(latencies, 0.99), &mut columns),
        "reconciles": all.len(), "failures": errors, "writes": writes, "keys": keys.len(),
        "p50": quantile(&mut all, 0.5), "p99": quantile(&mut all, 0.99),
        "slowest": top(&keys, |key| key.slowest.map(|slowest| OrderedSeconds(slowest.0)), Key::slow),
        "failing": top(&keys, |key| (key.failures > 0).then_some(key.failures), Key::failing),
    })
}

/// Returns a number of seconds of a ledger, which may be any value.
pub(crate) fn seconds(value: &Value) -> f64 {
    value.as_f64().filter(|seconds| seconds.is_finite()).unwrap_or(0.0).clamp(0.0, 1e6)
}

/// Returns a quantile, or null without values.
pub(crate) fn quantile(values: &mut [f64], at: f64) -> Value {
    values.sort_by(f64::total_cmp);
    if values.is_empty() {
        return Value::Null;
    }
    let index = ((values.len() - 1) as f64 * at).round() as usize;
    json!(values[index.min(values.len() - 1)])
}

#[derive(Clone, Copy, PartialEq)]
struct OrderedSeconds(f64);

impl Eq for OrderedSeconds {}

impl PartialOrd for OrderedSeconds {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedSeconds {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The reconciles of one key.
#[derive(Default)]
struct Key<'a> {
    count: u64,
    failures: u64,
    total: f64,
    slowest: Option<(f64, &'a Reconcile)>,
    last_failure: Option<&'a Reconcile>,
}

impl<'a> Key<'a> {
    fn add(&mut self, reconcile: &'a Reconcile, took: f64, failed: bool) {
        self.count += 1;
        self.total += took;
        if self.slowest.is_none_or(|(slowest, _)| took > slowest) {
            self.slowest = Some((took, reconcile));
        }
        if failed {
            self.failures += 1;
            if self.last_failure.is_none_or(|last| reconcile.began > last.began) {
                self.last_failure = Some(reconcile);
            }
        }
    }

    fn slow(&self) -> Value {
        let slowest = self.slowest.map(|(took, reconcile)| (took, operator_and_id(reconcile)));
        let (took, id) = slowest.unwrap_or_default();
        json!({"took": took, "count": self.count, "total": self.total, "reconcile": id})
    }

    fn failing(&self) -> Value {
        let last = self.last_failure;
        let error = last.map(|last| bounded(text(&last.value["error"]))).unwrap_or_default();
        json!({
            "failures": self.failures, "count": self.count, "error": error,
            "reconcile": last.map(operator_and_id).unwrap_or_default(),
            "time": last.map(|last| rfc3339_micro(last.began)),
        })
    }
}

/// Names a reconcile by the index of its operator and its ID, as `OPERATOR/ID`.
fn operator_and_id(reconcile: &Reconcile) -> String {
    format!("{}/{}", reconcile.operator, bounded(text(&reconcile.value["id"])))
}

fn top<'k, 'a, R: Ord>(
    keys: &'k BTreeMap<ObjectRef, Key<'a>>,
    rank: impl Fn(&'k Key<'a>) -> Option<R>,
    describe: fn(&Key<'a>) -> Value,
) -> Vec<Value> {
    let mut ranked: Vec<_> = keys.iter().filter_map(|(object, key)| Some((Reverse(rank(key)?), object, key))).collect();
    ranked.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let describe = |(_, object, key): (Reverse<R>, &ObjectRef, &Key<'a>)| {
        let mut described = describe(key);
        described["object"] = json!(object);
        described
    };
    ranked.into_iter().take(TOP).map(describe).collect()
}

/// Describes the Leases of the cluster, with the seconds since their renewal.
pub(crate) fn leases(list: &Value, now: Timestamp) -> Vec<Value> {
    let describe = |lease: &Value| {
        let (metadata, spec) = (&lease["metadata"], &lease["spec"]);
        let renewed = flyball_core::time::parse_rfc3339(text(&spec["renewTime"]));
        let age = renewed.map(|renewed| now.duration_since(renewed).as_secs_f64());
        json!({
            "namespace": text(&metadata["namespace"]), "name": text(&metadata["name"]),
            "holder": bounded(text(&spec["holderIdentity"])), "renewed": text(&spec["renewTime"]),
            "age": age, "duration": spec["leaseDurationSeconds"].as_u64(),
            "expired": age.zip(spec["leaseDurationSeconds"].as_f64()).is_some_and(|(age, limit)| age > limit),
            "transitions": spec["leaseTransitions"].as_u64(),
        })
    };
    // The leases of nodes are heartbeats, one for each node.
    let is_heartbeat = |lease: &&Value| text(&lease["metadata"]["namespace"]) == "kube-node-lease";
    items(&list["items"]).filter(|lease| !is_heartbeat(lease)).map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::parse_rfc3339;
    use std::sync::Arc;

    #[test]
    fn history_counts_errors_and_latencies() {
        let now = parse_rfc3339("2026-01-01T00:15:00Z").expect("a time");
        let reconcile = |name: &str, ago: i64, took: f64, outcome: &str| Reconcile {
            operator: 1,
            began: saturating_add(now, SignedDuration::from_secs(-ago)),
            value: Arc::new(json!({
                "id": format!("{name}{ago}"), "controller": "c", "object": {"kind": "K", "name": name},
                "took": took, "outcome": outcome, "error": "no route", "writes": [{"result": "changed"}],
            })),
        };
        let all = [
            reconcile("a", 1, 0.1, "success"),
            reconcile("a", 20, 0.5, "error"),
            reconcile("b", 22, 0.2, "success"),
            reconcile("old", 2000, 9.0, "error"),
        ];
        let state = json!({"operator": "op", "controllers": [{"name": "c"}]});
        let operator = Operator { state: Arc::new(state), ..Operator::default() };
        let described = describe(&[Operator::default(), operator], &all, now);
        let history = &described["operators"][1]["controllers"][0]["history"];
        let (counts, errors) = (history["counts"].as_array(), history["errors"].as_array());
        assert_eq!(counts.map(|counts| counts[STEPS - 3..].to_vec()), Some(vec![json!(2), json!(1), json!(0)]));
        assert_eq!(errors.map(|errors| errors[STEPS - 3..].to_vec()), Some(vec![json!(1), json!(0), json!(0)]));
        assert_eq!((&history["p50"], &history["reconciles"], &history["writes"]), (&json!(0.2), &json!(3), &json!(3)));
        assert_eq!(history["slowest"][0]["object"]["name"], "a");
        // The ID alone may be that of a reconcile of another operator.
        assert_eq!(
            (&history["slowest"][0]["reconcile"], &history["failing"][0]["reconcile"]),
            (&json!("1/a20"), &json!("1/a20"))
        );
        assert_eq!((&history["failing"][0]["failures"], &history["failing"][1]), (&json!(1), &Value::Null));
    }

    #[test]
    fn hostile_numbers_are_bounded() {
        for value in [json!(-1), json!("x"), json!(1e300), Value::Null] {
            assert!((0.0..=1e6).contains(&seconds(&value)), "{value}");
        }
    }
}
