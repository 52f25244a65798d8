//! Reconciles for ever: each reconcile writes the time to the status, and the write triggers the next one. Seen in
//! paperclipinc/openclaw-operator #161 and operator-framework/operator-lifecycle-manager #1816.

use crate::objects::api;
use crate::suite::Bug;
use flyball::{Action, Condition, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const SAMPLE: &str = "
apiVersion: pages.example.com/v1
kind: Page
metadata: {name: home}
spec: {title: Home}
";

/// Desired state of a `Page`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "pages.example.com", version = "v1", kind = "Page", namespaced, status = "PageStatus")]
pub(crate) struct PageSpec {
    /// Title of the page.
    title: String,
}

/// Observed state of a `Page`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageStatus {
    /// Time of the last reconcile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_reconcile_time: Option<String>,
    /// The condition `Published` is true when the page can be read.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

struct Pages<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Pages<FIXED> {
    type Resource = Page;

    async fn reconcile(&self, page: &Page, cx: &Context<Page>) -> Result<Action> {
        let name = page.name_any();
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": name},
            "data": {"index.html": format!("<h1>{}</h1>", page.spec.title)},
        }))?;
        cx.apply(&map).await?;
        let mut published = Condition::new("Published", true, "Applied");
        if FIXED {
            cx.set_status(&PageStatus { last_reconcile_time: None, conditions: vec![published] }).await?;
            return Ok(Action::done());
        }
        let now = cx.now().to_string();
        published.last_transition_time = Some(now.clone());
        let status = PageStatus { last_reconcile_time: Some(now), conditions: vec![published] };
        let patch = Patch::Merge(json!({"status": status}));
        api::<Page, Page>(cx).patch_status(&name, &PatchParams::default(), &patch).await?;
        Ok(Action::done())
    }
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Pages::<FIXED>).owns::<ConfigMap>();
    Operator::new("page-operator").crd(Page::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).sample(SAMPLE)
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Quiescence,
    object: "pages.example.com/pages/home",
    schedule: "default; seed=1; steps=1",
};
