//! Resource requests of pods and capacities of nodes.
//!
//! See <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/>.

use flyball_core::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;
use std::collections::BTreeMap;

/// Assumed load of a container without requests: CPU in thousandths, memory in bytes.
const DEFAULT_REQUESTS: Load = Load { cpu: 100, memory: 200 << 20 };

/// Amounts of resources: CPUs in thousandths, others in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Amounts(BTreeMap<String, i64>);

/// Load of a node, for comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Load {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
}

impl Amounts {
    pub(crate) fn of(quantities: Option<&BTreeMap<String, resource::Quantity>>) -> Self {
        let amount = |name: &str, quantity: &resource::Quantity| {
            let quantity: Quantity = quantity.0.parse().ok()?;
            Some(if name == "cpu" { quantity.milli_value() } else { quantity.value() })
        };
        let all = quantities.into_iter().flatten();
        Self(all.filter_map(|(name, quantity)| Some((name.clone(), amount(name, quantity)?))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the amounts above zero, sorted by name.
    pub(crate) fn positive(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().filter(|(_, amount)| **amount > 0).map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
        }
    }

    fn at_least(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

impl Load {
    pub(crate) fn add(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
    }
}

fn requests(resources: Option<&ResourceRequirements>) -> Amounts {
    Amounts::of(resources.and_then(|resources| resources.requests.as_ref()))
}

/// Returns true if an init container is a sidecar.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the requests of a pod: the sum of the containers that run concurrently, or an init container if that needs
/// more.
///
/// See <https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers>.
pub(crate) fn requested(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let (mut running, mut most) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let mut own = requests(container.resources.as_ref());
        if is_sidecar(container) {
            running.add(&own);
            most.at_least(&running);
        } else {
            own.add(&running);
            most.at_least(&own);
        }
    }
    for container in &spec.containers {
        running.add(&requests(container.resources.as_ref()));
    }
    most.at_least(&running);
    // Requests of the whole pod take precedence over those of its containers.
    most.0.extend(requests(spec.resources.as_ref()).0);
    most.add(&Amounts::of(spec.overhead.as_ref()));
    most
}

/// Returns the requests of a pod for scoring, where missing requests count with a default.
pub(crate) fn load(pod: &Pod) -> Load {
    let mut load = Load::default();
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let requested = requests(container.resources.as_ref());
        let or = |amount: i64, assumed: i64| if amount == 0 { assumed } else { amount };
        load.add(Load {
            cpu: or(requested.get("cpu"), DEFAULT_REQUESTS.cpu),
            memory: or(requested.get("memory"), DEFAULT_REQUESTS.memory),
        });
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_containers_raise_requests() {
        let container = |cpu: &str| json!({"name": cpu, "resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let check = |init: serde_json::Value, expected: i64| {
            let spec = json!({"initContainers": init, "containers": [container("500m"), container("1")]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(requested(&pod).get("cpu"), expected, "{init}");
        };
        check(json!([]), 1500);
        check(json!([container("1"), container("1")]), 1500);
        check(json!([container("3")]), 3000);
        check(json!([sidecar]), 2500);
        check(json!([sidecar, container("3")]), 4000);
        check(json!([container("3"), sidecar]), 3000);
    }
}
