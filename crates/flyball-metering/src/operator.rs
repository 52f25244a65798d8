//! The operator: it collects, imports, and runs reports.

mod catalog;
mod data_source;
mod poll;
mod report;
mod report_query;
mod tasks;

use crate::access;
use crate::api::crds;
use crate::collect::ReadableOwners;
use crate::query::{self, Limits};
use crate::store::{self, DirectoryLock, Retention, Store};
use flyball::{MemoryBudget, Operator};
use k8s_openapi::api::rbac::v1::PolicyRule;
use parking_lot::Mutex;
pub use poll::{OperatorPolls, OperatorToken};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::RwLock;

/// Name of the operator.
pub const NAME: &str = "flyball-metering";

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Data directory.
    pub data: PathBuf,
    /// Namespace whose reports see the data of all namespaces.
    pub namespace: String,
    /// Label with the name of the tenant.
    pub tenant_label: Option<String>,
    /// Custom resources that the operator may read, to find their owners.
    pub owner_resources: Vec<String>,
    /// Allowed Prometheus servers; the first one is the default.
    pub prometheus: Vec<String>,
    /// Addresses of operators, as `NAME=http://127.0.0.1:8080`; with a ledger or with metrics.
    pub operators: Vec<String>,
    /// Bearer token for operators whose metrics are protected.
    pub operator_token: Option<OperatorToken>,
    /// Sends the token also over `http` to other machines, where others can read it.
    pub insecure_operator_token: bool,
    /// File with the CA bundle of operators that serve `https`; without it, the trust store of the machine.
    pub operator_authority: Option<PathBuf>,
    /// Interval of polls of `metrics.k8s.io` and of operators; none disables both.
    pub poll_interval: Option<Duration>,
    /// Time after the end of a period at which its report runs, for data that arrives late.
    pub grace: Duration,
    /// Times for which data is kept.
    pub retention: Retention,
    /// Address of the endpoint for results, on loopback.
    pub address: Option<SocketAddr>,
    /// Runs queries on separate threads. Simulations run them in place, so that they are reproducible.
    pub has_threads: bool,
}

impl Settings {
    /// Creates settings with a data directory and defaults.
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            namespace: "metering".to_owned(),
            tenant_label: None,
            owner_resources: Vec::new(),
            prometheus: Vec::new(),
            operators: Vec::new(),
            operator_token: None,
            insecure_operator_token: false,
            operator_authority: None,
            poll_interval: Some(Duration::from_secs(60)),
            grace: Duration::from_secs(60),
            retention: Retention::default(),
            address: None,
            has_threads: true,
        }
    }

    fn readable(&self) -> ReadableOwners {
        ReadableOwners::Resources(self.owner_resources.clone())
    }
}

/// Workers for queries, which namespaces share: with two, a namespace runs one query at a time, and the queries of
/// another one never wait for all of its queries.
const QUERY_WORKERS: usize = 2;
/// Memory of a query, unless the container has less.
const MAX_QUERY_MEMORY: u64 = 512 << 20;

/// The settings, and the store, which is locked and opened at its first use: printing manifests needs none.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    limits: Limits,
    store: Mutex<Option<(Arc<Store>, DirectoryLock)>>,
    /// Held for reading by queries that run at the same time, for writing by one that runs alone.
    running: RwLock<()>,
}

impl Shared {
    fn store(&self) -> store::Result<Arc<Store>> {
        let mut opened = self.store.lock();
        if let Some((store, _)) = &*opened {
            return Ok(store.clone());
        }
        // Before the store: opening it may change its tables.
        let lock = DirectoryLock::acquire(&self.settings.data)?;
        let store = Arc::new(Store::open(&self.settings.data)?);
        *opened = Some((store.clone(), lock));
        Ok(store)
    }

    /// Computes on a separate thread, unless runs have to be reproducible.
    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.settings.has_threads { flyball::offload(Duration::from_millis(100), work).await } else { work() }
    }

    /// Runs a query. One that exceeds its memory runs again alone, since its memory is that of all running queries.
    async fn query<T: Send + 'static>(
        &self,
        work: impl Fn(Limits) -> query::Result<T> + Send + Sync + 'static,
    ) -> query::Result<T> {
        let (work, limits) = (Arc::new(work), self.limits);
        let run = || {
            let work = work.clone();
            self.compute(move || work(limits))
        };
        let running = self.running.read().await;
        let done = run().await;
        drop(running);
        if !matches!(done, Err(query::Error::Memory { .. })) {
            return done;
        }
        let _alone = self.running.write().await;
        run().await
    }
}

/// Returns the limits of queries. Simulations measure no memory, so that they are reproducible.
fn limits(settings: &Settings) -> Limits {
    let container = u64::try_from(MemoryBudget::of_container(0).bytes()).unwrap_or(u64::MAX);
    let memory = (container / 4).min(MAX_QUERY_MEMORY);
    Limits { memory: settings.has_threads.then_some(memory), ..Limits::default() }
}

/// Creates the operator.
#[doc(alias("metering-operator", "operator-metering", "MeteringConfig"))]
pub fn operator(settings: Settings) -> Operator {
    let limits = limits(&settings);
    let shared = Arc::new(Shared { settings, limits, store: Mutex::default(), running: RwLock::default() });
    let mut reports = report::controller(shared.clone());
    for rule in rules(&shared.settings) {
        reports = reports.allows(rule);
    }
    let operator = crds().into_iter().fold(Operator::new(NAME), Operator::crd);
    let operator = operator
        .controller(reports)
        .controller(report_query::controller(shared.clone()))
        .controller(data_source::controller(shared.clone()));
    tasks::all(&shared).into_iter().fold(operator, Operator::task)
}

/// RBAC rules of watches and polls.
fn rules(settings: &Settings) -> Vec<PolicyRule> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    };
    let watch = ["get", "list", "watch"];
    let mut rules = vec![
        rule("", &["pods", "persistentvolumeclaims", "nodes"], &watch),
        rule("apps", &["replicasets", "deployments", "statefulsets", "daemonsets"], &watch),
        rule("batch", &["jobs", "cronjobs"], &watch),
    ];
    if settings.poll_interval.is_some() {
        rules.push(rule("metrics.k8s.io", &["pods"], &["get", "list"]));
    }
    for resource in &settings.owner_resources {
        if let Some((plural, group)) = resource.split_once('.') {
            rules.push(rule(group, &[plural], &["get"]));
        }
    }
    if settings.address.is_some() {
        rules.extend(access::rules());
    }
    rules
}
