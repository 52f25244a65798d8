//! An operator of ours, whose second version serves another version of its API by a conversion webhook: installed from
//! a catalog of ours, upgraded, taken back and removed.

use crate::behavior::catalog::{ADDRESS, Server};
use crate::behavior::world::{ControlPlane, create};
use crate::fixture::{delete, patch};
use flyball_cluster::{Cluster, Options, simulated_clock};
use flyball_lifecycle::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, Subscription};
use flyball_lifecycle::content::{Blobs, BundleBlob, Content};
use flyball_lifecycle::manifests::{Annotations, BundleFolder};
use flyball_lifecycle::{Files, Settings, operator};
use flyball_server::{Caller, WebhookCall, WebhookFuture, WebhookResponse};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "widgets";
const GROUP: &str = "example.com";
const DEFINITION: &str = "widgets.example.com";
/// The host of the webhook: the Service that the manager creates for the Deployment.
const HOST: &str = "widget-controller-service.widgets.svc";
/// Annotation with the data that v1beta1 has no field for.
const MODE: &str = "example.com/mode";
const WAIT: Duration = Duration::from_secs(600);

/// The webhook of the operator, which converts between v1beta1 and v1.
#[derive(Clone, Default)]
struct Converter {
    reviews: Arc<AtomicUsize>,
}

impl Caller for Converter {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let reviews = self.reviews.clone();
        Box::pin(async move {
            if call.server_name != HOST || call.ca_bundle.is_empty() {
                return Err(format!("dial tcp {}: connect: connection refused", call.address));
            }
            reviews.fetch_add(1, Ordering::Relaxed);
            let mut review: Value = serde_json::from_slice(&call.body).map_err(|error| error.to_string())?;
            let request = review["request"].take();
            let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
            let objects = request["objects"].as_array().into_iter().flatten();
            let converted: Vec<Value> = objects.map(|object| convert(object.clone(), version)).collect();
            review["response"] =
                json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted});
            let body = review.to_string().into_bytes().into();
            Ok(WebhookResponse { code: 200, content_type: "application/json".to_owned(), body })
        })
    }
}

/// Converts a widget: `spec.height` of v1beta1 is `spec.size` of v1, which also has a mode.
fn convert(mut widget: Value, version: &str) -> Value {
    if widget["apiVersion"] == version {
        return widget;
    }
    widget["apiVersion"] = version.into();
    let mut spec = widget["spec"].take();
    if version.ends_with("/v1") {
        widget["spec"] = json!({"size": spec["height"]});
        if let Some(annotations) = widget["metadata"]["annotations"].as_object_mut()
            && let Some(mode) = annotations.remove(MODE)
        {
            widget["spec"]["mode"] = mode;
        }
    } else {
        widget["spec"] = json!({"height": spec["size"]});
        if !spec["mode"].is_null() {
            widget["metadata"]["annotations"][MODE] = spec["mode"].take();
        }
    }
    widget
}

/// Returns the CRD of a version of the operator. Both versions store v1beta1, so that there is a way back.
fn definition(has_v1: bool) -> Value {
    let version = |name: &str, required: &str, fields: Value| {
        let spec = json!({"type": "object", "properties": fields, "required": [required]});
        json!({
            "name": name, "served": true, "storage": name == "v1beta1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        })
    };
    let mut versions = vec![version("v1beta1", "height", json!({"height": {"type": "integer"}}))];
    if has_v1 {
        versions.push(version("v1", "size", json!({"size": {"type": "integer"}, "mode": {"type": "string"}})));
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": DEFINITION},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": versions,
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        },
    })
}

fn csv(version: u32) -> Value {
    let owned = |version: &str| json!({"name": DEFINITION, "kind": "Widget", "version": version});
    let (labels, image) = (json!({"app": "widget"}), format!("quay.io/example/widget:{version}"));
    let pod = json!({"serviceAccountName": "widget", "containers": [{"name": "manager", "image": image}]});
    let deployment = json!({"name": "widget-controller", "spec": {
        "replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod},
    }});
    let rules = json!([{"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["*"]}]);
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
        .map(|mode| json!({"type": mode, "supported": mode == "AllNamespaces"}));
    let mut spec = json!({
        "displayName": "Widget", "version": format!("{version}.0.0"), "provider": {"name": "Example"},
        "installModes": modes,
        "customresourcedefinitions": {"owned": [owned("v1beta1")]},
        "install": {"strategy": "deployment", "spec": {
            "deployments": [deployment],
            "clusterPermissions": [{"serviceAccountName": "widget", "rules": rules}],
        }},
    });
    if version == 2 {
        spec["replaces"] = "widget.v1".into();
        spec["customresourcedefinitions"]["owned"] = json!([owned("v1beta1"), owned("v1")]);
        spec["webhookdefinitions"] = json!([{
            "type": "ConversionWebhook", "generateName": "cwidget.example.com", "deploymentName": "widget-controller",
            "containerPort": 443, "targetPort": 9443, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "webhookPath": "/convert", "conversionCRDs": [DEFINITION],
        }]);
    }
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("widget.v{version}")}, "spec": spec,
    })
}

/// Returns a catalog with both bundles.
fn catalog() -> Content {
    let bundle = |version: u32| {
        let mut files = Files::default();
        let annotations = json!({"annotations": Annotations::new("widget", &["stable"], None).to_map()});
        for (path, document) in [
            ("manifests/csv.yaml", csv(version)),
            ("manifests/crd.yaml", definition(version == 2)),
            ("metadata/annotations.yaml", annotations),
        ] {
            files.insert(path, document.to_string().into_bytes()).unwrap();
        }
        BundleBlob::of_folder(&BundleFolder::read(&files).unwrap(), "")
    };
    let mut blobs = Blobs { bundles: vec![bundle(1), bundle(2)], ..Blobs::default() };
    let text = "{schema: olm.package, name: widget, defaultChannel: stable}\n---\n\
                {schema: olm.channel, package: widget, name: stable, entries: [\
                {name: widget.v2, replaces: widget.v1}, {name: widget.v1}]}\n";
    blobs.add("catalog.yaml", text.as_bytes()).unwrap();
    let content = Content::new(blobs);
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    content
}

async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + WAIT;
    while !condition().await {
        assert!(Instant::now() < end, "timed out: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn widgets(client: &Client, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, "Widget"));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

fn widget(version: &str, name: &str, spec: Value) -> DynamicObject {
    let object =
        json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// Creates the namespace, the OperatorGroup, the catalog and the Subscription, which begins with the first version.
async fn subscribe(client: &Client) {
    let version = "operators.coreos.com/v1alpha1";
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": metadata("all"), "spec": {},
        }),
        json!({
            "apiVersion": version, "kind": "CatalogSource", "metadata": metadata("own"),
            "spec": {"sourceType": "grpc", "address": ADDRESS},
        }),
        json!({
            "apiVersion": version, "kind": "Subscription", "metadata": metadata("widget"),
            "spec": {
                "name": "widget", "channel": "stable", "source": "own", "sourceNamespace": NAMESPACE,
                "startingCSV": "widget.v1",
            },
        }),
    ] {
        create(client, &object).await.unwrap();
    }
}

/// Waits until a version runs, and no other one exists.
async fn until_runs(client: &Client, name: &str) {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), NAMESPACE);
    let end = Instant::now() + WAIT;
    loop {
        let all = csvs.list(&Default::default()).await.unwrap().items;
        if matches!(&all[..], [only] if only.name_any() == name && only.status.phase == Phase::Succeeded) {
            return;
        }
        let states: Vec<_> = all.iter().map(|csv| (csv.name_any(), csv.status.phase, &csv.status.message)).collect();
        assert!(Instant::now() < end, "{name} does not run: {states:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn operator_with_conversion_is_upgraded_taken_back_and_removed() {
    let (clock, converter) = (simulated_clock(), Converter::default());
    let webhooks = Arc::new(converter.clone());
    let cluster = Cluster::new(Options { webhooks, ..Options::simulated(clock.clone(), 1) });
    let manager = operator(&Settings::new(Arc::new(Server::of(catalog()))));
    let plane = ControlPlane::start(&cluster, clock, manager).await;
    let client = plane.client.clone();
    subscribe(&client).await;
    let subscriptions: Api<Subscription> = Api::namespaced(client.clone(), NAMESPACE);
    let pin = |version: Value| json!({"metadata": {"annotations": {"olm.flyball.dev/versions": version}}});
    patch(&subscriptions, "widget", pin("<2.0.0".into())).await;
    until_runs(&client, "widget.v1").await;
    let old = widgets(&client, "v1beta1");
    old.create(&PostParams::default(), &widget("v1beta1", "old", json!({"height": 3}))).await.unwrap();

    // The upgrade converts what exists, and what is created in the new version.
    patch(&subscriptions, "widget", pin(Value::Null)).await;
    until_runs(&client, "widget.v2").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let conversion = definitions.get(DEFINITION).await.unwrap().spec.conversion.unwrap();
    assert_eq!(conversion.strategy, "Webhook");
    let new = widgets(&client, "v1");
    assert_eq!(new.get("old").await.unwrap().data["spec"], json!({"size": 3}));
    new.create(&PostParams::default(), &widget("v1", "new", json!({"size": 4, "mode": "dark"}))).await.unwrap();
    let stored = old.get("new").await.unwrap();
    assert_eq!((&stored.data["spec"], stored.annotations()[MODE].as_str()), (&json!({"height": 4}), "dark"));
    assert!(converter.reviews.load(Ordering::Relaxed) > 1);

    // The way back: what was created in the new version is there in the old one.
    let back = json!({"metadata": {"annotations": {"olm.flyball.dev/rollback": "widget.v1"}}});
    patch(&subscriptions, "widget", back).await;
    until_runs(&client, "widget.v1").await;
    let definition = definitions.get(DEFINITION).await.unwrap();
    assert_eq!(definition.spec.versions.len(), 1);
    assert_eq!(definition.spec.conversion.map(|conversion| conversion.strategy), Some("None".to_owned()));
    assert_eq!(old.get("new").await.unwrap().data["spec"], json!({"height": 4}));
    assert!(new.get("new").await.is_err(), "v1 is not served");

    delete(&subscriptions, "widget").await;
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), NAMESPACE);
    delete(&csvs, "widget.v1").await;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the operator is gone", async || {
        csvs.get_opt("widget.v1").await.unwrap().is_none()
            && deployments.get_opt("widget-controller").await.unwrap().is_none()
    })
    .await;
    assert!(old.get("old").await.is_ok(), "custom resources and their CRD stay, as in OLM");
    assert_eq!(*plane.denied.lock(), [""; 0], "the manager has all rights that it needs");
    plane.tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
