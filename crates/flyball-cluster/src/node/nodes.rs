//! Creates the objects of simulated nodes.

use super::SIMULATED_NODE_ANNOTATION;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes that are created concurrently.
const AT_ONCE: usize = 16;

/// A group of identical simulated nodes.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use flyball_cluster::{Cluster, Nodes, Options};
///
/// let cluster = Cluster::new(Options::system()?);
/// let nodes = Nodes::new("worker", 3).capacity("cpu", "4").label("disk", "ssd");
/// let names = nodes.add_to(&cluster.admin()).await?;
/// assert_eq!(names, ["worker-1", "worker-2", "worker-3"]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Nodes {
    prefix: String,
    count: usize,
    capacity: BTreeMap<String, Quantity>,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

impl Nodes {
    /// Creates a description of `count` nodes, named `PREFIX-1` and so on. By default, each has 8 CPUs, 32 GiB of
    /// memory and room for 110 pods.
    pub fn new(prefix: impl Into<String>, count: usize) -> Self {
        let (capacity, labels, taints) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { prefix: prefix.into(), count, capacity, labels, taints }
    }

    /// Sets the capacity of each node for a resource, such as `cpu`, `memory`, `pods` or `example.com/gpu`.
    pub fn capacity(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Self {
        self.capacity.insert(resource.into(), Quantity(amount.into()));
        self
    }

    /// Adds a label to each node.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a taint to each node.
    pub fn taint(mut self, taint: Taint) -> Self {
        self.taints.push(taint);
        self
    }

    /// Creates the nodes in a cluster under free names, and returns the names. The cluster's
    /// [`Kubelet`](crate::Controller::Kubelet) makes them ready.
    ///
    /// # Errors
    ///
    /// If the API server rejects one of them; the nodes before it have been created.
    pub async fn add_to(&self, client: &kube::Client) -> kube::Result<Vec<String>> {
        let api = Api::<Node>::all(client.clone());
        let existing: BTreeSet<String> =
            api.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        let names = (1..).map(|number| format!("{}-{number}", self.prefix)).filter(|name| !existing.contains(name));
        let created = stream::iter(names.take(self.count)).map(|name| {
            let api = &api;
            async move { api.create(&PostParams::default(), &self.node(&name)).await.map(|_| name) }
        });
        created.buffered(AT_ONCE).try_collect().await
    }

    fn node(&self, name: &str) -> Node {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/arch".into(), "amd64".into());
        labels.insert("kubernetes.io/hostname".into(), name.into());
        labels.insert("kubernetes.io/os".into(), "linux".into());
        let annotations = [(SIMULATED_NODE_ANNOTATION.0.to_owned(), SIMULATED_NODE_ANNOTATION.1.to_owned())].into();
        let taints = (!self.taints.is_empty()).then(|| self.taints.clone());
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec { taints, ..NodeSpec::default() }),
            status: Some(NodeStatus { capacity: Some(self.capacity.clone()), ..NodeStatus::default() }),
        }
    }
}
