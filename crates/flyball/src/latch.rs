//! A latch: an event that occurs once, with many waiting tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A latch that stays open after [`open`](Self::open) is called. It wakes tasks in the order of waiting, which a
/// `watch` channel does not.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    open: AtomicBool,
    notify: Notify,
}

impl Latch {
    /// Creates a latch that is open already.
    pub(crate) fn opened() -> Self {
        Self { open: AtomicBool::new(true), notify: Notify::new() }
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Waits until the latch is open.
    pub(crate) async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.is_open() {
            notified.await;
        }
    }
}
