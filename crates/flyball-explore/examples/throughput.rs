//! Measures the number of schedules per minute of CPU, and what a run costs:
//! `cargo run --release -p flyball-explore --example throughput -- [BUDGET] [LINE]`.
//!
//! The budget is a number of schedules, or a time such as `20s`. With a schedule as the second argument, only this one
//! is replayed, and the requests and reconciles of the run are counted.

use flyball_explore::{Budget, Explorer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Counts the reconciles by controller.
struct Reconciles;

static RECONCILES: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct ControllerName(String);

impl Visit for ControllerName {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "controller" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Reconciles {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "reconcile"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut controller = ControllerName::default();
        span.record(&mut controller);
        *reconciles().entry(controller.0).or_default() += 1;
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Returns the number of reconciles by controller.
fn reconciles() -> MutexGuard<'static, BTreeMap<String, u32>> {
    RECONCILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn explorer() -> Explorer {
    Explorer::of(memcached::operator)
        .sample(include_str!("../../../operators/memcached/config/samples/cache_v1alpha1_memcached.yaml"))
        .threads(1)
}

/// Returns the CPU time of this process.
fn process_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[expect(clippy::print_stdout, reason = "the output of a measurement")]
fn main() {
    let (budget, line) = (std::env::args().nth(1), std::env::args().nth(2));
    if let Some(line) = line {
        let _ = tracing::subscriber::set_global_default(Reconciles);
        // Those of the installation and the reference do not count.
        let begun = Once::new();
        let explorer = explorer().on_crossing(move |_| begun.call_once(|| reconciles().clear()));
        let report = explorer.replay(&line);
        println!("{report}\n{}", report.cost());
        report.request_counts().iter().for_each(|(name, count)| println!("  {name:<48} {count:>5}"));
        reconciles().iter().for_each(|(name, count)| println!("  reconcile {name:<38} {count:>5}"));
        return;
    }
    let budget: Budget = budget.as_deref().unwrap_or("20s").parse().expect("the first argument is a budget");
    let report = explorer().budget(budget).run();
    let (cpu, cost) = (process_cpu(), report.cost());
    println!("{report}\n{cost}");
    let (schedules, runs) = (report.schedules() as f64, report.runs() as f64);
    println!(
        "{cpu:.2} s of CPU, {:.0} schedules and {:.0} runs per minute of it",
        schedules / cpu * 60.0,
        runs / cpu * 60.0
    );
}
