//! What tells watches that there is something to read.

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Rings after each write to a table.
///
/// Watches over connections hear it before those of the server's own controllers. Of all that a write wakes, the last one waits
/// for the thread that wrote, and any other thread takes the rest at once: so neither the answer nor an event has to wait
/// until a controller has done its part.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    connections: Notify,
    controllers: Notify,
}

impl Bell {
    /// Tells all who listen now.
    pub(crate) fn ring(&self) {
        self.connections.notify_waiters();
        self.controllers.notify_waiters();
    }

    /// Waits for the bell, over a connection or in process.
    pub(crate) fn heard(&self, over_connection: bool) -> Notified<'_> {
        if over_connection { self.connections.notified() } else { self.controllers.notified() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[tokio::test]
    async fn connections_hear_it_first() {
        let (bell, heard) = (Arc::new(Bell::default()), Arc::new(Mutex::new(Vec::new())));
        let listen = |over_connection| {
            let (bell, heard) = (bell.clone(), heard.clone());
            tokio::spawn(async move {
                bell.heard(over_connection).await;
                heard.lock().unwrap().push(over_connection);
            })
        };
        let listeners = [false, true, false, true].map(listen);
        tokio::task::yield_now().await;
        bell.ring();
        for listener in listeners {
            listener.await.unwrap();
        }
        assert_eq!(*heard.lock().unwrap(), [true, true, false, false]);
    }
}
