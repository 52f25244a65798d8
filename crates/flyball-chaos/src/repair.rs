//! Repair checks: a harmless change of a child, which the operator has to repair.
//!
//! An idle operator appears steady even if it does not run. So each fault that interrupts it is accompanied by a repair
//! check: the operator has recovered only if it has also repaired the child. Candidates are tried before the
//! experiments. If the operator repairs none, a run compares the state alone, and its report contains a note.

use crate::change::Change;
use crate::edit::Edit;
use crate::operator::Operator;
use flyball_core::pointer::escape;
use serde_json::{Value, json};

/// Maximum number of candidates.
const MAX_CANDIDATES: usize = 4;
/// Value of a changed label or key.
const VALUE: &str = "flyball-chaos-repair-check";

/// A field of a child that is changed, to check that the operator repairs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepairCheck {
    group: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    path: String,
}

impl RepairCheck {
    /// Returns candidates: labels of ConfigMaps and of other children, then contents of ConfigMaps.
    pub(crate) fn candidates(operator: &Operator) -> Vec<Self> {
        let children = &operator.children;
        let is_map = |child: &&Value| child["kind"] == "ConfigMap";
        let maps = || children.iter().filter(is_map);
        let others = children.iter().filter(|child| !is_map(child));
        let labels = maps().chain(others).filter_map(|child| Self::of(child, "/metadata/labels")).take(2);
        let data = maps().filter_map(|child| Self::of(child, "/data")).take(2);
        labels.chain(data).take(MAX_CANDIDATES).collect()
    }

    /// Returns the check of the first key of a map of texts.
    fn of(child: &Value, parent: &str) -> Option<Self> {
        let (key, _) = child.pointer(parent)?.as_object()?.iter().find(|(_, value)| value.is_string())?;
        let reference = crate::api::Reference::of(child);
        Some(Self {
            group: reference.group,
            kind: reference.kind,
            namespace: reference.namespace,
            name: reference.name,
            path: format!("{parent}/{}", escape(key)),
        })
    }

    /// Returns its change of the child as it is now; nothing if the child is part of the experiment or is gone.
    pub(crate) fn change(&self, operator: &Operator, changes: &[Change]) -> Option<Change> {
        let reference = crate::api::Reference::new(&self.group, &self.kind, self.namespace.as_deref(), &self.name);
        if changes.iter().any(|change| change.object() == reference) {
            return None;
        }
        let child = operator.children.iter().find(|child| crate::api::Reference::of(child) == reference)?;
        let edit = Edit::set(child, &self.path, Some(json!(VALUE))).ok()?;
        Some(Change::edit(child, vec![edit]))
    }
}
