//! `flyball meter` on a cluster: without an installation, and with its operator.

use crate::olm::until;
use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Child;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, team: red}}
    spec: {containers: [{name: c, image: web, resources: {requests: {cpu: 250m, memory: 64Mi}}}]}
";
const REPORT: &str = "
apiVersion: metering.flyball.dev/v1alpha1
kind: Report
metadata: {name: now}
spec:
  query: pod-cpu-request
  reportingStart: 2020-01-01T00:00:00Z
  reportingEnd: 2100-01-01T00:00:00Z
  runImmediately: true
";

fn json(output: CommandOutput) -> Value {
    serde_json::from_str(&output.ok().out).unwrap()
}

/// Starts a cluster with two pods that request a quarter of a core each.
fn cluster(test: &str) -> Home {
    let home = Home::new(test);
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    fs::write(home.0.join("web.yaml"), WEB).unwrap();
    home.run(&["apply", "-f", "web.yaml"]).ok();
    until(&home, "meter top --by pod -o json", |output| {
        let rows: Value = serde_json::from_str(&output.out).unwrap_or_default();
        rows.as_array().is_some_and(|rows| rows.len() == 2)
    });
    home
}

/// An operator whose output is a file. It ends with the test.
struct Running {
    process: Child,
    log: PathBuf,
}

impl Running {
    fn start(home: &Home, args: &[&str]) -> Self {
        let log = home.0.join("operator.log");
        let output = File::create(&log).unwrap();
        let mut command = home.command(args);
        let process = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        Self { process, log }
    }

    #[track_caller]
    fn check(&mut self) {
        let status = self.process.try_wait().unwrap();
        assert_eq!(status, None, "the operator has ended: {}", fs::read_to_string(&self.log).unwrap());
    }
}

impl Drop for Running {
    #[expect(clippy::print_stderr, reason = "it explains the failure of the test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the operator: {}", fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn requests_are_metered_without_an_installation() {
    let home = cluster("meter");
    let top = json(home.run(&["meter", "top", "--by", "tenant", "--tenant-label", "team", "-o", "json"]));
    assert_eq!(
        (&top[0]["tenant"], &top[0]["cpu_request_cores"], &top[0]["pods"]),
        (&"red".into(), &0.5.into(), &2.into())
    );
    let table = home.run(&["meter", "top"]).ok().out;
    assert!(table.starts_with("NAMESPACE") && table.contains("(none)"), "{table}");
    let top = json(home.run(&["meter", "top", "-o", "json"]));
    assert_eq!((&top[0]["kind"], &top[0]["name"]), (&"".into(), &"".into()), "{top}");
    home.run(&["meter", "report", "pod-cpu-request", "--for", "3"]).usage_with(&["with a unit"]);
    // Nothing is requested in the second in which the pods start.
    let cpu = "meter report namespace-cpu-request --since 1h -o json";
    let report = until(&home, cpu, |output| output.out.contains("\"pod_request_cpu_core_microseconds\""));
    let amount = json(report)[0]["pod_request_cpu_core_microseconds"].as_i64().unwrap();
    assert!(amount > 0 && amount % 250_000 == 0, "{amount}");
    let resources = json(home.run(&["meter", "report", "custom-resource-usage", "-o", "json"]));
    assert_eq!(resources[0]["owner_kind"], "");
    let csv = home.run(&["meter", "report", "pod-cpu-request", "-o", "csv"]).ok().out;
    assert!(csv.starts_with("period_start,period_end,pod,namespace,node,") && csv.lines().count() == 3, "{csv}");
    let watched = json(home.run(&["meter", "report", "pod-cpu-request", "--for", "4s", "-o", "json"]));
    assert_eq!(watched.as_array().unwrap().len(), 2, "{watched}");
    // All of the time counts.
    for pod in watched.as_array().unwrap() {
        let amount = pod["pod_request_cpu_core_microseconds"].as_i64().unwrap();
        assert!((4 * 250_000..=5 * 250_000).contains(&amount), "{watched}");
    }
    let short = |query| home.run(&["meter", "report", query, "--for", "1s"]).ok().err;
    assert!(short("pod-cpu-usage").contains("does not serve metrics.k8s.io"), "{}", short("pod-cpu-usage"));
    assert_eq!(short("pod-cpu-request"), "");
    let utilization = home.run(&["meter", "report", "cluster-cpu-utilization", "-o", "json"]).ok();
    assert!(utilization.err.contains("does not serve metrics.k8s.io"), "{utilization:?}");
    let utilization: Value = serde_json::from_str(&utilization.out).unwrap();
    assert_eq!(
        (&utilization[0]["cluster_cpu_utilization_percent"], utilization[0]["avg_pod_count"].is_null()),
        (&Value::Null, true)
    );
    let performance = home.run(&["meter", "report", "operator-performance"]).ok();
    assert!(performance.err.contains("--for 2m --operator NAME="), "{performance:?}");
    let operators = home.run(&["meter", "top", "--by", "operator"]).ok().out;
    assert!(operators.contains("\n(none) "), "{operators}");
    let address = "metering=http://127.0.0.1:1";
    home.run(&["meter", "report", "operator-performance", "--for", "1s", "--operator", address])
        .fails_with(&["cannot meter the operator metering"]);
    let export = home.run(&["meter", "export", "now"]);
    export.usage();
    assert!(export.err.contains("neither --data nor --server") && export.err.contains("--server URL"), "{export:?}");
    assert!(home.run(&["meter", "report"]).ok().out.contains("cluster-cpu-utilization\n"));
    home.run(&["meter", "report", "nothing"]).usage();
    home.run(&["meter", "report", "pod-cpu-request", "--since", "yesterday"]).usage();
    home.run(&["meter", "report", "pod-cpu-request", "--data", "nothing"]).fails_with(&["is not a data directory"]);
    home.run(&["meter", "report", "pod-cpu-request", "--input", "A=b"]).fails_with(&["\"A\" is not declared"]);
}

#[test]
fn operator_keeps_a_history_and_runs_reports() {
    let home = cluster("meter-operator");
    let manifests = home.run(&["meter", "run", "manifests"]).ok().out;
    fs::write(home.0.join("crds.yaml"), manifests).unwrap();
    home.run(&["apply", "-f", "crds.yaml"]).ok();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    // It meters itself as well.
    let own = format!("metering=http://{metrics}");
    let flags = [
        "--data",
        "history",
        "--metering-namespace",
        "default",
        "--metrics-addr",
        metrics.as_str(),
        "--health-addr",
        "0",
    ];
    let polls = ["--operator", own.as_str(), "--poll-interval", "1s"];
    let mut operator = Running::start(&home, &[&["meter", "run"][..], &flags[..], &polls[..]].concat());
    until(&home, "meter report pod-cpu-request --data history -o json", |output| {
        operator.check();
        output.out.contains("\"pod\"")
    });
    fs::write(home.0.join("report.yaml"), REPORT).unwrap();
    home.run(&["apply", "-f", "report.yaml"]).ok();
    let exported = until(&home, "meter export now -n default --data history -o json", |output| output.code == Some(0));
    let rows: Value = serde_json::from_str(&exported.out).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2, "{rows}");
    home.run(&["meter", "export", "other", "-n", "default", "--data", "history"])
        .fails_with(&["there is no Report \"other\" in namespace default", "flyball get reports -n default"]);
    let recent = home.run(&["meter", "export", "now", "-n", "default", "--data", "history", "--since", "1d"]).ok();
    assert!(recent.out.starts_with("period_start"), "{recent:?}");
    // Two operators would count the same usage twice.
    home.run(&["meter", "run", "--data", "history", "--metrics-addr", "0", "--health-addr", "0"])
        .fails_with(&["history is in use by another metering operator (process ", "another directory with --data"]);
    operator.check();
    let line = "meter report operator-performance --data history -o json";
    let performance = until(&home, line, |output| {
        let rows: Value = serde_json::from_str(&output.out).unwrap_or_default();
        let rows = rows.as_array().cloned().unwrap_or_default();
        let total = |column: &str| rows.iter().filter_map(|row| row[column].as_i64()).sum::<i64>();
        total("reconciles") > 0 && total("api_calls") > 0 && total("reconcile_microseconds") > 0
    });
    assert!(performance.out.contains("\"operator\": \"flyball-metering\""), "{performance:?}");
    // Without the history, its work counts while it is watched.
    let watched = ["meter", "report", "operator-performance", "--for", "3s", "-o", "json", "--operator"];
    let watch = std::thread::scope(|scope| {
        let watch = scope.spawn(|| home.run(&[&watched[..], &[own.as_str()]].concat()).ok());
        let mut count = 0;
        while !watch.is_finished() {
            count += 1;
            fs::write(home.0.join("more.yaml"), REPORT.replace("name: now", &format!("name: more-{count}"))).unwrap();
            home.run(&["apply", "-f", "more.yaml"]).ok();
        }
        watch.join().unwrap()
    });
    assert_eq!(watch.err, "", "{watch:?}");
    assert!(watch.out.contains("\"operator\": \"flyball-metering\""), "{watch:?}");
}
