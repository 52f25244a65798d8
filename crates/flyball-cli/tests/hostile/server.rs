//! The attacked server, and measurements of its service.

use crate::target::Target;
use base64::Engine;
use hyper::body::Bytes;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Polling interval of `/healthz`.
const PACE: Duration = Duration::from_millis(10);

/// A pattern that keeps thousands of states for each character of a text of `a`s.
const PATTERN: &str = "^(([ab]?[ac]?[ad]?[ae]?){1,250}){1,4}b$";

/// A default of few bytes that uses ten thousand in memory.
fn filling() -> Value {
    (0..16).fold(json!({}), |inner, _| json!({"a": inner}))
}

/// A running cluster, stopped at the end of the test.
pub(crate) struct Cluster {
    home: PathBuf,
    pid: u64,
    admin: Target,
    peak: Arc<AtomicU64>,
}

/// The program, with a home of its own.
fn program(home: &Path) -> Command {
    let program = std::env::var_os("FLYBALL_HOSTILE_PROGRAM").unwrap_or(env!("CARGO_BIN_EXE_flyball").into());
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("TMPDIR", home).current_dir(home).stdin(Stdio::null());
    command
}

fn flyball(home: &Path, args: &[&str]) -> String {
    let output = program(home).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let home = std::env::temp_dir().join(format!("flyball-hostile-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        flyball(&home, &["cluster", "up", "--kubeconfig", "config"]);
        let status: Value = serde_json::from_str(&flyball(&home, &["cluster", "status", "-o", "json"])).unwrap();
        let config: Value = serde_saphyr::from_str(&fs::read_to_string(home.join("config")).unwrap()).unwrap();
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let pem = |text: &Value| {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let admin = Target {
            address: cluster["server"].as_str().unwrap().trim_start_matches("https://").to_owned(),
            authority: pem(&cluster["certificate-authority-data"]),
            account: "admin".into(),
            token: String::new(),
            certificate: Some((pem(&user["client-certificate-data"]), pem(&user["client-key-data"]))),
        };
        let cluster = Self { home, pid: status["pid"].as_u64().unwrap(), admin, peak: Arc::default() };
        cluster.set_up().await;
        cluster
    }

    /// Creates the accounts, and the objects of the ordinary one.
    async fn set_up(&self) {
        self.post("/api/v1/namespaces", json!({"metadata": {"name": "play"}})).await;
        for account in ["nobody", "dev"] {
            self.post("/api/v1/namespaces/play/serviceaccounts", json!({"metadata": {"name": account}})).await;
        }
        let definition = json!({
            "metadata": {"name": "toys.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "toys", "kind": "Toy"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "code": {"type": "string", "pattern": PATTERN},
                        "codes": {"type": "array", "items": {"type": "string", "pattern": PATTERN}},
                    }}, "filled": {"type": "array", "items": {"type": "object", "properties": {
                        "nested": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": filling()},
                    }}}},
                }}}],
            },
        });
        self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        let role = json!({
            "metadata": {"name": "dev", "labels": {"keep": "yes"}},
            "rules": [
                {"apiGroups": ["", "apps", "example.com"], "resources": ["*"], "verbs": ["*"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
            ],
        });
        self.post("/apis/rbac.authorization.k8s.io/v1/namespaces/play/roles", role).await;
        let binding = json!({
            "metadata": {"name": "dev", "labels": {"keep": "yes"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"},
            "subjects": [{"kind": "ServiceAccount", "name": "dev", "namespace": "play"}],
        });
        self.post("/apis/rbac.authorization.k8s.io/v1/namespaces/play/rolebindings", binding).await;
        for n in 0..20 {
            let map = json!({"metadata": {"name": format!("large-{n}")}, "data": {"a": "x".repeat(100_000)}});
            self.post("/api/v1/namespaces/play/configmaps", map).await;
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let mut sender = self.admin.http().await.unwrap();
        let sent = self.admin.send(&mut sender, "POST", path, "application/json", body.to_string().into()).await;
        let (code, answer) = sent.unwrap();
        assert_eq!(code, 201, "{path}: {answer:?}");
        serde_json::from_slice(&answer).unwrap()
    }

    /// The server, as an account attacks it.
    pub(crate) async fn target(&self, account: &str) -> Target {
        let path = format!("/api/v1/namespaces/play/serviceaccounts/{account}/token");
        let response = self.post(&path, json!({"spec": {"audiences": []}})).await;
        let token = response["status"]["token"].as_str().unwrap().to_owned();
        Target { account: account.into(), token, certificate: None, ..self.admin.clone() }
    }

    /// Returns the memory of the server.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("the server runs");
        kib << 10
    }

    /// Returns the lines of the server's log about panics.
    pub(crate) fn panics(&self) -> Vec<String> {
        let mut logs = fs::read_dir(self.home.join(".local/state/flyball")).unwrap().map(|entry| entry.unwrap().path());
        let log = logs.find(|path| path.extension().is_some_and(|extension| extension == "log")).expect("a log");
        let text = String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned();
        text.lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect()
    }

    /// Returns the peak memory since the last call.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.swap(0, Ordering::Relaxed)
    }

    /// Polls `/healthz` continuously, as an administrator.
    pub(crate) async fn healthz_for(&self, duration: Duration) -> Latencies {
        let (end, mut all, mut sender) = (Instant::now() + duration, Vec::new(), self.admin.http().await);
        while Instant::now() < end {
            let start = Instant::now();
            let answered = async {
                if sender.is_none() {
                    sender = self.admin.http().await;
                }
                self.admin.send(sender.as_mut()?, "GET", "/healthz", "text/plain", Bytes::new()).await
            };
            let answered = timeout(Duration::from_secs(10), answered).await.ok().flatten();
            if answered.is_none_or(|(code, _)| code != 200) {
                // Requests without response count as late responses.
                sender = None;
                all.push(Duration::from_secs(10));
            } else {
                all.push(start.elapsed());
            }
            self.peak.fetch_max(self.memory(), Ordering::Relaxed);
            sleep(PACE).await;
        }
        all.sort();
        Latencies(all)
    }

    pub(crate) fn recovery(&self) -> Recovery<'_> {
        Recovery { cluster: self, remaining: String::new() }
    }

    /// Describes the remains of an attack: metrics that differ from those at rest.
    async fn remains(&self) -> Option<String> {
        let mut sender = self.admin.http().await?;
        let (_, page) = self.admin.send(&mut sender, "GET", "/metrics", "text/plain", Bytes::new()).await?;
        let page = String::from_utf8(page.to_vec()).ok()?;
        let value = |series: &str| -> Option<usize> {
            page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
        };
        let requests = |kind: &str| format!("apiserver_current_inflight_requests{{request_kind=\"{kind}\"}}");
        let at_rest = [
            // The response with the metrics itself is counted.
            ("flyball_unsent_bytes".to_owned(), 16 << 10),
            (requests("mutating"), 0),
            (requests("readOnly"), 0),
        ];
        let remaining: Vec<String> = at_rest
            .into_iter()
            .filter_map(|(series, most)| match value(&series) {
                Some(value) if value <= most => None,
                value => Some(format!("{series} is {value:?}, not {most}")),
            })
            .collect();
        Some(if remaining.is_empty() { String::new() } else { remaining.join(", ") })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = program(&self.home).args(["cluster", "down"]).output();
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// True if the server has recovered.
pub(crate) struct Recovery<'c> {
    cluster: &'c Cluster,
    remaining: String,
}

impl Recovery<'_> {
    /// Waits until the server has recovered from an attack; returns the duration.
    pub(crate) async fn within(&mut self, duration: Duration) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < duration {
            match timeout(Duration::from_secs(5), self.cluster.remains()).await.ok().flatten() {
                Some(remaining) if remaining.is_empty() => return Some(start.elapsed()),
                Some(remaining) => self.remaining = remaining,
                None => self.remaining = "the server does not answer".into(),
            }
            sleep(Duration::from_millis(200)).await;
        }
        None
    }

    pub(crate) fn remains(&self) -> &str {
        &self.remaining
    }
}

/// Latencies of responses, sorted.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn p99(&self) -> Duration {
        self.0[(self.0.len() * 99 / 100).min(self.0.len() - 1)]
    }

    pub(crate) fn max(&self) -> Duration {
        self.0[self.0.len() - 1]
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}
