//! The etcd calls that the operator needs, and their client.
//!
//! [`Etcd`] is the interface; [`Gateway`] implements it with etcd's JSON gateway
//! (<https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/>). This module does not depend on Kubernetes.

mod gateway;

pub use gateway::Gateway;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::future::Future;

/// The part of etcd's API that the operator uses. Every call is sent to one member, at its client URL.
///
/// After an error, the call may have been executed although the response was lost: read the state before you repeat a
/// change. All errors may be temporary; callers retry later.
pub trait Etcd: Send + Sync + 'static {
    /// Lists the members: from a quorum if `consistent`, otherwise from this member.
    fn members(&self, endpoint: &str, consistent: bool) -> impl Future<Output = Result<Vec<Member>>> + Send;

    /// Adds a member that has not started, but immediately counts for the quorum.
    fn add_member(&self, endpoint: &str, peer_url: &str) -> impl Future<Output = Result<()>> + Send;

    /// Removes a member.
    fn remove_member(&self, endpoint: &str, id: u64) -> impl Future<Output = Result<()>> + Send;

    /// Returns the status of the member.
    fn status(&self, endpoint: &str) -> impl Future<Output = Result<MemberStatus>> + Send;

    /// Takes a snapshot. The stream ends with an error if it is incomplete.
    fn snapshot(&self, endpoint: &str) -> impl Future<Output = Result<Chunks>> + Send;

    /// Defragments the member's database; the member does not respond in the meantime.
    fn defragment(&self, endpoint: &str) -> impl Future<Output = Result<()>> + Send;
}

/// A stream of snapshot chunks.
pub type Chunks = BoxStream<'static, Result<Bytes>>;

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// URLs for other members.
    pub peer_urls: Vec<String>,
}

/// Status of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its own identity.
    pub id: u64,
    /// The identity of its leader, 0 if there is none.
    pub leader: u64,
    /// Version of etcd, such as `3.5.17`.
    pub version: String,
    /// The size of the database's file.
    pub db_size: u64,
    /// Size of the database in use; 0 if unknown.
    pub db_size_in_use: u64,
    /// The revision of its keys.
    pub revision: i64,
    /// Index in the raft log.
    pub raft_index: u64,
}

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// etcd rejected the call.
    #[error("etcd at {endpoint} returned {code}: {message}")]
    Rejected {
        /// Endpoint of the member.
        endpoint: String,
        /// The HTTP status.
        code: u16,
        /// Message of the member.
        message: String,
    },
    /// etcd did not respond, or its response is invalid.
    #[error("request to etcd at {endpoint} failed")]
    Unreachable {
        /// Endpoint of the member.
        endpoint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No member could be reached.
    #[error("no member of etcd responds")]
    Nobody,
}
