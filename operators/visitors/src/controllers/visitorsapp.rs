//! The reconciler: applies the objects of a site in stages.

use crate::api::visitorsapp_v1::{VisitorsApp, VisitorsAppStatus};
use flyball::{Action, Children, Context, Controller, Reconcile, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

/// Images of the three tiers.
const DATABASE: &str = "mysql:8.4";
const BACKEND: &str = "jdob/visitors-service:1.0.0";
const FRONTEND: &str = "jdob/visitors-webui:1.0.0";

/// Reconciles each `VisitorsApp`.
#[derive(Debug)]
pub struct VisitorsAppReconciler {
    new_password: fn() -> String,
}

/// Returns the controller, which creates the passwords of new databases with `new_password`. The operator's RBAC rules
/// are derived from this declaration.
pub fn controller(new_password: fn() -> String) -> Controller<VisitorsAppReconciler> {
    Controller::new(VisitorsAppReconciler { new_password }).owns::<Deployment>().owns::<Secret>().owns::<Service>()
}

impl VisitorsAppReconciler {
    /// Returns the credentials of a database: the existing ones, or new ones.
    async fn credentials(&self, app: &VisitorsApp, cx: &Context<VisitorsApp>) -> Result<Secret> {
        let name = format!("{}-mysql-auth", app.name_any());
        let data = match cx.get::<Secret>(&cx.sibling(&name)).await?.and_then(|secret| secret.data) {
            Some(data) => json!(data),
            None => {
                let bytes = |text: &str| json!(k8s_openapi::ByteString(text.into()));
                json!({"username": bytes("visitors"), "password": bytes(&(self.new_password)())})
            }
        };
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "type": "Opaque", "data": data}))?)
    }
}

impl Reconcile for VisitorsAppReconciler {
    type Resource = VisitorsApp;

    async fn reconcile(&self, app: &VisitorsApp, cx: &Context<VisitorsApp>) -> Result<Action> {
        let secret = self.credentials(app, cx).await?;
        let credential = |variable: &str, key: &str| json!({"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name_any(), "key": key}}});
        let set = |variable: &str, value: &str| json!({"name": variable, "value": value});
        let [mysql, backend, frontend] = ["mysql", "backend", "frontend"].map(|tier| Tier::new(app, tier));
        let in_mysql = [
            set("MYSQL_DATABASE", "visitors"),
            set("MYSQL_RANDOM_ROOT_PASSWORD", "yes"),
            credential("MYSQL_USER", "username"),
            credential("MYSQL_PASSWORD", "password"),
        ];
        let in_backend = [
            set("MYSQL_DATABASE", "visitors"),
            set("MYSQL_SERVICE_HOST", &mysql.name),
            credential("MYSQL_USERNAME", "username"),
            credential("MYSQL_PASSWORD", "password"),
        ];
        let in_frontend = [set("REACT_APP_TITLE", &app.spec.title), set("REACT_APP_BACKEND_HOST", &backend.name)];
        let children = Children::new()
            .stage("mysql")
            .child(&secret)
            .child(&mysql.deployment(1, DATABASE, 3306, &in_mysql)?)
            .child(&mysql.service("ClusterIP", 3306)?)
            .stage("backend")
            .child(&backend.deployment(app.spec.size, BACKEND, 8000, &in_backend)?)
            .child(&backend.service("NodePort", 8000)?)
            .stage("frontend")
            .child(&frontend.deployment(1, FRONTEND, 3000, &in_frontend)?)
            .child(&frontend.service("NodePort", 3000)?);
        let rollout = cx.apply_all(&children).await?;
        let status = VisitorsAppStatus {
            backend_image: BACKEND.into(),
            frontend_image: FRONTEND.into(),
            conditions: vec![rollout.condition("Ready")],
        };
        cx.set_status(&status).await?;
        Ok(Action::done())
    }
}

/// One of the three parts of a site.
struct Tier {
    name: String,
    labels: Value,
}

impl Tier {
    fn new(app: &VisitorsApp, tier: &str) -> Self {
        let labels = json!({"app": "visitors", "visitors-app": app.name_any(), "tier": tier});
        Self { name: format!("{}-{tier}", app.name_any()), labels }
    }

    fn deployment(&self, replicas: i32, image: &str, port: u16, env: &[Value]) -> Result<Deployment> {
        let Self { name, labels } = self;
        let container = json!({"name": "main", "image": image, "ports": [{"containerPort": port}], "env": env});
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }))?)
    }

    fn service(&self, kind: &str, port: u16) -> Result<Service> {
        let Self { name, labels } = self;
        let ports = json!([{"port": port, "targetPort": port}]);
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"type": kind, "selector": labels, "ports": ports},
        }))?)
    }
}

/// Generates a password with randomness of the operating system.
///
/// # Panics
///
/// Panics if the operating system provides no randomness.
pub fn random_password() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the operating system provides random bytes");
    bytes.map(|byte| format!("{byte:02x}")).concat()
}
