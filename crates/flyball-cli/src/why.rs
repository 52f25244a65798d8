//! Explanations of the state of objects, and of inaction.
//!
//! Sources are the ledgers of operators that can be reached, and what every cluster has: owners, managed fields,
//! conditions and events. A write that one controller made and a change that caused a reconcile of another one have the
//! same resource version, which joins the ledgers of several operators.
//!
//! [`chain`], [`evidence`], [`reasons`] and [`fields`] are functions of what was read; only [`operators`], [`schema`],
//! [`sources`], [`timeline`] and [`versions`] send requests.

mod answer;
mod chain;
mod claims;
mod deployments;
mod endpoint;
mod evidence;
mod fields;
mod operators;
mod page;
mod reasons;
mod schema;
mod sources;
#[cfg(test)]
mod tests;
mod timeline;
mod token;
mod versions;

pub(crate) use answer::{Question, Source};
pub(crate) use endpoint::Endpoint;
pub(crate) use operators::{OperatorArgs, endpoints};
pub(crate) use sources::{investigate, parse_target};
pub(crate) use timeline::print_timeline;
pub(crate) use token::{Credentials, TokenArgs};
