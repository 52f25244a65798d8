//! PodSecurity: rejects pods, and warns of pods and templates, that violate the policy of their namespace.
//!
//! Takes the labels of the namespace and a pod, a template or a namespace. Without labels, or with the level
//! `privileged`, nothing is decoded or checked. [`checks`] has the table of all checks. See
//! <https://kubernetes.io/docs/concepts/security/pod-security-admission/>.

mod baseline;
mod checks;
mod existing;
mod level;
mod restricted;
mod view;

use super::{Attributes, Plugin, PluginResult, WriteCost, decided, is_long_read, pass};
use crate::kinds::{NAMESPACE, POD, Part};
use crate::storage::Store;
use checks::{details, evaluate};
use flyball_core::field::go_quote;
use flyball_core::{Object, ObjectKey, Status};
use level::{Level, LevelVersion, Policy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use view::{PodView, items, text};

/// Checks pods, templates of pods, and the labels of namespaces.
pub(super) struct PodSecurity {
    store: Arc<Store>,
}

impl WriteCost for PodSecurity {
    fn is_slow(&self, plural: &str, namespace: Option<&str>) -> bool {
        plural == NAMESPACE.plural && namespace.is_some() && is_long_read(&self.store, &POD, namespace)
    }
}

impl Plugin for PodSecurity {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        let Some(object) = object.filter(|_| !attributes.is_action()) else { return pass() };
        let is_whole = attributes.part == Part::Whole;
        if attributes.is(&NAMESPACE) {
            return if is_whole { decided(self.check_namespace(attributes, object)) } else { pass() };
        }
        if attributes.is(&POD) {
            let is_checked = is_whole || matches!(attributes.part, Part::EphemeralContainers | Part::Resize);
            return if is_checked { decided(self.check_pod(attributes, object)) } else { pass() };
        }
        if let Some(path) = attributes.resource.pod_template().filter(|_| is_whole) {
            self.check_template(attributes, object.at(path).unwrap_or(&Value::Null));
        }
        pass()
    }
}

impl PodSecurity {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// Returns the policy of a namespace, from the labels by which lists select it: the namespace is not decoded.
    fn policy(&self, namespace: Option<&str>) -> Option<Policy> {
        let namespace = self.store.get(&NAMESPACE.table(), &ObjectKey::new(None, namespace?))?;
        Some(Policy::of(|key| namespace.facts.label(key)))
    }

    /// Rejects a pod that violates the enforced policy, or warns of it.
    fn check_pod(&self, attributes: &Attributes<'_>, pod: &Object) -> Result<(), Status> {
        let Some(Policy { enforce, warn, .. }) = self.policy(attributes.namespace) else { return Ok(()) };
        if enforce.level == Level::Privileged && warn.level == Level::Privileged {
            return Ok(());
        }
        if attributes.old.is_some_and(|old| !is_significant(pod, old)) {
            return Ok(());
        }
        let pod = PodView::of(pod.as_value());
        let violations = evaluate(enforce, &pod);
        if !violations.is_empty() {
            let (policy, why) = (go_quote(&enforce.to_string()), details(&violations));
            let why = format!("violates PodSecurity {policy}: {why}");
            return Err(Status::forbidden(&attributes.resource.group_resource(), attributes.name, why));
        }
        if warn != enforce {
            add_warning(attributes, warn, &pod);
        }
        Ok(())
    }

    /// Warns of a template whose pods violate the policy.
    fn check_template(&self, attributes: &Attributes<'_>, template: &Value) {
        let Some(Policy { warn, .. }) = self.policy(attributes.namespace) else { return };
        if warn.level != Level::Privileged && !template.is_null() {
            add_warning(attributes, warn, &PodView::of(template));
        }
    }

    /// Rejects a namespace with invalid labels, and warns of pods that violate a new or stricter policy.
    fn check_namespace(&self, attributes: &Attributes<'_>, namespace: &Object) -> Result<(), Status> {
        let policy = Policy::of(|key| namespace.label(key));
        let old = attributes.old.map(|old| Policy::of(|key| old.label(key)));
        let known = old.as_ref().map(|old| &*old.errors).unwrap_or_default();
        if !policy.errors.is_empty() && policy.errors != known {
            return Err(Status::invalid(&attributes.resource.error_kind(), attributes.name, &policy.errors));
        }
        let (Some(old), new) = (old, policy.enforce) else { return Ok(()) };
        let is_relaxed = new.version == old.enforce.version && new.level <= old.enforce.level;
        if new.level != Level::Privileged && !is_relaxed {
            attributes.warnings.add(existing::warnings(&self.store, attributes.name, new));
        }
        Ok(())
    }
}

/// Adds a warning if a pod violates a policy.
fn add_warning(attributes: &Attributes<'_>, policy: LevelVersion, pod: &PodView<'_>) {
    let violations = evaluate(policy, pod);
    if !violations.is_empty() {
        let (policy, why) = (go_quote(&policy.to_string()), details(&violations));
        attributes.warnings.add([format!("would violate PodSecurity {policy}: {why}")]);
    }
}

/// Returns true if an update of a pod must be checked: if it changes an image or adds a container. A pod may violate
/// the policy already, and other changes must remain possible.
fn is_significant(pod: &Object, old: &Object) -> bool {
    fn list<'p>(pod: &'p Object, field: &str) -> &'p [Value] {
        pod.at(&["spec", field]).map_or(&[], items)
    }
    fn image(container: &Value) -> &str {
        text(&container["image"])
    }
    fn by_name(container: &Value) -> (&str, &str) {
        (text(&container["name"]), image(container))
    }
    let differs = |field: &&str| !list(pod, field).iter().map(image).eq(list(old, field).iter().map(image));
    if ["containers", "initContainers"].iter().any(differs) {
        return true;
    }
    let known: BTreeMap<&str, &str> = list(old, "ephemeralContainers").iter().map(by_name).collect();
    list(pod, "ephemeralContainers").iter().map(by_name).any(|(name, image)| known.get(name) != Some(&image))
}
