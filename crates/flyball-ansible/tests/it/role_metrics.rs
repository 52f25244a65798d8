//! The module `osdk_metric` of the built-in executor, as a scraper reads the metrics. The tests with
//! `ansible-playbook` are in `ansible/metrics.rs`.

use crate::project::{Project, api, change, condition, shops};
use flyball::{MetricsServer, Operator};
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const SHOP: &str =
    "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {firstWord: hello, count: '4'}}";

/// Returns the tasks of the role, with the address of the operator.
pub(crate) fn tasks(of_roles: SocketAddr) -> String {
    let metrics = [
        "name: shops_opened_total, description: Opened shops, counter: {increment: true}",
        "name: shop_guests, description: 'Guests of {{ first_word }}', gauge: {set: '{{ count }}'}",
        "name: shop_opened, description: Time, gauge: {set_to_current_time: true}",
        "name: shop_seconds, description: Duration, histogram: {observe: 0.3}",
        "name: shop_sizes, description: Sizes, summary: {observe: 2}",
    ];
    let url = format!("http://localhost:{}/metrics", of_roles.port());
    metrics.iter().map(|metric| format!("- osdk_metric: {{address: '{url}', {metric}}}\n")).collect()
}

/// Returns an address that is free now.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Reads `/metrics`.
pub(crate) async fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Creates an operator that serves its metrics, and listens for those of roles.
pub(crate) fn metered(folder: PathBuf, executor: Executor, metrics: SocketAddr, of_roles: SocketAddr) -> Operator {
    let watches = Watches::read(folder.join("watches.yaml")).unwrap().role_metrics_address(Some(of_roles));
    let server = MetricsServer { address: Some(metrics), ..MetricsServer::default() };
    operator(&watches, executor).unwrap().metrics_server(server)
}

/// Asserts that the metrics of [`tasks`] are served after one run.
pub(crate) fn check(text: &str) {
    for line in [
        "# HELP shops_opened Opened shops",
        "# TYPE shops_opened counter",
        "shops_opened_total 1.0",
        "# HELP shop_guests Guests of hello",
        "shop_guests 4.0",
        "shop_seconds_bucket{le=\"0.25\"} 0",
        "shop_seconds_bucket{le=\"0.5\"} 1",
        "shop_seconds_count 1",
        "shop_sizes_sum 2.0",
        "shop_sizes_count 1.0",
        "ansible_operator_reconcile_result{GVK=\"shop.example.com/v1, Kind=Shop\",result=\"succeeded\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    let opened = text.lines().find_map(|line| line.strip_prefix("shop_opened ")).unwrap();
    assert!(opened.parse::<f64>().unwrap() > 1e9, "seconds since 1970: {opened}");
}

#[tokio::test]
async fn roles_define_metrics_of_the_operator() {
    let (metrics, of_roles) = (free_address(), free_address());
    let written = Project::role("role-metrics", &tasks(of_roles));
    let folder = written.folder().to_owned();
    let test = Test::of(move || metered(folder.clone(), Executor::BuiltIn, metrics, of_roles)).start().await;
    test.apply(SHOP).await;
    let objects = api(&test, &shops());
    let is_successful = async || condition(&objects.get("corner").await.unwrap(), "Successful")["status"] == "True";
    test.eventually("it is successful", is_successful).await;
    check(&scrape(metrics).await);
    assert!(TcpStream::connect(of_roles).await.is_err(), "the built-in executor needs no server");
    // The role sees a text of users only as a value.
    change(&objects, "corner", json!({"spec": {"count": "{{ 1 + 1 }}"}})).await;
    let failure = async || condition(&objects.get("corner").await.unwrap(), "Failure");
    let is_rejected = async || failure().await["message"].as_str().is_some_and(|text| text.contains("finite number"));
    test.eventually("it fails", is_rejected).await;
    assert!(scrape(metrics).await.contains("shop_guests 4.0\n"));
}

#[tokio::test]
async fn metrics_of_operators_have_reserved_prefixes() {
    let written = Project::role("reserved-metrics", "- debug: {msg: hello}\n");
    let (folder, metrics) = (written.folder().to_owned(), free_address());
    let test = Test::of(move || metered(folder.clone(), Executor::BuiltIn, metrics, free_address())).start().await;
    test.apply(SHOP).await;
    let objects = api(&test, &shops());
    let is_successful = async || condition(&objects.get("corner").await.unwrap(), "Successful")["status"] == "True";
    test.eventually("it is successful", is_successful).await;
    let text = scrape(metrics).await;
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 20, "{text}");
    for name in names {
        let tasks = format!("- osdk_metric: {{name: {name}, description: a, gauge: {{set: 1}}}}\n");
        let problem = Project::role("reserved-metric", &tasks).refused().to_string();
        assert!(problem.contains("is reserved for metrics of the operator"), "{name}: {problem}");
    }
}

#[test]
fn computed_names_of_metrics_are_rejected() {
    let tasks = "- operator_sdk.util.osdk_metric: {name: '{{ word }}', description: a, gauge: {set: 1}}\n";
    let problem = Project::role("computed-metric", tasks).refused().to_string();
    assert!(problem.contains("osdk_metric: name: must be literal, since users could add metrics"), "{problem}");
}
