//! Open connections to registries.
//!
//! A registry that was restarted may have another content. The connection that its content was loaded with shows this:
//! it is closed. So a check uses this connection instead of a new one.

use crate::grpc::{Connection, ConnectionError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Limit of the open connections.
const MAX_CONNECTIONS: usize = 128;
/// Time after which an unused connection is closed: its CatalogSource is gone.
const IDLE_TIME: Duration = Duration::from_secs(120);

/// The connections of the last loads, by address.
#[derive(Default)]
pub(super) struct Connections(Mutex<BTreeMap<String, (Connection, Instant)>>);

impl Connections {
    /// Keeps a connection for the next check.
    pub(super) fn keep(&self, address: &str, mut connection: Connection) {
        connection.release();
        let now = Instant::now();
        let mut known = self.0.lock();
        known.retain(|_, (_, used)| now.duration_since(*used) < IDLE_TIME);
        if known.len() < MAX_CONNECTIONS {
            known.insert(address.to_owned(), (connection, now));
        }
    }

    /// Checks that a registry responds, and is the one that was connected last.
    ///
    /// # Errors
    ///
    /// If it does not respond, or has closed the connection.
    pub(super) async fn check(&self, address: &str) -> Result<(), ConnectionError> {
        let known = self.0.lock().remove(address);
        let mut connection = match known {
            Some((connection, _)) => connection,
            None => Connection::open(address).await?,
        };
        connection.list_packages().await?;
        self.keep(address, connection);
        Ok(())
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}
