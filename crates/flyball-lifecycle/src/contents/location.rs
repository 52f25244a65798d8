//! The place of the content of a CatalogSource.

use super::host::{HostNamespace, host_namespace};
use crate::api::CatalogSource;
use crate::api::labels::CATALOG;
use crate::image::ImageName;
use crate::source::Location;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{Api, Client, ResourceExt};

/// Key of a Secret with credentials for registries.
const DOCKER_CONFIG: &str = ".dockerconfigjson";

/// Reason in the status of a CatalogSource that cannot be loaded.
pub(super) const LOAD_FAILED: &str = "LoadFailed";
/// Reason in the status of a CatalogSource whose content users of a namespace may have written.
pub(crate) const UNTRUSTED_CONTENT: &str = "UntrustedContent";

/// The reason why a catalog is not loaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoadFailure {
    /// Reason in the status.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl From<String> for LoadFailure {
    fn from(message: String) -> Self {
        Self { reason: LOAD_FAILED, message }
    }
}

/// Returns the place of the content. Outside of the trusted namespace, ConfigMaps need the label [`CATALOG`], and a
/// CatalogSource needs it whose server is a Service or a pod there; without a trusted namespace, nothing needs it.
///
/// # Errors
///
/// If the spec names none, an object that it names cannot be read, or the label is missing.
pub(super) async fn location(
    source: &CatalogSource,
    client: &Client,
    trusted: Option<&str>,
) -> Result<Location, LoadFailure> {
    let spec = &source.spec;
    match spec.source_type.as_str() {
        "grpc" if !spec.address.is_empty() => {
            check_host(source, &spec.address, client, trusted).await?;
            Ok(Location::Grpc { address: spec.address.clone(), source: source.uid().unwrap_or_default() })
        }
        "grpc" if !spec.image.is_empty() => {
            // The content of a digest is verified.
            if let Ok(ImageName { registry, digest: None, .. }) = spec.image.parse() {
                check_host(source, &registry, client, trusted).await?;
            }
            Ok(Location::Image { image: spec.image.clone(), secrets: secrets(source, client).await? })
        }
        "grpc" => Err("image and address unset: at least one must be set for sourcetype: grpc".to_owned().into()),
        "configmap" | "internal" if spec.config_map.is_empty() => {
            Err(format!("configmap name unset: must be set for sourcetype: {}", spec.source_type).into())
        }
        "configmap" | "internal" => config_map(source, client, trusted).await,
        other => Err(format!("unknown sourcetype: {other}").into()),
    }
}

/// Rejects a server in another namespace than the trusted one: its users could offer any content, and let the manager
/// connect to any address. The label [`CATALOG`] permits it, which only users who may grant any permission can set.
async fn check_host(
    source: &CatalogSource,
    host: &str,
    client: &Client,
    trusted: Option<&str>,
) -> Result<(), LoadFailure> {
    let Some(trusted) = trusted.filter(|_| !source.labels().contains_key(CATALOG)) else { return Ok(()) };
    let found = match host_namespace(host) {
        Some(HostNamespace::Certain(name)) => name,
        Some(HostNamespace::IfExists(name)) => {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let found = namespaces.get_opt(&name).await.map_err(|error| format!("Namespace {name}: {error}"))?;
            if found.is_none() {
                return Ok(());
            }
            name
        }
        None => return Ok(()),
    };
    if found == trusted {
        return Ok(());
    }
    let (namespace, name) = (source.namespace().unwrap_or_default(), source.name_any());
    let message = format!(
        "{host} is in namespace {found}: the content of a catalog determines permissions, and everyone who may write \
         Services, EndpointSlices or pods there can change it; as a user who may grant any permission, check who that \
         is and run: kubectl label catalogsource {name} -n {namespace} {CATALOG}=true"
    );
    Err(LoadFailure { reason: UNTRUSTED_CONTENT, message })
}

async fn config_map(source: &CatalogSource, client: &Client, trusted: Option<&str>) -> Result<Location, LoadFailure> {
    let (namespace, name) = (source.namespace().unwrap_or_default(), &source.spec.config_map);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let failed = |error: kube::Error| match error {
        kube::Error::Api(status) => format!("ConfigMap {namespace}/{name}: {}", status.message),
        error => format!("ConfigMap {namespace}/{name}: {error}"),
    };
    let map = api.get(name).await.map_err(failed)?;
    if trusted.is_some_and(|trusted| trusted != namespace) && !map.labels().contains_key(CATALOG) {
        let message = format!(
            "ConfigMap {namespace}/{name} lacks the label {CATALOG}: the content of a catalog determines permissions, \
             and everyone who may write ConfigMaps in the namespace may have written it; as a user who may grant any \
             permission, check it and run: kubectl label configmap {name} -n {namespace} {CATALOG}=true"
        );
        return Err(LoadFailure { reason: UNTRUSTED_CONTENT, message });
    }
    let resource_version = map.resource_version().unwrap_or_default();
    Ok(Location::ConfigMap { data: map.data.unwrap_or_default(), resource_version })
}

/// Returns the credentials in the Secrets that a CatalogSource names.
///
/// # Errors
///
/// If a Secret cannot be read.
pub(super) async fn secrets(source: &CatalogSource, client: &Client) -> Result<Vec<String>, String> {
    let namespace = source.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let mut secrets = Vec::new();
    for name in &source.spec.secrets {
        let secret = api.get(name).await.map_err(|error| format!("Secret {namespace}/{name}: {error}"))?;
        let config = secret.data.unwrap_or_default().remove(DOCKER_CONFIG);
        let config = config.ok_or_else(|| format!("Secret {namespace}/{name} has no key {DOCKER_CONFIG}"))?;
        secrets.push(String::from_utf8_lossy(&config.0).into_owned());
    }
    Ok(secrets)
}
