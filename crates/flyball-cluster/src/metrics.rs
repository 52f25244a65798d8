//! Metrics of objects, set by users and tests in place of measurements.

use flyball_core::Quantity;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const PREFIX: &str = "flyball.dev/";

/// Metrics that the [horizontal pod
/// autoscaler](https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/) of a cluster uses;
/// clones share the values.
///
/// Clients set metrics by annotations, such as `flyball.dev/cpu-usage: 300m` on a pod. In process, [`set`](Self::set)
/// does the same without a request, and takes precedence. The names after `flyball.dev/` are:
///
/// | Metric | Object | Name |
/// |---|---|---|
/// | of a resource, for `Resource` | a pod | `cpu-usage`, `memory-usage` |
/// | of a container, for `ContainerResource`; those of all containers make up the pod's | a pod | `cpu-usage.<container>` |
/// | of one's own, for `Pods` and `Object` | a pod, or whatever is described | `metric.<metric>` |
/// | from outside, for `External` | the namespace of the autoscaler | `external.<metric>` |
///
/// Values have no history: the current one counts. Metric selectors are ignored.
///
/// ```
/// # use flyball_cluster::{Cluster, Options};
/// # let cluster = Cluster::new(Options::system().unwrap());
/// cluster.metrics().set("default", "Pod", "web-0", "cpu-usage", "300m".parse().unwrap());
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<[String; 4], Quantity>>>);

impl Metrics {
    /// Sets a metric of an object. The namespace of a namespace is its own name.
    pub fn set(&self, namespace: &str, kind: &str, name: &str, metric: &str, value: Quantity) {
        let mut values = self.0.lock();
        values.insert([namespace, kind, name, metric].map(str::to_owned), value);
    }

    /// Removes a metric that was [set](Self::set) for an object; annotations apply again.
    pub fn unset(&self, namespace: &str, kind: &str, name: &str, metric: &str) {
        let mut values = self.0.lock();
        values.remove(&[namespace, kind, name, metric].map(str::to_owned));
    }

    /// Returns a metric of an object, in thousandths.
    pub(crate) fn get<K: Resource<DynamicType = ()>>(&self, object: &K, metric: &str) -> Option<i64> {
        self.find(&K::kind(&()), object, metric)
    }

    /// Returns a metric of an object of any kind, in thousandths.
    pub(crate) fn get_dynamic(&self, kind: &str, object: &DynamicObject, metric: &str) -> Option<i64> {
        self.find(kind, object, metric)
    }

    /// Returns an independent copy of the values, for a fork.
    pub(crate) fn copied(&self) -> Self {
        let values = self.0.lock().clone();
        Self(Arc::new(Mutex::new(values)))
    }

    fn find(&self, kind: &str, object: &impl ResourceExt, metric: &str) -> Option<i64> {
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_else(|| name.clone());
        let key = [&namespace, kind, &name, metric].map(str::to_owned);
        let set = self.0.lock().get(&key).copied();
        let annotated = || object.annotations().get(&format!("{PREFIX}{metric}"))?.parse().ok();
        set.or_else(annotated).map(|value| value.milli_value())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
