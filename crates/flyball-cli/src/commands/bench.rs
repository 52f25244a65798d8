//! `flyball bench`: counts the API calls of an operator.
//!
//! The operator counts its own requests, watches among them, and shows them at `/metrics`: so the counts are the same
//! on any cluster. Only the time depends on the cluster.

use crate::cluster::apply;
use crate::cluster::connection::{Connection, block_on_threads};
use crate::cluster::embedded::EmbeddedCluster;
use crate::cluster::wait::poll_until;
use crate::commands::cluster::parse_count;
use crate::duration::parse_flag;
use crate::error::{Error, Result};
use crate::files::private::PrivateDirectory;
use crate::operator::local::{self, LineSinks, LocalArgs, LocalOperator};
use crate::operator::metrics::{Metrics, free_address};
use crate::operator::process::stop_signal;
use crate::project::{Budget, Project};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use crate::web::Web;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const CALLS: &str = "rest_client_requests_total";
const RECONCILES: &str = "controller_runtime_reconcile_total";
/// Polling interval of the operator's metrics.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// An operator without work for this period has converged.
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// Count the API calls of an operator per object and per idle hour
///
/// Runs the operator on its own control plane as in a pod, with a service account and leader election. Creates copies
/// of the samples, waits until the operator has converged, and then measures an idle period.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball bench                        100 copies of the samples of the project in this directory
  flyball bench --count 1000 --idle 2m --samples config/samples/small.yaml
  flyball bench --max-calls-per-object 5 --max-calls-per-idle-hour 2000

The budget can also be set in PROJECT; flags take precedence. Exits with 1 if the budget is exceeded:

  budget:
    callsPerObject: 5
    callsPerIdleHour: 2000

Copies do not adapt references between samples: select samples that are independent. Calls that happen less
often than once per --idle period are not counted.")]
pub(crate) struct BenchArgs {
    /// Number of copies of each sample
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Duration of the idle period
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_flag)]
    idle: Duration,
    /// Timeout for convergence
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_flag)]
    timeout: Duration,
    /// Copy the objects of this file or directory; defaults to `samples` or `config/samples`
    #[arg(long, value_name = "PATH")]
    samples: Option<PathBuf>,
    /// Budget of API calls per object
    #[arg(long, value_name = "CALLS")]
    max_calls_per_object: Option<f64>,
    /// Budget of API calls per idle hour
    #[arg(long, value_name = "CALLS")]
    max_calls_per_idle_hour: Option<f64>,
    /// Number of simulated nodes of the control plane
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count)]
    nodes: u32,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    local: LocalArgs,
}

/// Cost of an operator.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    objects: usize,
    /// Seconds from the first object until convergence.
    seconds: f64,
    reconciles_per_object: f64,
    calls_per_object: Calls,
    calls_per_idle_hour: Calls,
    budget: Budget,
    /// Exceeded parts of the budget.
    exceeded: Vec<String>,
}

/// API calls by HTTP method.
#[derive(Debug, Serialize)]
struct Calls {
    all: f64,
    #[serde(flatten)]
    by_method: BTreeMap<String, f64>,
}

pub(crate) fn cmd_bench(args: &BenchArgs) -> Result<()> {
    let cost = block_on_threads(bench(args))?;
    match args.output {
        Some(output) => output.print(&cost)?,
        None => cost.lines().iter().for_each(|line| print_line(line)),
    }
    match &cost.exceeded[..] {
        [] => Ok(()),
        exceeded => Err(Error::new(format!("budget exceeded: {}", exceeded.join("; ")))
            .hint("raise the budget in PROJECT or by flags")),
    }
}

async fn bench(args: &BenchArgs) -> Result<Cost> {
    args.local.check_project()?;
    let mut stop = Box::pin(stop_signal()?);
    let samples = local::samples(args.samples.as_deref());
    let samples = samples
        .ok_or_else(|| Error::new("no samples or config/samples directory found").hint("pass --samples PATH"))?;
    let objects = copies(&apply::read(&samples)?, args.count)?;
    let budget = args.budget(Project::find(Path::new("."))?.map(|project| project.budget));
    let own = EmbeddedCluster::start("flyball-bench", args.nodes).await?;
    let folder = PrivateDirectory::new("flyball-bench-operator")?;
    let (connection, metrics) = (Connection::open(own.config.clone()).await?, free_address()?);
    let mut operator = LocalOperator::new(args.local.clone(), Connection::open(own.config.clone()).await?);
    operator.configure_as_pod(own.config.clone(), folder.path().join("kubeconfig"), &metrics, "0");
    operator.variables.insert("FLYBALL_LEADER_ELECT".into(), "true".into());
    operator.quiet = true;
    // Its log goes to the log of this command.
    operator.sinks = LineSinks { build: None, operator: Some(Arc::new(|line| tracing::info!("{line}"))) };
    let poller = MetricsPoller { web: Web::new(Duration::from_secs(5))?, address: metrics, timeout: args.timeout };
    tokio::select! {
        biased;
        result = operator.run(&mut stop) => {
            result?;
            Err(Error::new("the operator exited before it was measured"))
        }
        cost = measure(args, &poller, &connection, &objects, budget) => cost,
    }
}

async fn measure(
    args: &BenchArgs,
    poller: &MetricsPoller,
    connection: &Connection,
    objects: &[Value],
    budget: Budget,
) -> Result<Cost> {
    let (before, _) = poller.wait_until_idle(None).await?;
    let start = Instant::now();
    for object in objects {
        connection.apply(object).await?;
    }
    let (after, rested) = poller.wait_until_idle(Some(&before)).await?;
    let until = Instant::now();
    sleep(args.idle).await;
    let end = Metrics::fetch(&poller.web, &poller.address).await?;
    let idle = until.elapsed();

    let calls = |from: &Metrics, to: &Metrics| {
        let from = from.by(CALLS, "method");
        let mut calls = to.by(CALLS, "method");
        calls.iter_mut().for_each(|(method, calls)| *calls -= from.get(method).copied().unwrap_or_default());
        calls
    };
    let (idle_calls, each) = (calls(&after, &end), objects.len() as f64);
    let per_object = calls(&before, &after).into_iter().map(|(method, calls)| {
        // Calls that are independent of the objects, such as lease renewals.
        let anyway = idle_calls.get(&method).copied().unwrap_or_default() * ((until - start).div_duration_f64(idle));
        (method, (calls - anyway).max(0.0) / each)
    });
    let per_hour = idle_calls.iter().map(|(method, calls)| (method.clone(), calls * 3600.0 / idle.as_secs_f64()));
    let mut cost = Cost {
        objects: objects.len(),
        seconds: (rested - start).as_secs_f64(),
        reconciles_per_object: (after.sum(RECONCILES) - before.sum(RECONCILES)) / each,
        calls_per_object: Calls::new(per_object),
        calls_per_idle_hour: Calls::new(per_hour),
        budget,
        exceeded: Vec::new(),
    };
    for (what, spent, allowed) in [
        ("calls for each object", cost.calls_per_object.all, budget.calls_per_object),
        ("calls in an hour without work", cost.calls_per_idle_hour.all, budget.calls_per_idle_hour),
    ] {
        if let Some(allowed) = allowed.filter(|allowed| spent > *allowed) {
            cost.exceeded.push(format!("{spent:.1} {what}, of {allowed}"));
        }
    }
    Ok(cost)
}

impl BenchArgs {
    fn budget(&self, of_project: Option<Budget>) -> Budget {
        let project = of_project.unwrap_or_default();
        Budget {
            calls_per_object: self.max_calls_per_object.or(project.calls_per_object),
            calls_per_idle_hour: self.max_calls_per_idle_hour.or(project.calls_per_idle_hour),
        }
    }
}

impl Calls {
    fn new(by_method: impl Iterator<Item = (String, f64)>) -> Self {
        let by_method: BTreeMap<String, f64> = by_method.filter(|(_, calls)| *calls > 0.0).collect();
        Self { all: by_method.values().fold(0.0, |sum, calls| sum + calls), by_method }
    }

    fn line(&self, what: &str, allowed: Option<f64>) -> String {
        let methods: Vec<String> =
            self.by_method.iter().map(|(method, calls)| format!("{method} {calls:.1}")).collect();
        let within = allowed.map(|allowed| {
            let style = if self.all > allowed { Style::Bad } else { Style::Good };
            paint(style, &format!(" of {allowed}"))
        });
        format!(
            "  {what:<22}{:>10.1}{}  {}",
            self.all,
            within.unwrap_or_default(),
            paint(Style::Faint, &methods.join(", "))
        )
    }
}

impl Cost {
    fn lines(&self) -> Vec<String> {
        vec![
            format!("{} objects", self.objects),
            format!("  {:<22}{:>10.2}", "seconds", self.seconds),
            format!("  {:<22}{:>10.1}", "reconciles per object", self.reconciles_per_object),
            self.calls_per_object.line("calls per object", self.budget.calls_per_object),
            self.calls_per_idle_hour.line("calls per idle hour", self.budget.calls_per_idle_hour),
        ]
    }
}

/// Copies objects under new names.
fn copies(samples: &[Value], count: u32) -> Result<Vec<Value>> {
    if samples.is_empty() {
        return Err(Error::new("no samples found").hint("pass --samples PATH"));
    }
    let mut copies = Vec::new();
    for number in 1..=count {
        for sample in samples {
            let mut copy = sample.clone();
            let name = sample["metadata"]["name"].as_str().unwrap_or_default();
            copy["metadata"]["name"] = format!("{name}-{number}").into();
            copies.push(copy);
        }
    }
    Ok(copies)
}

/// Polls the metrics of the operator.
struct MetricsPoller {
    web: Web,
    address: String,
    timeout: Duration,
}

impl MetricsPoller {
    /// Waits until the operator is the leader, idle for a while, and has done more than `before`; returns its metrics
    /// and the start of the idle period.
    async fn wait_until_idle(&self, before: Option<&Metrics>) -> Result<(Metrics, Instant)> {
        let (mut last, mut since) = (0.0, Instant::now());
        let least = before.map_or(-1.0, |before| before.sum(RECONCILES));
        let rest = poll_until(self.timeout, POLL_INTERVAL, async || {
            if let Ok(metrics) = Metrics::fetch(&self.web, &self.address).await {
                let done = metrics.sum(RECONCILES);
                let busy = metrics.sum("workqueue_depth") + metrics.sum("controller_runtime_active_workers");
                if busy > 0.0 || done > last || metrics.sum("leader_election_master_status") == 0.0 {
                    (last, since) = (done, Instant::now());
                } else if since.elapsed() >= IDLE_PERIOD && done > least {
                    return Ok(Ok((metrics, since)));
                }
            }
            Ok(Err(()))
        });
        rest.await?.map_err(|()| {
            let seconds = self.timeout.as_secs();
            Error::new(format!("the operator did not become idle within {seconds} s"))
                .hint("inspect it with -v, or raise --timeout")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn copies_have_unique_names() {
        let samples = [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b", "namespace": "n"}})];
        let copies = copies(&samples, 2).expect("there are samples");
        let names: Vec<&str> = copies.iter().filter_map(|copy| copy["metadata"]["name"].as_str()).collect();
        assert_eq!(names, ["a-1", "b-1", "a-2", "b-2"]);
        assert_eq!(copies[3]["metadata"]["namespace"], "n");
        assert!(super::copies(&[], 2).is_err());
    }
}
