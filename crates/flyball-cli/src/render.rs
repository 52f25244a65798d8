//! Output: tables, YAML, diffs and the terminal.

pub(crate) mod diff;
pub(crate) mod last_seen;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod prompt;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod yaml;
