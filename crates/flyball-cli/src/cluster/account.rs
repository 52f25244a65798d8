//! Service account of an operator outside of a pod, by a token of the cluster.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/>.

use crate::cluster::kubeconfig;
use crate::error::{Error, Result, ResultExt};
use crate::files::private;
use crate::render::terminal::{self, print_labeled};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball::proxy::Proxies;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// Lifetime of a token, in seconds.
const LIFETIME: i64 = 3600;
/// Interval of renewals.
const RENEWAL: Duration = Duration::from_secs(20 * 60);

/// Creates a token of a service account, valid for an hour.
pub(crate) async fn token(accounts: &Api<ServiceAccount>, name: &str) -> Result<String> {
    let spec = json!({"spec": {"audiences": [], "expirationSeconds": LIFETIME}});
    let request: TokenRequest = serde_json::from_value(spec).context("cannot build the token request")?;
    let response = accounts.create_token_request(name, &PostParams::default(), &request).await;
    let token = response.context("cannot create a token for the operator")?.status.and_then(|status| status.token);
    token.ok_or_else(|| Error::new("the cluster returned no token"))
}

/// A service account for an operator.
pub(crate) struct Account {
    accounts: Api<ServiceAccount>,
    name: String,
    namespace: String,
    token: PathBuf,
}

impl Account {
    /// Creates an account, and writes a kubeconfig for the cluster with its identity only. [`renew`](Self::renew)
    /// writes the token.
    pub(crate) fn new(client: &Client, config: &Config, name: &str, kubeconfig: &Path) -> Result<Self> {
        let namespace = config.default_namespace.clone();
        let token = kubeconfig.with_extension("token");
        let mut cluster = json!({"server": config.cluster_url.to_string()});
        if let Some(certificates) = &config.root_cert {
            cluster["certificate-authority-data"] = STANDARD.encode(pem(certificates)).into();
        }
        if config.accept_invalid_certs {
            print_labeled(
                "warning",
                &format!(
                    "the operator does not verify the certificate of {}: the kubeconfig has insecure-skip-tls-verify",
                    config.cluster_url
                ),
            );
            cluster["insecure-skip-tls-verify"] = true.into();
        }
        if let Some(name) = &config.tls_server_name {
            cluster["tls-server-name"] = name.as_str().into();
        }
        // A proxy of the environment is found there, together with NO_PROXY.
        let is_direct = Proxies::of_config(config).is_direct(&config.cluster_url);
        if let Some(proxy) = config.proxy_url.as_ref().filter(|_| !is_direct) {
            cluster["proxy-url"] = proxy.to_string().into();
        }
        let written = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"tokenFile": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        });
        kubeconfig::write(kubeconfig, &written)?;
        let accounts = Api::namespaced(client.clone(), &namespace);
        Ok(Self { accounts, name: name.to_owned(), namespace, token })
    }

    /// Returns the service account itself.
    pub(crate) fn object(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": self.name, "namespace": self.namespace}})
    }

    /// Returns the binding of a role to the account.
    pub(crate) fn binding(&self, role: &Value) -> Value {
        let api = "rbac.authorization.k8s.io";
        let (kind, name) = (role["kind"].as_str().unwrap_or_default(), &role["metadata"]["name"]);
        let mut metadata = json!({"name": name});
        if kind == "Role" {
            metadata["namespace"] = role["metadata"].get("namespace").unwrap_or(&json!(self.namespace)).clone();
        }
        json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": self.namespace, "name": self.name}],
        })
    }

    /// Writes a new token to the operator's token file.
    pub(crate) async fn renew(&self) -> Result<()> {
        let token = token(&self.accounts, &self.name).await?;
        let what = || format!("cannot write {}", self.token.display());
        private::write(&self.token, token.as_bytes()).context(what())
    }

    /// Renews the token before it expires, without end.
    pub(crate) async fn keep_renewing(&self) {
        loop {
            sleep(RENEWAL).await;
            if let Err(error) = self.renew().await {
                terminal::print_error(&error);
            }
        }
    }
}

fn pem(certificates: &[Vec<u8>]) -> String {
    let one = |der: &Vec<u8>| {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap_or_default()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    certificates.iter().map(one).collect()
}
