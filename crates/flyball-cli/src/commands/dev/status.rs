//! Status line of the operator, from its metrics.

use super::log::Log;
use crate::error::Result;
use crate::operator::metrics::Metrics;
use crate::render::terminal::{is_interactive, set_status_line};
use crate::web::Web;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Updates the status line on a terminal; does nothing elsewhere.
///
/// # Errors
///
/// If the HTTP client cannot be created.
pub(super) async fn show(address: &str, log: &Log) -> Result<()> {
    if !is_interactive() {
        return pending().await;
    }
    let web = Web::new(POLL_INTERVAL)?;
    loop {
        let line = match Metrics::fetch(&web, address).await {
            Ok(metrics) => line(&metrics, log.last_error().as_deref()),
            Err(_) => "the operator is not running".to_owned(),
        };
        set_status_line(&line);
        sleep(POLL_INTERVAL).await;
    }
}

/// Formats the status line.
fn line(metrics: &Metrics, last_error: Option<&str>) -> String {
    let sum = |name: &str| metrics.sum(name);
    let results = metrics.by("controller_runtime_reconcile_total", "result");
    let reconciles = sum("controller_runtime_reconcile_total");
    let failed = results.get("error").copied().unwrap_or_default();
    let mut parts = vec![
        format!("{} objects", sum("flyball_cache_objects")),
        format!("{} queued", sum("workqueue_depth")),
        format!("{} active", sum("controller_runtime_active_workers")),
        format!("{reconciles} reconciles"),
    ];
    if failed > 0.0 {
        parts.push(format!("{failed} failed"));
    }
    parts.extend(last_error.map(|error| format!("last error: {error}")));
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn metrics_are_summed_over_controllers() {
        let metrics = "# HELP workqueue_depth Keys that are ready\n\
            workqueue_depth{name=\"a\",controller=\"a\"} 1\nworkqueue_depth{name=\"b\",controller=\"b\"} 2\n\
            flyball_cache_objects{kind=\"sites.v1.example.com\"} 4\nflyball_cache_objects_other 9\n\
            controller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 7\n\
            controller_runtime_reconcile_total{controller=\"a\",result=\"error\"} 1\n";
        assert_eq!(line(&metrics.into(), None), "4 objects · 3 queued · 0 active · 8 reconciles · 1 failed");
        assert_eq!(
            line(&"".into(), Some("no page")),
            "0 objects · 0 queued · 0 active · 0 reconciles · last error: no page"
        );
    }
}
