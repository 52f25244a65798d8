//! Memory of the objects in runs.
//!
//! A run has several copies of its object, and `ansible-playbook` has a Python object for each value. Users determine
//! the size of objects. So the runs of large objects of all kinds together have a limit, and a run that would exceed
//! it is repeated later. Apart from that, each process of `ansible-playbook` takes memory, so the memory limit of the
//! container bounds their number.

use flyball_core::memory;
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory limit of the operator's container, in bytes: for the operator, a worker that has imported Ansible, and six
/// concurrent runs of `ansible-playbook`. operator-sdk gives its Ansible operators the same.
pub const MEMORY_LIMIT: u64 = 768 << 20;

/// Memory of the operator, with large objects in runs.
const OPERATOR_BYTES: u64 = 256 << 20;

/// Memory of a worker that has imported Ansible, and of a run in its forks, which share most of that. Measured with two
/// `k8s` tasks: 100 MiB, and 50 MiB.
const WORKER_BYTES: u64 = 112 << 20;
const FORKED_RUN_BYTES: u64 = 64 << 20;

/// Memory of a run in new processes: `ansible-playbook` and a module. Measured: 129 MiB.
const RUN_BYTES: u64 = 160 << 20;

/// Files with the memory limit of the container, in cgroups of version 2 and 1.
const LIMIT_FILES: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Memory limit of the large objects in all runs, in bytes: that of the operator's Deployment, without the operator
/// itself.
pub(crate) const MAX_RUNS_BYTES: usize = 144 << 20;

/// Memory up to which the object of a run is small.
const SMALL_BYTES: usize = 1 << 20;

/// Unit of the limit, in bytes.
const UNIT: usize = 1 << 10;

/// Copies of an object in a run: several variables contain it.
const COPIES: usize = 9;

/// Memory of a value in `ansible-playbook`: 1.7 KiB with ansible-core 2.19, in three variables.
const PYTHON_VALUE_BYTES: usize = 5 << 10;

/// Returns the number of concurrent runs of `ansible-playbook`, with or without a worker, that the memory of the
/// container suffices for; `None` if it has no limit.
pub(crate) fn max_playbook_runs(has_worker: bool) -> Option<usize> {
    let limit = LIMIT_FILES.iter().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())?;
    Some(runs_within(limit, has_worker))
}

fn runs_within(limit: u64, has_worker: bool) -> usize {
    let (others, run) = match has_worker {
        true => (OPERATOR_BYTES + WORKER_BYTES, FORKED_RUN_BYTES),
        false => (OPERATOR_BYTES, RUN_BYTES),
    };
    usize::try_from(limit.saturating_sub(others) / run).unwrap_or(usize::MAX).max(1)
}

/// Returns the estimated memory of an object in a run of the built-in executor.
pub(crate) fn of_built_in(object: &Value) -> usize {
    COPIES * memory::of(object)
}

/// Returns the estimated memory of an object in a run of `ansible-playbook`, including that process.
pub(crate) fn of_ansible_playbook(object: &Value) -> usize {
    of_built_in(object) + PYTHON_VALUE_BYTES * count(object)
}

/// Counts the values in a value.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The memory of the runs of an operator.
#[derive(Clone, Debug)]
pub(crate) struct RunMemory(Arc<Semaphore>);

/// Memory that is charged until this is dropped.
#[derive(Debug)]
pub(crate) struct RunCharge(#[allow(dead_code, reason = "the permits are held")] Option<OwnedSemaphorePermit>);

impl RunMemory {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_RUNS_BYTES / UNIT)))
    }

    /// Charges a run with an object of this size; `None` if it has to be repeated later. An object above the limit runs
    /// without other large ones.
    pub(crate) fn charge(&self, bytes: usize) -> Option<RunCharge> {
        if bytes <= SMALL_BYTES {
            return Some(RunCharge(None));
        }
        let units = u32::try_from(bytes.min(MAX_RUNS_BYTES) / UNIT).unwrap_or(u32::MAX);
        Some(RunCharge(Some(self.0.clone().try_acquire_many_owned(units).ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn large_objects_share_a_limit_and_small_ones_have_none() {
        let memory = RunMemory::new();
        let half = memory.charge(MAX_RUNS_BYTES / 2);
        let other = memory.charge(MAX_RUNS_BYTES / 2);
        assert!(half.is_some() && other.is_some());
        assert!(memory.charge(SMALL_BYTES + UNIT).is_none() && memory.charge(SMALL_BYTES).is_some());
        drop(other);
        assert!(memory.charge(10 * MAX_RUNS_BYTES).is_none());
        drop(half);
        assert!(memory.charge(10 * MAX_RUNS_BYTES).is_some());
    }

    #[test]
    fn memory_of_the_container_bounds_runs() {
        for (limit, with_worker, without) in [(0, 1, 1), (256 << 20, 1, 1), (MEMORY_LIMIT, 6, 3), (4 << 30, 58, 24)] {
            assert_eq!((runs_within(limit, true), runs_within(limit, false)), (with_worker, without), "{limit}");
        }
    }

    #[test]
    fn values_count_for_ansible_playbook() {
        let short = json!({"spec": {"items": vec![""; 100_000]}});
        assert!(of_built_in(&short) < MAX_RUNS_BYTES && of_ansible_playbook(&short) > MAX_RUNS_BYTES);
        let long = json!({"spec": {"text": "a".repeat(1_500_000), "items": vec![json!({"a": "b"}); 5_000]}});
        assert!(of_ansible_playbook(&long) < MAX_RUNS_BYTES);
    }
}
