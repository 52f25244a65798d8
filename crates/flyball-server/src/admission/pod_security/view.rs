//! A pod as the checks read it, and the texts of their results.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The annotations, the spec and the containers of a pod or of a template.
pub(super) struct PodView<'a> {
    pub(super) annotations: Option<&'a Map<String, Value>>,
    pub(super) spec: &'a Value,
    /// The security context of the pod.
    pub(super) security: &'a Value,
    /// Init containers, containers and ephemeral containers, in the order of messages.
    pub(super) containers: Vec<Container<'a>>,
}

/// A container of a pod.
pub(super) struct Container<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a Value,
    pub(super) security: &'a Value,
}

impl<'a> PodView<'a> {
    /// Reads a pod or a template.
    pub(super) fn of(pod: &'a Value) -> Self {
        let spec = &pod["spec"];
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let containers = lists.into_iter().flat_map(|list| items(&spec[list])).map(|value| Container {
            name: text(&value["name"]),
            value,
            security: &value["securityContext"],
        });
        Self {
            annotations: pod["metadata"]["annotations"].as_object(),
            spec,
            security: &spec["securityContext"],
            containers: containers.collect(),
        }
    }

    /// Returns the value of an annotation.
    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.annotations?.get(key)?.as_str()
    }
}

/// Returns true if a pod requires Windows.
pub(super) fn is_windows(pod: &PodView<'_>) -> bool {
    pod.spec["os"]["name"] == "windows"
}

/// Returns true if a pod has its own user namespace, in which root is not root of the host.
pub(super) fn has_user_namespace(pod: &PodView<'_>) -> bool {
    pod.spec["hostUsers"] == false
}

/// Returns the items of a list, or none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a string; empty if it is absent.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The violation of a check by a pod.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

/// Creates the result of a check: a violation, if there are details.
pub(super) fn violation(reason: &'static str, detail: Option<String>) -> Option<Violation> {
    detail.map(|detail| Violation { reason, detail })
}

/// Objects that set a forbidden value: the pod, or containers of it.
#[derive(Default)]
pub(super) struct Setters<'a> {
    pub(super) pod: bool,
    pub(super) containers: Vec<&'a str>,
}

impl<'a> Setters<'a> {
    /// Collects the security contexts of a pod and of its containers that set a forbidden value.
    pub(super) fn of(pod: &PodView<'a>, mut is_forbidden: impl FnMut(&'a Value) -> bool) -> Self {
        Self { pod: is_forbidden(pod.security), containers: with(pod, |container| is_forbidden(container.security)) }
    }

    /// Returns their names, such as `pod and container "a"`; `None` if there are none.
    pub(super) fn names(&self) -> Option<String> {
        let pod = self.pod.then(|| "pod".to_owned());
        let names: Vec<String> = pod.into_iter().chain(containers(&self.containers)).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }
}

/// Returns the names of the containers with a property.
pub(super) fn with<'a>(pod: &PodView<'a>, mut is: impl FnMut(&Container<'a>) -> bool) -> Vec<&'a str> {
    pod.containers.iter().filter(|container| is(container)).map(|container| container.name).collect()
}

/// Returns the names of containers, such as `containers "a", "b"`; `None` if there are none.
pub(super) fn containers(names: &[&str]) -> Option<String> {
    let noun = plural(names.len(), "container", "containers");
    (!names.is_empty()).then(|| format!("{noun} {}", quoted(names)))
}

pub(super) fn plural(count: usize, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}

/// Quotes texts, without escaping them, as kube-apiserver does.
pub(super) fn quoted<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let texts = texts.into_iter().map(|text| format!("\"{}\"", text.as_ref()));
    texts.collect::<Vec<_>>().join(", ")
}

/// The forbidden values of a check, each once and in order.
pub(super) type Values<'a> = BTreeSet<&'a str>;
