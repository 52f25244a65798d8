//! The code that commands generate.
//!
//! Pure functions fill the files of `templates`, from names to paths and texts; [`changes`] writes all of them to the
//! disk, or none.

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
