//! Imports from a real Prometheus, if one is installed.

use crate::trace::Directory;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use flyball_metering::meter::Meter;
use flyball_metering::source::prometheus::{Range, query_range, samples};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::sleep;

/// A file of samples in the OpenMetrics format, which promtool turns into blocks: a counter-like gauge of cores.
fn metrics(start: i64) -> String {
    let mut text = "# TYPE pod_cores gauge\n".to_owned();
    for (pod, cores) in [("web", 0.25), ("db", 1.5)] {
        for minute in 0..=60 {
            // The database has no value from minute 20 to 29.
            if pod == "web" || !(20..30).contains(&minute) {
                text += &format!("pod_cores{{namespace=\"shop\",pod=\"{pod}\"}} {cores} {}\n", start + minute * 60);
            }
        }
    }
    text + "# EOF\n"
}

#[tokio::test]
async fn range_queries_of_a_real_server_become_samples() {
    let is_installed = |name: &str| {
        ["/usr/bin", "/usr/local/bin"].iter().any(|folder| std::path::Path::new(folder).join(name).is_file())
    };
    if !is_installed("prometheus") || !is_installed("promtool") {
        println!("skipped: prometheus and promtool are not installed (apt-get install prometheus)");
        return;
    }
    let directory = Directory::new();
    std::fs::create_dir_all(&directory.0).unwrap();
    let path = |name: &str| directory.0.join(name);
    let start = 1_700_000_000 / 3600 * 3600;
    std::fs::write(path("metrics"), metrics(start)).unwrap();
    std::fs::write(path("prometheus.yml"), "global: {}\n").unwrap();
    let blocks = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([path("metrics"), path("data")])
        .stdout(Stdio::null())
        .status()
        .await
        .unwrap();
    assert!(blocks.success());
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let _server = Command::new("prometheus")
        .arg(format!("--config.file={}", path("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", path("data").display()))
        .arg("--storage.tsdb.retention.time=100y")
        .arg("--query.lookback-delta=30s")
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let client = Client::new(Trust::System, Proxies::from_variables(|_| None)).unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let range = Range { since: start, until: start + 3600, step: 60 };
    let mut found = Vec::new();
    for _ in 0..100 {
        if let Ok(values) = query_range(&client, &url, "sum(pod_cores) by (namespace, pod)", range).await {
            found = values;
            if !found.is_empty() {
                break;
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
    let samples = samples(("metering", "pod-usage-cpu-cores"), &found, range.step, |_, _, _| None);
    let total = |pod: &str| {
        let own = samples.iter().filter(|sample| sample.series.name == pod && sample.meter == Meter::PodCpuUsage);
        own.map(|sample| (sample.until - sample.since, sample.amount))
            .fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
    };
    // A quarter of a core for an hour; one and a half cores for 50 minutes.
    assert_eq!(total("web"), (3600, 900_000_000));
    assert_eq!(total("db"), (3000, 4_500_000_000));
    let rejected = query_range(&client, &url, "sum(", range).await.unwrap_err().to_string();
    assert!(rejected.contains("400") && rejected.contains("parse error"), "{rejected}");
}
