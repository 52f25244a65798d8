//! Capabilities of the cluster, as available to templates in `.Capabilities`.

use flyball::{Context, Result};
use flyball_chart::{Capabilities, HelmVersion};
use kube::core::DynamicObject;
use serde_json::Value;

/// Media type that requests aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Reads the version of the API server and the served kinds.
pub(crate) async fn capabilities(cx: &Context<DynamicObject>, helm: HelmVersion) -> Result<Capabilities> {
    let mut capabilities = Capabilities::of(helm);
    let version = get(cx, "/version", "application/json").await?;
    capabilities.set_kube_version(version["gitVersion"].as_str().unwrap_or_default())?;
    let documents = [get(cx, "/api", AGGREGATED).await?, get(cx, "/apis", AGGREGATED).await?];
    capabilities.set_discovered(&documents);
    Ok(capabilities)
}

async fn get(cx: &Context<DynamicObject>, path: &str, accept: &str) -> Result<Value> {
    let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new())?;
    Ok(cx.client().request(request).await?)
}
