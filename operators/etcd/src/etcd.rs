//! What the operator needs of etcd, and a client that gets it.
//!
//! [`Etcd`] is the port; [`Gateway`] implements it over etcd's JSON gateway
//! (<https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/>). Nothing in here knows Kubernetes.

mod gateway;

pub use gateway::Gateway;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::future::Future;

/// An etcd, as far as the operator uses it. Every call goes to one member, by the URL that its clients use.
///
/// An error can mean that the effect came about and only the answer was lost: look before you repeat a change. No error is
/// known to be lasting; whoever meets one tries again later.
pub trait Etcd: Send + Sync + 'static {
    /// Lists the members: as a quorum knows them if `consistent`, else as this member does.
    fn members(&self, endpoint: &str, consistent: bool) -> impl Future<Output = Result<Vec<Member>>> + Send;

    /// Adds a member that is yet to start, and counts for the quorum at once.
    fn add_member(&self, endpoint: &str, peer_url: &str) -> impl Future<Output = Result<()>> + Send;

    /// Removes a member.
    fn remove_member(&self, endpoint: &str, id: u64) -> impl Future<Output = Result<()>> + Send;

    /// Asks the member how it is.
    fn status(&self, endpoint: &str) -> impl Future<Output = Result<MemberStatus>> + Send;

    /// Takes a snapshot. The stream ends with an error if it is not whole.
    fn snapshot(&self, endpoint: &str) -> impl Future<Output = Result<Chunks>> + Send;

    /// Gives the space back that the member's database does not use any more; it answers nobody meanwhile.
    fn defragment(&self, endpoint: &str) -> impl Future<Output = Result<()>> + Send;
}

/// A snapshot, piece by piece.
pub type Chunks = BoxStream<'static, Result<Bytes>>;

/// One of those that make up a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where the others find it.
    pub peer_urls: Vec<String>,
}

/// How a member is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its own identity.
    pub id: u64,
    /// The identity of the leader that it follows, 0 if there is none.
    pub leader: u64,
    /// What it runs, such as `3.5.17`.
    pub version: String,
    /// The size of the database's file.
    pub db_size: u64,
    /// How much of that holds something; 0 if unknown.
    pub db_size_in_use: u64,
    /// The revision of its keys.
    pub revision: i64,
    /// How far it is in the log that all share.
    pub raft_index: u64,
}

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// etcd said no.
    #[error("etcd at {endpoint} answered {code}: {message}")]
    Refused {
        /// Who.
        endpoint: String,
        /// The HTTP status.
        code: u16,
        /// What it said.
        message: String,
    },
    /// etcd did not answer, or not what was asked.
    #[error("etcd at {endpoint} cannot be asked")]
    Unreachable {
        /// Who.
        endpoint: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nobody could be asked.
    #[error("no member of etcd answers")]
    Nobody,
}
