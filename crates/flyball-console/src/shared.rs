//! State that all requests share.

use crate::explore::Explore;
use crate::operators::Operators;
use crate::store::Store;
use crate::verification::Verifier;
use crate::writers::WriteLog;
use flyball_core::Clock;
use std::sync::Arc;

/// The cluster as the console knows it, and the means to read more.
pub(crate) struct Shared {
    pub(crate) client: kube::Client,
    pub(crate) store: Arc<Store>,
    pub(crate) operators: Operators,
    pub(crate) verifier: Verifier,
    pub(crate) write_log: WriteLog,
    pub(crate) clock: Clock,
    /// URL of the API server.
    pub(crate) cluster: String,
    /// Name of the context.
    pub(crate) context: String,
    /// True if the page may write.
    pub(crate) write: bool,
    /// Explorations of the operator under development.
    pub(crate) explorer: Option<Arc<dyn Explore>>,
    /// The only namespace that is shown; empty for all.
    pub(crate) namespace: String,
}
