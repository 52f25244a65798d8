//! The code that commands generate.
//!
//! Pure functions render the files of `templates`; [`changes`] writes all of them to disk, or none.

pub(crate) mod api;
pub(crate) mod built_in;
pub(crate) mod case;
pub(crate) mod changes;
pub(crate) mod chart;
pub(crate) mod comments;
pub(crate) mod definition;
pub(crate) mod library;
pub(crate) mod package;
pub(crate) mod role;
pub(crate) mod sample;
pub(crate) mod schema;
pub(crate) mod template;
pub(crate) mod types;
pub(crate) mod versions;
pub(crate) mod watches;
pub(crate) mod webhook;
pub(crate) mod workspace;
