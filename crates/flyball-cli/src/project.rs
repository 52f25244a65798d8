//! A project: the file `PROJECT`, the code that commands write into it, and the plugins that add to that.

pub(crate) mod names;
pub(crate) mod plugins;
pub(crate) mod scaffold;

mod file;

pub(crate) use file::*;
