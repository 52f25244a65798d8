//! A benchmark peer for harnesses that compare frameworks, controlled by environment variables and standard input.
//!
//! `KUBECONFIG`, `NAMESPACE`, `KIND` (`widgets` or `pods`), `WORKLOAD` (`noop`, `latency`, `write` or `queue`), `N` and
//! `CONCURRENCY` specify the benchmark; `FLYBALL_THREADS` is the number of threads, 1 by default as for operators. With
//! `queue`, it prints the throughput of the work queue on two threads, and exits. Otherwise it prints `ready T` and
//! `reconciled N T`, in nanoseconds since 1970. On the input line `dump`, it prints a `latency` line for the first
//! reconcile of each size, `total` and `end`. It exits at the end of its input.

use flyball::bench::MeasuredQueue;
use flyball::{Action, Context, Controller, ObjectKey, Operator, Reconcile, Resource, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ObjectMeta;
use kube::{Config, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::BufRead;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug, JsonSchema)]
#[kube(group = "bench.flyball.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
struct WidgetSpec {
    size: i64,
    #[serde(default)]
    payload: String,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, JsonSchema)]
struct WidgetStatus {
    observed: i64,
}

/// The observations of the reconciler.
#[derive(Default)]
struct Seen {
    names: HashSet<String>,
    sizes: HashMap<String, i64>,
    reconciles: usize,
    samples: Vec<(i64, u128, u128)>,
}

impl Seen {
    fn reconciled(&mut self, name: &str, wanted: usize) {
        if self.reconciles == 0 {
            // Reconciles start after the caches are synced.
            println!("ready {}", now());
        }
        self.reconciles += 1;
        if self.names.len() < wanted && self.names.insert(name.to_owned()) && self.names.len() == wanted {
            println!("reconciled {wanted} {}", now());
        }
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| otherwise.into())
}

struct Widgets {
    workload: String,
    wanted: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Reconcile for Widgets {
    type Resource = Widget;

    async fn reconcile(&self, widget: &Widget, cx: &Context<Widget>) -> Result<Action> {
        let (begun, name, size) = (now(), widget.name_any(), widget.spec.size);
        match self.workload.as_str() {
            "latency" => {
                let mut seen = self.seen.lock().expect("nobody panics with it");
                if seen.sizes.insert(name.clone(), size).is_some_and(|before| before != size) {
                    let sent = widget.annotations().get("bench/sent").and_then(|sent| sent.parse().ok());
                    seen.samples.push((size, sent.unwrap_or_default(), begun));
                }
            }
            "write" => {
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let data = Some([("size".to_owned(), size.to_string())].into());
                cx.apply(&ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
                cx.set_status(&WidgetStatus { observed: size }).await?;
            }
            _ => {}
        }
        self.seen.lock().expect("nobody panics with it").reconciled(&name, self.wanted);
        Ok(Action::done())
    }
}

struct Pods {
    wanted: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Reconcile for Pods {
    type Resource = Pod;

    async fn reconcile(&self, pod: &Pod, _: &Context<Pod>) -> Result<Action> {
        self.seen.lock().expect("nobody panics with it").reconciled(&pod.name_any(), self.wanted);
        Ok(Action::done())
    }
}

/// Creates a controller according to the environment variables.
fn set_up<R: Reconcile<Resource: Resource>>(controller: Controller<R>) -> Result<Controller<R>, Box<dyn Error>> {
    Ok(match variable("CONCURRENCY", "").as_str() {
        "" => controller,
        workers => controller.concurrency(workers.parse()?),
    })
}

/// Prints the number of keys per second that the queue accepts and returns: first all in, then all out; then
/// concurrently, with at most a thousand keys in between.
async fn queues(n: usize) -> Result<(), Box<dyn Error>> {
    let keys: Arc<Vec<ObjectKey>> =
        Arc::new((0..n).map(|i| ObjectKey::new(Some("ns"), &format!("widget-{i}"))).collect());
    let rate = |n: usize, since: Instant, until: Instant| n as f64 / (until - since).as_secs_f64();
    for (distinct, workers) in [(n, 1), (n, 4), (n.min(1000), 1), (n.min(1000), 4)] {
        let (queue, taken) = (Arc::new(MeasuredQueue::new()), Arc::new(AtomicUsize::new(0)));
        let begun = Instant::now();
        (0..n).for_each(|i| queue.add(&keys[i % distinct]));
        let added = Instant::now();
        let work = |(queue, taken): (Arc<MeasuredQueue>, Arc<AtomicUsize>)| async move {
            queue.work(|_| taken.fetch_add(1, Ordering::Relaxed) + 1 < distinct).await;
            queue.close();
        };
        let tasks: Vec<_> = (0..workers).map(|_| tokio::spawn(work((queue.clone(), taken.clone())))).collect();
        for task in tasks {
            task.await?;
        }
        let ended = Instant::now();
        println!(
            "queue flyball keys={n} distinct={distinct} workers={workers} add_ops={:.0} pop_ops={:.0} total_ops={:.0}",
            rate(n, begun, added),
            rate(distinct, added, ended),
            rate(n, begun, ended)
        );
    }
    let (queue, taken) = (Arc::new(MeasuredQueue::new()), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let worker = {
        let (queue, taken) = (queue.clone(), taken.clone());
        tokio::spawn(async move { queue.work(|_| taken.fetch_add(1, Ordering::Release) + 1 < n).await })
    };
    let producer = tokio::spawn(async move {
        for (i, key) in keys.iter().enumerate() {
            while i - taken.load(Ordering::Acquire).min(i) >= 1000 {
                tokio::task::yield_now().await;
            }
            queue.add(key);
        }
    });
    producer.await?;
    worker.await?;
    println!("queue flyball steady keys={n} ops={:.0}", rate(n, begun, Instant::now()));
    Ok(())
}

/// Creates the same runtime as [`Operator::main`] with `--threads`.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads).enable_all().build()
}

fn main() -> Result<(), Box<dyn Error>> {
    if variable("WORKLOAD", "noop") == "queue" {
        return runtime(2)?.block_on(queues(variable("N", "1000000").parse()?));
    }
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let (workload, wanted) = (variable("WORKLOAD", "noop"), variable("N", "0").parse()?);
    let operator = Operator::new("peer-flyball").namespaces([variable("NAMESPACE", "default")]);
    let operator = match variable("KIND", "widgets").as_str() {
        "pods" => operator.controller(set_up(Controller::new(Pods { wanted, seen: seen.clone() }))?),
        _ => {
            let writes = workload == "write";
            let controller = Controller::new(Widgets { workload, wanted, seen: seen.clone() });
            let controller = if writes { controller.owns::<ConfigMap>() } else { controller };
            operator.controller(set_up(controller)?)
        }
    };
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok).filter(|line| line == "dump") {
            let seen = seen.lock().expect("nobody panics with it");
            for (size, sent, begun) in &seen.samples {
                println!("latency {size} {sent} {begun}");
            }
            println!("total {}\nend", seen.reconciles);
            drop(line);
        }
        std::process::exit(0);
    });
    runtime(variable("FLYBALL_THREADS", "1").parse()?)?
        .block_on(async { Ok(operator.run_at(Config::infer().await?, std::future::pending()).await?) })
}
