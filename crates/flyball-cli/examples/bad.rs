//! An operator that violates best practices, for the tests of `flyball scorecard`.

use flyball::{Action, Condition, Context, Controller, HealthServer, Operator, Reconcile, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::env::{args, var};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// Maximum running time, in case its test is killed before it stops this process.
const MAX_RUNNING_TIME: Duration = Duration::from_secs(300);

// The field has no description.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(group = "bad.flyball.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
struct GadgetSpec {
    #[schemars(range(min = 1))]
    size: u32,
}

/// Observed state of a gadget.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default)]
struct GadgetStatus {
    /// Number of reconciles.
    looks: u64,
    /// Conditions, which are never set.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

/// A kind without a sample.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(group = "bad.flyball.dev", version = "v1", kind = "Spare", namespaced)]
struct SpareSpec {}

#[derive(Default)]
struct Gadgets {
    has_begun: AtomicBool,
    looks: AtomicU64,
}

impl Reconcile for Gadgets {
    type Resource = Gadget;

    async fn reconcile(&self, gadget: &Gadget, cx: &Context<Gadget>) -> Result<Action> {
        let (client, namespace) = (cx.client(), gadget.namespace().unwrap_or_default());
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            // After each start it recreates an existing object, without owner.
            let parts: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
            let name = format!("{}-parts", gadget.name_any());
            drop(parts.delete(&name, &DeleteParams::default()).await);
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name);
            parts.create(&PostParams::default(), &map).await?;
            // Not permitted by the manifests.
            drop(Api::<Secret>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await);
        }
        // It writes in every reconcile.
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        cx.set_status(&GadgetStatus { looks, conditions: Vec::new() }).await?;
        Ok(Action::requeue_after(Duration::from_millis(200)))
    }
}

fn operator() -> Operator {
    let parts = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".into()]),
        verbs: ["create", "delete"].map(str::to_owned).into(),
        ..PolicyRule::default()
    };
    let gadgets = Controller::new(Gadgets::default()).allows(parts);
    Operator::new("bad").crd(Gadget::crd()).crd(Spare::crd()).controller(gadgets)
}

/// Runs it without the features of `Operator::main`: metrics, and a graceful shutdown.
#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn Error>> {
    if var("BAD_START").is_ok() {
        return Err("the moon is not full".into());
    }
    let kubeconfig = args().skip_while(|arg| arg != "--kubeconfig").nth(1).ok_or("--kubeconfig is missing")?;
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // With a handler, the signal does not end the process.
    let _told = signal(SignalKind::terminate())?;
    let address = Some(var("FLYBALL_HEALTH_ADDR")?.parse()?);
    let operator = operator().health_server(HealthServer { address, ..HealthServer::default() });
    Ok(operator.run(Client::try_from(config)?, sleep(MAX_RUNNING_TIME)).await?)
}

#[expect(clippy::print_stderr, reason = "it is no more than an example")]
fn main() -> ExitCode {
    match args().nth(1).as_deref() {
        Some("run") => run().map_or_else(
            |error| {
                eprintln!("bad: {error}");
                ExitCode::from(3)
            },
            |()| ExitCode::SUCCESS,
        ),
        _ => operator().main(),
    }
}
