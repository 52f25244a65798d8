//! Benchmark of controllers: the time from process start to the last reconcile of N objects.
//!
//! `flyball`, `kube::runtime::Controller` and a bare client (`floor`) run alternately against one embedded API server,
//! each in a separate process, over TLS. It prints medians and their ratios to the floor.

use crate::{Result, connect};
use flyball_cluster::{Cluster, Endpoint, Options};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::runtime::{controller, watcher};
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CONTESTANTS: [&str; 3] = ["floor", "flyball", "kube"];
/// Concurrent requests of the floor, equal to the concurrent reconciles of `flyball`.
const CONCURRENCY: usize = 16;
/// Field manager of the writes of `kube` and the floor.
const MANAGER: &str = "bench";

/// The work for each object.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// No work: the floor only lists.
    Nothing,
    /// Creates a ConfigMap and sets the status: the floor sends these two requests.
    Writes,
}

impl Work {
    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Writes => "writes",
        }
    }
}

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug, JsonSchema)]
#[kube(group = "bench.flyball.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
pub(crate) struct WidgetSpec {
    size: i64,
    payload: String,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, JsonSchema)]
pub(crate) struct WidgetStatus {
    #[serde(default)]
    observed: i64,
}

/// The result of one run of a contestant.
#[derive(Clone, Copy)]
struct Measurement {
    seconds: f64,
    cpu: f64,
    mib: f64,
}

/// An API server that serves widgets, for processes with its kubeconfig.
pub(crate) struct Arena {
    folder: std::path::PathBuf,
    pub(crate) kubeconfig: String,
    pub(crate) client: Client,
}

impl Arena {
    pub(crate) async fn start() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("flyball-benches-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("kubeconfig");
        let options = Options::system()?;
        let endpoint = Endpoint::bind(0, &options.clock).await?;
        std::fs::write(&path, serde_json::to_string(&endpoint.kubeconfig("bench"))?)?;
        let cluster = Cluster::new(options);
        tokio::spawn(async move { endpoint.serve(&cluster, std::future::pending()).await });
        let kubeconfig = path.to_str().ok_or("the path of the kubeconfig is no UTF-8")?.to_owned();
        let client = connect(&kubeconfig).await?;
        define(&client).await?;
        Ok(Self { folder, kubeconfig, client })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) async fn compare(work: Work, runs: usize, sizes: &[usize]) -> Result<()> {
    let arena = Arena::start().await?;
    let (path, client) = (arena.kubeconfig.as_str(), &arena.client);
    if work == Work::Nothing {
        for n in sizes {
            populate(client, &format!("w{n}"), *n).await?;
        }
    }

    println!("{:>7} {:8} {:>9} {:>7} {:>9} {:>9}", "objects", "", "s", "× floor", "CPU s", "peak MiB");
    for n in sizes {
        let mut all = CONTESTANTS.map(|_| Vec::new());
        for run in 0..=runs {
            for (name, figures) in CONTESTANTS.iter().zip(&mut all) {
                // Objects written by one contestant must not affect the next.
                let namespace = match work {
                    Work::Nothing => format!("w{n}"),
                    Work::Writes => format!("w{n}-{run}-{name}"),
                };
                if work == Work::Writes {
                    populate(client, &namespace, *n).await?;
                }
                let measured = run_one(work, name, path, &namespace, *n)?;
                // The first run is a warm-up.
                if run > 0 {
                    figures.push(measured);
                }
            }
        }
        let mut floor = None;
        for (name, figures) in CONTESTANTS.iter().zip(&all) {
            let median = |of: fn(&Measurement) -> f64| median(figures.iter().map(of).collect());
            let [seconds, cpu, mib] = [median(|f| f.seconds), median(|f| f.cpu), median(|f| f.mib)];
            let ratio = seconds / *floor.get_or_insert(seconds);
            println!("{n:>7} {name:8} {seconds:>9.3} {ratio:>7.2} {cpu:>9.3} {mib:>9.1}");
        }
    }
    Ok(())
}

async fn post(client: &Client, path: &str, object: &serde_json::Value) -> Result<()> {
    let request =
        http::Request::post(path).header("content-type", "application/json").body(object.to_string().into_bytes())?;
    client.request::<serde_json::Value>(request).await?;
    Ok(())
}

/// Creates the CRD, and waits until the kind is served.
async fn define(client: &Client) -> Result<()> {
    let mut crd = serde_json::to_value(Widget::crd())?;
    (crd["apiVersion"], crd["kind"]) = ("apiextensions.k8s.io/v1".into(), "CustomResourceDefinition".into());
    post(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await?;
    let widgets = kube::Api::<Widget>::all(client.clone());
    for _ in 0..50 {
        if widgets.list(&Default::default()).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("widgets are not served".into())
}

pub(crate) async fn populate(client: &Client, namespace: &str, n: usize) -> Result<()> {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    post(client, "/api/v1/namespaces", &made).await?;
    let path = format!("/apis/bench.flyball.dev/v1/namespaces/{namespace}/widgets?fieldManager=bench");
    for i in 0..n {
        let object = json!({
            "apiVersion": "bench.flyball.dev/v1", "kind": "Widget", "metadata": {"name": format!("widget-{i:05}")},
            "spec": {"size": 1, "payload": "x".repeat(1024)},
        });
        post(client, &path, &object).await?;
    }
    Ok(())
}

fn run_one(work: Work, name: &str, kubeconfig: &str, namespace: &str, n: usize) -> Result<Measurement> {
    let began = now();
    let output = tokio::task::block_in_place(|| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["contestant", work.word(), name, kubeconfig, namespace, &n.to_string()]).output()
    })?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [ended, cpu, mib] => Ok(Measurement { seconds: ended - began, cpu, mib }),
        _ => Err(format!("{name} failed: {text} {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The reconciled objects; the process exits after the last one.
#[derive(Clone)]
struct Goal(Arc<Mutex<BTreeSet<String>>>, usize);

impl Goal {
    fn reached(&self, name: String) {
        let mut done = self.0.lock().expect("nobody panics");
        if done.insert(name) && done.len() == self.1 {
            finish();
        }
    }
}

/// Returns the CPU time of this process in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

fn finish() -> ! {
    let (ended, cpu) = (now(), cpu_seconds());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok());
    let _ = writeln!(std::io::stdout(), "{ended} {cpu} {}", peak.unwrap_or_default() / 1024.0);
    std::process::exit(0)
}

pub(crate) async fn contestant(work: &str, name: &str, kubeconfig: &str, namespace: &str, n: usize) -> Result<()> {
    let (client, goal) = (connect(kubeconfig).await?, Goal(Arc::default(), n));
    let work = if work == Work::Writes.word() { Work::Writes } else { Work::Nothing };
    match name {
        "flyball" => {
            let controller = flyball::Controller::new(Widgets(work, goal)).concurrency(CONCURRENCY);
            let controller = if work == Work::Writes { controller.owns::<ConfigMap>() } else { controller };
            let operator = flyball::Operator::new("bench").namespaces([namespace]).controller(controller);
            operator.run(client, std::future::pending()).await?;
        }
        "kube" => kube_controller(work, client, namespace, goal).await,
        _ => floor(work, client, namespace, goal).await?,
    }
    Err("ended early".into())
}

/// Runs kube's controller as in its documentation.
async fn kube_controller(work: Work, client: Client, namespace: &str, goal: Goal) {
    let widgets = kube::Api::<Widget>::namespaced(client.clone(), namespace);
    let maps = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let controller = controller::Controller::new(widgets, watcher::Config::default());
    let controller = match work {
        Work::Nothing => controller,
        Work::Writes => controller.owns(maps, watcher::Config::default()),
    };
    let reconcile = move |widget: Arc<Widget>, goal: Arc<Goal>| {
        let client = client.clone();
        async move {
            if work == Work::Writes {
                write(&client, &widget).await?;
            }
            goal.reached(widget.name_any());
            Ok::<_, kube::Error>(controller::Action::await_change())
        }
    };
    let failed =
        |_: Arc<Widget>, _: &kube::Error, _: Arc<Goal>| controller::Action::requeue(Duration::from_millis(100));
    controller.run(reconcile, failed, Arc::new(goal)).for_each(|_| async {}).await;
}

/// Sends only the necessary requests with a bare client.
async fn floor(work: Work, client: Client, namespace: &str, goal: Goal) -> Result<()> {
    let path = format!("/apis/bench.flyball.dev/v1/namespaces/{namespace}/widgets");
    let answer = client.send(http::Request::get(path).body(kube::client::Body::empty())?).await?;
    let body = answer.into_body().collect().await?.to_bytes();
    assert!(body.len() > goal.1 * 1024);
    if work == Work::Writes {
        let list: kube::core::ObjectList<Widget> = serde_json::from_slice(&body)?;
        let writes = list.items.iter().map(|widget| write(&client, widget));
        let mut writes = futures_util::stream::iter(writes).buffer_unordered(CONCURRENCY);
        while let Some(written) = writes.next().await {
            written?;
        }
    }
    finish();
}

pub(crate) fn map_of(widget: &Widget) -> ConfigMap {
    let data = [("size".to_owned(), widget.spec.size.to_string())].into();
    let metadata = ObjectMeta { name: widget.metadata.name.clone(), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

/// Applies the ConfigMap and the status of a widget.
async fn write(client: &Client, widget: &Widget) -> kube::Result<()> {
    let (namespace, params) = (widget.namespace().unwrap_or_default(), PatchParams::apply(MANAGER).force());
    let mut map = map_of(widget);
    map.metadata.owner_references = widget.controller_owner_ref(&()).map(|owner| vec![owner]);
    let maps = kube::Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    maps.patch(&widget.name_any(), &params, &Patch::Apply(&map)).await?;
    let status = json!({
        "apiVersion": "bench.flyball.dev/v1", "kind": "Widget", "status": {"observed": widget.spec.size},
    });
    let widgets = kube::Api::<Widget>::namespaced(client.clone(), &namespace);
    widgets.patch_status(&widget.name_any(), &params, &Patch::Apply(&status)).await?;
    Ok(())
}

/// Returns the status of a reconciled widget.
pub(crate) fn status_of(widget: &Widget) -> WidgetStatus {
    WidgetStatus { observed: widget.spec.size }
}

struct Widgets(Work, Goal);

impl flyball::Reconcile for Widgets {
    type Resource = Widget;

    async fn reconcile(&self, widget: &Widget, cx: &flyball::Context<Widget>) -> flyball::Result<flyball::Action> {
        if self.0 == Work::Writes {
            cx.apply(&map_of(widget)).await?;
            cx.set_status(&status_of(widget)).await?;
        }
        self.1.reached(widget.name_any());
        Ok(flyball::Action::done())
    }
}
