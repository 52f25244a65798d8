//! The embedded API server: a function from request to response.
//!
//! It responds to HTTP requests as a kube-apiserver does. The components that a request passes are modules, in this
//! order: [`Server`] authenticates and authorizes it, the request is decoded, the registry creates a candidate from it,
//! admission changes and validates the candidate, storage commits it and watches send it. They form layers: each
//! imports only those below it, and [`Server`] connects them.
//!
//! In process, a [`Server`] is a tower service that needs neither a socket nor a thread. With a given clock and seed,
//! the same requests have the same responses, byte for byte. [`serve`] serves it over TLS.
//!
//! Not included: controllers (they are clients, see `flyball-cluster`), running containers, responses in protobuf
//! (bodies may be).

// From the ground up; `tests/it/architecture.rs` lists the allowed imports.
mod bounds;
mod data_dir;
mod limits;
pub mod pki;
pub mod quota;
mod request;
mod response;
mod storage;

mod kinds;
mod webhook;

mod connection;
mod custom;
mod dial;

mod catalog;

mod auth;
mod codec;

mod admission;
mod aggregation;
mod registry;

mod definitions;
mod discovery;
mod encoder;
mod metrics;
mod openapi;
mod table;
mod watch;

mod serve;
mod server;

pub use aggregation::{ForwardFuture, ForwardedRequest, Forwarder};
pub use auth::User;
pub use bounds::Bounds;
pub use data_dir::{DataDir, DataDirError, OpeningStage};
pub use dial::Dialer;
pub use discovery::git_version;
pub use kinds::built_in_schema;
pub use response::Body;
pub use serve::serve;
pub use server::{Options, Server, Snapshot, StoredChange, StoredObject};
pub use storage::{RecordedOrigin, RecordedWrite, Recording, RecordingEnd, RecordingError, RecordingHistory};
pub use webhook::{Caller, ResponseMemory, WebhookCall, WebhookFuture, WebhookResponse};
