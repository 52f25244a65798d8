//! Conversion of CRDs after the operator that converts them is gone: without its webhook, their objects could not be
//! read.

use super::observe::Cx;
use crate::api::{ClusterServiceVersion, WebhookType};
use crate::install::{Definition, service_name};
use crate::patch::merge_patch;
use flyball::{ObjectKey, Result};
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeSet;

/// Removes the conversion webhooks of a ClusterServiceVersion from its CRDs, unless another version has taken them
/// over.
pub(super) async fn reset_conversions(csv: &ClusterServiceVersion, cx: &Cx) -> Result<()> {
    let crds_of = |csv: &ClusterServiceVersion| -> BTreeSet<String> {
        let webhooks = csv.spec.webhook_definitions.iter();
        let conversions = webhooks.filter(|webhook| webhook.webhook_type == WebhookType::Conversion);
        conversions.flat_map(|webhook| webhook.conversion_crds.clone()).collect()
    };
    let own = crds_of(csv);
    if own.is_empty() {
        return Ok(());
    }
    let siblings = super::observe::siblings(csv, cx).await?;
    let taken_over: BTreeSet<String> = siblings.0.iter().flat_map(crds_of).collect();
    let services: BTreeSet<String> =
        csv.spec.details().deployments.iter().map(|deployment| service_name(&deployment.name)).collect();
    for name in own.difference(&taken_over) {
        let Some(definition) = cx.get::<Definition>(&ObjectKey::new(None, name)).await? else { continue };
        let service =
            definition.spec.conversion.as_ref().map(|conversion| &conversion["webhook"]["clientConfig"]["service"]);
        let is_own = service.is_some_and(|service| {
            service["namespace"].as_str() == csv.namespace().as_deref()
                && service["name"].as_str().is_some_and(|name| services.contains(name))
        });
        if is_own {
            let conversion = json!({"strategy": "None", "webhook": null});
            merge_patch(cx, &definition, "", &json!({"spec": {"conversion": conversion}})).await?;
        }
    }
    Ok(())
}
