//! Conditions of an object whose cleanup fails, for a kind with conditions as `flyball create api` declares them.

use crate::{cluster, eventually};
use flyball::{Action, Condition, Context, Controller, Operator, Reconcile, Result};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use serde_json::json;
use std::future::pending;
use visitors::api::visitorsapp_v1::{VisitorsApp, VisitorsAppStatus};

struct Stuck;

impl Reconcile for Stuck {
    type Resource = VisitorsApp;
    const FINALIZER: Option<&'static str> = Some("example.com/site");

    async fn reconcile(&self, _: &VisitorsApp, cx: &Context<VisitorsApp>) -> Result<Action> {
        let conditions = vec![Condition::new("Ready", true, "Made")];
        cx.set_status(&VisitorsAppStatus { conditions, ..VisitorsAppStatus::default() }).await?;
        Ok(Action::done())
    }

    async fn finalize(&self, _: &VisitorsApp, _: &Context<VisitorsApp>) -> Result<Action> {
        Err("the database does not answer".into())
    }
}

#[tokio::test(start_paused = true)]
async fn failed_cleanup_is_reported_beside_the_operators_conditions() {
    let admin = cluster().admin();
    Api::all(admin.clone()).create(&PostParams::default(), &VisitorsApp::crd()).await.unwrap();
    let sites = Api::<VisitorsApp>::namespaced(admin.clone(), "default");
    eventually("the kind is served", || async { sites.list(&ListParams::default()).await.is_ok() }).await;
    let site = json!({
        "apiVersion": "example.com/v1", "kind": "VisitorsApp", "metadata": {"name": "a"},
        "spec": {"size": 1, "title": "Visitors"},
    });
    sites.patch("a", &PatchParams::apply("test"), &Patch::Apply(site)).await.unwrap();
    tokio::spawn(Operator::new("sites").controller(Controller::new(Stuck)).run(admin.clone(), pending()));

    let conditions = async || {
        let status = sites.get("a").await.unwrap().status.unwrap_or_default();
        let summary = |condition: Condition| (condition.kind, condition.status, condition.message);
        status.conditions.into_iter().map(summary).collect::<Vec<_>>()
    };
    let ready = ("Ready".to_owned(), "True".to_owned(), String::new());
    eventually("it is ready", || async { conditions().await == [ready.clone()] }).await;
    sites.delete("a", &DeleteParams::default()).await.unwrap();
    let why = ("CleanedUp".to_owned(), "False".to_owned(), "the database does not answer".to_owned());
    eventually("the condition has the reason", || async { conditions().await == [ready.clone(), why.clone()] }).await;
}
