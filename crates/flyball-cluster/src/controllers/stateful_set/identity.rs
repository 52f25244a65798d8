//! Identity of pods: ordinals, names, and claims.

use crate::workload::pods;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use kube::ResourceExt;

pub(super) const REVISION: &str = "controller-revision-hash";
const NAME: &str = "statefulset.kubernetes.io/pod-name";
const INDEX: &str = "apps.kubernetes.io/pod-index";

/// Returns the ordinal of a pod of this set, by its name.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.name_any();
    let (parent, ordinal) = name.rsplit_once('-')?;
    let is_plain = ordinal.bytes().all(|byte| byte.is_ascii_digit());
    (parent == set.name_any() && is_plain).then(|| ordinal.parse().ok())?
}

/// Returns the name of the pod of an ordinal.
pub(super) fn name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.name_any())
}

/// Creates the pod of an ordinal.
pub(super) fn pod(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    template: &PodTemplateSpec,
    ordinal: i32,
    revision: &str,
) -> Pod {
    let mut pod = pods::from_template(template, set);
    let name = name(set, ordinal);
    pod.metadata.name = Some(name.clone());
    pod.metadata.namespace = set.namespace();
    let labels = pod.labels_mut();
    labels.insert(NAME.into(), name.clone());
    labels.insert(INDEX.into(), ordinal.to_string());
    labels.insert(REVISION.into(), revision.into());
    let claims = claims(set, spec, ordinal);
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = Some(name);
    pod_spec.subdomain = spec.service_name.clone();
    let volumes = pod_spec.volumes.get_or_insert_default();
    for (template, claim) in &claims {
        volumes.retain(|volume| volume.name != *template);
        let source = PersistentVolumeClaimVolumeSource { claim_name: claim.name_any(), read_only: Some(false) };
        volumes.push(Volume { name: template.clone(), persistent_volume_claim: Some(source), ..Volume::default() });
    }
    pod
}

/// Creates the claims of an ordinal, each with the name of its template.
pub(super) fn claims(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32) -> Vec<(String, PersistentVolumeClaim)> {
    let templates = spec.volume_claim_templates.iter().flatten();
    let claims = templates.map(|template| {
        let (mut claim, name) = (template.clone(), template.name_any());
        claim.metadata.name = Some(format!("{name}-{}-{ordinal}", set.name_any()));
        claim.metadata.namespace = set.namespace();
        let selected = spec.selector.match_labels.iter().flatten();
        claim.labels_mut().extend(selected.map(|(key, value)| (key.clone(), value.clone())));
        claim.status = None;
        (name, claim)
    });
    claims.collect()
}
