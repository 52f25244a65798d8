//! Reconciles ReportQueries: checks that reports can use them.

use super::Shared;
use super::catalog::{NamespaceCatalog, message};
use crate::api::{ReportQuery, ReportQueryStatus, invalid_query};
use crate::query::{Definition, Error, Inputs, Request, run};
use flyball::{Action, Condition, Context, Reconcile, Result};
use kube::ResourceExt;
use std::sync::Arc;

/// Reconciles each ReportQuery.
pub(super) struct Queries {
    pub(super) shared: Arc<Shared>,
}

impl Reconcile for Queries {
    type Resource = ReportQuery;

    async fn reconcile(&self, query: &ReportQuery, cx: &Context<ReportQuery>) -> Result<Action> {
        let definition = Definition::from(query);
        let problem = match invalid_query(&definition) {
            Some(problem) => Some(problem),
            None => self.problem(query, definition, cx).await?,
        };
        let condition = match problem {
            None => Condition::new("Valid", true, "Prepared"),
            Some(problem) => Condition::new("Valid", false, "InvalidQuery").message(problem),
        };
        cx.set_status(&ReportQueryStatus { conditions: vec![condition] }).await?;
        Ok(Action::done())
    }
}

impl Queries {
    /// Runs the query over an empty period.
    async fn problem(
        &self,
        query: &ReportQuery,
        definition: Definition,
        cx: &Context<ReportQuery>,
    ) -> Result<Option<String>> {
        let namespace = query.namespace().unwrap_or_default();
        let catalog = NamespaceCatalog::read(cx, &namespace).await?;
        let store = self.shared.store()?;
        let work = move || {
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
            run(&store, &request).map(drop)
        };
        match self.shared.compute(work).await {
            // Reports set these inputs.
            Ok(()) | Err(Error::MissingInput { .. } | Error::UnknownReport { .. }) => Ok(None),
            Err(error) if error.is_permanent() => Ok(Some(message(&error))),
            Err(error) => Err(error.into()),
        }
    }
}
