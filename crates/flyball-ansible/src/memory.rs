//! The memory of runs, estimated from the JSON of their objects.
//!
//! A run has several copies of its object, and `ansible-playbook` has a Python object for each value, in a process of
//! its own. Users determine the number and the size of objects. So each run is charged to the memory budget of the
//! operator before its object is decoded.

use flyball::{MemoryBudget, MemoryCharge};
use flyball_core::memory;

/// Memory limit of a run, without that of a process.
pub(crate) const MAX_RUN_BYTES: usize = 144 << 20;

/// Memory of a container that is not for runs: the operator with its caches, and the parent of workers.
pub(crate) const RESERVED_BYTES: usize = 128 << 20;

/// Memory of a run in the fork of a worker, which shares most of its own. Measured with two `k8s` tasks: 50 MiB.
pub(crate) const FORK_BYTES: usize = 64 << 20;

/// Memory of a run in new processes: `ansible-playbook` and a module. Measured: 129 MiB.
pub(crate) const PROCESS_BYTES: usize = 160 << 20;

/// Memory limit of the Deployment of an operator, in bytes: that of operator-sdk.
pub const MEMORY_LIMIT: u64 = 768 << 20;

/// Copies of an object in a run: several variables contain it.
const COPIES_PER_RUN: usize = 9;

/// Memory of a value in `ansible-playbook`: 1.7 KiB with ansible-core 2.19, in three variables.
const PYTHON_VALUE_BYTES: usize = 5 << 10;

/// Memory of facts of a run that is not charged.
const UNCHARGED_FACT_BYTES: usize = 1 << 20;

/// Nesting depth up to which lists and maps are distinguished. `serde_json` rejects deeper JSON.
const MAX_DEPTH: usize = 128;

/// Returns the estimated memory of a run of the built-in executor.
pub(crate) fn of_built_in(json: &str) -> usize {
    COPIES_PER_RUN * memory::of_text(json.as_bytes())
}

/// Returns the estimated memory of an object in a run of `ansible-playbook`.
pub(crate) fn of_ansible_playbook(json: &str) -> usize {
    of_built_in(json) + PYTHON_VALUE_BYTES * count(json.as_bytes())
}

/// The memory of the facts of a run, charged as they grow.
#[derive(Debug)]
pub(crate) struct FactCharges {
    budget: MemoryBudget,
    charges: Vec<MemoryCharge>,
}

impl FactCharges {
    pub(crate) fn of(budget: &MemoryBudget) -> Self {
        Self { budget: budget.clone(), charges: Vec::new() }
    }

    /// Charges facts of this size; false if they do not fit now.
    pub(crate) fn cover(&mut self, namespace: Option<&str>, bytes: usize) -> bool {
        let charged = self.charges.iter().map(MemoryCharge::bytes).sum::<usize>();
        let more = bytes.saturating_sub(UNCHARGED_FACT_BYTES + charged);
        if more == 0 {
            return true;
        }
        // In few steps.
        let charge = self.budget.try_charge(namespace, more.next_multiple_of(UNCHARGED_FACT_BYTES));
        let is_covered = charge.is_some();
        self.charges.extend(charge);
        is_covered
    }

    /// Returns true if facts of this size may fit later.
    pub(crate) fn may_fit(&self, bytes: usize) -> bool {
        bytes <= self.budget.share()
    }
}

/// Counts the values in maps and lists.
fn count(json: &[u8]) -> usize {
    let (mut values, mut in_text, mut is_escaped) = (0, false, false);
    // True for each open list.
    let mut open = Vec::new();
    for byte in json {
        if in_text {
            in_text = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                let is_list = *byte == b'[';
                // An empty list counts as one more value.
                values += usize::from(is_list);
                if open.len() < MAX_DEPTH {
                    open.push(is_list);
                }
            }
            b']' | b'}' => drop(open.pop()),
            b':' => values += 1,
            b',' if open.last() == Some(&true) => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of_spec(spec: &Value, estimate: fn(&str) -> usize) -> usize {
        estimate(&json!({"metadata": {"name": "a"}, "spec": spec}).to_string())
    }

    #[test]
    fn small_objects_take_little_memory() {
        let spec = json!({});
        assert!(of_spec(&spec, of_built_in) < 16 << 10);
        assert!(of_spec(&spec, of_ansible_playbook) < 64 << 10);
    }

    #[test]
    fn large_objects_exceed_the_limit_by_their_memory() {
        let items = vec![json!({"name": "a", "value": "b"}); 10_000];
        assert!(of_spec(&json!({"text": "a".repeat(1_500_000), "items": items}), of_built_in) < MAX_RUN_BYTES);
        let large = json!(vec![json!({"": 0}); 50_000]);
        assert!((MAX_RUN_BYTES..4 * MAX_RUN_BYTES).contains(&of_spec(&large, of_built_in)));
        let larger = json!(vec![json!({"": 0}); 100_000]);
        assert!(of_spec(&larger, of_built_in) > 4 * MAX_RUN_BYTES);
    }

    #[test]
    fn facts_of_all_runs_share_the_budget() {
        let budget = MemoryBudget::new(64 << 20);
        let mut runs: Vec<_> = (0..16).map(|_| FactCharges::of(&budget)).collect();
        assert!(runs.iter_mut().all(|run| run.cover(Some("a"), UNCHARGED_FACT_BYTES)), "small facts are not charged");
        let mib = 1 << 20;
        let grow = |run: &mut FactCharges| (1..=16).all(|size| run.cover(Some("a"), size * mib + 1));
        let covered: Vec<bool> = runs.iter_mut().map(grow).collect();
        assert_eq!(covered.iter().filter(|covered| **covered).count(), 3, "three quarters of 64 MiB");
        assert!(budget.try_charge(Some("b"), 16 * mib).is_some());
        drop(runs);
        assert!(budget.try_charge(Some("b"), budget.bytes()).is_some());
    }

    #[test]
    fn metadata_is_charged() {
        let object = json!({"metadata": {"name": "a", "finalizers": vec!["a/b"; 200_000]}});
        assert!(of_built_in(&object.to_string()) > 64 << 20);
        assert!(of_ansible_playbook(&object.to_string()) > MAX_RUN_BYTES);
    }

    #[test]
    fn values_count_for_ansible_playbook() {
        let max_bytes = MAX_RUN_BYTES;
        let short = json!({"items": vec![""; 100_000]});
        assert!(of_spec(&short, of_built_in) < MAX_RUN_BYTES && of_spec(&short, of_ansible_playbook) > max_bytes);
        let long = json!({"text": "a".repeat(1_500_000), "items": vec![json!({"a": "b"}); 5_000]});
        assert!(of_spec(&long, of_ansible_playbook) < max_bytes);
        assert_eq!(count(br#"{"a":[1,{"b,:[":"\",:"},"x"],"c":{"d":2}}"#), 7);
        assert_eq!(count("[".repeat(1_000).as_bytes()), 1_000);
    }
}
