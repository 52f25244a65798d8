//! Installation of the operator, which runs in this process.

use super::show::GLANCE;
use super::stage::{MARK, OPERATOR, Stage, make};
use crate::cluster::account::token;
use crate::cluster::wait::until;
use crate::error::{Error, Result, ResultExt};
use crate::render::last_seen::summary;
use crate::render::terminal::say;
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
pub(super) struct Installed {
    running: JoinHandle<Result<()>>,
}

/// Installs the CRD, the service account and its permissions, and starts the operator with this name.
pub(super) async fn install(stage: &Stage, operator: Operator, name: &str) -> Result<Installed> {
    let admin = &stage.admin;
    let mut crd = stage.crd.clone();
    crd.metadata.labels.get_or_insert_default().insert(MARK.0.into(), MARK.1.into());
    make(&Api::all(admin.clone()), &crd).await?;
    established(stage).await?;
    say(&format!("installed CRD {}", crd.name_any()));

    if stage.namespace != "default" {
        make(&Api::all(admin.clone()), &object::<Namespace>(json!({"metadata": marked(stage.namespace)}))?).await?;
    }
    let account = object::<ServiceAccount>(json!({"metadata": marked(OPERATOR)}))?;
    let accounts = Api::namespaced(admin.clone(), stage.namespace);
    make(&accounts, &account).await?;
    let role = json!({"metadata": marked(OPERATOR), "rules": operator.rules()});
    make(&Api::all(admin.clone()), &object::<ClusterRole>(role)?).await?;
    let binding = json!({
        "metadata": marked(OPERATOR),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": stage.namespace}],
    });
    make(&Api::all(admin.clone()), &object::<ClusterRoleBinding>(binding)?).await?;

    let client = as_account(stage, &accounts).await?;
    let rules = operator.rules().len();
    let running = tokio::spawn(async move { operator.run(client, pending()).await.when("the operator exited") });
    say(&format!("operator {name} runs as service account {}/{OPERATOR} with {rules} rules", stage.namespace));
    Ok(Installed { running })
}

impl Installed {
    /// Waits for the exit of the operator, which is always an error.
    pub(super) async fn ended(mut self) -> Result<()> {
        (&mut self.running).await.when("the operator panicked")?
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn marked(name: &str) -> Value {
    json!({"name": name, "labels": {MARK.0: MARK.1}})
}

fn object<T: DeserializeOwned>(object: Value) -> Result<T> {
    serde_json::from_value(object).when("cannot parse an object of the demo")
}

/// Waits until the cluster serves the kind.
async fn established(stage: &Stage) -> Result<()> {
    let objects = stage.objects();
    let params = kube::api::ListParams::default().limit(1);
    let served = until(CRD_TIMEOUT, GLANCE, async || Ok(objects.list(&params).await));
    if served.await?.is_ok() {
        return Ok(());
    }
    let name = stage.crd.name_any();
    let what = format!("CRD {name} was not served within {} s", CRD_TIMEOUT.as_secs());
    let found = Api::<CustomResourceDefinition>::all(stage.admin.clone()).get(&name).await.when(what.clone())?;
    let mut seen = serde_json::to_value(&found).when(what.clone())?;
    seen["kind"] = "CustomResourceDefinition".into();
    Err(Error::new(format!("{what}; last seen:\n{}", summary(&seen))))
}

/// Creates a client that uses the operator's service account.
async fn as_account(stage: &Stage, accounts: &Api<ServiceAccount>) -> Result<Client> {
    let token = token(accounts, OPERATOR).await?;
    let mut config = stage.config.clone();
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    flyball::connect(config).when("cannot create a client for the operator")
}
