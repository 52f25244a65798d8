//! Certificate authorities, certificates, and their verification.
//!
//! The API server, webhooks and proxies use the certificates and TLS configurations of this crate. The caller passes
//! the time; keys come from the operating system. This crate opens no sockets and stores no files.

mod authority;
mod config;
mod validity;
mod verifier;

pub use authority::{Authority, Identity, Purpose};
pub use config::{ConfigError, Trust, client_config, identified_client_config, server_config};
pub use rcgen::Error as IssueError;
pub use validity::{Validity, validity};
