//! A small operator, and a stage to run it on: time only advances while all tasks wait.

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

/// The behavior of the operator in a test.
pub type Act = dyn for<'a> Fn(&'a Widget, &'a Context<Widget>) -> Pin<Box<dyn Future<Output = Result<Action>> + Send + 'a>>
    + Send
    + Sync;

/// A reconciler that calls the test's function, and counts.
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

    /// Gives every widget a ConfigMap with the same name, and a status.
    pub fn usual() -> Self {
        Self::new(|widget, cx| Box::pin(usual(widget, cx)))
    }

    /// Returns the names of the widgets that were reconciled since the last call.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Returns the errors since the last call.
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

/// A running operator with its server.
pub struct Stage {
    pub api: Api,
    pub widgets: Widgets,
    stop: Option<oneshot::Sender<()>>,
    pub running: JoinHandle<()>,
}

impl Stage {
    /// Starts an operator that owns ConfigMaps.
    pub async fn start(api: &Api, widgets: &Widgets) -> Self {
        Self::with(api, widgets, Controller::owns::<ConfigMap>).await
    }

    /// Starts an operator whose controller is configured by the test.
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

    /// Shuts the operator down, and waits for its end.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.running.await.unwrap();
    }
}

/// Creates an operator with the test's clock and randomness.
pub fn operator() -> Operator {
    let began = Instant::now();
    let clock = Clock::new(move || {
        let start: flyball_core::time::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + began.elapsed()
    });
    Operator::new("widget-operator").clock(clock).rng(Rng::from_seed(1))
}

/// Waits for all immediate effects: half a second, in which responses take a millisecond each.
pub async fn settle() {
    sleep(Duration::from_millis(500)).await;
}

/// Creates or changes a widget.
pub fn widget(api: &Api, name: &str, size: i64) {
    api.edit("widgets", "ns", name, |object| {
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = "Widget".into();
        object["spec"] = json!({"size": size});
    });
}

/// Returns the size in a widget's ConfigMap.
pub fn size_of(api: &Api, name: &str) -> Option<String> {
    let config_map: Value = api.get("configmaps", "ns", name)?;
    Some(config_map["data"]["size"].as_str()?.to_owned())
}
