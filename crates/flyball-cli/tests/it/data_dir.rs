//! `flyball cluster up --data-dir`: the content of the directory survives any end of the process.

use crate::Home;
use flyball::Operator;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResourceExt};
use serde_json::json;
use std::fs;
use std::future::pending;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use vmgroup::NAME;
use vmgroup::api::vmgroup_v1alpha1::VmGroup;
use vmgroup::controllers::vmgroup::{VmGroupReconciler, controller};
use vmgroup::converge::Groups;
use vmgroup::simulator::{Options, Simulator, TaskTimes};
use vmgroup::vsphere::{self, Site, Timing};

async fn config(home: &Home) -> Config {
    let kubeconfig = Kubeconfig::read_from(home.0.join(".kube/config")).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn kill(home: &Home) {
    let status: serde_json::Value =
        serde_json::from_str(&home.run(&["cluster", "status", "-o", "json"]).ok().out).unwrap();
    let pid = rustix::process::Pid::from_raw(status["pid"].as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while home.run(&["cluster", "status"]).code == Some(0) {}
}

#[tokio::test]
async fn cluster_resumes_from_its_data_directory() {
    let home = Home::new("data");
    let up = ["cluster", "up", "--data-dir", "state"];
    let output = home.run(&up).ok();
    let path = home.0.join("state").display().to_string();
    assert!(output.out.contains(&path), "{output:?}");
    assert!(home.run(&up).ok().out.starts_with("cluster flyball is already running\n"));
    home.run(&["cluster", "up", "--data-dir", "elsewhere"]).fails_with(&["already running"]);
    home.run(&["cluster", "up", "--name", "other", "--data-dir", "state"])
        .fails_with(&["is in use by process", "another --data-dir"]);
    let status: serde_json::Value =
        serde_json::from_str(&home.run(&["cluster", "status", "-o", "json"]).ok().out).unwrap();
    assert_eq!(status["dataDir"], path);

    let config = config(&home).await;
    let client = Client::try_from(config.clone()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let created = maps.create(&PostParams::default(), &map("kept")).await.unwrap();
    kill(&home);
    home.run(&up).ok();
    // The kubeconfig of before is as good as ever.
    assert_eq!(maps.get("kept").await.unwrap(), created);
    let later = maps.create(&PostParams::default(), &map("later")).await.unwrap();
    let version = |map: &ConfigMap| map.metadata.resource_version.clone().unwrap().parse::<u64>().unwrap();
    assert!(version(&later) > version(&created));

    let down = home.run(&["cluster", "down"]).ok();
    assert_eq!(down.out, format!("flyball is down; its objects are in {path}\n"));
    home.run(&up).ok();
    assert_eq!(self::config(&home).await.cluster_url, config.cluster_url, "it is where it was");
    assert_eq!(
        maps.list(&ListParams::default().fields("metadata.name!=kube-root-ca.crt")).await.unwrap().items.len(),
        2
    );
    for file in fs::read_dir(home.0.join("state")).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    home.run(&["cluster", "down"]).ok();
    // A copy is a cluster of its own.
    fs::DirBuilder::new().mode(0o700).create(home.0.join("copy")).unwrap();
    for file in fs::read_dir(home.0.join("state")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), home.0.join("copy").join(file.file_name())).unwrap();
    }
    home.run(&["cluster", "up", "--data-dir", "copy"]).ok();
    assert_eq!(maps.get("kept").await.unwrap(), created);
}

#[test]
fn unusable_data_directory_is_not_changed() {
    let home = Home::new("unusable");
    let up = |path: &str| home.run(&["cluster", "up", "--data-dir", path]);
    fs::create_dir(home.0.join("mine")).unwrap();
    fs::write(home.0.join("mine/notes"), "dear diary").unwrap();
    up("mine").fails_with(&["is not empty and is not a data directory", "empty or new directory"]);
    fs::write(home.0.join("file"), "").unwrap();
    up("file").fails_with(&["cannot make", "is writable"]);
    // The second run's writes follow the first one's: damage before them affects acknowledged writes.
    for run in 0..2 {
        up("ok").ok();
        let map = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: run-{run}}}}}");
        fs::write(home.0.join("map.yaml"), map).unwrap();
        home.run(&["apply", "-f", "map.yaml"]).ok();
        home.run(&["cluster", "down"]).ok();
    }
    let log = home.0.join("ok/000000000001.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[100] ^= 1;
    fs::write(&log, bytes).unwrap();
    up("ok").fails_with(&["000000000001.log is damaged at byte 52", "restore a copy of the whole directory"]);
    fs::write(home.0.join("ok/format"), "99\n").unwrap();
    up("ok").fails_with(&["has format 99", "use the release that wrote it"]);
}

#[test]
fn data_directory_writable_by_others_is_rejected() {
    let home = Home::new("planted");
    let up = |path: &str| home.run(&["cluster", "up", "--data-dir", path]);
    let mode = |path: &str, mode| fs::set_permissions(home.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    up("state").ok();
    home.run(&["cluster", "down"]).ok();
    mode("state", 0o770);
    up("state").fails_with(&["state is accessible to users other than its owner", "0770", "chmod 700"]);
    mode("state", 0o700);
    mode("state/ca.key", 0o644);
    up("state").fails_with(&["state/ca.key is accessible to users other than its owner", "0644"]);
    mode("state/ca.key", 0o600);
    fs::rename(home.0.join("state/ca.key"), home.0.join("planted.key")).unwrap();
    symlink(home.0.join("planted.key"), home.0.join("state/ca.key")).unwrap();
    up("state").fails_with(&["state/ca.key is not a regular file", "another --data-dir"]);
    // An empty directory of the user is accepted, and becomes private.
    fs::create_dir(home.0.join("empty")).unwrap();
    mode("empty", 0o755);
    up("empty").ok();
    assert_eq!(fs::metadata(home.0.join("empty")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// The operator of virtual machines, as the service account that its token names.
async fn operator(config: &Config, vcenter: &Simulator) {
    let admin = Client::try_from(config.clone()).unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    let account = serde_json::from_value(json!({"metadata": {"name": "vm-operator"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "vm-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "vm-operator", "namespace": "default"}],
    }))
    .unwrap();
    Api::all(admin).create(&PostParams::default(), &binding).await.unwrap();
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let response = accounts.create_token_request("vm-operator", &PostParams::default(), &request).await.unwrap();
    let mut config = config.clone();
    config.auth_info = AuthInfo { token: Some(response.status.unwrap().token.unwrap().into()), ..AuthInfo::default() };
    let timing = Timing { poll: Duration::from_millis(20), ..Timing::default() };
    let client = vsphere::Client::new(Simulator::credentials(), Site::default(), timing, vcenter.transport());
    let groups = VmGroupReconciler::new(Groups::new(client.unwrap(), 3), Duration::from_secs(1));
    let operator = Operator::new(NAME).controller(controller(groups));
    tokio::spawn(async move { operator.run(Client::try_from(config).unwrap(), pending()).await.unwrap() });
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(120), wait).await.unwrap_or_else(|_| panic!("{what} does not come to pass"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_resumes_after_its_cluster_is_killed() {
    let home = Home::new("operator");
    let up = ["cluster", "up", "--data-dir", "state", "--quiet"];
    home.run(&up).ok();
    let config = config(&home).await;
    let admin = Client::try_from(config.clone()).unwrap();
    let definition = VmGroup::crd();
    Api::all(admin.clone()).create(&PostParams::default(), &definition).await.unwrap();
    let groups: Api<VmGroup> = Api::default_namespaced(admin);
    until("the CRD", async || groups.list(&ListParams::default()).await.is_ok()).await;

    let each = Duration::from_millis(60);
    let tasks = TaskTimes { clone: each, power: each, destroy: each };
    let vcenter = Simulator::new(Options { tasks, ..Options::default() });
    operator(&config, &vcenter).await;
    let running = |count: usize| {
        let vms = vcenter.vms();
        vms.len() == count && vms.iter().all(|vm| vm.powered_on)
    };
    for n in 0..3 {
        let group = json!({
            "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1", "kind": "VmGroup", "metadata": {"name": format!("g-{n}")},
            "spec": {"cpu": 1, "memory": 1, "replicas": 4, "template": "vm-operator-template"},
        });
        groups.patch(&format!("g-{n}"), &PatchParams::apply("test"), &Patch::Apply(group)).await.unwrap();
    }
    // Killed while machines are created, and while they are deleted.
    until("some machines", async || vcenter.vms().len() > 4).await;
    kill(&home);
    home.run(&up).ok();
    until("twelve machines", async || running(12)).await;

    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    groups.patch("g-0", &PatchParams::default(), &scale).await.unwrap();
    groups.delete("g-1", &DeleteParams::default()).await.unwrap();
    until("fewer machines", async || vcenter.vms().len() < 11).await;
    kill(&home);
    home.run(&up).ok();
    until("five machines", async || running(5)).await;
    until("two groups", async || groups.list(&ListParams::default()).await.is_ok_and(|list| list.items.len() == 2))
        .await;

    for name in ["g-0", "g-2"] {
        groups.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until("no groups", async || groups.list(&ListParams::default()).await.is_ok_and(|list| list.items.is_empty()))
        .await;
    assert_eq!(vcenter.vms().len(), 0, "nothing is left behind");
}
