//! Events as the controllers of the control plane publish them: in the older form, with a source.

use flyball::{Context, Resource};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

/// Publishes an event about an object in a namespace. That it fails is no reason for anything else to fail.
pub(super) async fn publish<K: Resource>(cx: &Context<K>, about: &K, component: &str, reason: &str, message: String) {
    let Some(namespace) = about.meta().namespace.clone() else { return };
    let now = super::pods::time(cx.now());
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:016x}", about.name_any(), cx.rng().next())),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: about.meta().name.clone(),
            namespace: Some(namespace.clone()),
            resource_version: about.meta().resource_version.clone(),
            uid: about.meta().uid.clone(),
            ..ObjectReference::default()
        },
        reason: Some(reason.into()),
        message: Some(message),
        type_: Some("Normal".into()),
        source: Some(EventSource { component: Some(component.into()), host: None }),
        reporting_component: Some(component.into()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    };
    let params = PostParams { field_manager: Some(super::MANAGER.into()), ..PostParams::default() };
    if let Err(error) = Api::namespaced(cx.client().clone(), &namespace).create(&params, &event).await {
        tracing::debug!(%error, reason, "event was not published");
    }
}
