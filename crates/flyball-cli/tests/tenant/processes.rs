//! The cluster and the operator as processes.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running cluster, stopped at the end of the test.
pub(crate) struct Cluster {
    home: PathBuf,
    config: Config,
}

/// The program that is tried.
fn flyball(home: &Path) -> Command {
    let program = std::env::var_os("FLYBALL_TENANT_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_flyball").into());
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("TMPDIR", home).current_dir(home).stdin(Stdio::null());
    command
}

impl Cluster {
    pub(crate) async fn start(name: &str) -> Self {
        let home = std::env::temp_dir().join(format!("flyball-tenant-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        let output = flyball(&home).args(["cluster", "up", "--kubeconfig", "config"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let kubeconfig = Kubeconfig::read_from(home.join("config")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let cluster = Self { home, config };
        for namespace in ["others", "tenant"] {
            cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        }
        cluster
    }

    pub(crate) fn admin(&self) -> Client {
        flyball::connect(self.config.clone()).unwrap()
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// Applies an object as the administrator, and waits until its kind is served if it is a definition.
    pub(crate) async fn apply(&self, manifest: &Value) {
        let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
        let gvk = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let (resource, capabilities) = pinned_kind(&self.admin(), &gvk).await.unwrap();
        let api: Api<DynamicObject> = match (capabilities.scope, &object.metadata.namespace) {
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(self.admin(), namespace, &resource),
            _ => Api::all_with(self.admin(), &resource),
        };
        let name = object.metadata.name.as_deref().unwrap();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(manifest)).await.unwrap();
        if manifest["kind"] == "CustomResourceDefinition" {
            let (spec, text) = (&manifest["spec"], |value: &Value| value.as_str().unwrap().to_owned());
            let version = text(&spec["versions"][0]["name"]);
            let gvk = GroupVersionKind::gvk(&text(&spec["group"]), &version, &text(&spec["names"]["kind"]));
            while pinned_kind(&self.admin(), &gvk).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    }

    /// Creates an account with write permission for one resource in the namespace of its name only.
    pub(crate) async fn account(&self, name: &str, group: &str, plural: &str) -> Client {
        let metadata = json!({"name": name, "namespace": name});
        let api = "rbac.authorization.k8s.io";
        let version = format!("{api}/v1");
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({
                "apiVersion": version, "kind": "Role", "metadata": metadata,
                "rules": [{"apiGroups": [group], "resources": [plural], "verbs": ["*"]}],
            }),
            json!({
                "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": name}],
            }),
        ] {
            self.apply(&object).await;
        }
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/{name}/token");
        let request = http::Request::post(path).header("content-type", "application/json");
        let response: Value = self.admin().request(request.body(b"{\"spec\": {}}".to_vec()).unwrap()).await.unwrap();
        let token = response["status"]["token"].as_str().unwrap().to_owned();
        let mut config = self.config.clone();
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        flyball::connect(config).unwrap()
    }

    /// Starts the operator of a project.
    pub(crate) fn operate(&self, watches: &Path) -> Process {
        let log = self.home.join("operator.log");
        let mut command = flyball(&self.home);
        command.arg("operate").arg(watches).args([
            "run",
            "--kubeconfig",
            "config",
            "--metrics-addr",
            "0",
            "--health-addr",
            "0",
        ]);
        let file = fs::File::create(&log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Process { child, log }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = flyball(&self.home).args(["cluster", "down"]).output();
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A running operator, stopped at the end of the test.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// Returns its current and peak memory in MiB; zeros if unknown.
    pub(crate) fn memory_mib(&self) -> (u64, u64) {
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default()
        };
        (kib("VmRSS:") >> 10, kib("VmHWM:") >> 10)
    }

    /// Resets the peak memory.
    pub(crate) fn reset_peak(&self) {
        let _ = fs::write(self.file("clear_refs"), "5");
    }

    pub(crate) fn is_running(&self) -> bool {
        // The parent has not waited for it, so one that has ended is a zombie.
        fs::read_to_string(self.file("stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln_log(&self.log());
        }
    }
}

/// Shows the end of a log.
#[expect(clippy::print_stderr, reason = "a failed test prints the reason")]
fn eprintln_log(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    eprintln!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
}
