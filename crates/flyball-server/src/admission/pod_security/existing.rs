//! The existing pods of a namespace that violate its new policy.
//!
//! Like kube-apiserver, it checks a limited number of pods, first one of each controller. Where kube-apiserver stops
//! after a second, this stops after a number of bytes: responses must not depend on the speed of the machine.

use super::checks::{evaluate, reasons};
use super::level::LevelVersion;
use super::view::PodView;
use crate::kinds::POD;
use crate::storage::{Entry, Store};
use flyball_core::field::go_quote;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of pods that are checked.
const MAX_PODS: usize = 3_000;

/// Maximum size of all pods that are checked, in bytes; the pod that exceeds it is the last one.
const MAX_BYTES: usize = 32 << 20;

/// Returns warnings about the pods of a namespace that violate a policy.
pub(super) fn warnings(store: &Store, namespace: &str, policy: LevelVersion) -> Vec<String> {
    let pods = store.list(&POD.table(), Some(namespace)).entries;
    let total = pods.len();
    // Otherwise the order is not visible.
    let pods = if total > MAX_PODS { one_of_each_controller_first(pods) } else { pods };
    let mut found: BTreeMap<String, Pods<'_>> = BTreeMap::new();
    let (mut checked, mut bytes) = (0, 0);
    for entry in pods.iter().take(MAX_PODS) {
        (checked, bytes) = (checked + 1, bytes + entry.body.len());
        let Ok(pod) = entry.object() else { continue };
        let violations = evaluate(policy, &PodView::of(pod.as_value()));
        if !violations.is_empty() {
            found.entry(reasons(&violations)).or_default().add(entry.key.name());
        }
        if bytes > MAX_BYTES {
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        let limit = format!("new PodSecurity enforce level only checked against the first {checked} of {total}");
        warnings.push(format!("{limit} existing pods"));
    }
    if !found.is_empty() {
        let (namespace, policy) = (go_quote(namespace), go_quote(&policy.to_string()));
        warnings
            .push(format!("existing pods in namespace {namespace} violate the new PodSecurity enforce level {policy}"));
    }
    let listed: BTreeSet<String> = found.into_iter().map(|(reasons, pods)| format!("{pods}: {reasons}")).collect();
    warnings.extend(listed);
    warnings
}

/// The pods with the same violations.
#[derive(Default)]
struct Pods<'a> {
    /// The first name in the order of names.
    first: Option<&'a str>,
    count: usize,
}

impl<'a> Pods<'a> {
    fn add(&mut self, name: &'a str) {
        self.count += 1;
        self.first = Some(self.first.map_or(name, |first| first.min(name)));
    }
}

impl std::fmt::Display for Pods<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.first.unwrap_or_default())?;
        match self.count {
            0 | 1 => Ok(()),
            2 => out.write_str(" (and 1 other pod)"),
            count => write!(out, " (and {} other pods)", count - 1),
        }
    }
}

/// Moves further pods of a controller behind all other pods: they are probably like the first one.
fn one_of_each_controller_first(pods: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
    let mut controllers = BTreeSet::new();
    let mut bytes = 0;
    let (first, further): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
        bytes += pod.body.len();
        bytes > MAX_BYTES || controller(pod).is_none_or(|uid| controllers.insert(uid))
    });
    first.into_iter().chain(further).collect()
}

/// Returns the UID of the controller of a pod, without decoding the rest of it.
fn controller(pod: &Entry) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        #[serde(default)]
        owner_references: Vec<Owner>,
    }
    #[derive(serde::Deserialize)]
    struct Owner {
        uid: String,
        #[serde(default)]
        controller: bool,
    }
    let metadata: Metadata = serde_json::from_slice(pod.metadata()).ok()?;
    metadata.owner_references.into_iter().find(|owner| owner.controller).map(|owner| owner.uid)
}
