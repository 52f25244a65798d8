//! The ledger of operators built with Flyball: reconciles by custom resource, and caches by kind.
//!
//! Reconciles are added up per custom resource and poll. A reconcile counts once, by its id, when it is read.

use crate::meter::{Meter, Subject, bounded};
use crate::observation::short;
use crate::store::{OwnerRecord, Sample, Series};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Path of the state of an operator.
pub const STATE_PATH: &str = "/debug/flyball";
/// Path of its reconciles.
pub const RECONCILES_PATH: &str = "/debug/flyball/reconciles";
/// Ids of reconciles that are remembered.
const MAX_IDS: usize = 20_000;
/// Time before the last poll that is read again, for reconciles that were running then.
pub const OVERLAP_SECONDS: i64 = 600;

/// The response of [`STATE_PATH`].
#[derive(Debug, Deserialize)]
pub struct State {
    operator: String,
    #[serde(default)]
    stores: Vec<StoreState>,
}

#[derive(Debug, Deserialize)]
struct StoreState {
    #[serde(default)]
    group: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    bytes: i64,
}

/// The response of [`RECONCILES_PATH`].
#[derive(Debug, Deserialize)]
pub struct Reconciles {
    operator: String,
    #[serde(default)]
    reconciles: Vec<Reconcile>,
    /// Matching reconciles beyond the limit of the response.
    #[serde(default)]
    pub omitted: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reconcile {
    id: String,
    object: Object,
    #[serde(default)]
    took: f64,
    #[serde(default)]
    from_server: bool,
    #[serde(default)]
    writes: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    writes_omitted: u64,
    #[serde(default)]
    external_calls: Vec<ExternalCalls>,
    #[serde(default)]
    outcome: String,
}

/// Calls to another system.
#[derive(Debug, Deserialize)]
struct ExternalCalls {
    #[serde(default)]
    calls: u32,
    #[serde(default)]
    took: f64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    #[serde(default)]
    group: String,
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
}

/// The reconciles of one operator that were counted.
#[derive(Debug, Default)]
pub struct Reader {
    seen: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Reader {
    /// Converts the reconciles that were not counted yet to samples of an interval.
    pub fn samples(&mut self, page: &Reconciles, since: i64, until: i64) -> Vec<Sample> {
        let mut amounts: BTreeMap<Object, [i128; 6]> = BTreeMap::new();
        for reconcile in &page.reconciles {
            if !self.remember(&reconcile.id) {
                continue;
            }
            let [calls, reconciles, errors, time, external, external_time] =
                amounts.entry(reconcile.object.clone()).or_default();
            *calls +=
                i128::from(reconcile.writes.len() as u64 + reconcile.writes_omitted + u64::from(reconcile.from_server));
            *reconciles += 1;
            *errors += i128::from(matches!(reconcile.outcome.as_str(), "error" | "terminal" | "panic" | "deadline"));
            *time += microseconds(reconcile.took);
            *external += reconcile.external_calls.iter().map(|of| i128::from(of.calls)).sum::<i128>();
            *external_time += reconcile.external_calls.iter().map(|of| microseconds(of.took)).sum::<i128>();
        }
        let meters = [
            Meter::ApiCalls,
            Meter::Reconciles,
            Meter::ReconcileErrors,
            Meter::ReconcileTime,
            Meter::ExternalCalls,
            Meter::ExternalTime,
        ];
        let mut samples = Vec::new();
        for (object, amounts) in amounts {
            let series = resource(&page.operator, &object);
            for (meter, amount) in meters.into_iter().zip(amounts) {
                samples.push(Sample { series: series.clone(), meter, since, until, amount: bounded(amount) });
            }
        }
        samples
    }

    /// Returns true for a new id.
    fn remember(&mut self, id: &str) -> bool {
        let id = short(id);
        if !self.seen.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > MAX_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

/// Converts the sizes of caches to samples of an interval.
pub fn cache_samples(state: &State, since: i64, until: i64) -> Vec<Sample> {
    let mut kinds: BTreeMap<(String, String), i128> = BTreeMap::new();
    for store in &state.stores {
        *kinds.entry((short(&store.kind), short(&store.group))).or_default() += i128::from(store.bytes.max(0));
    }
    let sample = |((kind, group), bytes): ((String, String), i128)| {
        let name = if group.is_empty() { kind } else { format!("{kind}.{group}") };
        let mut series = Series::new(Subject::Kind, "", "", &name);
        series.operator = short(&state.operator);
        series.detail = name;
        let amount = bounded(bytes * i128::from(until - since));
        Sample { series, meter: Meter::CacheMemory, since, until, amount }
    };
    kinds.into_iter().map(sample).collect()
}

/// Converts seconds of at most a day.
fn microseconds(seconds: f64) -> i128 {
    (seconds.clamp(0.0, 86_400.0) * 1e6) as i128
}

fn resource(operator: &str, object: &Object) -> Series {
    let mut series = Series::new(Subject::Resource, "", &short(&object.namespace), &short(&object.name));
    series.operator = short(operator);
    series.detail = short(&object.kind);
    series.owner = Some(OwnerRecord {
        group: short(&object.group),
        kind: short(&object.kind),
        namespace: short(&object.namespace),
        name: short(&object.name),
        uid: String::new(),
    });
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reconciles_are_added_up_by_object_and_counted_once() {
        let reconcile = |id: &str, name: &str, outcome: &str, writes: usize| {
            json!({"id": id, "controller": "site", "took": 0.25, "outcome": outcome, "fromServer": writes == 0,
                "object": {"group": "example.com", "version": "v1", "kind": "Site", "namespace": "shop", "name": name},
                "writes": vec![json!({"verb": "apply"}); writes],
                "externalCalls": [{"system": "vcenter", "calls": 2, "failures": 1, "took": 0.125}]})
        };
        let page = |reconciles: Vec<serde_json::Value>| -> Reconciles {
            serde_json::from_value(json!({"operator": "site-operator", "reconciles": reconciles, "omitted": 0}))
                .unwrap()
        };
        let mut reader = Reader::default();
        let first = page(vec![
            reconcile("1", "a", "success", 2),
            reconcile("2", "a", "error", 0),
            reconcile("3", "b", "success", 1),
        ]);
        let samples = reader.samples(&first, 0, 60);
        let amounts: Vec<_> = samples.iter().map(|sample| (sample.series.name.as_str(), sample.amount)).collect();
        let of_a = [3, 2, 1, 500_000, 4, 250_000].map(|amount| ("a", amount));
        let of_b = [1, 1, 0, 250_000, 2, 125_000].map(|amount| ("b", amount));
        assert_eq!(amounts, [of_a, of_b].concat());
        assert!(reader.samples(&first, 60, 120).is_empty());
    }
}
