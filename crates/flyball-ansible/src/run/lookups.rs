//! Lookups of objects of the cluster in templates.

use super::Run;
use super::modules::Arguments;
use crate::job::TaskError;
use crate::template::weight;
use crate::value::memory;
use crate::value::{Value, json, to_value};

/// Limit of queries of one attempt of a task.
const MAX_QUERIES: usize = 100;
/// Memory limit of their results.
const MAX_RESULT_BYTES: usize = 32 << 20;

impl Run<'_> {
    /// Evaluates templates; repeatedly, as long as they query objects of the cluster.
    pub(super) async fn evaluate<T>(
        &mut self,
        evaluate: impl Fn() -> Result<T, String> + Send + Sync,
    ) -> Result<T, String> {
        let budget = self.budget.clone();
        let mut bytes = 0;
        for _ in 0..MAX_QUERIES {
            let result = evaluate();
            let Some(query) = budget.sources.pending() else { return result };
            let found = self.query(&query).await.map_err(|failure| format!("lookup k8s: {}", failure.message))?;
            bytes += memory::of(&found);
            if bytes > MAX_RESULT_BYTES {
                return Err(format!("the objects of lookups in the task exceed {MAX_RESULT_BYTES} bytes of memory"));
            }
            budget.charge(weight(&found)?)?;
            budget.sources.set_result(&query, found);
        }
        Err(format!("the task has more than {MAX_QUERIES} lookups of objects"))
    }

    /// Returns the result of the lookup `k8s`.
    async fn query(&mut self, query: &Arguments) -> Result<Value, TaskError> {
        let client = self.job.cx.client();
        match query.get("cluster_info").and_then(Value::as_str) {
            Some("version") => {
                let version = client.apiserver_version().await.map_err(|error| TaskError::of(error.into()))?;
                let version = to_value(version).map_err(|error| TaskError::new(error.to_string()))?;
                return Ok(json!([{"kubernetes": version}]));
            }
            Some("api_groups") => {
                let groups = client.list_api_groups().await.map_err(|error| TaskError::of(error.into()))?;
                let names: Vec<_> = groups.groups.into_iter().map(|group| group.name).collect();
                return Ok(json!([names]));
            }
            Some(other) => {
                return Err(TaskError::new(format!("cluster_info is {other}, but must be version or api_groups")));
            }
            None => {}
        }
        let renamed = |name: &str| match name {
            "resource_name" => "name".to_owned(),
            "label_selector" => "label_selectors".to_owned(),
            "field_selector" => "field_selectors".to_owned(),
            other => other.to_owned(),
        };
        let arguments: Arguments = query.iter().map(|(name, value)| (renamed(name), value.clone())).collect();
        let mut done = Box::pin(self.k8s_info(&arguments)).await?;
        Ok(done.result.remove("resources").unwrap_or_default())
    }
}
