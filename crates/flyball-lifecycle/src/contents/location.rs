//! The place of the content of a CatalogSource.

use crate::api::CatalogSource;
use crate::api::labels::CATALOG;
use crate::source::Location;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt};

/// Key of a Secret with credentials for registries.
const DOCKER_CONFIG: &str = ".dockerconfigjson";

/// Reason in the status of a CatalogSource that cannot be loaded.
pub(super) const LOAD_FAILED: &str = "LoadFailed";
/// Reason in the status of a CatalogSource whose ConfigMap may have been written by anyone.
pub(super) const UNTRUSTED_CONTENT: &str = "UntrustedContent";

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

/// Returns the place of the content. ConfigMaps outside of the trusted namespace need the label [`CATALOG`]; without a
/// trusted namespace, no ConfigMap needs it.
///
/// # Errors
///
/// If the spec names none, an object that it names cannot be read, or the ConfigMap lacks the label.
pub(super) async fn location(
    source: &CatalogSource,
    client: &Client,
    trusted: Option<&str>,
) -> Result<Location, LoadFailure> {
    let spec = &source.spec;
    match spec.source_type.as_str() {
        "grpc" if !spec.address.is_empty() => Ok(Location::Grpc(spec.address.clone())),
        "grpc" if !spec.image.is_empty() => {
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

async fn config_map(source: &CatalogSource, client: &Client, trusted: Option<&str>) -> Result<Location, LoadFailure> {
    let (namespace, name) = (source.namespace().unwrap_or_default(), &source.spec.config_map);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let map = api.get(name).await.map_err(|error| format!("ConfigMap {namespace}/{name}: {error}"))?;
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
