//! A small operator, and a stage to run it on: time stands still until everybody waits.

use crate::api::Api;
use flyball::{Action, Clock, Context, Controller, Operator, Reconcile, Result, Rng};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug, PartialEq, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
pub struct WidgetSpec {
    pub size: i64,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct WidgetStatus {
    #[serde(default)]
    pub observed: i64,
}

/// What a test lets its operator do.
pub type Act = dyn for<'a> Fn(&'a Widget, &'a Context<Widget>) -> Pin<Box<dyn Future<Output = Result<Action>> + Send + 'a>>
    + Send
    + Sync;

/// Reconciles as the test says, and counts.
#[derive(Clone)]
pub struct Widgets {
    act: Arc<Act>,
    calls: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Widgets {
    pub fn new(
        act: impl for<'a> Fn(&'a Widget, &'a Context<Widget>) -> Pin<Box<dyn Future<Output = Result<Action>> + Send + 'a>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { act: Arc::new(act), calls: Arc::default(), errors: Arc::default() }
    }

    /// Creates a config map for every widget, and sets its status.
    pub fn usual() -> Self {
        Self::new(|widget, cx| Box::pin(usual(widget, cx)))
    }

    /// Returns the names of the widgets that were reconciled since the last call.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Returns what went wrong since the last call.
    pub fn errors(&self) -> Vec<String> {
        std::mem::take(&mut *self.errors.lock().unwrap())
    }
}

pub async fn usual(widget: &Widget, cx: &Context<Widget>) -> Result<Action> {
    cx.apply(&config_map(&widget.name_any(), widget.spec.size)).await?;
    cx.set_status(&WidgetStatus { observed: widget.spec.size }).await?;
    Ok(Action::done())
}

impl Reconcile for Widgets {
    type Resource = Widget;

    async fn reconcile(&self, widget: &Widget, cx: &Context<Widget>) -> Result<Action> {
        self.calls.lock().unwrap().push(widget.name_any());
        let result = (self.act)(widget, cx).await;
        self.errors.lock().unwrap().extend(result.as_ref().err().map(ToString::to_string));
        result
    }
}

pub fn config_map(name: &str, size: i64) -> ConfigMap {
    let data = Some([("size".to_owned(), size.to_string())].into());
    let metadata = kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() };
    ConfigMap { metadata, data, ..ConfigMap::default() }
}

/// A running operator with the server that it runs against.
pub struct Stage {
    pub api: Api,
    pub widgets: Widgets,
    stop: Option<oneshot::Sender<()>>,
    pub running: JoinHandle<()>,
}

impl Stage {
    /// Starts an operator that owns config maps.
    pub async fn start(api: &Api, widgets: &Widgets) -> Self {
        Self::with(api, widgets, Controller::owns::<ConfigMap>).await
    }

    /// Starts an operator whose controller is set up as the test says.
    pub async fn with(
        api: &Api,
        widgets: &Widgets,
        set_up: impl FnOnce(Controller<Widgets>) -> Controller<Widgets>,
    ) -> Self {
        let controller = set_up(Controller::new(widgets.clone()));
        let stage = Self::operator(api, widgets, operator().controller(controller));
        settle().await;
        stage
    }

    /// Starts an operator.
    pub fn operator(api: &Api, widgets: &Widgets, operator: Operator) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let client = api.client();
        let running = tokio::spawn(async move {
            operator.run(client, async { drop(stopped.await) }).await.unwrap();
        });
        Self { api: api.clone(), widgets: widgets.clone(), stop: Some(stop), running }
    }

    /// Kills the operator as SIGKILL would.
    pub async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }

    /// Shuts the operator down, and waits until it is.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.running.await.unwrap();
    }
}

/// Creates an operator that takes time and chance from the test.
pub fn operator() -> Operator {
    let began = Instant::now();
    let clock = Clock::new(move || {
        let start: flyball_core::time::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + began.elapsed()
    });
    Operator::new("widget-operator").clock(clock).rng(Rng::from_seed(1))
}

/// Advances time by half a second, in which each response takes a millisecond.
pub async fn settle() {
    sleep(Duration::from_millis(500)).await;
}

/// Makes or changes a widget.
pub fn widget(api: &Api, name: &str, size: i64) {
    api.edit("widgets", "ns", name, |object| {
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = "Widget".into();
        object["spec"] = json!({"size": size});
    });
}

/// Returns the size that a widget's config map holds.
pub fn size_of(api: &Api, name: &str) -> Option<String> {
    let config_map: Value = api.get("configmaps", "ns", name)?;
    Some(config_map["data"]["size"].as_str()?.to_owned())
}
