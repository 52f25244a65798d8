//! Visitors: a database, a backend and a frontend, one after the other.

use super::cluster::DemoCluster;
use super::show::{MANAGER, print_title, wait_until};
use crate::error::{Result, ResultExt};
use ::visitors::api::visitorsapp_v1::VisitorsApp;
use flyball_cluster::Nodes;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const NAME: &str = "site";

/// Commands to try.
pub(super) const COMMANDS: [&str; 3] = [
    "get visitorsapps,deployments,services",
    "patch visitorsapp site --type=merge -p '{\"spec\":{\"size\":5}}'",
    "delete visitorsapp site",
];

pub(super) fn sample() -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "VisitorsApp",
        "metadata": {"name": NAME},
        "spec": {"size": 1, "title": "Visitors"},
    })
}

/// Runs the show.
pub(super) async fn run(cluster: &DemoCluster) -> Result<()> {
    if cluster.is_own() {
        Nodes::new("node", 1).add_to(&cluster.admin).await.context("cannot create a node")?;
    }
    let sites: Api<VisitorsApp> = Api::namespaced(cluster.admin.clone(), cluster.namespace);
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin.clone(), cluster.namespace);
    let ready = |site: &VisitorsApp| {
        let conditions = site.status.iter().flat_map(|status| &status.conditions);
        let generation = site.metadata.generation;
        conditions.clone().any(|condition| condition.status == "True" && condition.observed_generation == generation)
    };
    let change = async |what: &str, spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        sites.patch(NAME, &PatchParams::default(), &patch).await.map(drop).context(what.to_owned())
    };

    print_title("Apply site: a MySQL database, then a backend, then a frontend");
    let applied = Patch::Apply(sample());
    sites.patch(NAME, &PatchParams::apply(MANAGER), &applied).await.context("cannot apply site")?;
    wait_until(cluster, &sites, NAME, "all three are ready", |site| std::future::ready(ready(site))).await?;

    print_title("Change the title, which only the frontend shows");
    change("cannot change the title", json!({"title": "Welcome"})).await?;
    wait_until(cluster, &sites, NAME, "the frontend rolled out", |site| std::future::ready(ready(site))).await?;

    print_title("Scale the backend to three pods");
    change("cannot change the size", json!({"size": 3})).await?;
    wait_until(cluster, &sites, NAME, "three backends are available", |site| {
        let (deployments, ready) = (deployments.clone(), ready(site));
        async move {
            let backend = deployments.get("site-backend").await.ok().and_then(|backend| backend.status);
            ready && backend.is_some_and(|status| status.available_replicas == Some(3))
        }
    })
    .await
}
