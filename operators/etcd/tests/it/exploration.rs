//! Faults at each request to the API server and at each call of etcd.

use crate::node::Machine;
use etcd_operator::etcd::{Chunks, Error, Etcd, Member, MemberStatus, Result};
use etcd_operator::metrics::ClusterMetrics;
use etcd_operator::model::Model;
use etcd_operator::snapshots::{self, Snapshots};
use flyball_explore::{Budget, CallError, Explorer, External, ExternalContext, Port, Scenario, external};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The network of all etcd processes, whose calls are sites.
struct Network(Model);

impl Network {
    fn new(context: &ExternalContext) -> Self {
        Self(Model::new(context.rng.fork("etcd")))
    }
}

impl External for Network {
    fn objects(&self) -> BTreeMap<String, Value> {
        let counts = self.0.member_counts().into_iter().enumerate();
        let clusters = counts.map(|(n, counts)| (format!("clusters/{n}"), json!(counts)));
        clusters.chain([("snapshots".to_owned(), json!(self.0.snapshots().len()))]).collect()
    }
}

/// The network of the current run. Calls of etcd cross the port of external systems.
struct CurrentNetwork;

macro_rules! calls {
    ($($name:ident($($argument:ident: $ty:ty),*) -> $result:ty;)*) => {$(
        async fn $name(&self, endpoint: &str $(, $argument: $ty)*) -> Result<$result> {
            let network = external::<Network>();
            let call = network.0.$name(endpoint $(, $argument)*);
            let failed = |source: CallError| {
                Err(Error::Unreachable { endpoint: endpoint.to_owned(), source: source.into() })
            };
            Port::call(concat!("etcd.", stringify!($name)), call).await.unwrap_or_else(failed)
        }
    )*};
}

impl Etcd for CurrentNetwork {
    calls! {
        members(consistent: bool) -> Vec<Member>;
        add_member(peer_url: &str) -> ();
        remove_member(id: u64) -> ();
        status() -> MemberStatus;
        snapshot() -> Chunks;
        defragment() -> ();
    }
}

impl Snapshots for CurrentNetwork {
    async fn save(&self, name: &str, snapshot: Chunks) -> snapshots::Result<u64> {
        external::<Network>().0.save(name, snapshot).await
    }

    async fn delete(&self, name: &str) -> snapshots::Result<()> {
        external::<Network>().0.delete(name).await
    }

    fn url(&self, name: &str) -> String {
        external::<Network>().0.url(name)
    }
}

const CLUSTER: &str = "
apiVersion: etcd.database.coreos.com/v1beta2
kind: EtcdCluster
metadata: {name: example}
spec: {size: 2, version: 3.5.17}
";

#[test]
fn explore_cluster_tolerates_faults() {
    let operator = || {
        let network = Arc::new(CurrentNetwork);
        etcd_operator::operator(network.clone(), network, ClusterMetrics::default())
    };
    let scenario = Scenario::new("cluster").apply(CLUSTER).wait(Duration::from_secs(60)).settle();
    let explorer = Explorer::of(operator).external(Network::new).scenario(scenario).without_campaigns();
    let explorer = explorer.program(|| Machine::new(external::<Network>().0.clone()));
    let report = explorer.budget(Budget::schedules(60)).run();
    eprintln!("{report}");
    report.assert_clean();
}
