//! The context of a task: variables of the blocks, roles and plays around it.

use super::magic;
use crate::playbook::{Action, Play, Playbook, Role, named};
use crate::template::Vars;
use crate::value::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Nesting limit of includes, roles and blocks.
pub(super) const MAX_DEPTH: usize = 32;

/// Variables and defaults of roles, in order of precedence.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleVars {
    pub(super) vars: Vec<Arc<Vars>>,
    pub(super) defaults: Vec<Arc<Vars>>,
}

impl RoleVars {
    /// Returns those of the roles in a play's list, and of static imports, which all tasks of the play see. Later roles
    /// take precedence.
    pub(super) fn of_play(playbook: &Playbook, play: &Play) -> Self {
        let mut visible = Self::default();
        let (mut pending, mut seen) = (Vec::new(), BTreeSet::new());
        pending.extend(play.tasks.iter().rev());
        let mut roles = Vec::new();
        while let Some(task) = pending.pop() {
            match &task.action {
                Action::Block { tasks, rescue, always } => {
                    pending.extend(tasks.iter().chain(rescue.iter()).chain(always.iter()).rev());
                }
                Action::Role { folder, tasks_from, is_static: true } if seen.insert((folder, tasks_from)) => {
                    let Some(role) = playbook.roles.get(folder) else { continue };
                    roles.push(role);
                    let file = named(&folder.join("tasks"), tasks_from);
                    pending.extend(
                        file.iter().filter_map(|file| role.tasks.get(file)).flat_map(|tasks| tasks.iter().rev()),
                    );
                }
                _ => {}
            }
        }
        roles.into_iter().rev().for_each(|role| visible.add(playbook, role, &mut BTreeSet::new()));
        visible
    }

    /// Adds a role and its dependencies below the known ones.
    fn add<'r>(&mut self, playbook: &'r Playbook, role: &'r Role, seen: &mut BTreeSet<&'r Path>) {
        if seen.insert(&role.folder) {
            self.vars.push(role.vars.clone());
            self.defaults.push(role.defaults.clone());
            for dependency in role.dependencies.iter().rev() {
                if let Some(dependency) = playbook.roles.get(&dependency.folder) {
                    self.add(playbook, dependency, seen);
                }
            }
        }
    }

    /// Returns those of a role that runs within these ones: its own, those of its dependencies, and the outer ones.
    fn within(&self, playbook: &Playbook, role: &Role) -> Self {
        let mut inner = Self::default();
        inner.add(playbook, role, &mut BTreeSet::new());
        inner.vars.extend(self.vars.iter().cloned());
        inner.defaults.extend(self.defaults.iter().cloned());
        inner
    }
}

/// The context of a task.
#[derive(Clone)]
pub(super) struct Frame<'r> {
    pub(super) play: &'r Play,
    pub(super) role: Option<&'r Arc<Role>>,
    /// The roles that include this one, the innermost last.
    pub(super) parents: Vec<&'r Arc<Role>>,
    /// Variables of the role, its dependencies and its parents.
    pub(super) role_vars: Arc<RoleVars>,
    /// Variables of all roles of the play.
    pub(super) play_vars: Arc<RoleVars>,
    /// Variables that describe the run.
    pub(super) magic: Arc<Vars>,
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
    pub(super) fn of_play(playbook: &Playbook, play: &'r Play) -> Self {
        Self {
            play,
            role: None,
            parents: Vec::new(),
            role_vars: Arc::default(),
            play_vars: Arc::new(RoleVars::of_play(playbook, play)),
            magic: magic::vars(play, None, &[]),
            vars: Vec::new(),
            params: Vec::new(),
            when: Vec::new(),
            ignore_errors: None,
            no_log: play.no_log.clone(),
            depth: 0,
        }
    }

    /// Returns the context of a role.
    pub(super) fn of_role(&self, playbook: &Playbook, role: &'r Arc<Role>) -> Self {
        let mut inner = self.within(&Arc::default());
        inner.parents.extend(inner.role.replace(role));
        inner.role_vars = Arc::new(self.role_vars.within(playbook, role));
        inner.magic = magic::vars(inner.play, Some(role), &inner.parents);
        inner
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
