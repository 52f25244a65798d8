//! The reconciler: applies the objects of an application, and reports their readiness.

use crate::api::myapp_v1alpha1::{MyApp, MyAppStatus};
use flyball::policy::{Policy, Reason, Rule};
use flyball::{Action, Children, Context, Controller, Reconcile, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use kube::ResourceExt;
use serde_json::{Value, json};

/// The components, in the order of request processing.
pub const COMPONENTS: [&str; 4] = ["frontend", "backend", "worker", DATABASE];
/// The component with persistent data.
const DATABASE: &str = "database";
/// Port that the components listen on.
const PORT: i32 = 8080;

/// Reconciles `MyApp`s.
#[derive(Debug)]
pub struct MyAppReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<MyAppReconciler> {
    Controller::new(MyAppReconciler)
        .owns::<Deployment>()
        .owns::<PersistentVolumeClaim>()
        .owns::<Service>()
        .owns::<ServiceAccount>()
}

/// Creates the admission policy of `MyApp`s, which rejects objects that cannot be reconciled.
pub fn policy() -> Policy<MyApp> {
    let shrinks = "quantity(object.spec.storage).isLessThan(quantity(oldObject.spec.storage))";
    let rule = Rule::new(format!("oldObject == null || !{shrinks}"), "the database's volume cannot become smaller");
    Policy::new().validates(rule.reason(Reason::Forbidden))
}

impl Reconcile for MyAppReconciler {
    type Resource = MyApp;

    async fn reconcile(&self, app: &MyApp, cx: &Context<MyApp>) -> Result<Action> {
        let mut children = Children::new().child(&service_account(app)?).child(&claim(app)?).child(&service(app)?);
        for component in COMPONENTS {
            // Stages do not wait for each other: components must tolerate the absence of others.
            children = children.stage(component).after::<String>([]).child(&deployment(app, component)?);
        }
        let rollout = cx.apply_all(&children).await?;
        let ready = COMPONENTS.iter().filter(|component| rollout.is_stage_ready(component)).count();
        let ready = format!("{ready}/{}", COMPONENTS.len());
        cx.set_status(&MyAppStatus { ready, conditions: vec![rollout.condition("Ready")] }).await?;
        Ok(Action::done())
    }
}

fn service_account(app: &MyApp) -> Result<ServiceAccount> {
    Ok(serde_json::from_value(json!({"metadata": {"name": app.name_any()}}))?)
}

fn claim(app: &MyApp) -> Result<PersistentVolumeClaim> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": app.name_any()},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": app.spec.storage}},
        },
    }))?)
}

fn service(app: &MyApp) -> Result<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": app.name_any()},
        "spec": {
            "type": "LoadBalancer",
            "selector": labels(app, COMPONENTS[0]),
            "ports": [{"name": "http", "port": app.spec.port, "targetPort": PORT}],
        },
    }))?)
}

fn deployment(app: &MyApp, component: &str) -> Result<Deployment> {
    let labels = labels(app, component);
    let mut container = json!({
        "name": component,
        "image": format!("{}/{component}:{}", app.spec.images, app.spec.version),
        "ports": [{"containerPort": PORT}],
    });
    let mut pod = json!({"serviceAccountName": app.name_any()});
    // Two database pods on one volume would corrupt its data.
    let (mut replicas, mut strategy) = (app.spec.replicas, "RollingUpdate");
    if component == DATABASE {
        (replicas, strategy) = (1, "Recreate");
        container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": app.name_any()}}]);
    }
    pod["containers"] = json!([container]);
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("{}-{component}", app.name_any()), "labels": labels},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": strategy},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))?)
}

fn labels(app: &MyApp, component: &str) -> Value {
    json!({"app.kubernetes.io/instance": app.name_any(), "app.kubernetes.io/component": component})
}
