//! Health of the catalogs that a Subscription can use.

use super::conditions::{CATALOG_SOURCES_UNHEALTHY, condition, set};
use super::view::View;
use crate::api::{CatalogHealth, CatalogSource, Subscription};
use crate::contents::{CatalogContents, CatalogState};
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};

/// Writes the health of the catalogs: first that the set of catalogs changed, then their state, as OLM does.
pub(super) async fn report(view: &mut View, contents: &CatalogContents, cx: &Context<Namespace>) -> Result<()> {
    let now = Time(cx.now());
    let states: Vec<(CatalogSource, CatalogState)> =
        view.sources.iter().map(|source| (source.clone(), contents.state(source))).collect();
    for tracked in &mut view.subscriptions {
        let change = change_of(&tracked.status.catalog_health, &states);
        let (is_unhealthy, settled, message) = summary(&tracked.object, &states);
        if let Some(reason) = change {
            tracked.status.catalog_health = health_of(&tracked.status.catalog_health, &states, &now);
            set(&mut tracked.status, condition(CATALOG_SOURCES_UNHEALTHY, is_unhealthy, reason, message), &now);
        } else {
            set(&mut tracked.status, condition(CATALOG_SOURCES_UNHEALTHY, is_unhealthy, settled, message), &now);
        }
    }
    view.write(cx).await?;
    for tracked in &mut view.subscriptions {
        let (is_unhealthy, settled, message) = summary(&tracked.object, &states);
        set(&mut tracked.status, condition(CATALOG_SOURCES_UNHEALTHY, is_unhealthy, settled, message), &now);
    }
    view.write(cx).await
}

fn is_healthy(state: &CatalogState) -> bool {
    state.error.is_none() || state.content.is_some()
}

/// Returns true if a reference is to this CatalogSource.
fn refers(reference: &ObjectReference, source: &CatalogSource) -> bool {
    reference.name == source.metadata.name
        && reference.namespace == source.metadata.namespace
        && reference.uid == source.uid()
}

/// Returns the reason of a change of the set of catalogs or their health.
fn change_of(known: &[CatalogHealth], states: &[(CatalogSource, CatalogState)]) -> Option<&'static str> {
    let find = |source: &CatalogSource| known.iter().find(|health| refers(&health.catalog_source_ref, source));
    if states.iter().any(|(source, _)| find(source).is_none()) {
        return Some("CatalogSourcesAdded");
    }
    if known.iter().any(|health| !states.iter().any(|(source, _)| refers(&health.catalog_source_ref, source))) {
        return Some("CatalogSourcesDeleted");
    }
    let is_changed = |(source, state): &(CatalogSource, CatalogState)| {
        find(source).is_some_and(|health| health.healthy != is_healthy(state))
    };
    states.iter().any(is_changed).then_some("CatalogSourcesUpdated")
}

fn health_of(known: &[CatalogHealth], states: &[(CatalogSource, CatalogState)], now: &Time) -> Vec<CatalogHealth> {
    let health = |(source, state): &(CatalogSource, CatalogState)| {
        let healthy = is_healthy(state);
        let before =
            known.iter().find(|health| refers(&health.catalog_source_ref, source) && health.healthy == healthy);
        before.cloned().unwrap_or_else(|| CatalogHealth {
            catalog_source_ref: ObjectReference {
                api_version: Some(CatalogSource::api_version(&()).into_owned()),
                kind: Some("CatalogSource".to_owned()),
                name: source.metadata.name.clone(),
                namespace: source.metadata.namespace.clone(),
                uid: source.uid(),
                resource_version: source.resource_version(),
                ..ObjectReference::default()
            },
            last_updated: Some(now.clone()),
            healthy,
        })
    };
    states.iter().map(health).collect()
}

/// Returns true if a catalog is not healthy, the reason, and the message.
fn summary(subscription: &Subscription, states: &[(CatalogSource, CatalogState)]) -> (bool, &'static str, String) {
    let (name, namespace) = (&subscription.spec.source, &subscription.spec.source_namespace);
    if states.is_empty() {
        let message = "dependency resolution requires at least one catalogsource".to_owned();
        return (true, "NoCatalogSourcesFound", message);
    }
    let is_target =
        |source: &CatalogSource| source.name_any() == *name && source.namespace().as_ref() == Some(namespace);
    if !states.iter().any(|(source, _)| is_target(source)) {
        return (true, "UnhealthyCatalogSourceFound", format!("targeted catalogsource {namespace}/{name} missing"));
    }
    let unhealthy = |(source, state): &(CatalogSource, CatalogState)| {
        let error = state.error.as_ref().filter(|_| !is_healthy(state))?;
        let role = if is_target(source) { "targeted" } else { "available" };
        Some(format!(
            "{role} catalogsource {}/{} unhealthy: {error}",
            source.namespace().unwrap_or_default(),
            source.name_any()
        ))
    };
    let messages: Vec<String> = states.iter().filter_map(unhealthy).collect();
    match messages.is_empty() {
        true => (false, "AllCatalogSourcesHealthy", "all available catalogsources are healthy".to_owned()),
        false => (true, "UnhealthyCatalogSourceFound", messages.join("; ")),
    }
}
