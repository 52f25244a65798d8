//! Events of the control plane's controllers: `v1` events with a source.
//!
//! Equal events are aggregated into one with a count, and the number of events for each object is limited; see
//! <https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>.

mod note;

pub(crate) use note::{Allowance, Note};

use flyball::{Context, Resource};
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;

/// Burst of events of one object.
const BURST: u32 = 25;
/// Interval after which the burst grows by one.
const INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// Maximum number of objects whose events are cached.
const OBJECTS: usize = 256;

/// Publishes the events of one component.
#[derive(Debug)]
pub(crate) struct Events {
    component: &'static str,
    /// Field manager of the events.
    manager: &'static str,
    known: Mutex<BTreeMap<String, ObjectEvents>>,
}

/// Events published about an object.
#[derive(Debug)]
struct ObjectEvents {
    events: BTreeMap<EventContent, EventText>,
    tokens: u32,
    refilled: Timestamp,
    last: Timestamp,
}

/// Type, reason and message.
pub(crate) type EventContent = (&'static str, String, String);

#[derive(Debug)]
struct EventText {
    name: String,
    count: i32,
    last: Timestamp,
}

/// Request for an event.
enum EventRequest {
    Create(String),
    Count { name: String, count: i32 },
}

impl Events {
    /// Creates the publisher of a controller.
    pub(crate) fn new(component: &'static str) -> Self {
        Self { component, manager: super::MANAGER, known: Mutex::default() }
    }

    /// Creates the publisher of a separate component.
    pub(crate) fn of_program(name: &'static str) -> Self {
        Self { component: name, manager: name, known: Mutex::default() }
    }

    /// Publishes a normal event. Errors are ignored.
    pub(crate) async fn normal<K: Resource, T: Resource>(
        &self,
        cx: &Context<K>,
        about: &T,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.publish(cx, None, about, ("Normal", reason.into(), message.into())).await;
    }

    /// Publishes a warning event.
    pub(crate) async fn warning<K: Resource, T: Resource>(
        &self,
        cx: &Context<K>,
        about: &T,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.publish(cx, None, about, ("Warning", reason.into(), message.into())).await;
    }

    /// Publishes an event of this type, reason and message, optionally with a host.
    pub(crate) async fn publish<K: Resource, T: Resource>(
        &self,
        cx: &Context<K>,
        host: Option<&str>,
        about: &T,
        content: EventContent,
    ) {
        let meta = about.meta();
        let name = || format!("{}.{:016x}", about.name_any(), cx.rng().next());
        let Some(post) = self.admit(meta.uid.clone().unwrap_or_default(), &content, cx.now(), name) else { return };
        let namespace = meta.namespace.clone().unwrap_or_else(|| "default".into());
        let events = Api::<Event>::namespaced(cx.client().clone(), &namespace);
        let now = super::time(cx.now());
        let (manager, (kind, reason, message)) = (Some(self.manager.into()), content);
        let sent = match post {
            EventRequest::Create(name) => {
                let event = Event {
                    metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
                    involved_object: ObjectReference {
                        api_version: Some(T::api_version(&()).into_owned()),
                        kind: Some(T::kind(&()).into_owned()),
                        name: meta.name.clone(),
                        namespace: meta.namespace.clone(),
                        resource_version: meta.resource_version.clone(),
                        uid: meta.uid.clone(),
                        field_path: None,
                    },
                    reason: Some(reason.clone()),
                    message: Some(message),
                    type_: Some(kind.into()),
                    source: Some(EventSource { component: Some(self.component.into()), host: host.map(str::to_owned) }),
                    reporting_component: Some(self.component.into()),
                    reporting_instance: host.map(str::to_owned),
                    first_timestamp: Some(now.clone()),
                    last_timestamp: Some(now),
                    count: Some(1),
                    ..Event::default()
                };
                events.create(&PostParams { field_manager: manager, ..PostParams::default() }, &event).await
            }
            EventRequest::Count { name, count } => {
                let patch = Patch::Merge(json!({"count": count, "lastTimestamp": now}));
                events.patch(&name, &PatchParams { field_manager: manager, ..PatchParams::default() }, &patch).await
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, reason, "event was not published");
        }
    }

    /// Decides if an event is created or updated; `None` if there are too many.
    fn admit(
        &self,
        uid: String,
        content: &EventContent,
        now: Timestamp,
        name: impl FnOnce() -> String,
    ) -> Option<EventRequest> {
        let mut objects = self.known.lock();
        if objects.len() >= OBJECTS && !objects.contains_key(&uid) {
            let oldest = objects.iter().min_by_key(|(_, known)| known.last).map(|(uid, _)| uid.clone());
            objects.remove(&oldest?);
        }
        let fresh = ObjectEvents { events: BTreeMap::new(), tokens: BURST, refilled: now, last: now };
        let known = objects.entry(uid).or_insert(fresh);
        known.last = now;
        while known.tokens < BURST && now.duration_since(known.refilled) >= INTERVAL {
            (known.tokens, known.refilled) = (known.tokens + 1, known.refilled + INTERVAL);
        }
        if known.tokens == BURST {
            known.refilled = now;
        }
        known.tokens = known.tokens.checked_sub(1)?;
        if let Some(published) = known.events.get_mut(content) {
            (published.count, published.last) = (published.count.saturating_add(1), now);
            return Some(EventRequest::Count { name: published.name.clone(), count: published.count });
        }
        if known.events.len() >= BURST as usize {
            let oldest =
                known.events.iter().min_by_key(|(_, published)| published.last).map(|(content, _)| content.clone());
            known.events.remove(&oldest?);
        }
        let name = name();
        known.events.insert(content.clone(), EventText { name: name.clone(), count: 1, last: now });
        Some(EventRequest::Create(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_events_are_aggregated_and_rate_limited() {
        let events = Events::new("c");
        let mut now = Timestamp::UNIX_EPOCH;
        let take = |message: &str, now| {
            let post = events.admit("uid".into(), &("Normal", "R".into(), message.into()), now, || message.into());
            post.map(|post| match post {
                EventRequest::Create(name) => (name, 1),
                EventRequest::Count { name, count } => (name, count),
            })
        };
        assert_eq!(take("a", now), Some(("a".into(), 1)));
        assert_eq!(take("b", now), Some(("b".into(), 1)));
        assert_eq!(take("a", now), Some(("a".into(), 2)));
        assert_eq!((3..40).filter(|_| take("a", now).is_some()).count(), 22);
        now += INTERVAL;
        assert_eq!(take("a", now), Some(("a".into(), 25)));
        assert_eq!(take("a", now), None);
    }
}
