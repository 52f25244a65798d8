//! The code that commands write.
//!
//! What is written comes from the files in `templates`, by pure functions from names to paths and texts; [`changes`]
//! brings it to the disk, all of it or nothing.

pub(crate) mod api;
pub(crate) mod built_in;
pub(crate) mod changes;
pub(crate) mod library;
pub(crate) mod package;
pub(crate) mod sample;
pub(crate) mod template;
pub(crate) mod types;
pub(crate) mod versions;
pub(crate) mod webhook;
pub(crate) mod workspace;
