//! A control plane with an operator for sites: a Deployment with pods on simulated nodes, and a reconcile loop that
//! works only while a pod is ready, not isolated, and holds the lease.

use flyball_chaos::{Cluster, Experiment, Journal, Limits, Operator, Report, Risk, Run, Selection};
use flyball_cluster::{Controllers, Nodes, Options, User, WebhookCall, WebhookFuture, simulated_clock};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Namespace of the operator.
pub(crate) const NAMESPACE: &str = "sites-system";
/// Content of a Secret, which no report and no state file may contain.
pub(crate) const PASSWORD: &str = "aHVudGVyMg==";

/// Reaction of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behavior {
    /// Reconciles every 200 ms.
    Correct,
    /// Reconciles every 20 s.
    Late,
    /// Creates missing objects, and changes no existing ones.
    OnlyCreates,
    /// Deletes and creates its children when another pod becomes the leader.
    Recreates,
}

pub(crate) struct Stage {
    pub(crate) admin: Client,
    _running: Vec<JoinHandle<()>>,
}

/// A webhook whose host accepts packets and does not respond.
struct Silent;

impl flyball_cluster::Caller for Silent {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        Box::pin(async move {
            if call.address.starts_with("192.0.2.1") {
                std::future::pending::<()>().await;
            }
            Err("connection refused".to_owned())
        })
    }
}

pub(crate) fn api(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

impl Stage {
    pub(crate) async fn start(behavior: Behavior) -> Self {
        let options = Options { webhooks: Arc::new(Silent), ..Options::simulated(simulated_clock(), 7) };
        let cluster = flyball_cluster::Cluster::new(options);
        let controlled = cluster.clone();
        let controllers = tokio::spawn(async move { controlled.run(&Controllers::all()).await });
        let admin = cluster.admin();
        Nodes::new("node", 2).add_to(&admin).await.unwrap();
        let mut stage = Self { admin, _running: vec![controllers] };
        for object in manifests() {
            stage.create(&object).await;
        }
        let groups = ["system:serviceaccounts", "system:serviceaccounts:sites-system", "system:authenticated"];
        let client = cluster.client(User::new("system:serviceaccount:sites-system:sites", &groups));
        let process = Process { admin: stage.admin.clone(), client, behavior, leader: String::new() };
        stage._running.push(tokio::spawn(process.run()));
        stage.create(&site("blog")).await;
        stage
            .until("the site is ready", async |stage| {
                let found = stage.get("example.com/v1", "Site", Some(NAMESPACE), "blog").await;
                found.is_some_and(|site| site["status"]["ready"] == true)
            })
            .await;
        stage
    }

    pub(crate) async fn create(&self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = object["metadata"]["namespace"].as_str();
        let api = api(&self.admin, &text(&object["apiVersion"]), &text(&object["kind"]), namespace);
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        for _ in 0..100 {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => return,
                // The definition may not be served yet.
                Err(kube::Error::Api(status)) if status.code == 404 => sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("{error}: {object:?}"),
            }
        }
        panic!("the kind of {object:?} is not served");
    }

    pub(crate) async fn get(&self, version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let found = api(&self.admin, version, kind, namespace).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFn(&Self) -> bool) {
        let began = Instant::now();
        while !condition(self).await {
            assert!(began.elapsed() < Duration::from_secs(120), "timeout: {what}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn connect(&self) -> Cluster {
        Cluster::connect(self.admin.clone()).await.unwrap()
    }

    /// Runs experiments with limits for tests.
    pub(crate) async fn run(&self, journal: &mut Journal, experiments: &[Experiment]) -> Report {
        let cluster = self.connect().await;
        let operator = Operator::find(&cluster, &selection()).await.unwrap();
        let mut listener = |_: flyball_chaos::Event<'_>| {};
        Run::new(&cluster, operator, limits(), &mut listener).run(journal, experiments, std::future::pending()).await
    }

    /// Returns the objects that experiments may change, without what changes by itself.
    pub(crate) async fn state(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for (version, kind) in [
            ("apps/v1", "Deployment"),
            ("v1", "ConfigMap"),
            ("v1", "Secret"),
            ("v1", "Service"),
            ("v1", "ResourceQuota"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("policy/v1", "PodDisruptionBudget"),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
            ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
            ("example.com/v1", "Site"),
        ] {
            for object in api(&self.admin, version, kind, None).list(&ListParams::default()).await.unwrap() {
                let mut object = serde_json::to_value(object).unwrap();
                object["kind"] = kind.into();
                object.as_object_mut().unwrap().remove("status");
                for field in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
                    object["metadata"].as_object_mut().unwrap().remove(field);
                }
                if kind == "Service" {
                    object["spec"] = json!({"ports": object["spec"]["ports"], "selector": object["spec"]["selector"]});
                }
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove("deployment.kubernetes.io/revision");
                }
                found.push(object);
            }
        }
        found
    }
}

pub(crate) fn limits() -> Limits {
    Limits {
        hold: Duration::from_secs(20),
        recovery: Duration::from_secs(15),
        failure: Duration::from_secs(60),
        interval: Duration::from_millis(500),
        settle: Duration::from_secs(2),
        risk: Risk::High,
    }
}

pub(crate) fn selection() -> Selection {
    Selection { namespace: NAMESPACE.to_owned(), name: Some("sites".to_owned()), ..Selection::default() }
}

/// A state file in a folder of its own, which is removed when this is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("flyball-chaos-test-{}-{count}", std::process::id())))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.join("run.json")
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::create(&self.path(), "r1", "cluster", "sites-system/sites", "2026-01-01T00:00:00Z").unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn site(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"title": "Hello"}})
}

fn manifests() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "sites.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "sites", "kind": "Site"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema}}]}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sites", "namespace": NAMESPACE}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "sites"},
            "rules": [rule("example.com", &["sites", "sites/status"]), rule("", &["configmaps", "secrets"]),
                rule("apps", &["deployments"]), rule("coordination.k8s.io", &["leases"])]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "sites"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "sites"},
            "subjects": [{"kind": "ServiceAccount", "name": "sites", "namespace": NAMESPACE},
                {"kind": "ServiceAccount", "name": "other", "namespace": NAMESPACE}]}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "sites", "namespace": NAMESPACE},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "sites"}},
                "template": {"metadata": {"labels": {"app": "sites"}}, "spec": {"serviceAccountName": "sites",
                    "containers": [{"name": "manager", "image": "sites:1"}]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook", "namespace": NAMESPACE},
            "spec": {"selector": {"app": "sites"}, "ports": [{"port": 443}]}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "sites"},
            "webhooks": [{"name": "pages.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": {"name": "webhook", "namespace": NAMESPACE, "path": "/"}},
                "rules": [{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"],
                    "resources": ["pages"]}]}]}),
    ]
}

/// The reconcile loop in place of the operator's container.
struct Process {
    admin: Client,
    client: Client,
    behavior: Behavior,
    leader: String,
}

impl Process {
    async fn run(mut self) {
        loop {
            if let Some(pod) = self.leader().await {
                let is_new = std::mem::replace(&mut self.leader, pod.clone()) != pod;
                // An error is retried, as by a work queue.
                let _ = self.reconcile_all(is_new).await;
            }
            sleep(Duration::from_millis(if self.behavior == Behavior::Late { 20_000 } else { 200 })).await;
        }
    }

    /// Returns the pod that holds the lease, if it can reach the API server.
    async fn leader(&self) -> Option<String> {
        let policies = api(&self.admin, "networking.k8s.io/v1", "NetworkPolicy", Some(NAMESPACE));
        if !policies.list(&ListParams::default()).await.ok()?.items.is_empty() {
            return None;
        }
        let pods = api(&self.admin, "v1", "Pod", Some(NAMESPACE));
        let pods = pods.list(&ListParams::default().labels("app=sites")).await.ok()?;
        let ready: Vec<String> = pods.into_iter().filter(is_ready).filter_map(|pod| pod.metadata.name).collect();
        let leases = api(&self.client, "coordination.k8s.io/v1", "Lease", Some(NAMESPACE));
        let found = leases.get_opt("sites").await.ok()?;
        let holder = found.as_ref().and_then(|lease| lease.data["spec"]["holderIdentity"].as_str().map(str::to_owned));
        match holder {
            Some(holder) if ready.contains(&holder) => Some(holder),
            holder => {
                let next = ready.first()?;
                if holder.is_some() {
                    // The lease of the former leader expires.
                    sleep(Duration::from_secs(3)).await;
                }
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "sites"}, "spec": {"holderIdentity": next}});
                let params = PatchParams::apply("sites").force();
                leases.patch("sites", &params, &Patch::Apply(lease)).await.ok()?;
                Some(next.clone())
            }
        }
    }

    async fn reconcile_all(&self, is_new: bool) -> kube::Result<()> {
        let sites = api(&self.client, "example.com/v1", "Site", Some(NAMESPACE));
        for site in sites.list(&ListParams::default()).await? {
            let name = site.metadata.name.clone().unwrap_or_default();
            let owner = json!([{"apiVersion": "example.com/v1", "kind": "Site", "name": name,
                "uid": site.metadata.uid, "controller": true}]);
            let metadata = json!({"name": name, "labels": {"site": name}, "ownerReferences": owner});
            let page = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"title": site.data["spec"]["title"]}});
            let secret =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": PASSWORD}});
            let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {"replicas": 1, "selector": {"matchLabels": {"site": name}},
                    "template": {"metadata": {"labels": {"site": name}},
                        "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
            for child in [page, secret, web] {
                self.apply(&name, &child, is_new).await?;
            }
            let status = json!({"apiVersion": "example.com/v1", "kind": "Site", "status": {"ready": true}});
            sites.patch_status(&name, &PatchParams::apply("sites").force(), &Patch::Apply(status)).await?;
        }
        Ok(())
    }

    async fn apply(&self, name: &str, child: &Value, is_new: bool) -> kube::Result<()> {
        let (version, kind) = (child["apiVersion"].as_str().unwrap(), child["kind"].as_str().unwrap());
        let objects = api(&self.client, version, kind, Some(NAMESPACE));
        match self.behavior {
            Behavior::OnlyCreates if objects.get_opt(name).await?.is_some() => return Ok(()),
            Behavior::Recreates if is_new && kind == "Secret" && !self.leader.is_empty() => {
                let _ = objects.delete(name, &DeleteParams::default()).await;
            }
            _ => {}
        }
        objects.patch(name, &PatchParams::apply("sites").force(), &Patch::Apply(child)).await.map(|_| ())
    }
}

fn is_ready(pod: &DynamicObject) -> bool {
    let conditions = pod.data["status"]["conditions"].as_array();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
