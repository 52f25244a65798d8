//! Request: parsed paths, queries, headers and bodies.
//!
//! Takes the parts of an HTTP request, returns a [`RequestInfo`], options, the media type of the response, and the body
//! as JSON. It depends neither on kinds nor on storage.

pub(crate) mod accept;
pub(crate) mod body;
mod flow;
mod info;
pub(crate) mod options;
mod query;
pub(crate) mod syntax;

pub(crate) use info::{RequestInfo, ResourcePath};
pub(crate) use query::{Query, decode as percent_decode};
pub(crate) use syntax::{json_error, json_type};
