//! Shares of the workers of a controller, by namespace.
//!
//! A run that waits holds its worker, since it could not continue on another one. Users can make runs wait, for example
//! for a Deployment whose image does not exist. So each namespace gets a share of the workers for such runs, and some
//! workers are never used for them. A run without a share ends, and is repeated later.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shares of one controller.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    taken: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Limits of all shares, and of those of one namespace.
    all: usize,
    namespace: usize,
}

impl Shares {
    /// Shares for runs that wait: a quarter of the workers remains for others.
    pub(crate) fn of_waiting(workers: usize) -> Self {
        Self::of(workers - workers / 4, workers)
    }

    /// Shares for runs of which it is unknown when they wait.
    pub(crate) fn of_running(workers: usize) -> Self {
        Self::of(workers, workers)
    }

    fn of(all: usize, workers: usize) -> Self {
        Self { taken: Arc::default(), all: all.max(1), namespace: (workers / 2).max(1) }
    }

    /// Acquires a share until it is dropped; `None` if there is none left.
    pub(crate) fn acquire(&self, namespace: Option<&str>) -> Option<Share> {
        let namespace = namespace.unwrap_or_default().to_owned();
        let mut taken = self.taken.lock();
        let of_namespace = taken.get(&namespace).copied().unwrap_or(0);
        if of_namespace >= self.namespace || taken.values().sum::<usize>() >= self.all {
            return None;
        }
        taken.insert(namespace.clone(), of_namespace + 1);
        Some(Share { shares: self.clone(), namespace })
    }
}

/// A share in use.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    namespace: String,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        match taken.get_mut(&self.namespace) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.namespace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_takes_half_and_all_take_three_quarters() {
        let shares = Shares::of_waiting(16);
        let mut of_a: Vec<_> = (0..16).filter_map(|_| shares.acquire(Some("a"))).collect();
        assert_eq!(of_a.len(), 8);
        let of_b: Vec<_> = (0..16).filter_map(|_| shares.acquire(Some("b"))).collect();
        assert_eq!(of_b.len(), 4);
        assert!(shares.acquire(Some("c")).is_none());
        of_a.pop();
        let of_c = shares.acquire(Some("c"));
        assert!(of_c.is_some() && shares.acquire(Some("a")).is_none());
        drop((of_a, of_b, of_c));
        assert!(shares.taken.lock().is_empty());
    }

    #[test]
    fn single_worker_has_a_share() {
        for shares in [Shares::of_waiting(1), Shares::of_running(1)] {
            let taken = shares.acquire(None);
            assert!(taken.is_some() && shares.acquire(None).is_none());
        }
    }
}
