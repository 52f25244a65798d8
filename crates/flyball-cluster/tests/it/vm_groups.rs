//! Groups of virtual machines: faults in an operator's external calls, and in its requests to the API server.

use flyball::Operator;
use flyball_cluster::testing::{Setup, Test, explore_crashes};
use kube::CustomResourceExt;
use kube::api::DeleteParams;
use std::cell::RefCell;
use std::time::Duration;
use vmgroup::NAME;
use vmgroup::api::vmgroup_v1alpha1::VmGroup;
use vmgroup::controllers::vmgroup::{VmGroupReconciler, controller};
use vmgroup::converge::Groups;
use vmgroup::simulator::{Options, SimulatedVm, Simulator, TaskTimes};
use vmgroup::vsphere::{Client, Site, Timing};

const GROUP: &str = include_str!("../../../../samples/vmgroup/vg-1.yaml");

/// The vCenter of the current run.
struct Vcenter(RefCell<Simulator>);

impl Vcenter {
    fn new() -> Self {
        Self(RefCell::new(Simulator::new(Options::default())))
    }

    /// Starts a run without machines.
    fn setup(&self) -> Setup {
        let [clone, power, destroy] = [3, 1, 1].map(Duration::from_secs);
        let tasks = TaskTimes { clone, power, destroy };
        let simulator = Simulator::new(Options { tasks, ..Options::default() });
        self.0.replace(simulator.clone());
        Test::of(move || {
            let (site, timing) = (Site::default(), Timing::default());
            let client = Client::new(Simulator::credentials(), site, timing, simulator.transport()).unwrap();
            let groups = VmGroupReconciler::new(Groups::new(client, 3), Duration::from_secs(300));
            Operator::new(NAME).crd(VmGroup::crd()).controller(controller(groups))
        })
    }

    /// Returns directories and machines, in order. Names are omitted, since they depend on UIDs.
    fn inventory(&self) -> (Vec<String>, Vec<SimulatedVm>) {
        let simulator = self.0.borrow();
        let mut machines = simulator.vms();
        machines.iter_mut().for_each(|machine| machine.name.clear());
        machines.sort();
        (simulator.folders(), machines)
    }
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_leak_and_duplicate_no_machine() {
    let vcenter = Vcenter::new();
    let crashes = explore_crashes(
        || vcenter.setup(),
        async |test| {
            test.apply(GROUP).await;
            test.apply(&GROUP.replace("vg-1", "vg-2")).await;
            test.assert_converges().await;
            let created = vcenter.inventory();
            test.apply(&GROUP.replace("replicas: 3", "replicas: 1")).await;
            test.api::<VmGroup>().delete("vg-2", &DeleteParams::default()).await.unwrap();
            test.assert_converges().await;
            let remaining = vcenter.inventory();
            assert_eq!((created.1.len(), remaining.1.len()), (6, 1), "{created:?} {remaining:?}");
            (created, remaining)
        },
    )
    .await;
    assert!(crashes >= 30, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_no_machine() {
    let vcenter = Vcenter::new();
    let mut test = vcenter.setup().start().await;
    test.apply(GROUP).await;
    test.assert_converges().await;
    let before = vcenter.0.borrow().vms();
    assert_eq!(before.len(), 3);
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
    assert_eq!(vcenter.0.borrow().vms(), before);
}
