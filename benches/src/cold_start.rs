//! Cold start: how long a controller that does nothing needs for N objects, from process start to the last reconcile.
//!
//! `flyball`, `kube::runtime::Controller` and a bare list (`floor`) take turns against one embedded API server, each in a
//! process of its own, over TLS. Medians are printed.

use crate::{Result, connect};
use flyball_cluster::{Cluster, Endpoint, Options};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use kube::runtime::{controller, watcher};
use kube::{Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CONTESTANTS: [&str; 3] = ["floor", "flyball", "kube"];

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug, JsonSchema)]
#[kube(group = "bench.flyball.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
struct WidgetSpec {
    size: i64,
    payload: String,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, JsonSchema)]
struct WidgetStatus {
    #[serde(default)]
    observed: i64,
}

/// What a contestant says of one run.
#[derive(Clone, Copy)]
struct Figures {
    seconds: f64,
    cpu: f64,
    mib: f64,
}

pub(crate) async fn compare(runs: usize, sizes: &[usize]) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("cold-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("kubeconfig");
    let options = Options::system()?;
    let endpoint = Endpoint::bind(0, &options.clock).await?;
    std::fs::write(&path, serde_json::to_string(&endpoint.kubeconfig("bench"))?)?;
    let cluster = Cluster::new(options);
    tokio::spawn(async move { endpoint.serve(&cluster, std::future::pending()).await });
    let path = path.to_str().ok_or("the path of the kubeconfig is no UTF-8")?;
    populate(&connect(path).await?, sizes).await?;

    println!("{:>7} {:8} {:>9} {:>9} {:>9}", "objects", "", "s", "CPU s", "peak MiB");
    for n in sizes {
        let mut all = CONTESTANTS.map(|_| Vec::new());
        for run in 0..=runs {
            for (name, figures) in CONTESTANTS.iter().zip(&mut all) {
                let measured = run_one(name, path, *n)?;
                // The first run warms up.
                if run > 0 {
                    figures.push(measured);
                }
            }
        }
        for (name, figures) in CONTESTANTS.iter().zip(&all) {
            let median = |of: fn(&Figures) -> f64| {
                let mut values: Vec<f64> = figures.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let [seconds, cpu, mib] = [median(|f| f.seconds), median(|f| f.cpu), median(|f| f.mib)];
            println!("{n:>7} {name:8} {seconds:>9.3} {cpu:>9.3} {mib:>9.1}");
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

async fn populate(client: &Client, sizes: &[usize]) -> Result<()> {
    let post = async |path: &str, object: serde_json::Value| {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())?;
        client.request::<serde_json::Value>(request).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    let mut crd = serde_json::to_value(Widget::crd())?;
    (crd["apiVersion"], crd["kind"]) = ("apiextensions.k8s.io/v1".into(), "CustomResourceDefinition".into());
    post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await?;
    for n in sizes {
        let namespace = format!("w{n}");
        post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .await?;
        let path = format!("/apis/bench.flyball.dev/v1/namespaces/{namespace}/widgets?fieldManager=bench");
        for i in 0..*n {
            let object = json!({
                "apiVersion": "bench.flyball.dev/v1", "kind": "Widget", "metadata": {"name": format!("widget-{i:05}")},
                "spec": {"size": 1, "payload": "x".repeat(1024)},
            });
            let mut sent = post(&path, object.clone()).await;
            // The definition takes a moment to be served.
            for _ in 0..50 {
                if sent.is_ok() || i > 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                sent = post(&path, object.clone()).await;
            }
            sent?;
        }
    }
    Ok(())
}

fn run_one(name: &str, kubeconfig: &str, n: usize) -> Result<Figures> {
    let began = now();
    let output = tokio::task::block_in_place(|| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["contestant", name, kubeconfig, &format!("w{n}"), &n.to_string()]).output()
    })?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [ended, cpu, mib] => Ok(Figures { seconds: ended - began, cpu, mib }),
        _ => Err(format!("{name} failed: {text} {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The objects that were reconciled; the process ends with the last one.
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

fn finish() -> ! {
    let ended = now();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    let cpu = nanos.sum::<f64>() / 1e9;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok());
    let _ = writeln!(std::io::stdout(), "{ended} {cpu} {}", peak.unwrap_or_default() / 1024.0);
    std::process::exit(0)
}

pub(crate) async fn contestant(name: &str, kubeconfig: &str, namespace: &str, n: usize) -> Result<()> {
    let client = connect(kubeconfig).await?;
    let goal = Goal(Arc::default(), n);
    match name {
        "flyball" => {
            let operator = flyball::Operator::new("bench").namespaces([namespace]);
            let operator = operator.controller(flyball::Controller::new(Noop(goal)));
            operator.run(client, std::future::pending()).await?;
        }
        "kube" => {
            let api = kube::Api::<Widget>::namespaced(client, namespace);
            let reconcile = |widget: Arc<Widget>, goal: Arc<Goal>| async move {
                goal.reached(widget.name_any());
                Ok::<_, Infallible>(controller::Action::await_change())
            };
            let failed = |_: Arc<Widget>, _: &Infallible, _: Arc<Goal>| controller::Action::await_change();
            let run =
                controller::Controller::new(api, watcher::Config::default()).run(reconcile, failed, Arc::new(goal));
            run.for_each(|_| async {}).await;
        }
        _ => {
            let path = format!("/apis/bench.flyball.dev/v1/namespaces/{namespace}/widgets");
            let answer = client.send(http::Request::get(path).body(kube::client::Body::empty())?).await?;
            let body = answer.into_body().collect().await?.to_bytes();
            assert!(body.len() > n * 1024);
            finish();
        }
    }
    Err("ended early".into())
}

struct Noop(Goal);

impl flyball::Reconcile for Noop {
    type Resource = Widget;

    async fn reconcile(&self, widget: &Widget, _: &flyball::Context<Widget>) -> flyball::Result<flyball::Action> {
        self.0.reached(widget.name_any());
        Ok(flyball::Action::done())
    }
}
