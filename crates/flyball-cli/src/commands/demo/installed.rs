//! Installation of the operator, which runs in this process.

use super::cluster::{DemoCluster, LABEL, OPERATOR, create};
use super::show::POLL_INTERVAL;
use crate::cluster::account::token;
use crate::cluster::wait::poll_until;
use crate::error::{Error, Result, ResultExt};
use crate::render::last_seen::summary;
use crate::render::terminal::print_line;
use flyball::Operator;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::config::AuthInfo;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::future::pending;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Timeout of the cluster to serve the kind.
const CRD_TIMEOUT: Duration = Duration::from_secs(30);

/// A running operator.
pub(super) struct RunningOperator {
    running: JoinHandle<Result<()>>,
}

/// Installs the CRD, the service account and its permissions, and starts the operator with this name.
pub(super) async fn install(cluster: &DemoCluster, operator: Operator, name: &str) -> Result<RunningOperator> {
    let admin = &cluster.admin;
    let mut crd = cluster.crd.clone();
    crd.metadata.labels.get_or_insert_default().insert(LABEL.0.into(), LABEL.1.into());
    create(&Api::all(admin.clone()), &crd).await?;
    established(cluster).await?;
    print_line(&format!("installed CRD {}", crd.name_any()));

    if cluster.namespace != "default" {
        create(&Api::all(admin.clone()), &object::<Namespace>(json!({"metadata": labeled(cluster.namespace)}))?)
            .await?;
    }
    let account = object::<ServiceAccount>(json!({"metadata": labeled(OPERATOR)}))?;
    let accounts = Api::namespaced(admin.clone(), cluster.namespace);
    create(&accounts, &account).await?;
    let role = json!({"metadata": labeled(OPERATOR), "rules": operator.rules()});
    create(&Api::all(admin.clone()), &object::<ClusterRole>(role)?).await?;
    let binding = json!({
        "metadata": labeled(OPERATOR),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": cluster.namespace}],
    });
    create(&Api::all(admin.clone()), &object::<ClusterRoleBinding>(binding)?).await?;

    let client = as_account(cluster, &accounts).await?;
    let rules = operator.rules().len();
    let running = tokio::spawn(async move { operator.run(client, pending()).await.context("the operator exited") });
    print_line(&format!("operator {name} runs as service account {}/{OPERATOR} with {rules} rules", cluster.namespace));
    Ok(RunningOperator { running })
}

impl RunningOperator {
    /// Waits for the exit of the operator, which is always an error.
    pub(super) async fn wait(mut self) -> Result<()> {
        (&mut self.running).await.context("the operator panicked")?
    }
}

impl Drop for RunningOperator {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn labeled(name: &str) -> Value {
    json!({"name": name, "labels": {LABEL.0: LABEL.1}})
}

fn object<T: DeserializeOwned>(object: Value) -> Result<T> {
    serde_json::from_value(object).context("cannot parse an object of the demo")
}

/// Waits until the cluster serves the kind.
async fn established(cluster: &DemoCluster) -> Result<()> {
    let objects = cluster.objects();
    let params = kube::api::ListParams::default().limit(1);
    let served = poll_until(CRD_TIMEOUT, POLL_INTERVAL, async || Ok(objects.list(&params).await));
    if served.await?.is_ok() {
        return Ok(());
    }
    let name = cluster.crd.name_any();
    let what = format!("CRD {name} was not served within {} s", CRD_TIMEOUT.as_secs());
    let found = Api::<CustomResourceDefinition>::all(cluster.admin.clone()).get(&name).await.context(what.clone())?;
    let mut seen = serde_json::to_value(&found).context(what.clone())?;
    seen["kind"] = "CustomResourceDefinition".into();
    Err(Error::new(format!("{what}; last seen:\n{}", summary(&seen))))
}

/// Creates a client that uses the operator's service account.
async fn as_account(cluster: &DemoCluster, accounts: &Api<ServiceAccount>) -> Result<Client> {
    let token = token(accounts, OPERATOR).await?;
    let mut config = cluster.config.clone();
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    flyball::connect(config).context("cannot create a client for the operator")
}
