//! Scheduler's view of volumes: existence and topology.
//!
//! See <https://kubernetes.io/docs/concepts/storage/storage-classes/#volume-binding-mode>.

use super::nodes::Reason;
use super::pods::PendingPod;
use crate::workload::affinity::{self, Labels};
use crate::workload::pods;
use flyball_core::ObjectKey;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// The annotation of a claim with the node of its volume.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

#[derive(Debug, Default)]
pub(super) struct Volumes {
    claims: BTreeMap<ObjectKey, Claim>,
    volumes: BTreeMap<String, Option<Vec<NodeSelectorTerm>>>,
    /// The storage classes with `WaitForFirstConsumer`.
    late: BTreeSet<String>,
}

#[derive(Debug, PartialEq)]
struct Claim {
    volume: Option<String>,
    class: String,
    selected: Option<String>,
    is_lost: bool,
    is_deleting: bool,
}

impl Volumes {
    pub(super) fn put_claim(&mut self, key: ObjectKey, claim: Option<&PersistentVolumeClaim>) {
        let Some(claim) = claim else {
            self.claims.remove(&key);
            return;
        };
        let (spec, phase) = (claim.spec.as_ref(), claim.status.as_ref().and_then(|status| status.phase.as_deref()));
        let known = Claim {
            // A claim that names its volume may not be bound yet.
            volume: spec.and_then(|spec| spec.volume_name.clone()).filter(|_| phase == Some("Bound")),
            class: spec.and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default(),
            selected: claim.annotations().get(SELECTED_NODE).cloned(),
            is_lost: phase == Some("Lost"),
            is_deleting: pods::is_deleting(claim),
        };
        self.claims.insert(key, known);
    }

    pub(super) fn put_volume(&mut self, name: String, volume: Option<&PersistentVolume>) {
        let Some(volume) = volume else {
            self.volumes.remove(&name);
            return;
        };
        let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        self.volumes.insert(name, required.map(|required| required.node_selector_terms.clone()));
    }

    pub(super) fn put_class(&mut self, name: String, class: Option<&StorageClass>) {
        match class.and_then(|class| class.volume_binding_mode.as_deref()) {
            Some("WaitForFirstConsumer") => drop(self.late.insert(name)),
            _ => drop(self.late.remove(&name)),
        }
    }

    /// Returns the unbound claims of a pod that need its node, or the reason why it is unschedulable.
    pub(super) fn unbound(&self, pending: &PendingPod) -> Result<Vec<ObjectKey>, String> {
        let mut unbound = Vec::new();
        for key in pending.claims() {
            let name = key.name();
            match self.claims.get(&key) {
                None => return Err(format!("persistentvolumeclaim {name:?} not found")),
                Some(claim) if claim.is_lost => {
                    let volume = claim.volume.clone().unwrap_or_default();
                    return Err(format!(
                        "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                    ));
                }
                Some(claim) if claim.is_deleting => {
                    return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
                }
                Some(claim) if claim.volume.is_some() => {}
                Some(claim) if self.late.contains(&claim.class) => unbound.push(key),
                Some(_) => return Err("pod has unbound immediate PersistentVolumeClaims".into()),
            }
        }
        Ok(unbound)
    }

    /// Returns the reason why the volumes of a pod are not available on a node.
    pub(super) fn reach(
        &self,
        name: &str,
        labels: &Labels,
        pending: &PendingPod,
        is_node: impl Fn(&str) -> bool,
    ) -> Result<(), Vec<Reason>> {
        for claim in pending.claims().iter().filter_map(|key| self.claims.get(key)) {
            let Some(volume) = &claim.volume else {
                if claim.selected.as_ref().is_some_and(|selected| selected != name && is_node(selected)) {
                    return Err(Reason::lasting("node(s) didn't find available persistent volumes to bind"));
                }
                continue;
            };
            match self.volumes.get(volume) {
                None => {
                    return Err(Reason::lasting(
                        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                    ));
                }
                Some(Some(terms)) if !affinity::any_selects(terms, name, labels) => {
                    return Err(Reason::lasting("node(s) didn't match PersistentVolume's node affinity"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
