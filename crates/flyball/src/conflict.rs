//! Changes that others may get in the way of.

use flyball_core::Rng;
use std::time::Duration;
use tokio::time::sleep;

/// How often a change is tried.
const ATTEMPTS: u32 = 5;
/// The first wait, before jitter; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// Reads and writes again as long as the API server answers that the object has changed in between, five times at most.
///
/// `change` has to read the object anew each time. With [`Context::apply`](crate::Context::apply) this is not needed: a server-side
/// apply says which fields it is about, and others may change the rest at the same time.
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
/// cx.wrote(&counted.await?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Whatever `change` fails with; a conflict only when there was one each time.
pub async fn retry_on_conflict<T, F>(rng: &Rng, mut change: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    for attempt in 1..ATTEMPTS {
        match change().await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            result => return result,
        }
        sleep((FIRST_WAIT * (1 << attempt)).mul_f64(0.5 + rng.fraction() / 2.0)).await;
    }
    change().await
}
