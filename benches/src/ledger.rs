//! The cost of the ledger: of one record, and of the CPU time per reconcile of an operator with and without it.
//!
//! | Work | Reconcile |
//! |---|---|
//! | `start` | the first one of each object, without work |
//! | `update` | one for each change of an object, without work |
//! | `write` | one that applies a child and a status |
//!
//! Operators with and without a ledger run in turns, each in a separate process, against one embedded API server.

use crate::contest::{Arena, Widget, cpu_seconds, map_of, median, populate, status_of};
use crate::{Result, connect};
use flyball::ObjectKey;
use flyball::bench::MeasuredLedger;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const RECONCILES: u64 = 2_000_000;
const RUNS: usize = 7;
/// Concurrent reconciles.
const CONCURRENCY: usize = 16;
/// The annotation whose value is the number of a change.
const CHANGE: &str = "bench.flyball.dev/change";

/// The work of a reconcile, its number of objects, and the number of changes of these.
const WORKS: [(&str, usize, usize); 3] = [("start", 10_000, 0), ("update", 500, 4_000), ("write", 1_000, 0)];

/// Measures the cost of a record, and of `runs` pairs of operators for one work or for all.
pub(crate) async fn measure(runs: usize, only: Option<&str>) -> Result<()> {
    measure_record();
    let arena = Arena::start().await?;
    populate(&arena.client, "start", WORKS[0].1).await?;
    println!("{:>7} {:>16} {:>16} {:>16} {:>18}", "", "without, µs", "with, µs", "ratio", "of pairs: 25 to 75 %");
    for (work, objects, changes) in WORKS.into_iter().filter(|(work, ..)| only.is_none_or(|only| only == *work)) {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        // The first pair is a warm-up, and the order alternates.
        for run in 0..=runs {
            let mut pair = [0.0; 2];
            for turn in 0..2 {
                let has_ledger = (turn + run) % 2 == 1;
                let namespace = if work == "start" { work.to_owned() } else { format!("{work}-{run}-{turn}") };
                if work != "start" {
                    populate(&arena.client, &namespace, objects).await?;
                }
                pair[usize::from(has_ledger)] = run_one(&arena, work, has_ledger, &namespace, objects, changes).await?;
            }
            if run > 0 {
                without.push(pair[0]);
                with.push(pair[1]);
            }
        }
        let mut ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
        ratios.sort_by(f64::total_cmp);
        let quarter = ratios.len() / 4;
        let (low, high) = (ratios[quarter], ratios[ratios.len() - 1 - quarter]);
        // Standard error of the median of a normal distribution with these quartiles.
        let error = 1.253 * (high - low) / 1.349 / (runs as f64).sqrt();
        let (without, with) = (median(without) * 1e6, median(with) * 1e6);
        let ratio = format!("{:.3} ± {error:.3}", median(ratios));
        println!("{work:>7} {without:>16.2} {with:>16.2} {ratio:>16} {low:>8.3} to {high:.3}");
    }
    Ok(())
}

fn measure_record() {
    let keys: Vec<ObjectKey> = (0..1000).map(|n| ObjectKey::new(Some("default"), &format!("widget-{n}"))).collect();
    let ledger = MeasuredLedger::new();
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        for id in 0..RECONCILES {
            ledger.record(&keys[id as usize % keys.len()], id);
        }
        times.push(began.elapsed().as_nanos() as f64 / RECONCILES as f64);
    }
    let (count, bytes) = ledger.size();
    println!("record of a reconcile: {:.0} ns (median of {RUNS}); {count} kept in {} KiB", median(times), bytes >> 10);
}

/// Runs an operator, and returns its CPU time per reconcile in seconds.
async fn run_one(
    arena: &Arena,
    work: &str,
    has_ledger: bool,
    namespace: &str,
    objects: usize,
    changes: usize,
) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let ledger = if has_ledger { "with" } else { "without" };
    let numbers = [objects, changes].map(|number| number.to_string());
    command.args(["ledger-operator", work, ledger, &arena.kubeconfig, namespace, &numbers[0], &numbers[1]]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut next =
        || tokio::task::block_in_place(|| lines.next()).ok_or("the operator ended early")?.map_err(Box::from);
    if changes > 0 {
        let ready: Result<String> = next();
        ready?;
        change(&arena.client, namespace, objects, changes).await?;
    }
    let line: Result<String> = next();
    let measured = line?.parse()?;
    tokio::task::block_in_place(|| child.wait())?;
    Ok(measured)
}

/// Changes objects one after the other.
async fn change(client: &Client, namespace: &str, objects: usize, changes: usize) -> Result<()> {
    let widgets = Api::<Widget>::namespaced(client.clone(), namespace);
    for number in 1..=changes {
        let patch = json!({"metadata": {"annotations": {CHANGE: number.to_string()}}});
        let name = format!("widget-{:05}", number % objects);
        widgets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Runs an operator until it has reconciled all objects and changes, and prints its CPU time per reconcile.
pub(crate) async fn operator(words: &[&str]) -> Result<()> {
    let [work, ledger, kubeconfig, namespace, objects, changes] = *words else { return Err("wrong arguments".into()) };
    let progress = Progress { objects: objects.parse()?, changes: changes.parse()?, ..Progress::default() };
    let writes = work == "write";
    let controller = flyball::Controller::new(Widgets { writes, progress: Arc::new(Mutex::new(progress)) });
    let controller = controller.concurrency(CONCURRENCY);
    let controller = if writes { controller.owns::<ConfigMap>() } else { controller };
    let operator = flyball::Operator::new("bench").namespaces([namespace]).controller(controller);
    let operator = if ledger == "with" { operator } else { operator.without_ledger() };
    operator.run(connect(kubeconfig).await?, std::future::pending()).await?;
    Err("ended early".into())
}

/// The reconciles of an operator.
#[derive(Default)]
struct Progress {
    objects: usize,
    changes: usize,
    names: BTreeSet<String>,
    reconciles: usize,
    /// CPU time and reconciles when all objects were reconciled.
    start: Option<(f64, usize)>,
}

impl Progress {
    fn reconciled(&mut self, widget: &Widget) {
        self.reconciles += 1;
        if self.start.is_none() {
            self.names.insert(widget.name_any());
            if self.names.len() < self.objects {
                return;
            }
            if self.changes == 0 {
                print_and_exit(cpu_seconds() / self.objects as f64);
            }
            self.start = Some((cpu_seconds(), self.reconciles));
            println!("ready");
        }
        let change = widget.annotations().get(CHANGE).and_then(|number| number.parse().ok());
        if let Some((cpu, reconciles)) = self.start
            && change == Some(self.changes)
        {
            print_and_exit((cpu_seconds() - cpu) / (self.reconciles - reconciles) as f64);
        }
    }
}

fn print_and_exit(measured: f64) -> ! {
    let _ = writeln!(std::io::stdout(), "{measured}");
    std::process::exit(0)
}

struct Widgets {
    writes: bool,
    progress: Arc<Mutex<Progress>>,
}

impl flyball::Reconcile for Widgets {
    type Resource = Widget;

    async fn reconcile(&self, widget: &Widget, cx: &flyball::Context<Widget>) -> flyball::Result<flyball::Action> {
        if self.writes {
            cx.apply(&map_of(widget)).await?;
            cx.set_status(&status_of(widget)).await?;
        }
        self.progress.lock().expect("nobody panics").reconciled(widget);
        Ok(flyball::Action::done())
    }
}
