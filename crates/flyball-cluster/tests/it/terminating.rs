//! Controllers in a terminating namespace.

use crate::{cluster_of, eventually, namespace};
use flyball::{Action, Context, Controller, Operator, Reconcile, Result, Rng};
use flyball_cluster::{Faults, Options, Trace, User, simulated_clock};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::json;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Creates a config map for each secret of type `example.com/page`.
struct Pages;

impl Reconcile for Pages {
    type Resource = Secret;

    async fn reconcile(&self, secret: &Secret, cx: &Context<Secret>) -> Result<Action> {
        if secret.type_.as_deref() == Some("example.com/page") {
            let metadata = ObjectMeta { name: secret.metadata.name.clone(), ..ObjectMeta::default() };
            cx.apply(&ConfigMap { metadata, data: Some([("a".into(), "1".into())].into()), ..ConfigMap::default() })
                .await?;
        }
        Ok(Action::done())
    }
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_causes_no_request_storm() {
    let clock = simulated_clock();
    let cluster = cluster_of(Options::simulated(clock.clone(), 1));
    let (admin, trace) = (cluster.admin(), Trace::default());
    namespace(&admin, "going").await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "going");
    // The finalizer blocks the namespace; the operator receives the page when the namespace is already terminating.
    let page = json!({"metadata": {"name": "page", "finalizers": ["example.com/hold"]}, "type": "example.com/page"});
    secrets.create(&PostParams::default(), &serde_json::from_value(page).unwrap()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    namespaces.delete("going", &DeleteParams::default()).await.unwrap();
    eventually("the deletion", || async { secrets.get("page").await.unwrap().metadata.deletion_timestamp.is_some() })
        .await;

    let user = User::new("pages", &["system:masters"]);
    let client = cluster.simulated_client(user, Faults::default(), Rng::from_seed(1), trace.clone());
    let controller = Controller::new(Pages).owns::<ConfigMap>().while_deleting();
    let operator = Operator::new("pages").clock(clock).rng(Rng::from_seed(1)).controller(controller);
    tokio::spawn(async move { operator.run(client, pending()).await.unwrap() });
    sleep(Duration::from_secs(600)).await;
    let tries =
        trace.text().lines().filter(|line| line.contains("> pages PATCH") && line.contains("/configmaps/page")).count();
    assert!((1..=2).contains(&tries), "{tries} tries in ten minutes");
}
