//! The embedded API server: a function from request to response.
//!
//! It takes the HTTP requests that a kube-apiserver takes and answers them as one does. The stations that a request
//! passes are the modules, in this order: [`Server`] finds out who sends it and whether it may, the request is read,
//! the registry makes a candidate of it, admission looks at that, storage keeps it and watches tell of it.
//!
//! In process a [`Server`] is a tower service that needs neither a socket nor a thread; with a clock and a seed given
//! it answers the same requests alike, byte for byte. [`serve`] puts it behind TLS.
//!
//! What is absent: controllers (they are clients, see `flyball-cluster`), anything that runs containers, aggregated API
//! servers, answers in protobuf (bodies may be).

mod admission;
mod registry;
mod request;
mod storage;
mod watch;

mod auth;
mod bounds;
mod custom;
mod data_dir;
mod discovery;
mod kinds;
mod link;
mod metrics;
mod openapi;
mod response;
mod server;
mod table;
mod webhook;

mod dial;
pub mod pki;
pub mod quota;
mod serve;

pub use auth::User;
pub use bounds::Bounds;
pub use data_dir::{DataDir, DataDirError, OpeningStage};
pub use dial::Dialer;
pub use discovery::git_version;
pub use kinds::built_in_schema;
pub use response::Body;
pub use serve::serve;
pub use server::{Options, Server, Snapshot};
pub use webhook::{Caller, WebhookAnswer, WebhookCall, WebhookFuture};
