//! `flyball dev --console`; the page itself is tested in a browser, see `.ci/console`.

use crate::Home;
use crate::dev::LineReader;
use crate::run::{SAMPLE, operator};
use flyball_core::time::{Timestamp, rfc3339};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// The address of a console, as it is printed.
struct Page {
    host: String,
    token: String,
}

impl Page {
    fn of(line: &str) -> Self {
        let url = line.strip_prefix("console at http://").unwrap();
        let (host, token) = url.split_once("/?token=").unwrap();
        Self { host: host.to_owned(), token: token.to_owned() }
    }

    /// Sends a request with this token, and returns status and body.
    fn send(&self, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let (host, length) = (&self.host, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\nauthorization: Bearer {token}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Repeats a read until the condition holds.
    #[expect(clippy::disallowed_methods, reason = "another process is given its time")]
    fn until(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..1200 {
            let (status, body) = self.send("GET", path, &self.token, "");
            assert_eq!(status, 200, "{body}");
            last = serde_json::from_str(&body).unwrap();
            if condition(&last) {
                return last;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("timeout: {last:#}")
    }
}

/// Starts `flyball dev` with the example operator and a sample, until its first reconcile.
fn start(home: &Home, flags: &[&str]) -> (LineReader, Page) {
    fs::create_dir_all(home.0.join("config/samples")).unwrap();
    fs::write(home.0.join("config/samples/shop.yaml"), SAMPLE).unwrap();
    let program = format!("--program={}", operator());
    let mut dev = LineReader::new(home.command(&[&["dev", program.as_str()], flags].concat()));
    dev.until("console at http://127.0.0.1:");
    let page = Page::of(dev.all.last().unwrap());
    dev.until("reconciled outcome=Success writes=");
    (dev, page)
}

#[test]
fn console_of_dev_has_the_operator_and_reads_only() {
    let home = Home::new("dev-console");
    let (dev, page) = start(&home, &["--console"]);
    let named = |answer: &Value| answer["operators"][0]["name"] == "myapp-operator";
    let measured = page.until("/api/performance", |answer| {
        named(answer) && answer["operators"][0]["total"]["reconciles"].as_u64() > Some(0)
    });
    let kinds = measured["operators"][0]["kinds"].as_array().unwrap();
    let apps = kinds.iter().find(|kind| kind["kind"] == "MyApp").unwrap();
    for field in ["apiCalls", "microseconds", "cacheBytes", "ledgerBytes"] {
        assert!(apps["amounts"][field].as_u64() > Some(0), "{field}: {apps:#}");
    }
    let state = page.until("/api/exploration", |_| true);
    assert_eq!((&state["samples"], &state["forks"]), (&json!(["shop.yaml"]), &json!([])));
    let search = json!({"action": "search", "seconds": 5}).to_string();
    assert_eq!(page.send("POST", "/api/explore", &page.token, &search).0, 403);
    assert_eq!(page.send("GET", "/api/exploration", "other", "").0, 401);
    let output = dev.stop();
    let lines: Vec<&String> = output.iter().filter(|line| line.contains(&page.token)).collect();
    assert_eq!(lines.len(), 1, "the token is printed once: {lines:#?}");
}

#[test]
fn console_of_dev_replays_schedules_and_forks_the_control_plane() {
    let home = Home::new("dev-explore");
    let (dev, page) = start(&home, &["--console", "--write"]);
    let post = |request: Value| page.send("POST", "/api/explore", &page.token, &request.to_string());
    let (status, body) = post(json!({"action": "replay", "schedule": "default; seed=1; pods/a#1 silence"}));
    assert_eq!((status, body.contains("invalid schedule")), (400, true), "{body}");
    assert_eq!(post(json!({"action": "replay", "schedule": "x", "sample": "../shop.yaml"})).0, 400);
    assert_eq!(post(json!({"action": "listSites", "sample": "shop.yaml"})).0, 200);
    assert_eq!(post(json!({"action": "listSites"})).0, 409, "one at a time");
    let state = page.until("/api/exploration", |state| state["finished"].as_array().is_some_and(|all| all.len() == 1));
    let finished = &state["finished"][0];
    assert_eq!((&finished["error"], &finished["findings"]), (&json!(""), &json!([])), "{finished:#}");
    let sites = state["sites"]["sites"].as_array().unwrap();
    let write = sites.iter().find(|site| site["site"].as_str().is_some_and(|site| site.starts_with("patch:apps/")));
    let write = write.unwrap_or_else(|| panic!("{sites:#?}"));
    assert!(write["faults"].as_array().unwrap().contains(&json!("crash-after")), "{write:#}");
    let schedule = format!("default; seed=1; {} crash-after", write["site"].as_str().unwrap());
    assert_eq!(post(json!({"action": "replay", "sample": "shop.yaml", "schedule": schedule})).0, 200);
    let state = page.until("/api/exploration", |state| state["finished"].as_array().is_some_and(|all| all.len() == 2));
    let replayed = &state["finished"][0];
    assert_eq!((&replayed["error"], &replayed["findings"]), (&json!(""), &json!([])), "{replayed:#}");
    let trace = replayed["trace"].as_array().unwrap();
    assert!(trace.iter().any(|line| line.as_str().is_some_and(|line| line.contains("✱ crash-after"))), "{trace:#?}");
    assert!(!trace.iter().any(|line| line.as_str().is_some_and(|line| line.contains('{'))), "{trace:#?}");

    assert_eq!(post(json!({"action": "fork"})).0, 200);
    let state = page.until("/api/exploration", |state| state["forks"].as_array().is_some_and(|all| all.len() == 1));
    let kubeconfig = state["forks"][0]["kubeconfig"].as_str().unwrap();
    let shown = home.run(&["get", "myapps", "-o=name", "--kubeconfig", kubeconfig]).ok();
    assert!(shown.out.contains("shop"), "{shown:?}");
    assert_eq!(post(json!({"action": "removeFork", "number": 1})).0, 200);
    assert_eq!(post(json!({"action": "removeFork", "number": 1})).0, 400);
    dev.stop();
    let remaining: Vec<_> = fs::read_dir(&home.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!remaining.iter().any(|name| name.to_string_lossy().starts_with("flyball-dev")), "{remaining:?}");
}

/// A Job that is deleted 30 minutes after its end, and one every 10 minutes.
const JOBS: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: default}
spec:
  ttlSecondsAfterFinished: 1800
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.com/main}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: often, namespace: default}
spec:
  schedule: '*/10 * * * *'
  successfulJobsHistoryLimit: 100
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.com/main}]}}}}
";

#[test]
#[expect(clippy::disallowed_methods, reason = "real time passes")]
fn time_of_a_fork_can_be_paused_and_stepped() {
    let home = Home::new("dev-step");
    let (dev, page) = start(&home, &["--console", "--write"]);
    let post = |request: Value| page.send("POST", "/api/explore", &page.token, &request.to_string());
    let ask = |action: &str| assert_eq!(post(json!({"action": action, "number": 1})).0, 200, "{action}");
    let step = |duration: &str| post(json!({"action": "stepFork", "number": 1, "duration": duration}));
    let fork = |condition: &dyn Fn(&Value) -> bool| {
        let is = |state: &Value| state["forks"].get(0).is_some_and(condition);
        page.until("/api/exploration", is)["forks"][0].clone()
    };
    let now = |fork: &Value| fork["now"].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(step("1h").0, 400, "there is no fork");
    assert_eq!(post(json!({"action": "fork"})).0, 200);
    let running = fork(&|_| true);
    assert_eq!(running["isPaused"], false);
    let kubeconfig = running["kubeconfig"].as_str().unwrap();
    let run = |args: &[&str]| home.run(&[args, &["--kubeconfig", kubeconfig]].concat()).ok().out;
    let read = |object: &str| -> Value { serde_json::from_str(&run(&["get", object, "-o=json"])).unwrap() };

    ask("pauseFork");
    let paused = fork(&|fork| fork["isPaused"] == true);
    thread::sleep(Duration::from_millis(1500));
    let began = now(&fork(&|_| true));
    assert!(began.duration_since(now(&paused)).as_secs_f64() < 0.5, "paused time stands still");
    fs::write(home.0.join("jobs.yaml"), JOBS).unwrap();
    run(&["apply", "-f", "jobs.yaml"]);
    assert_eq!(read("job/once")["metadata"]["creationTimestamp"], rfc3339(began), "requests are served meanwhile");
    for (wrong, reason) in [("1 day", "is not a duration"), ("0s", "longer than 0"), ("721h", "at most 720 hours")] {
        let (status, body) = step(wrong);
        assert!(status == 400 && body.contains(reason), "{wrong}: {body}");
    }

    // Its pod has run, and half an hour has not passed.
    assert_eq!(step("5m").0, 200);
    let stepped = fork(&|fork| fork["remaining"].is_null());
    assert_eq!((&stepped["isPaused"], &stepped["missed"]), (&json!(true), &Value::Null));
    assert_eq!(now(&stepped).duration_since(began).as_secs_f64().round(), 300.0);
    assert_eq!(read("job/once")["status"]["succeeded"], 1);
    assert_eq!(step("1h").0, 200);
    let stepped = fork(&|fork| fork["remaining"].is_null());
    assert_eq!(now(&stepped).duration_since(began).as_secs_f64().round(), 3900.0);
    let jobs = run(&["get", "jobs", "-o=name"]);
    assert!(!jobs.contains("/once"), "its time to live is over: {jobs}");
    let runs = usize::try_from(now(&stepped).as_second() / 600 - began.as_second() / 600).unwrap();
    assert_eq!(jobs.lines().filter(|line| line.contains("/often-")).count(), runs, "one every 10 minutes: {jobs}");
    let last = read("cronjob/often")["status"]["lastScheduleTime"].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert!(now(&stepped).duration_since(last).as_secs_f64() < 600.0, "{last}");

    ask("resumeFork");
    let resumed = fork(&|fork| fork["isPaused"] == false && now(fork) > now(&stepped));
    assert!(now(&resumed).duration_since(now(&stepped)).as_secs_f64() < 120.0);
    // A step that runs is the only one, and ends with its fork.
    assert_eq!(step("720h").0, 200);
    let (status, body) = step("1h");
    assert!(status == 400 && body.contains("another step runs"), "{body}");
    ask("removeFork");
    dev.stop();
}

#[test]
fn write_needs_a_console() {
    let home = Home::new("dev-write");
    let output = home.run(&["dev", "--write"]);
    assert!(output.err.contains("--console") && output.code == Some(2), "{output:?}");
}
