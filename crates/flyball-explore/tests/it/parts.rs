//! An operator that uses every port: a child, a finalizer, an external system, a webhook and a lease.

use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
use flyball::{Action, Context, Controller, LeaderElection, Operator, Reconcile, Result};
use flyball_explore::{Budget, Explorer, External, Port, external};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

/// Desired state of a `Part`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Part", namespaced)]
pub(crate) struct PartSpec {
    /// Number of units.
    #[schemars(range(min = 0, max = 9))]
    size: i32,
}

/// A register outside of the cluster.
#[derive(Default)]
pub(crate) struct Register(Mutex<BTreeSet<String>>);

impl External for Register {
    fn objects(&self) -> BTreeMap<String, Value> {
        self.0.lock().unwrap().iter().map(|name| (name.clone(), json!({}))).collect()
    }
}

struct Parts(Arc<Register>);

impl Reconcile for Parts {
    type Resource = Part;
    const FINALIZER: Option<&'static str> = Some("example.com/register");

    async fn reconcile(&self, part: &Part, cx: &Context<Part>) -> Result<Action> {
        let name = part.name_any();
        Port::call(format!("register.add/{name}"), async { self.0.0.lock().unwrap().insert(name.clone()) }).await?;
        let data = BTreeMap::from([("size".to_owned(), part.spec.size.to_string())]);
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        cx.apply(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }).await?;
        Ok(Action::done())
    }

    async fn finalize(&self, part: &Part, _: &Context<Part>) -> Result<Action> {
        let name = part.name_any();
        Port::call(format!("register.remove/{name}"), async { self.0.0.lock().unwrap().remove(&name) }).await?;
        Ok(Action::done())
    }
}

fn operator() -> Operator {
    let webhook = Webhook::new().validates(|request: &AdmissionRequest<Part>| {
        let is_reserved = request.object().spec.size == 7;
        Ok(if is_reserved { Verdict::deny("seven is reserved") } else { Verdict::allow() })
    });
    Operator::new("parts")
        .crd(Part::crd())
        .webhook(webhook)
        .leader_election(LeaderElection::default())
        .controller(Controller::deferred(|| Ok::<_, Infallible>(Parts(external()))).owns::<ConfigMap>())
}

/// Returns the explorer of the operator.
pub(crate) fn explorer() -> Explorer {
    Explorer::of(operator)
        .external(|_| Register::default())
        .sample("{apiVersion: example.com/v1, kind: Part, metadata: {name: a}, spec: {size: 2}}")
        .budget(Budget::schedules(1))
}
