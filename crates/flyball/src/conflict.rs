//! Retries of writes that conflict.

use crate::backoff::Backoff;
use flyball_core::Rng;
use std::time::Duration;
use tokio::time::sleep;

/// Limit of attempts.
const MAX_ATTEMPTS: u32 = 5;
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_millis(10), max_delay: Duration::from_secs(1) };

/// Retries a read-modify-write while the API server returns 409 Conflict, at most five times.
///
/// `change` has to read the object again each time. [`Context::apply`](crate::Context::apply) does not need this: a
/// server-side apply does not conflict with changes of other fields.
///
/// ```
/// # use flyball::{Context, Result, retry_on_conflict};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::Api;
/// # async fn count<K: flyball::Resource>(cx: &Context<K>) -> Result<()> {
/// let api = Api::<ConfigMap>::namespaced(cx.client().clone(), "default");
/// let counted = retry_on_conflict(cx.rng(), || async {
///     let mut object = api.get("visits").await?;
///     let visits = object.data.get_or_insert_default().entry("count".into()).or_default();
///     *visits = (visits.parse().unwrap_or(0) + 1).to_string();
///     api.replace("visits", &Default::default(), &object).await
/// });
/// cx.record_write(&counted.await?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns the error of `change`; a conflict only if every attempt had one.
#[doc(alias = "RetryOnConflict")]
pub async fn retry_on_conflict<T, F>(rng: &Rng, mut change: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    for attempt in 1..MAX_ATTEMPTS {
        match change().await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            result => return result,
        }
        sleep(BACKOFF.with_jitter(attempt, rng)).await;
    }
    change().await
}
