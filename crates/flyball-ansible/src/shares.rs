//! Shares of the workers of a controller, by namespace.
//!
//! A run that waits holds its worker, since it could not continue on another one. Users can make runs wait, for example
//! for a Deployment whose image does not exist. So each namespace gets a share of the workers for such runs, and some
//! workers are never used for them. A run without a share ends, and is repeated later; one that has changed something
//! waits for a share, since a repeated run would not notify the same handlers. With `ansible-playbook`, a run waits for
//! a share before it starts.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;

/// The shares of one controller.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    in_use: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Notified when a share is released.
    released: Arc<Notify>,
    /// Limit of all shares.
    max_total: usize,
    /// Limit of a namespace beside others.
    max_per_namespace: usize,
    /// Limit of a namespace without others.
    max_of_only_namespace: usize,
    /// Shares that only namespaces without a share get.
    reserved: usize,
}

impl Shares {
    /// Shares for runs that wait: a quarter of the workers remains for others.
    pub(crate) fn of_waiting(workers: usize) -> Self {
        Self::of(workers - workers / 4, workers / 2, 0, workers)
    }

    /// Shares for runs of `ansible-playbook`, whose waits are not visible: a quarter of the workers, at least one of
    /// several, remains for namespaces without a run, since users determine the duration of a run.
    pub(crate) fn of_running(workers: usize) -> Self {
        let reserved = if workers > 1 { (workers / 4).max(1) } else { 0 };
        Self::of(workers, workers, reserved, workers)
    }

    fn of(max_total: usize, max_of_only_namespace: usize, reserved: usize, workers: usize) -> Self {
        let (in_use, released) = (Arc::default(), Arc::default());
        Self {
            in_use,
            released,
            max_total: max_total.max(1),
            max_per_namespace: (workers / 2).max(1),
            max_of_only_namespace: max_of_only_namespace.max(1),
            reserved,
        }
    }

    /// Acquires a share until it is dropped; `None` if there is none left.
    ///
    /// Cluster-scoped objects have only the limit of all shares, since they are not those of one tenant.
    pub(crate) fn acquire(&self, namespace: Option<&str>) -> Option<Share> {
        let is_cluster_scoped = namespace.is_none();
        let namespace = namespace.unwrap_or_default().to_owned();
        let mut in_use = self.in_use.lock();
        let of_namespace = in_use.get(&namespace).copied().unwrap_or(0);
        let limit = match in_use.keys().all(|other| *other == namespace) {
            _ if is_cluster_scoped => self.max_total,
            true => self.max_of_only_namespace,
            false => self.max_per_namespace,
        };
        let reserved = if is_cluster_scoped || of_namespace == 0 { 0 } else { self.reserved };
        if of_namespace >= limit || in_use.values().sum::<usize>() + reserved >= self.max_total {
            return None;
        }
        in_use.insert(namespace.clone(), of_namespace + 1);
        Some(Share { shares: self.clone(), namespace })
    }

    /// Acquires a share, once there is one.
    pub(crate) async fn acquire_when_released(&self, namespace: Option<&str>) -> Share {
        loop {
            let mut released = pin!(self.released.notified());
            // A share that is released after the attempt counts.
            released.as_mut().enable();
            match self.acquire(namespace) {
                Some(share) => return share,
                None => released.await,
            }
        }
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
        let mut in_use = self.shares.in_use.lock();
        match in_use.get_mut(&self.namespace) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(in_use.remove(&self.namespace)),
        }
        drop(in_use);
        self.shares.released.notify_waiters();
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
        assert!(shares.in_use.lock().is_empty());
    }

    #[test]
    fn quarter_of_the_workers_is_for_namespaces_without_a_run() {
        let shares = Shares::of_running(16);
        let mut of_a: Vec<_> = (0..20).filter_map(|_| shares.acquire(Some("a"))).collect();
        assert_eq!(of_a.len(), 12);
        let of_b: Vec<_> = (0..20).filter_map(|_| shares.acquire(Some("b"))).collect();
        assert_eq!(of_b.len(), 1);
        let of_c = shares.acquire(Some("c"));
        assert!(of_c.is_some());
        of_a.truncate(7);
        let of_b: Vec<_> = of_b.into_iter().chain((0..20).filter_map(|_| shares.acquire(Some("b")))).collect();
        assert_eq!(of_b.len(), 4);
        for (workers, of_only_namespace) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            let shares = Shares::of_running(workers);
            let of_a: Vec<_> = (0..5).filter_map(|_| shares.acquire(Some("a"))).collect();
            assert_eq!((of_a.len(), shares.acquire(Some("b")).is_some()), (of_only_namespace, workers > 1));
        }
    }

    #[test]
    fn cluster_scoped_objects_are_not_one_namespace() {
        for (shares, all) in [(Shares::of_waiting(16), 12), (Shares::of_running(16), 16)] {
            let in_use: Vec<_> = (0..20).filter_map(|_| shares.acquire(None)).collect();
            assert_eq!(in_use.len(), all);
        }
    }

    #[tokio::test]
    async fn released_share_goes_to_a_run_that_waits_for_one() {
        let shares = Shares::of_waiting(1);
        let first = shares.acquire(Some("a"));
        let waiting = tokio::spawn({
            let shares = shares.clone();
            async move { shares.acquire_when_released(Some("a")).await }
        });
        tokio::task::yield_now().await;
        assert!(first.is_some() && !waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap();
        assert!(shares.acquire(Some("a")).is_none());
        drop(second);
        assert!(shares.in_use.lock().is_empty());
    }

    #[test]
    fn single_worker_has_a_share() {
        for shares in [Shares::of_waiting(1), Shares::of_running(1)] {
            let in_use = shares.acquire(None);
            assert!(in_use.is_some() && shares.acquire(None).is_none());
        }
    }
}
