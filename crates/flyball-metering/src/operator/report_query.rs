//! Reconciles ReportQueries: checks that reports can use them.

use super::catalog::{NamespaceCatalog, message};
use super::{QUERY_WORKERS, Shared};
use crate::api::{ReportDataSource, ReportQuery, ReportQueryStatus, invalid_query};
use crate::query::{Definition, Error, Inputs, Request, check};
use flyball::{Action, Condition, Context, Controller, Reconcile, Result};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Time after which a query that exceeded memory or time is checked again.
const LIMIT_RETRY: Duration = Duration::from_secs(600);

/// Returns the controller of ReportQueries.
pub(super) fn controller(shared: Arc<Shared>) -> Controller<Queries> {
    Controller::new(Queries { shared }).concurrency(QUERY_WORKERS).shares_workers().reads::<ReportDataSource>()
}

/// Reconciles each ReportQuery.
pub(super) struct Queries {
    shared: Arc<Shared>,
}

impl Reconcile for Queries {
    type Resource = ReportQuery;

    async fn reconcile(&self, query: &ReportQuery, cx: &Context<ReportQuery>) -> Result<Action> {
        let definition = Definition::from(query);
        let problem = match invalid_query(&definition) {
            Some(problem) => Some((problem, Action::done())),
            None => self.problem(query, definition, cx).await?,
        };
        let (condition, action) = match problem {
            None => (Condition::new("Valid", true, "Prepared"), Action::done()),
            Some((problem, action)) => (Condition::new("Valid", false, "InvalidQuery").message(problem), action),
        };
        cx.set_status(&ReportQueryStatus { conditions: vec![condition] }).await?;
        Ok(action)
    }
}

impl Queries {
    /// Prepares the query, without running it. Returns its problem, and the time of the next check.
    async fn problem(
        &self,
        query: &ReportQuery,
        definition: Definition,
        cx: &Context<ReportQuery>,
    ) -> Result<Option<(String, Action)>> {
        let namespace = query.namespace().unwrap_or_default();
        let catalog = NamespaceCatalog::read(cx, &namespace).await?;
        let store = self.shared.store()?;
        let work = move |limits| {
            let inputs = Inputs::new();
            let request = Request {
                query: &definition,
                since: 0,
                until: 0,
                inputs: &inputs,
                namespace: &namespace,
                is_scoped: true,
                catalog: &catalog,
            };
            check(&store, &request, limits)
        };
        match self.shared.query(work).await {
            // Reports set these inputs.
            Ok(()) | Err(Error::MissingInput { .. } | Error::UnknownReport { .. }) => Ok(None),
            Err(error) if error.is_permanent() => Ok(Some((message(&error), Action::done()))),
            // They depend on the load.
            Err(error @ (Error::Memory { .. } | Error::Time { .. })) => {
                Ok(Some((message(&error), Action::requeue_after(LIMIT_RETRY))))
            }
            Err(error) => Err(error.into()),
        }
    }
}
