//! Monitoring of an operator: ServiceMonitor, alerts and dashboard.
//!
//! Alerts and dashboard use the golden signals that every operator exports: queue latency, reconciles, errors, and the
//! utilization of workers. See <https://sre.google/sre-book/monitoring-distributed-systems/>.

use super::{ConfigDirectory, InstallTarget, ManifestFile, object};
use flyball::description::Description;
use serde_json::{Value, json};

const MONITORING: &str = "monitoring.coreos.com/v1";
/// Comment about `insecureSkipVerify` in the file of the ServiceMonitor.
const CERTIFICATE_NOTE: &str = "\
# Each pod of the operator serves metrics with a self-signed certificate in memory, so there is no CA to verify it with.
# To verify it, give the operator a certificate (--metrics-cert-dir) and set tlsConfig.ca and tlsConfig.serverName,
# see \"Certificate of the metrics\" in Flyball's docs/deploy.md.
";

pub(super) fn manifests(description: &Description, target: &InstallTarget) -> Vec<ManifestFile> {
    let mut monitor = object(MONITORING, "ServiceMonitor", &target.object_name("metrics"), Some(&target.namespace));
    monitor["spec"] = json!({
        "endpoints": [{
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "path": "/metrics",
            "port": "https",
            "scheme": "https",
            // Each process creates its own certificate in memory: there is no Secret with a CA.
            "tlsConfig": {"insecureSkipVerify": true},
        }],
        "selector": {"matchLabels": target.selector()},
    });
    let mut rule = object(MONITORING, "PrometheusRule", &target.object_name("alerts"), Some(&target.namespace));
    rule["spec"] = json!({"groups": [{"name": target.name(), "rules": alerts(description, target)}]});
    let mut map = object("v1", "ConfigMap", &target.object_name("dashboard"), Some(&target.namespace));
    // By this label Grafana's sidecar finds it.
    map["metadata"]["labels"]["grafana_dashboard"] = "1".into();
    map["data"] = json!({(format!("{}.json", target.name())): format!("{:#}\n", dashboard(description, target))});
    vec![
        ManifestFile { note: CERTIFICATE_NOTE, ..ManifestFile::new(ConfigDirectory::Monitoring, "monitor", monitor) },
        ManifestFile::new(ConfigDirectory::Monitoring, "alerts", rule),
        ManifestFile::new(ConfigDirectory::Monitoring, "dashboard", map),
    ]
}

/// Selects the series of this operator.
fn of(target: &InstallTarget) -> String {
    format!("namespace=\"{}\",job=\"{}\"", target.namespace, target.object_name("metrics"))
}

fn alerts(description: &Description, target: &InstallTarget) -> Vec<Value> {
    let (of, name) = (of(target), target.name());
    let alert = |alert: &str, severity: &str, wait: &str, expr: String, summary: String| {
        json!({
            "alert": alert, "expr": expr, "for": wait,
            "labels": {"severity": severity}, "annotations": {"summary": summary},
        })
    };
    let mut alerts = vec![
        alert(
            "OperatorAbsent",
            "critical",
            "10m",
            format!("absent(flyball_saturation{{{of}}})"),
            format!("{name} exports no metrics; the operator may be down."),
        ),
        alert(
            "OperatorErrors",
            "warning",
            "15m",
            format!(
                "sum by (controller) (rate(controller_runtime_reconcile_errors_total{{{of}}}[5m])) / \
                 sum by (controller) (rate(controller_runtime_reconcile_total{{{of}}}[5m])) > 0.1"
            ),
            format!("More than one in ten reconciles of {name}/{{{{ $labels.controller }}}} fail."),
        ),
        alert(
            "OperatorSlow",
            "warning",
            "15m",
            format!(
                "histogram_quantile(0.99, sum by (controller, le) (rate(flyball_latency_seconds_bucket{{{of}}}[5m]))) > 60"
            ),
            format!("Objects wait more than a minute for {name}/{{{{ $labels.controller }}}}."),
        ),
        alert(
            "OperatorSaturated",
            "warning",
            "30m",
            format!("min_over_time(flyball_saturation{{{of}}}[15m]) > 0.9"),
            format!(
                "All workers of {name}/{{{{ $labels.controller }}}} are busy: raise the CPU limit or Controller::concurrency."
            ),
        ),
        alert(
            "OperatorPanics",
            "warning",
            "0m",
            format!("increase(controller_runtime_reconcile_panics_total{{{of}}}[15m]) > 0"),
            format!("Reconciles of {name}/{{{{ $labels.controller }}}} panic; see the log."),
        ),
        alert(
            "OperatorGivesUp",
            "warning",
            "0m",
            format!("increase(controller_runtime_terminal_reconcile_errors_total{{{of}}}[15m]) > 0"),
            format!("{name}/{{{{ $labels.controller }}}} stopped retrying objects; they need a change."),
        ),
        alert(
            "OperatorRefused",
            "warning",
            "15m",
            format!("sum(rate(rest_client_requests_total{{{of},code=\"403\"}}[5m])) > 0"),
            format!("The API server denies requests of {name} (403): a role lacks permissions, see the log."),
        ),
    ];
    alerts.push(alert(
        "OperatorWatchFails",
        "warning",
        "5m",
        format!("max by (kind) (flyball_watch_failing_seconds{{{of}}}) > 120"),
        format!("{name} has had no watch of {{{{ $labels.kind }}}} for minutes; see /readyz and the log."),
    ));
    if description.lease.is_some() {
        alerts.push(alert(
            "OperatorWithoutLeader",
            "critical",
            "5m",
            format!("sum(leader_election_master_status{{{of}}}) == 0"),
            format!("No replica of {name} holds the lease."),
        ));
    }
    if !description.webhooks.is_empty() {
        alerts.push(alert(
            "OperatorWebhooksFail",
            "critical",
            "5m",
            format!("sum by (webhook) (rate(controller_runtime_webhook_requests_total{{{of},code=~\"5..\"}}[5m])) > 0"),
            format!("Webhook {{{{ $labels.webhook }}}} of {name} fails, so writes of its kind are rejected."),
        ));
    }
    alerts
}

/// Draws a dashboard for Grafana, see
/// <https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/>.
fn dashboard(description: &Description, target: &InstallTarget) -> Value {
    let of = of(target);
    let mut panels = vec![
        (
            "Latency: from the due time of an object to the end of its reconcile",
            "s",
            vec![
                ("p50 {{controller}}", quantile(0.5, "flyball_latency_seconds_bucket", "controller", &of)),
                ("p99 {{controller}}", quantile(0.99, "flyball_latency_seconds_bucket", "controller", &of)),
            ],
        ),
        (
            "Traffic: reconciles",
            "ops",
            vec![("{{controller}} {{result}}", rate("controller_runtime_reconcile_total", "controller, result", &of))],
        ),
        (
            "Errors: failed reconciles",
            "ops",
            vec![("{{controller}}", rate("controller_runtime_reconcile_errors_total", "controller", &of))],
        ),
        (
            "Saturation: busy workers",
            "percentunit",
            vec![("{{controller}}", format!("max by (controller) (flyball_saturation{{{of}}})"))],
        ),
        ("Queued objects", "short", vec![("{{controller}}", format!("sum by (controller) (workqueue_depth{{{of}}})"))]),
        ("Cached objects", "short", vec![("{{kind}}", format!("max by (kind) (flyball_cache_objects{{{of}}})"))]),
        (
            "Requests to the API server",
            "reqps",
            vec![("{{method}} {{code}}", rate("rest_client_requests_total", "method, code", &of))],
        ),
        (
            "Results of applied objects",
            "ops",
            vec![("{{kind}} {{result}}", rate("flyball_apply_total", "kind, result", &of))],
        ),
    ];
    if description.lease.is_some() {
        panels.push((
            "Leader",
            "short",
            vec![("{{pod}}", format!("max by (pod) (leader_election_master_status{{{of}}})"))],
        ));
    }
    if !description.webhooks.is_empty() {
        let latency = "controller_runtime_webhook_latency_seconds_bucket";
        panels.push(("Webhooks: latency", "s", vec![("p99 {{webhook}}", quantile(0.99, latency, "webhook", &of))]));
        panels.push((
            "Webhooks: reviews",
            "ops",
            vec![("{{webhook}} {{code}}", rate("controller_runtime_webhook_requests_total", "webhook, code", &of))],
        ));
    }
    let panels: Vec<Value> = panels
        .into_iter()
        .enumerate()
        .map(|(at, (title, unit, lines))| {
            let target = |(at, (legend, expr)): (usize, (&str, String))| {
                json!({"expr": expr, "legendFormat": legend, "refId": char::from(b'A' + at as u8).to_string()})
            };
            json!({
                "id": at + 1,
                "title": title,
                "type": "timeseries",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "gridPos": {"h": 8, "w": 12, "x": 12 * (at % 2), "y": 8 * (at / 2)},
                "targets": lines.into_iter().enumerate().map(target).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "title": target.name(),
        "uid": target.name().chars().take(40).collect::<String>(),
        "tags": ["operator"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    })
}

fn rate(series: &str, by: &str, of: &str) -> String {
    format!("sum by ({by}) (rate({series}{{{of}}}[5m]))")
}

fn quantile(quantile: f64, series: &str, by: &str, of: &str) -> String {
    format!("histogram_quantile({quantile}, sum by ({by}, le) (rate({series}{{{of}}}[5m])))")
}
