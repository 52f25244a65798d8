//! CEL, the Common Expression Language, with Kubernetes' extensions: compiling, checking, metering and evaluating.
//!
//! `kube-cel` provides the interpreter and most of Kubernetes' libraries. This module adds the checker, the cost
//! budget, and limits for memory and stack. It does not depend on the schemas of objects: see [`crate::rules`] for the
//! rules of custom resources.

mod admission;
mod authorizer;
mod budget;
mod check;
mod cost;
mod error;
mod expression;
mod functions;
mod guard;
mod identifier;
mod location;
mod memory;
mod meter;
mod mutation;
mod netip;
mod patterns;
mod positions;
mod program;
mod rewrite;
mod rule;
mod types;
mod typing;

pub use admission::{namespace, object, published, request};
pub use authorizer::{AuthorizationCheck, AuthorizeFn, TYPE as AUTHORIZER};
pub use budget::{Budget, TotalBudget};
pub use check::{CheckResult, check, check_among};
pub use cost::cardinality;
pub use error::Error;
pub use expression::{Expression, Scope};
pub use identifier::is_reserved;
pub use kube_cel::cel::objects::Value as Cel;
pub use mutation::to_json;
pub use program::{Program, compile};
pub use rule::Rule;
pub use typing::Type;

pub(crate) use identifier::{RESERVED, escape};

use kube_cel::KubeCelExt;
use kube_cel::cel::Context;
use std::sync::LazyLock;

/// The functions of all rules.
pub(crate) static BASE: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    types::add(&mut context);
    rewrite::add(&mut context);
    authorizer::add(&mut context);
    meter::add(&mut context);
    guard::add(&mut context);
    memory::add(&mut context);
    context
});
