//! Gives up on machines after two equal errors: the reconcile reports an error of the external system in the status and
//! returns success. The write of the status triggers another attempt, unless it changes nothing. Seen in
//! embano1/codeconnect-vm-operator.

use crate::objects::api;
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, External, Oracle, Port, Scenario, external};
use kube::api::{Patch, PatchParams};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SAMPLE: &str = "
apiVersion: machines.example.com/v1
kind: MachineGroup
metadata: {name: render}
spec: {replicas: 2}
";

/// Desired state of a `MachineGroup`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machines.example.com",
    version = "v1",
    kind = "MachineGroup",
    namespaced,
    status = "MachineGroupStatus"
)]
pub(crate) struct MachineGroupSpec {
    /// Number of machines.
    #[schemars(range(min = 0, max = 10))]
    replicas: usize,
}

/// Observed state of a `MachineGroup`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct MachineGroupStatus {
    /// `Running` or `Error`.
    #[serde(default)]
    phase: String,
    /// The last error.
    #[serde(default)]
    message: String,
}

/// An external inventory: the names of all machines.
#[derive(Debug, Default)]
struct Inventory(Mutex<BTreeSet<String>>);

impl Inventory {
    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let list = async { self.names().iter().filter(|name| name.starts_with(prefix)).cloned().collect() };
        Ok(Port::call("inventory.list", list).await?)
    }

    async fn create(&self, name: &str) -> Result<()> {
        Port::call(format!("inventory.create/{name}"), async { self.names().insert(name.into()) }).await?;
        Ok(())
    }

    async fn destroy(&self, name: &str) -> Result<()> {
        Port::call(format!("inventory.destroy/{name}"), async { self.names().remove(name) }).await?;
        Ok(())
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl External for Inventory {
    fn objects(&self) -> BTreeMap<String, Value> {
        self.names().iter().map(|name| (format!("machines/{name}"), json!({}))).collect()
    }
}

struct MachineGroups<const FIXED: bool>(Arc<Inventory>);

impl<const FIXED: bool> Reconcile for MachineGroups<FIXED> {
    type Resource = MachineGroup;
    const FINALIZER: Option<&'static str> = Some("machines.example.com/machines");

    async fn reconcile(&self, group: &MachineGroup, cx: &Context<MachineGroup>) -> Result<Action> {
        let result = self.scale(group, group.spec.replicas).await;
        let status = match &result {
            Ok(()) => MachineGroupStatus { phase: "Running".into(), message: String::new() },
            Err(error) => MachineGroupStatus { phase: "Error".into(), message: error.to_string() },
        };
        let patch = Patch::Merge(json!({"status": status}));
        api::<_, MachineGroup>(cx).patch_status(&group.name_any(), &PatchParams::default(), &patch).await?;
        if FIXED {
            result?;
        }
        Ok(Action::done())
    }

    async fn finalize(&self, group: &MachineGroup, _: &Context<MachineGroup>) -> Result<Action> {
        self.scale(group, 0).await?;
        Ok(Action::done())
    }
}

impl<const FIXED: bool> MachineGroups<FIXED> {
    /// Creates the missing machines of a group, and deletes the surplus ones.
    async fn scale(&self, group: &MachineGroup, replicas: usize) -> Result<()> {
        let prefix = format!("{}/", group.name_any());
        let machines = self.0.list(&prefix).await?;
        let desired: Vec<String> = (0..replicas).map(|n| format!("{prefix}{n}")).collect();
        for name in desired.iter().filter(|name| !machines.contains(name)) {
            self.0.create(name).await?;
        }
        for name in machines.iter().filter(|name| !desired.contains(name)) {
            self.0.destroy(name).await?;
        }
        Ok(())
    }
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::deferred(|| Ok::<_, Infallible>(MachineGroups::<FIXED>(external())));
    Operator::new("machine-operator").crd(MachineGroup::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    let scenario = Scenario::new("create").apply(SAMPLE).settle();
    Explorer::of(operator::<FIXED>).external(|_| Inventory::default()).scenario(scenario)
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Convergence,
    object: "machines.example.com/machinegroups/render",
    schedule: "create; seed=1; steps=1; external:inventory.list#2 fail; external:inventory.list#3 fail",
};
