//! The start of a controller's workers and sources.

use super::worker::Worker;
use crate::cache::Store;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Delays the futures of a controller until its caches are filled and its replica leads. Clones share the worker.
#[derive(Clone)]
pub(super) struct StartGate {
    worker: Arc<Worker>,
    stores: Arc<[Arc<Store>]>,
}

impl StartGate {
    pub(super) fn new(worker: Worker, stores: Vec<Arc<Store>>) -> Self {
        Self { worker: Arc::new(worker), stores: stores.into() }
    }

    /// Waits until work may start; returns false if the queue is closed before.
    async fn open(&self) -> bool {
        let synced = async {
            for store in &*self.stores {
                store.synced().await;
            }
            self.worker.env.leads.wait().await;
        };
        tokio::select! {
            biased;
            () = self.worker.queue.closed() => false,
            () = synced => true,
        }
    }

    /// Returns a future that reconciles objects until the queue is closed.
    pub(super) fn work(&self) -> BoxFuture<'static, ()> {
        let gate = self.clone();
        Box::pin(async move {
            if gate.open().await {
                gate.worker.run().await;
            }
        })
    }

    /// Returns a future that runs a task until the queue is closed.
    pub(super) fn delay(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let gate = self.clone();
        Box::pin(async move {
            if gate.open().await {
                tokio::select! {
                    biased;
                    () = gate.worker.queue.closed() => {}
                    () = task => {}
                }
            }
        })
    }
}
