//! Rules about single events of a run: panics, exits, deletions, exclusion.

use super::{Oracle, Violation};
use crate::history::Meta;
use crate::hub::{Incident, IncidentKind};
use crate::reference::Reference;
use crate::run::{Outcome, stored_name};
use std::collections::{BTreeMap, BTreeSet};

/// Reports the incidents of a run that its reference does not have.
pub(super) fn incidents(outcome: &Outcome, reference: Option<&Reference>) -> Vec<Violation> {
    let is_usual = |incident: &&Incident| {
        let usual = reference.iter().flat_map(|reference| &reference.outcome.incidents);
        usual.into_iter().any(|known| (known.kind, &known.object) == (incident.kind, &incident.object))
    };
    let violation = |incident: &Incident| {
        let oracle = match incident.kind {
            IncidentKind::Panic => Oracle::Panic,
            IncidentKind::End => Oracle::Exit,
            IncidentKind::BlindDelete => Oracle::StaleDelete,
            IncidentKind::Trespass => Oracle::Exclusion,
            IncidentKind::Fight => Oracle::Fight,
            // Faults revoke permissions.
            IncidentKind::Denial if reference.is_some() => return None,
            IncidentKind::Denial => Oracle::Permissions,
            // Faults delay deletions.
            IncidentKind::Stuck if reference.is_some() => return None,
            IncidentKind::Stuck => Oracle::Finalizers,
        };
        Some(Violation::new(oracle, &incident.object, &incident.text))
    };
    outcome.incidents.iter().filter(|incident| !is_usual(incident)).filter_map(violation).collect()
}

/// Reports objects whose deletion does not end.
pub(super) fn finalizers(outcome: &Outcome) -> Vec<Violation> {
    if !outcome.is_quiet {
        return Vec::new();
    }
    let stuck = outcome.objects.iter().filter_map(|object| {
        let meta = Meta::of(&object.body);
        let by: Vec<&str> = meta.finalizers.iter().map(String::as_str).collect();
        let text = format!("its deletion does not end; its finalizers are {}", by.join(", "));
        meta.is_deleting().then(|| Violation::new(Oracle::Finalizers, stored_name(object), text))
    });
    stuck.collect()
}

/// Reports objects that belong to a deleted owner.
pub(super) fn dangling(outcome: &Outcome) -> Vec<Violation> {
    let removed: BTreeMap<String, String> = outcome
        .history
        .iter()
        .filter(|change| change.is_removal)
        .map(|change| (change.meta().uid.clone(), change.stable_name()))
        .collect();
    let existing: BTreeSet<String> = outcome.objects.iter().map(|object| Meta::of(&object.body).uid).collect();
    let left = outcome.objects.iter().filter_map(|object| {
        let meta = Meta::of(&object.body);
        let is_gone = |uid: &String| removed.contains_key(uid) && !existing.contains(uid);
        let all_gone =
            !meta.owner_references.is_empty() && meta.owner_references.iter().all(|owner| is_gone(&owner.uid));
        let owner = meta.owner_references.first()?;
        let text = format!("it remains although its owner, {} {}, is deleted", owner.kind, owner.name);
        (all_gone && !meta.is_deleting()).then(|| Violation::new(Oracle::Leak, stored_name(object), text))
    });
    left.collect()
}
