//! Events about objects, which `kubectl describe` shows.

mod metrics;
mod recorder;

pub(crate) use metrics::EventMetrics;
pub(crate) use recorder::Recorder;

/// Something worth telling about an object; see [`Context::event`](crate::Context::event).
///
/// ```
/// use flyball::Event;
///
/// let event = Event::warning("TemplateMissing", "no template named base-image").action("Clone");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    kind: &'static str,
    reason: String,
    action: String,
    note: String,
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
