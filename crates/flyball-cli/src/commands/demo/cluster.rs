//! Cluster of a demo: an embedded control plane, or an existing cluster.

use crate::cluster::connection::{Connection, config_of};
use crate::cluster::embedded::EmbeddedCluster;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::{Style, paint, print_line};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

/// Label of the demo's objects. Other objects are never changed.
pub(super) const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "flyball-demo");
/// Name of the operator's objects.
pub(super) const OPERATOR: &str = "flyball-demo-operator";
/// Timeout of the cleanup.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The cluster of a demo, and the connection to it.
pub(super) struct DemoCluster {
    /// A client of an administrator.
    pub(super) admin: Client,
    /// Connection without a user.
    pub(super) config: Config,
    /// Namespace of the demo's objects.
    pub(super) namespace: &'static str,
    /// Kind of the operator.
    pub(super) crd: CustomResourceDefinition,
    /// Path of the kubeconfig.
    pub(super) kubeconfig: PathBuf,
    pub(super) context: Option<String>,
    /// The control plane, if it is the demo's own.
    own: Option<EmbeddedCluster>,
}

/// Connects to the cluster of a kubeconfig, or starts a control plane.
pub(super) async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    crd: CustomResourceDefinition,
) -> Result<DemoCluster> {
    match kubeconfig {
        Some(path) => existing(path, context, crd).await,
        None => embedded(crd).await,
    }
}

async fn embedded(crd: CustomResourceDefinition) -> Result<DemoCluster> {
    let own = EmbeddedCluster::start("flyball-demo", 0).await?;
    print_line(&format!("control plane ready at {}, kubeconfig {}", own.url, own.kubeconfig.display()));
    let config = own.config.clone();
    let admin = flyball::connect(config.clone()).context("cannot create a client")?;
    let kubeconfig = own.kubeconfig.clone();
    Ok(DemoCluster { admin, config, namespace: "default", crd, kubeconfig, context: None, own: Some(own) })
}

async fn existing(path: &Path, context: Option<&str>, crd: CustomResourceDefinition) -> Result<DemoCluster> {
    let config = config_of(path, context).await?;
    let silent = || format!("{} did not respond", config.cluster_url);
    let opened = timeout(Duration::from_secs(10), Connection::open(config.clone())).await;
    let admin = opened.context(silent())??.client;
    let version = admin.apiserver_version().await.context(silent())?;
    print_line(&format!("cluster {} of version {}", config.cluster_url, version.git_version));
    let cluster = DemoCluster {
        admin,
        config,
        namespace: "flyball-demo",
        crd,
        kubeconfig: path.to_owned(),
        context: context.map(str::to_owned),
        own: None,
    };
    cluster.check().await?;
    Ok(cluster)
}

impl DemoCluster {
    /// Returns true if the control plane is the demo's own, without other objects.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the additional arguments for kubectl.
    pub(super) fn kubectl_flags(&self) -> String {
        let context = self.context.as_ref().map(|context| format!(" --context {context}")).unwrap_or_default();
        let namespace = if self.is_own() { String::new() } else { format!(" -n {}", self.namespace) };
        format!("--kubeconfig {}{context}{namespace}", self.kubeconfig.display())
    }

    /// Rejects a cluster with conflicting objects.
    async fn check(&self) -> Result<()> {
        let found = [
            foreign::<CustomResourceDefinition>(&self.admin, &self.crd.name_any()).await?,
            foreign::<Namespace>(&self.admin, self.namespace).await?,
            foreign::<ClusterRole>(&self.admin, OPERATOR).await?,
            foreign::<ClusterRoleBinding>(&self.admin, OPERATOR).await?,
        ];
        match found.into_iter().flatten().next() {
            None => Ok(()),
            Some(what) => Err(Error::new(format!("the cluster already has {what}, which the demo did not create"))
                .hint("use another cluster, or drop --kubeconfig")),
        }
    }

    /// Rejects a cluster without nodes before anything is created. The demo's own control plane gets a node later.
    pub(super) async fn check_nodes(&self) -> Result<()> {
        if self.is_own() {
            return Ok(());
        }
        let nodes = Api::<Node>::all(self.admin.clone()).list(&ListParams::default().limit(1)).await;
        // A user without permission to list nodes may still have nodes.
        if matches!(&nodes, Err(kube::Error::Api(status)) if status.code == 403) {
            return Ok(());
        }
        if !nodes.context("cannot list nodes")?.items.is_empty() {
            return Ok(());
        }
        let hint = "in a cluster of `flyball cluster up`, add one: flyball cluster node add";
        Err(Error::new("the cluster has no nodes, so the demo's pods would stay pending").hint(hint))
    }

    /// Removes the demo's objects from an existing cluster.
    pub(super) async fn clear(self) -> Result<()> {
        if self.is_own() {
            return Ok(());
        }
        print_line(&paint(Style::Faint, "cleaning up"));
        let cleared = timeout(CLEANUP_TIMEOUT, self.remove_all()).await;
        let hint = format!("the remaining objects have the label {}={}", LABEL.0, LABEL.1);
        let cleared = cleared.context("cleanup timed out").and_then(|cleared| cleared);
        cleared.map_err(|error| error.hint(hint))
    }

    /// Returns the objects that the operator reconciles.
    pub(super) fn objects(&self) -> Api<DynamicObject> {
        let spec = &self.crd.spec;
        let version = spec.versions.first().map_or("", |version| &version.name);
        let kind = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        Api::namespaced_with(self.admin.clone(), self.namespace, &resource)
    }

    async fn remove_all(&self) -> Result<()> {
        // The operator no longer runs to remove its finalizers, and there are no external resources.
        let objects = self.objects();
        let listed = objects.list(&ListParams::default()).await;
        for object in listed.map(|list| list.items).unwrap_or_default() {
            let free = Patch::Merge(serde_json::json!({"metadata": {"finalizers": null}}));
            let _ = objects.patch(&object.name_any(), &PatchParams::default(), &free).await;
        }
        remove::<CustomResourceDefinition>(&self.admin, &self.crd.name_any()).await?;
        remove::<ClusterRoleBinding>(&self.admin, OPERATOR).await?;
        remove::<ClusterRole>(&self.admin, OPERATOR).await?;
        remove::<Namespace>(&self.admin, self.namespace).await
    }
}

/// Returns the name of an object that exists and does not belong to the demo.
async fn foreign<T>(client: &Client, name: &str) -> Result<Option<String>>
where
    T: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let what = format!("{} {name:?}", T::kind(&()));
    let found = Api::<T>::all(client.clone()).get_opt(name).await.context(format!("cannot read {what}"))?;
    let ours = |object: &T| object.labels().get(LABEL.0).is_some_and(|value| value == LABEL.1);
    Ok(found.filter(|object| !ours(object)).map(|_| what))
}

/// Deletes an object of the demo, and waits for its deletion.
async fn remove<T>(client: &Client, name: &str) -> Result<()>
where
    T: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let what = format!("cannot remove {} {name:?}", T::kind(&()));
    if foreign::<T>(client, name).await?.is_some() {
        return Ok(());
    }
    let objects = Api::<T>::all(client.clone());
    match objects.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        deleted => drop(deleted.context(what.clone())?),
    }
    let gone = poll_until(CLEANUP_TIMEOUT, POLL_INTERVAL, async || {
        Ok(objects.get_opt(name).await.context(what.clone())?.map_or(Ok(()), |_| Err(())))
    });
    gone.await?.map_err(|()| Error::new(format!("{what}: it still exists after {} s", CLEANUP_TIMEOUT.as_secs())))
}

/// Creates an object. Leftovers of an interrupted demo were deleted before.
pub(super) async fn create<T>(objects: &Api<T>, object: &T) -> Result<()>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + serde::Serialize,
{
    let what = format!("cannot create {} {:?}", T::kind(&()), object.name_any());
    objects.create(&PostParams::default(), object).await.map(drop).context(what)
}
