//! Storage of snapshots: named files, which members fetch over HTTP.

mod directory;

pub use directory::SnapshotDirectory;

use crate::etcd::Chunks;
use std::future::Future;

/// A snapshot store.
///
/// Names are those of files: letters, digits, `.`, `-` and `_`. Snapshots have a size limit; larger ones are rejected.
pub trait Snapshots: Send + Sync + 'static {
    /// Stores a snapshot atomically, and replaces a snapshot with the same name; returns its size in bytes.
    fn save(&self, name: &str, snapshot: Chunks) -> impl Future<Output = Result<u64>> + Send;

    /// Deletes a snapshot; succeeds if it does not exist.
    fn delete(&self, name: &str) -> impl Future<Output = Result<()>> + Send;

    /// Returns the URL of a snapshot for new members.
    fn url(&self, name: &str) -> String;
}

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of storing or deleting a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The snapshot is larger than allowed.
    #[error("snapshot {name} is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The snapshot.
        name: String,
        /// The limit.
        limit: u64,
    },
    /// The transfer from etcd failed.
    #[error("snapshot {name} is incomplete")]
    Source {
        /// The snapshot.
        name: String,
        /// The reason.
        source: crate::etcd::Error,
    },
    /// The storage cannot be written.
    #[error("cannot store or delete snapshot {name}")]
    Place {
        /// The snapshot.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
}
