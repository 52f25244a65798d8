//! Request: what a client asks for, read from path, query and headers.
//!
//! Takes the parts of an HTTP request, gives what the other stations work with: a [`Target`], its options, the media
//! type to answer in, the body as JSON. It must not know which kinds exist, nor look at storage.

pub(crate) mod accept;
pub(crate) mod body;
mod flow;
pub(crate) mod options;
mod query;
pub(crate) mod syntax;
mod target;
pub(crate) mod weight;

pub(crate) use query::{Query, decode as percent_decode};
pub(crate) use syntax::json_error;
pub(crate) use target::{ResourcePath, Target};
