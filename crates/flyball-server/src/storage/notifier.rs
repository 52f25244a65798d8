//! Notification of watches about new events.

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Wakes the watches of a table after each write to it.
///
/// Watches over connections are woken before in-process watches. The last woken task waits for the writing thread, and
/// other threads run the rest immediately, so neither the response nor an event over a connection waits for an
/// in-process client.
#[derive(Debug, Default)]
pub(crate) struct WriteNotifier {
    over_connections: Notify,
    in_process: Notify,
}

impl WriteNotifier {
    /// Wakes all current waiters.
    pub(crate) fn notify(&self) {
        self.over_connections.notify_waiters();
        self.in_process.notify_waiters();
    }

    /// Waits for a write, for a watch over a connection or an in-process watch.
    pub(crate) fn notified(&self, over_connection: bool) -> Notified<'_> {
        if over_connection { self.over_connections.notified() } else { self.in_process.notified() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[tokio::test]
    async fn connections_are_notified_first() {
        let (notifier, woken) = (Arc::new(WriteNotifier::default()), Arc::new(Mutex::new(Vec::new())));
        let listen = |over_connection| {
            let (notifier, woken) = (notifier.clone(), woken.clone());
            tokio::spawn(async move {
                notifier.notified(over_connection).await;
                woken.lock().push(over_connection);
            })
        };
        let listeners = [false, true, false, true].map(listen);
        tokio::task::yield_now().await;
        notifier.notify();
        for listener in listeners {
            listener.await.unwrap();
        }
        assert_eq!(*woken.lock(), [true, true, false, false]);
    }
}
