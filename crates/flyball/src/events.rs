//! Events about objects, which `kubectl describe` shows.

mod metrics;
mod recorder;

pub(crate) use metrics::EventMetrics;
pub(crate) use recorder::Recorder;

/// An event about an object; see [`Context::event`](crate::Context::event).
///
/// ```
/// use flyball::Event;
///
/// let event = Event::warning("TemplateMissing", "no template named base-image").action("Clone");
/// ```
#[doc(alias = "EventRecorder")]
#[doc(alias = "Eventf")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    kind: &'static str,
    reason: String,
    action: String,
    note: String,
}

impl Event {
    /// Creates an event of type `Normal`.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind: "Normal", reason: reason.into(), action: "Reconcile".into(), note: note.into() }
    }

    /// Creates an event of type `Warning`.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind: "Warning", ..Self::normal(reason, note) }
    }

    /// Sets the action in one word; `Reconcile` by default.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = action.into();
        self
    }
}
