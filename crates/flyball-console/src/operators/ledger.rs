//! The reconciles of one operator, within bounds.

use crate::summary::{items, text};
use flyball_core::memory;
use flyball_core::time::{Timestamp, parse_rfc3339};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Limit of reconciles of a ledger.
const MAX_RECONCILES: usize = 5_000;
/// Limits of the memory of a ledger, and of one that is a claim: there may be many, of users with few permissions.
const MAX_LEDGER_BYTES: usize = 64 << 20;
const MAX_CLAIM_BYTES: usize = 4 << 20;

/// Reconciles of one operator in the order of their start.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) reconciles: BTreeMap<(Timestamp, String), (Arc<Value>, usize)>,
    pub(super) ids: BTreeSet<String>,
    bytes: usize,
    max_bytes: usize,
    /// Start of the newest reconcile that was removed.
    pub(super) removed: Option<Timestamp>,
}

impl Ledger {
    pub(super) fn new(is_claim: bool) -> Self {
        let max_bytes = if is_claim { MAX_CLAIM_BYTES } else { MAX_LEDGER_BYTES };
        Self { reconciles: BTreeMap::new(), ids: BTreeSet::new(), bytes: 0, max_bytes, removed: None }
    }

    /// Adds a reconcile, unless it is known. The oldest ones give their places.
    pub(super) fn insert(&mut self, reconcile: &Value) {
        let id = text(&reconcile["id"]);
        let Some(began) = parse_rfc3339(text(&reconcile["began"])) else { return };
        if id.is_empty() || !self.ids.insert(id.to_owned()) {
            return;
        }
        let bytes = memory::of(reconcile);
        self.bytes += bytes;
        self.reconciles.insert((began, id.to_owned()), (Arc::new(reconcile.clone()), bytes));
        while self.reconciles.len() > MAX_RECONCILES || self.bytes > self.max_bytes {
            let Some(((began, id), (_, bytes))) = self.reconciles.pop_first() else { return };
            self.removed = self.removed.max(Some(began));
            self.ids.remove(&id);
            self.bytes -= bytes;
        }
    }
}

/// Returns the time since which the first answer of an operator has every reconcile: its start, unless its ledger has
/// dropped some.
pub(super) fn first_complete(state: &Value, answer: &Value, now: Timestamp) -> Timestamp {
    let has_dropped = |controller: &Value| controller["ledger"]["dropped"].as_u64() != Some(0);
    let is_complete = answer["omitted"].as_u64() == Some(0) && !items(&state["controllers"]).any(has_dropped);
    let started = parse_rfc3339(text(&state["started"])).filter(|_| is_complete);
    started.map_or(now, |started| started.min(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ledger_is_bounded_and_has_each_reconcile_once() {
        let mut ledger = Ledger::new(false);
        for at in 0..MAX_RECONCILES + 10 {
            let began = format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", at / 3600, at / 60 % 60, at % 60);
            let reconcile = json!({"id": at.to_string(), "began": began});
            ledger.insert(&reconcile);
            ledger.insert(&reconcile);
        }
        assert_eq!(ledger.reconciles.len(), MAX_RECONCILES);
        assert_eq!(ledger.ids.len(), MAX_RECONCILES);
        assert_eq!(ledger.removed, parse_rfc3339("2026-01-01T00:00:09Z"));
        ledger
            .insert(&json!({"id": "big", "began": "2026-01-02T00:00:00Z", "error": "x".repeat(MAX_LEDGER_BYTES - 9)}));
        assert!(ledger.bytes <= MAX_LEDGER_BYTES && ledger.reconciles.len() <= 1, "{}", ledger.reconciles.len());
        ledger.insert(&json!({"id": "without a time"}));
        assert!(!ledger.ids.contains("without a time"));
    }

    #[test]
    fn first_answer_is_complete_unless_reconciles_were_dropped() {
        let now = parse_rfc3339("2026-01-01T00:15:00Z").expect("a time");
        let first = |dropped: u64, omitted: u64| {
            let controllers = json!([{"ledger": {"dropped": 0}}, {"ledger": {"dropped": dropped}}]);
            let state = json!({"started": "2026-01-01T00:10:00Z", "controllers": controllers});
            first_complete(&state, &json!({"omitted": omitted}), now)
        };
        assert_eq!(Some(first(0, 0)), parse_rfc3339("2026-01-01T00:10:00Z"));
        assert_eq!((first(1, 0), first(0, 3)), (now, now));
        assert_eq!(first_complete(&json!({}), &json!({}), now), now);
    }
}
