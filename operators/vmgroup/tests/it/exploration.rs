//! Faults at each request to the API server and at each change in vCenter.

use crate::{client, options};
use flyball_explore::{Budget, Explorer, External, ExternalContext, Port, external};
use http::{Request, Response};
use hyper::body::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt, service_fn};
use vmgroup::controllers::vmgroup::{VmGroupReconciler, deferred_controller};
use vmgroup::converge::Groups;
use vmgroup::simulator::Simulator;
use vmgroup::vsphere::Transport;

/// A vCenter whose changes are sites.
struct Vcenter(Simulator);

impl Vcenter {
    fn new(_: &ExternalContext) -> Self {
        Self(Simulator::new(options()))
    }

    /// Creates a transport on which requests that change something cross a port.
    fn transport(&self) -> Transport {
        let inner = self.0.transport();
        BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
            let inner = inner.clone();
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let is_change = method.ends_with("_Task") || method == "CreateFolder";
            async move {
                let response = inner.oneshot(request);
                let result: Result<Response<Bytes>, BoxError> = match is_change {
                    true => Port::call(format!("vcenter/{method}"), response).await?,
                    false => response.await,
                };
                result
            }
        }))
    }
}

impl External for Vcenter {
    fn objects(&self) -> BTreeMap<String, Value> {
        // The names of machines contain UIDs.
        let mut folders: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        self.0.folders().into_iter().for_each(|folder| _ = folders.entry(folder).or_default());
        for vm in self.0.vms() {
            let machine = json!({"poweredOn": vm.powered_on, "cpus": vm.cpus, "memory": vm.memory_mib});
            folders.entry(vm.folder).or_default().push(machine);
        }
        folders.into_iter().map(|(name, machines)| (format!("folders/{name}"), machines.into())).collect()
    }
}

#[test]
fn explore_group_tolerates_faults() {
    let operator = || {
        vmgroup::operator(deferred_controller(|| {
            let groups = Groups::new(client(external::<Vcenter>().transport()), 3);
            Ok::<_, Infallible>(VmGroupReconciler::new(groups, Duration::from_secs(300)))
        }))
    };
    let sample = include_str!("../../config/samples/vm_v1alpha1_vmgroup.yaml");
    let explorer = Explorer::of(operator).external(Vcenter::new).nodes(0).sample(sample);
    let report = explorer.budget(Budget::schedules(150)).run();
    eprintln!("{report}");
    report.assert_clean();
}
