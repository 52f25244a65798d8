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
    let mut found = Vec::new();
    for root in ["/api", "/apis"] {
        served(&get(cx, root, AGGREGATED).await?, &mut found);
    }
    capabilities.set_api_versions(found);
    Ok(capabilities)
}

async fn get(cx: &Context<DynamicObject>, path: &str, accept: &str) -> Result<Value> {
    let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new())?;
    Ok(cx.client().request(request).await?)
}

/// Lists versions, and kinds with their versions, in Helm's notation: `apps/v1` and `apps/v1/Deployment`.
fn served(discovered: &Value, found: &mut Vec<String>) {
    let list = |of: &Value, field: &str| of[field].as_array().cloned().unwrap_or_default();
    for group in list(discovered, "items") {
        for version in list(&group, "versions") {
            let name = version["version"].as_str().unwrap_or_default();
            let api_version = match group["metadata"]["name"].as_str().unwrap_or_default() {
                "" => name.to_owned(),
                group => format!("{group}/{name}"),
            };
            let kinds = list(&version, "resources");
            let kinds = kinds.iter().filter_map(|resource| resource["responseKind"]["kind"].as_str());
            found.extend(kinds.map(|kind| format!("{api_version}/{kind}")));
            found.push(api_version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn api_versions_match_helm() {
        let resources = json!([{"resource": "deployments", "responseKind": {"kind": "Deployment"}}]);
        let group =
            |name: &str| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]});
        let mut found = Vec::new();
        served(&json!({"items": [group("apps"), group("")]}), &mut found);
        assert_eq!(found, ["apps/v1/Deployment", "apps/v1", "v1/Deployment", "v1"]);
    }
}
