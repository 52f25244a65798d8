//! Binds claims to the best matching volumes, and updates the phases of volumes.
//!
//! See <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding>. Provisioners create and reclaim
//! volumes: a claim of their class without a matching volume is passed to them.

mod unbound;

use crate::workload::events::Events;
use crate::workload::owners::{self, Selector};
use crate::workload::pods::{self, UsingClaim};
use crate::workload::references;
use flyball::{
    Action, Caches, Context, Controller, Index, ObjectChange, ObjectKey, Predicate, Reconcile, Resource, Result,
};
use flyball_core::Quantity;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation with the provisioner of a claim.
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// Creates the controller of claims.
pub(super) fn claims() -> Controller<impl Reconcile> {
    Controller::new(Claims(Events::new("persistentvolume-controller")))
        .watches_changes::<PersistentVolume>(claims_of_volume)
        .watches::<StorageClass>(|class, caches| {
            let mut claims = claims_by(Target::Class(class.name_any()), caches)?;
            claims.extend(claims_by(Target::Class(String::new()), caches)?);
            Ok(claims)
        })
        .index::<ByTarget>()
        .index::<ForClaim>()
        .index::<UnclaimedVolumes>()
        .watches::<Pod>(|pod, _| {
            let namespace = pod.metadata.namespace.as_deref();
            Ok(pods::claims(pod).map(|(claim, _)| ObjectKey::new(namespace, &claim)).collect())
        })
        .filter::<Pod>(Predicate::new(|old: &Pod, new: &Pod| pods::node(old) != pods::node(new)))
        .index::<UsingClaim>()
        .replaces::<PersistentVolume>()
        .replaces::<PersistentVolumeClaim>()
}

/// Creates the controller of volumes.
pub(super) fn volumes() -> Controller<impl Reconcile> {
    let controller = Controller::new(Volumes).watches::<PersistentVolumeClaim>(volumes_of).index::<ForClaim>();
    controller.replaces::<PersistentVolume>()
}

fn key<T: Resource>(object: &T) -> ObjectKey {
    ObjectKey::new(object.meta().namespace.as_deref(), object.meta().name.as_deref().unwrap_or_default())
}

/// Finds the claims that a change of a volume concerns: those that name it or that it names, and unbound claims of its
/// class if it is free now. Most volumes are created for one claim, so that they do not concern others.
fn claims_of_volume(change: ObjectChange<'_, PersistentVolume>, caches: &Caches) -> Result<Vec<ObjectKey>> {
    let (volume, is_deleted) = match change {
        ObjectChange::Created(volume) | ObjectChange::Updated { new: volume, .. } => (volume, false),
        ObjectChange::Deleted(volume) => (volume, true),
    };
    let mut claims = claims_by(Target::Volume(volume.name_any()), caches)?;
    match claim_of(volume) {
        Some(_) => claims.extend(ForClaim::values(volume)),
        None if is_deleted => {}
        None => claims.extend(claims_by(Target::Class(class_of_volume(volume)), caches)?),
    }
    Ok(claims)
}

/// The aim of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The volume that it names.
    Volume(String),
    /// Its class: it names no volume.
    Class(String),
}

/// Claims by the volume that they name, or else by their class.
struct ByTarget;

impl Index for ByTarget {
    type Resource = PersistentVolumeClaim;
    type Value = Target;

    fn values(claim: &PersistentVolumeClaim) -> Vec<Target> {
        let class = || Target::Class(class_of_claim(claim));
        vec![volume_of(claim).map_or_else(class, |name| Target::Volume(name.to_owned()))]
    }
}

fn claims_by(target: Target, caches: &Caches) -> Result<Vec<ObjectKey>> {
    Ok(caches.range_by::<ByTarget>(&target..=&target)?.into_iter().map(|(_, claim)| claim).collect())
}

/// Finds the volumes that a claim names, and those that name it.
fn volumes_of(claim: &PersistentVolumeClaim, caches: &Caches) -> Result<Vec<ObjectKey>> {
    let claim_key = key(claim);
    let naming = caches.range_by::<ForClaim>(&claim_key..=&claim_key)?.into_iter();
    let named = volume_of(claim).map(|name| ObjectKey::new(None, name));
    Ok(naming.map(|(_, volume)| volume).chain(named).collect())
}

/// Volumes by the claim that they name.
struct ForClaim;

impl Index for ForClaim {
    type Resource = PersistentVolume;
    type Value = ObjectKey;

    fn values(volume: &PersistentVolume) -> Vec<ObjectKey> {
        let key =
            |of: &ObjectReference| ObjectKey::new(of.namespace.as_deref(), of.name.as_deref().unwrap_or_default());
        claim_of(volume).map(key).into_iter().collect()
    }
}

/// Volumes that name no claim, by their class.
struct UnclaimedVolumes;

impl Index for UnclaimedVolumes {
    type Resource = PersistentVolume;
    type Value = String;

    fn values(volume: &PersistentVolume) -> Vec<String> {
        match claim_of(volume) {
            Some(_) => Vec::new(),
            None => vec![class_of_volume(volume)],
        }
    }
}

fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn claim_of(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn names(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace
}

/// Returns true if a volume is reserved for this claim, and not for another one of its name.
fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let uid = reference.uid.as_ref().filter(|uid| !uid.is_empty());
    names(reference, claim) && uid.is_none_or(|uid| Some(uid) == claim.metadata.uid.as_ref())
}

fn class_of_claim(claim: &PersistentVolumeClaim) -> String {
    let old = claim.annotations().get("volume.beta.kubernetes.io/storage-class").cloned();
    old.or_else(|| claim.spec.as_ref()?.storage_class_name.clone()).unwrap_or_default()
}

fn class_of_volume(volume: &PersistentVolume) -> String {
    let old = volume.annotations().get("volume.beta.kubernetes.io/storage-class").cloned();
    old.or_else(|| volume.spec.as_ref()?.storage_class_name.clone()).unwrap_or_default()
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

async fn set_phase<K: Resource>(volume: &PersistentVolume, phase: &str, cx: &Context<K>) -> Result<()> {
    if self::phase(volume) != phase {
        let mut changed = volume.clone();
        changed.status.get_or_insert_default().phase = Some(phase.into());
        owners::tolerate(cx.replace_status(&changed).await)?;
    }
    Ok(())
}

struct Volumes;

impl Reconcile for Volumes {
    type Resource = PersistentVolume;

    async fn reconcile(&self, volume: &PersistentVolume, cx: &Context<PersistentVolume>) -> Result<Action> {
        let reference = claim_of(volume).filter(|reference| reference.uid.as_ref().is_some_and(|uid| !uid.is_empty()));
        let Some(reference) = reference else {
            set_phase(volume, "Available", cx).await?;
            return Ok(Action::done());
        };
        let is_it = |claim: &PersistentVolumeClaim| claim.metadata.uid == reference.uid;
        let name = reference.name.clone().unwrap_or_default();
        let key = ObjectKey::new(reference.namespace.as_deref(), &name);
        let mut claim = cx.get::<PersistentVolumeClaim>(&key).await?.filter(is_it);
        if claim.is_none() {
            // The release of a volume is final, so confirm with the API server.
            claim = references::read(&key, cx).await?.filter(is_it);
        }
        match claim {
            None if phase(volume) == "Failed" => {}
            None => set_phase(volume, "Released", cx).await?,
            Some(claim) if volume_of(&claim) == volume.metadata.name.as_deref() => {
                set_phase(volume, "Bound", cx).await?
            }
            // The next reconcile of the claim binds it to this volume.
            Some(claim) if volume_of(&claim).is_none() => {}
            Some(_) => {
                let mut freed = volume.clone();
                let was_chosen = freed.annotations_mut().remove(BOUND_BY_CONTROLLER).is_some();
                if let Some(spec) = &mut freed.spec {
                    match &mut spec.claim_ref {
                        Some(reference) if !was_chosen => (reference.uid, reference.resource_version) = (None, None),
                        reference => *reference = None,
                    }
                }
                let freed = cx.replace(&freed).await?;
                set_phase(&freed, "Available", cx).await?;
            }
        }
        Ok(Action::done())
    }
}

struct Claims(Events);

impl Reconcile for Claims {
    type Resource = PersistentVolumeClaim;

    async fn reconcile(&self, claim: &PersistentVolumeClaim, cx: &Context<PersistentVolumeClaim>) -> Result<Action> {
        let Some(spec) = &claim.spec else { return Ok(Action::done()) };
        let is_bound = claim.annotations().contains_key(BIND_COMPLETED);
        let volume = match volume_of(claim) {
            Some(name) => cx.get::<PersistentVolume>(&ObjectKey::new(None, name)).await?,
            None if is_bound => None,
            None => {
                let class = cx.get::<StorageClass>(&ObjectKey::new(None, &class_of_claim(claim))).await?;
                let waits = self.waits(claim, class.as_ref(), cx).await?;
                let found = if waits.is_some() { None } else { best(claim, spec, cx).await? };
                if found.is_none() {
                    self.provision(claim, class, waits, cx).await?;
                    return Ok(Action::done());
                }
                found
            }
        };
        let volume = volume.filter(|volume| match claim_of(volume) {
            Some(reference) => is_for(reference, claim),
            None => true,
        });
        match volume {
            Some(volume) if is_bound || fits(&volume, claim, spec) => bind(claim, volume, cx).await?,
            None if is_bound => set_claim_status(claim, None, "Lost", cx).await?,
            Some(_) | None => set_claim_status(claim, None, "Pending", cx).await?,
        }
        Ok(Action::done())
    }
}

/// Finds the volume for a claim: one that is reserved for it, or the smallest free one that is large enough.
async fn best(
    claim: &PersistentVolumeClaim,
    spec: &PersistentVolumeClaimSpec,
    cx: &Context<PersistentVolumeClaim>,
) -> Result<Option<PersistentVolume>> {
    let selector = Selector::new(spec.selector.as_ref());
    let is_reserved = |volume: &PersistentVolume| claim_of(volume).is_some_and(|of| is_for(of, claim));
    let mut reserved = cx.list_by::<ForClaim>(cx.key()).await?.into_iter();
    if let Some(volume) = reserved.find(|volume| is_reserved(volume) && fits(volume, claim, spec)) {
        return Ok(Some(volume));
    }
    let is_suitable = |volume: &PersistentVolume| {
        let is_selected = selector.as_ref().is_none_or(|selector| selector.matches(volume));
        phase(volume) == "Available" && fits(volume, claim, spec) && is_selected
    };
    let unclaimed = cx.list_by::<UnclaimedVolumes>(&class_of_claim(claim)).await?.into_iter();
    let capacity = |volume: &PersistentVolume| volume.spec.as_ref().and_then(capacity);
    Ok(unclaimed.filter(is_suitable).min_by(|a, b| capacity(a).cmp(&capacity(b))))
}

fn capacity(spec: &PersistentVolumeSpec) -> Option<Quantity> {
    spec.capacity.as_ref()?.get("storage")?.0.parse().ok()
}

/// Returns true if a volume matches the requirements of a claim.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim, claim_spec: &PersistentVolumeClaimSpec) -> bool {
    let Some(spec) = volume.spec.as_ref().filter(|_| volume.metadata.deletion_timestamp.is_none()) else {
        return false;
    };
    let requests = claim_spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let request: Option<Quantity> = requests.and_then(|requests| requests.get("storage")?.0.parse().ok());
    let modes = spec.access_modes.clone().unwrap_or_default();
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".into());
    capacity(spec) >= request
        && claim_spec.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && mode(&spec.volume_mode) == mode(&claim_spec.volume_mode)
        && class_of_volume(volume) == class_of_claim(claim)
        && spec.volume_attributes_class_name.clone().unwrap_or_default()
            == claim_spec.volume_attributes_class_name.clone().unwrap_or_default()
}

/// Binds the volume to the claim, and then the claim to the volume, each with its status.
async fn bind(
    claim: &PersistentVolumeClaim,
    mut volume: PersistentVolume,
    cx: &Context<PersistentVolumeClaim>,
) -> Result<()> {
    if claim_of(&volume).is_none_or(|reference| reference.uid != claim.metadata.uid) {
        let was_meant = claim_of(&volume).is_some();
        volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            resource_version: claim.metadata.resource_version.clone(),
            field_path: None,
        });
        if !was_meant {
            volume.annotations_mut().insert(BOUND_BY_CONTROLLER.into(), "yes".into());
        }
        volume = cx.replace(&volume).await?;
    }
    set_phase(&volume, "Bound", cx).await?;
    let mut bound = claim.clone();
    if volume_of(claim).is_none() {
        bound.spec.get_or_insert_default().volume_name = volume.metadata.name.clone();
        bound.annotations_mut().insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    bound.annotations_mut().insert(BIND_COMPLETED.into(), "yes".into());
    if bound != *claim {
        bound = cx.replace(&bound).await?;
    }
    set_claim_status(&bound, Some(&volume), "Bound", cx).await
}

async fn set_claim_status(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    phase: &str,
    cx: &Context<PersistentVolumeClaim>,
) -> Result<()> {
    let mut changed = claim.clone();
    let status = changed.status.get_or_insert_default();
    status.phase = Some(phase.into());
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    status.access_modes = spec.and_then(|spec| spec.access_modes.clone());
    match spec.and_then(|spec| spec.capacity.as_ref()?.get("storage").cloned()) {
        // The resizer reports the size of a bound claim.
        Some(size) => drop(status.capacity.get_or_insert_default().entry("storage".into()).or_insert(size)),
        None => status.capacity = None,
    }
    if changed != *claim {
        owners::tolerate(cx.replace_status(&changed).await)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn claims_are_found_by_their_volume_or_else_by_their_class() {
        let targets = |spec: Value| {
            let claim = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": spec});
            ByTarget::values(&serde_json::from_value(claim).unwrap())
        };
        assert_eq!(targets(json!({"storageClassName": "fast"})), [Target::Class("fast".into())]);
        assert_eq!(targets(json!({})), [Target::Class(String::new())]);
        // A volume of the class does not concern a claim that has its own one.
        assert_eq!(targets(json!({"storageClassName": "fast", "volumeName": "v"})), [Target::Volume("v".into())]);
    }

    #[test]
    fn volumes_of_a_claim_are_not_offered_to_others() {
        let volume = |claim: Value| {
            let spec = json!({"storageClassName": "fast", "claimRef": claim});
            serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap()
        };
        assert_eq!(UnclaimedVolumes::values(&volume(Value::Null)), ["fast"]);
        let reserved = volume(json!({"namespace": "ns", "name": "c"}));
        assert!(UnclaimedVolumes::values(&reserved).is_empty());
        assert_eq!(ForClaim::values(&reserved), [ObjectKey::new(Some("ns"), "c")]);
    }
}
