//! The registry API: catalogs over gRPC, as `opm serve` offers them.
//!
//! [`messages`] are those of the public `registry.proto`. [`Service`] answers them from the content of a catalog,
//! [`serve`] offers it on a listener with gRPC's health protocol, and [`Connection`] is the client. HTTP/2 is hyper's;
//! gRPC's framing is small enough to write by hand, see `docs/decisions/041-grpc.md`.

mod answers;
mod client;
mod conversion;
mod frame;
pub mod messages;
mod server;
mod service;

pub use client::{Connection, ConnectionError};
pub use conversion::to_blobs;
pub use frame::{Code, GrpcError};
pub(crate) use messages::Package;
pub use server::serve;
pub use service::Service;

/// The service of catalogs.
pub(crate) const REGISTRY: &str = "api.Registry";
/// Maximum size of a message, in bytes. Bundles contain their CRDs.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;
