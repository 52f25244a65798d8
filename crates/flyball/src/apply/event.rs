//! Events about the object being reconciled, which `kubectl describe` shows.

use crate::kind::AnyResource;
use crate::reconcile::{Context, Pass};

/// Something worth telling about an object; see [`Context::event`].
///
/// ```
/// use flyball::Event;
///
/// let event = Event::warning("TemplateMissing", "no template named base-image").action("Clone");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    pub(super) kind: &'static str,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

impl Event {
    /// Tells that something went as it should.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind: "Normal", reason: reason.into(), action: "Reconcile".into(), note: note.into() }
    }

    /// Tells that something needs attention.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind: "Warning", ..Self::normal(reason, note) }
    }

    /// Says what was being done, in one word; `Reconcile` unless told otherwise.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = action.into();
        self
    }
}

impl<K: AnyResource> Context<K> {
    /// Publishes an event about the object being reconciled.
    ///
    /// It is sent in the background, as events.k8s.io/v1. Equal events become one, with a count that is written from time to
    /// time. There is a limit to the rate, beyond which events are dropped and counted: they are for people to read, nothing may
    /// depend on them.
    pub fn event(&self, event: Event) {
        self.pass.event(event);
    }
}

impl Pass {
    pub(crate) fn event(&self, event: Event) {
        self.env.recorder.record(&self.primary, event, self.now());
    }
}
