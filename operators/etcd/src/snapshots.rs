//! Storage of snapshots: named files, which members fetch over HTTP.

mod folder;

pub use folder::Folder;

use crate::etcd::Chunks;
use std::future::Future;

/// A place for snapshots.
///
/// Names are those of files: letters, digits, `.`, `-` and `_`. A place has bounds; what does not fit is refused.
pub trait Snapshots: Send + Sync + 'static {
    /// Keeps a snapshot, whole or not at all, in the place of one of the same name; returns its size in bytes.
    fn save(&self, name: &str, snapshot: Chunks) -> impl Future<Output = Result<u64>> + Send;

    /// Removes a snapshot; what is gone already counts as removed.
    fn delete(&self, name: &str) -> impl Future<Output = Result<()>> + Send;

    /// Returns the URL at which a new member finds a snapshot.
    fn url(&self, name: &str) -> String;
}

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a snapshot is not kept, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is larger than allowed.
    #[error("snapshot {name} is larger than the {limit} bytes that one may have")]
    TooLarge {
        /// The snapshot.
        name: String,
        /// The bound.
        limit: u64,
    },
    /// etcd did not give all of it.
    #[error("snapshot {name} did not come whole")]
    Source {
        /// The snapshot.
        name: String,
        /// Why not.
        source: crate::etcd::Error,
    },
    /// The place cannot be written to.
    #[error("cannot keep or remove snapshot {name}")]
    Place {
        /// The snapshot.
        name: String,
        /// Why not.
        source: std::io::Error,
    },
}
