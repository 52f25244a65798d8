//! Certificates: authorities, the certificates that they issue, and their verification.
//!
//! The API server, webhooks and proxies take certificates and TLS configurations from here. The caller passes the time;
//! keys come from the operating system. This crate opens no socket, and stores nothing.

mod authority;
mod config;
mod validity;
mod verifier;

pub use authority::{Authority, Identity, Purpose};
pub use config::{ConfigError, Trust, client_config, server_config};
pub use rcgen::Error as IssueError;
pub use validity::{Validity, validity};
