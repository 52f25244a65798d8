//! Publication of the API: its Service and its APIService, and the certificates that the API server verifies.
//!
//! The authority of the serving certificate is kept in memory, and is published in the APIService. So only one replica
//! of the manager publishes the API: its leader.

use super::api::PackageServer;
use super::front_proxy::{FrontProxy, InvalidFrontProxy, serve};
use super::manifest::{GROUP, VERSION};
use crate::rules::rule;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flyball_tls::{Authority, ConfigError, IssueError, Purpose, Validity};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;

/// Name of the Service.
const SERVICE: &str = "packageserver-service";
/// The ConfigMap with the certificates of the API server.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// The manager of the fields of the Service and the APIService.
const FIELD_MANAGER: &str = "flyball-olm";
/// Interval at which the certificates of the API server are read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// The way by which the API server reaches the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On this machine, as an embedded control plane does.
    Local,
    /// Through a Service that selects the pod of the manager.
    Pod {
        /// The labels of the pod.
        selector: BTreeMap<String, String>,
        /// The port that the manager listens on.
        port: u16,
    },
}

/// The API cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum PublicationError {
    /// The port cannot be listened on.
    #[error("cannot listen for requests of the API server")]
    Listen(#[from] std::io::Error),
    /// A certificate cannot be created.
    #[error("cannot create the certificate of PackageManifests")]
    Issue(#[from] IssueError),
    /// A certificate cannot be used.
    #[error("cannot use the certificates of PackageManifests")]
    Config(#[from] ConfigError),
    /// The certificates of the API server are not published.
    #[error(transparent)]
    FrontProxy(#[from] InvalidFrontProxy),
    /// An object cannot be read or written.
    #[error("cannot {action}")]
    Request {
        /// The action.
        action: &'static str,
        /// The reason.
        source: Box<kube::Error>,
    },
}

/// Returns the rules that [`publish`] needs.
pub fn publication_rules() -> Vec<PolicyRule> {
    let named = |group: &str, resource: &str, name: &str, verbs: &[&str]| PolicyRule {
        resource_names: Some(vec![name.to_owned()]),
        ..rule(group, &[resource], verbs)
    };
    let api_service = format!("{VERSION}.{GROUP}");
    vec![
        named("", "configmaps", AUTHENTICATION.1, &["get"]),
        rule("", &["services"], &["create"]),
        named("", "services", SERVICE, &["get", "patch"]),
        rule("apiregistration.k8s.io", &["apiservices"], &["create"]),
        named("apiregistration.k8s.io", "apiservices", &api_service, &["get", "patch"]),
    ]
}

/// Serves PackageManifests behind an APIService until `stop` is done.
///
/// # Errors
///
/// If the certificates of the API server are not published, or an object cannot be written.
pub async fn publish(
    server: &PackageServer,
    client: &Client,
    namespace: &str,
    reach: &Reach,
    stop: impl Future<Output = ()>,
) -> Result<(), PublicationError> {
    let mut stop = std::pin::pin!(stop);
    let authority = Authority::new("packageserver", Validity::UNLIMITED)?;
    let names = vec![format!("{SERVICE}.{namespace}.svc"), format!("{SERVICE}.{namespace}.svc.cluster.local")];
    let identity = authority.issue("packageserver", Purpose::Server(&names), Validity::UNLIMITED)?;
    loop {
        let proxy = front_proxy(client).await?;
        let listener = TcpListener::bind(reach.address()).await?;
        let port = listener.local_addr()?.port();
        apply(client, Some(namespace), "v1", "Service", reach.service()).await?;
        let api_service = api_service(namespace, reach.service_port(port), authority.certificate());
        apply(client, None, "apiregistration.k8s.io/v1", "APIService", api_service).await?;
        let tls = proxy.tls(&identity)?;
        let changed = until_changed(client, &proxy);
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            () = serve(server.clone(), listener, tls, proxy.clone(), changed) => {}
        }
    }
}

async fn front_proxy(client: &Client) -> Result<FrontProxy, PublicationError> {
    let (namespace, name) = AUTHENTICATION;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let failed = |source| PublicationError::Request {
        action: "read ConfigMap kube-system/extension-apiserver-authentication",
        source: Box::new(source),
    };
    let data = maps.get(name).await.map_err(failed)?.data.unwrap_or_default();
    Ok(FrontProxy::read(|key| data.get(key).map(String::as_str))?)
}

/// Waits until the API server has other certificates. Failures to read them do not count as changes.
async fn until_changed(client: &Client, known: &FrontProxy) {
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        if front_proxy(client).await.is_ok_and(|proxy| proxy != *known) {
            return;
        }
    }
}

impl Reach {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Local => (Ipv4Addr::LOCALHOST, 0).into(),
            Self::Pod { port, .. } => (Ipv6Addr::UNSPECIFIED, *port).into(),
        }
    }

    fn service(&self) -> Value {
        let spec = match self {
            Self::Local => json!({"type": "ExternalName", "externalName": "localhost"}),
            Self::Pod { selector, port } => json!({
                "selector": selector,
                "ports": [{"name": "https", "port": 443, "targetPort": port, "protocol": "TCP"}],
            }),
        };
        json!({"metadata": {"name": SERVICE}, "spec": spec})
    }

    fn service_port(&self, listening: u16) -> u16 {
        match self {
            Self::Local => listening,
            Self::Pod { .. } => 443,
        }
    }
}

fn api_service(namespace: &str, port: u16, authority: &str) -> Value {
    json!({
        "metadata": {"name": format!("{VERSION}.{GROUP}")},
        "spec": {
            "group": GROUP, "version": VERSION, "groupPriorityMinimum": 2000, "versionPriority": 15,
            "caBundle": STANDARD.encode(authority),
            "service": {"namespace": namespace, "name": SERVICE, "port": port},
        },
    })
}

async fn apply(
    client: &Client,
    namespace: Option<&str>,
    version: &str,
    kind: &str,
    mut object: Value,
) -> Result<(), PublicationError> {
    let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
    let plural = format!("{}s", kind.to_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, short, kind), &plural);
    let objects: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = objects.patch(&name, &params, &Patch::Apply(&object)).await;
    let failed = |source| PublicationError::Request { action: "publish PackageManifests", source: Box::new(source) };
    applied.map(drop).map_err(failed)
}
