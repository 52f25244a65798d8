//! Request: what a client asks for, read from path, query and headers.
//!
//! Takes the parts of an HTTP request, gives what the other components work with: a [`RequestInfo`], its options, the media
//! type to answer in, the body as JSON. It must not know which kinds exist, nor look at storage.

pub(crate) mod accept;
pub(crate) mod body;
mod flow;
mod info;
pub(crate) mod options;
mod query;
pub(crate) mod syntax;

pub(crate) use info::{RequestInfo, ResourcePath};
pub(crate) use query::{Query, decode as percent_decode};
pub(crate) use syntax::json_error;
