//! Open connections to registries.
//!
//! A registry that was restarted may have another content. The connection that its content was loaded with shows this:
//! it is closed. So a check uses this connection instead of a new one. Each CatalogSource has its own: it loads the
//! content again after a restart, whatever others with the same address do.

use crate::grpc::{Connection, ConnectionError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Limit of the open connections.
const MAX_CONNECTIONS: usize = 512;
/// Time after which an unused connection is closed: its CatalogSource is gone.
const IDLE_TIME: Duration = Duration::from_secs(120);

/// The connections of the last loads, by the UID of the CatalogSource and by address.
#[derive(Default)]
pub(super) struct Connections(Mutex<BTreeMap<(String, String), (Connection, Instant)>>);

impl Connections {
    /// Keeps a connection for the next check.
    pub(super) fn keep(&self, source: &str, address: &str, mut connection: Connection) {
        connection.release();
        let now = Instant::now();
        let mut known = self.0.lock();
        known.retain(|_, (_, used)| now.duration_since(*used) < IDLE_TIME);
        if known.len() < MAX_CONNECTIONS {
            known.insert((source.to_owned(), address.to_owned()), (connection, now));
        }
    }

    /// Checks that a registry responds, and is the one that a CatalogSource was loaded from.
    ///
    /// # Errors
    ///
    /// If it does not respond, or the connection is closed.
    pub(super) async fn check(&self, source: &str, address: &str) -> Result<(), ConnectionError> {
        let known = self.0.lock().remove(&(source.to_owned(), address.to_owned()));
        // A new connection would not show a restart.
        let (mut connection, _) = known.ok_or_else(|| ConnectionError::Closed { address: address.to_owned() })?;
        connection.list_packages().await?;
        self.keep(source, address, connection);
        Ok(())
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}
