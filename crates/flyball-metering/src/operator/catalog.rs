//! The queries and sources that the reports of a namespace can use.

use crate::api::{InputValue, ReportDataSource, ReportQuery};
use crate::query::{Catalog, Definition, Error, Inputs, Source, builtin};
use flyball::error_chain;
use flyball::{Context, Result};
use kube::ResourceExt;
use std::collections::BTreeMap;

/// The queries and sources of a namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceCatalog {
    queries: BTreeMap<String, Definition>,
    sources: BTreeMap<String, Source>,
}

impl NamespaceCatalog {
    /// Reads the queries and sources of a namespace.
    pub(super) async fn read<K: flyball::AnyResource>(cx: &Context<K>, namespace: &str) -> Result<Self> {
        let queries: Vec<ReportQuery> = cx.list(Some(namespace)).await?;
        let queries: BTreeMap<String, Definition> =
            queries.iter().map(|query| (query.name_any(), Definition::from(query))).collect();
        let mut sources = BTreeMap::new();
        for source in cx.list::<ReportDataSource>(Some(namespace)).await? {
            let name = source.name_any();
            if let Some(view) = &source.spec.report_query_view {
                let found = queries.get(&view.query_name).cloned().or_else(|| builtin(&view.query_name));
                let Some(mut query) = found else { continue };
                let values = values(&view.inputs);
                for input in &mut query.inputs {
                    input.default = values.get(&input.name).cloned().or_else(|| input.default.take());
                }
                sources.insert(name, Source::View(query));
            } else {
                sources.insert(name.clone(), Source::Series { namespace: namespace.to_owned(), name });
            }
        }
        Ok(Self { queries, sources })
    }
}

impl Catalog for NamespaceCatalog {
    fn query(&self, name: &str) -> Option<Definition> {
        self.queries.get(name).cloned().or_else(|| builtin(name))
    }

    fn source(&self, name: &str) -> Option<Source> {
        self.sources.get(name).cloned()
    }
}

/// Returns values of inputs by name.
pub(super) fn values(inputs: &[InputValue]) -> Inputs {
    inputs.iter().map(|input| (input.name.clone(), input.value.clone())).collect()
}

/// Returns the message of an error with its cause, in the length of a condition.
pub(super) fn message(error: &Error) -> String {
    error_chain(error).chars().take(1024).collect()
}
