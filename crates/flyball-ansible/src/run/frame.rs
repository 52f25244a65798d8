//! The context of a task: variables of the blocks, roles and plays around it.

use crate::playbook::{Play, Role};
use crate::template::Vars;
use serde_json::Value;
use std::sync::Arc;

/// Nesting limit of includes, roles and blocks.
pub(super) const MAX_DEPTH: usize = 32;

/// The context of a task.
#[derive(Clone)]
pub(super) struct Frame<'r> {
    pub(super) play: &'r Play,
    pub(super) role: Option<&'r Arc<Role>>,
    /// Variables of blocks and includes, the innermost last.
    pub(super) vars: Vec<Arc<Vars>>,
    /// Parameters of roles, the innermost last.
    pub(super) params: Vec<Arc<Vars>>,
    /// Conditions for all inner tasks.
    pub(super) when: Vec<Value>,
    pub(super) ignore_errors: Option<Value>,
    pub(super) no_log: Option<Value>,
    pub(super) depth: usize,
}

impl<'r> Frame<'r> {
    pub(super) fn of_play(play: &'r Play) -> Self {
        let (vars, params, when) = Default::default();
        Self { play, role: None, vars, params, when, ignore_errors: None, no_log: play.no_log.clone(), depth: 0 }
    }

    /// Returns the context of an inner element with its own variables.
    pub(super) fn within(&self, vars: &Arc<Vars>) -> Self {
        let mut inner = self.clone();
        inner.depth += 1;
        if !vars.is_empty() {
            inner.vars.push(vars.clone());
        }
        inner
    }
}
