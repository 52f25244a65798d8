//! The webhooks of an operator, called by the server.

use crate::{cluster_of, eventually};
use flyball::WebhookServer;
use flyball::webhook::{AdmissionRequest, Operation, Validator, Verdict, Webhook};
use flyball::{FieldError, Operator, Rng};
use flyball_cluster::{Cluster, LocalWebhooks, Options, User, simulated_clock};
use flyball_core::Clock;
use flyball_core::time::SignedDuration;
use flyball_server::Dialer;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::core::crd::merge_crds;
use kube::{Api, Client, CustomResource, CustomResourceExt, ResourceExt};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Annotation with the data that v1beta1 has no field for.
const MODE: &str = "example.com/mode";

#[derive(CustomResource, Clone, Debug, Deserialize, PartialEq, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    size: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, PartialEq, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Widget", namespaced)]
    pub(super) struct WidgetSpec {
        pub(super) height: i64,
    }
}

impl From<v1beta1::Widget> for Widget {
    fn from(old: v1beta1::Widget) -> Self {
        let mut metadata = old.metadata;
        let mode = metadata.annotations.as_mut().and_then(|annotations| annotations.remove(MODE));
        metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
        Self { metadata, spec: WidgetSpec { size: old.spec.height, mode } }
    }
}

impl TryFrom<Widget> for v1beta1::Widget {
    type Error = String;

    fn try_from(new: Widget) -> Result<Self, String> {
        if new.spec.size == 13 {
            return Err("13 was unknown in v1beta1".into());
        }
        let mut metadata = new.metadata;
        if let Some(mode) = new.spec.mode {
            metadata.annotations.get_or_insert_default().insert(MODE.into(), mode);
        }
        Ok(Self { metadata, spec: v1beta1::WidgetSpec { height: new.spec.size } })
    }
}

fn webhook() -> Webhook<Widget> {
    Webhook::new()
        .defaults(|widget: &mut Widget, request: &AdmissionRequest<Widget>| {
            if request.operation() == Operation::Create && widget.spec.mode.is_none() {
                widget.spec.mode = Some(format!("mode-{}", widget.spec.size));
            }
            Ok(())
        })
        .validates(|request: &AdmissionRequest<Widget>| {
            let size = request.object().spec.size;
            if request.operation() == Operation::Delete {
                return Ok(if size == 7 { Verdict::deny("7 stays") } else { Verdict::allow() });
            }
            match size {
                100 => return Ok(Verdict::deny("nobody needs 100")),
                101 => return Err("the scales are broken".into()),
                102 => panic!("the floor gave way"),
                _ => {}
            }
            let mut errors = Vec::new();
            if size < 0 {
                errors.push(FieldError::invalid("spec.size", size, "must not be negative"));
                errors.push(FieldError::required("spec.mode", "for negative sizes"));
            }
            if request.old().is_some_and(|old| old.spec.size > size) {
                errors.push(FieldError::forbidden("spec.size", "widgets do not shrink"));
            }
            Ok(Verdict::from_errors(errors).warn("widgets are deprecated"))
        })
        .on_deletion()
        .converts::<v1beta1::Widget>()
}

fn operator() -> Operator {
    let crd = merge_crds(vec![v1beta1::Widget::crd(), Widget::crd()], "v1").unwrap();
    Operator::new("widget-operator").crd(crd).webhook(webhook())
}

/// Creates an object of any kind.
async fn create(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let resource = ApiResource::from_gvk(&object.types.as_ref().unwrap().try_into().unwrap());
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Applies the manifests of an operator.
async fn install(client: &Client, operator: &Operator) {
    for manifest in operator.manifests() {
        create(client, manifest).await;
    }
    eventually("the kind", || async {
        Api::<v1beta1::Widget>::all(client.clone()).list(&ListParams::default()).await.is_ok()
    })
    .await;
}

/// Creates a cluster with the operator, in this process.
async fn simulated() -> Client {
    let webhooks = LocalWebhooks::default();
    let options = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(simulated_clock(), 1) };
    let client = cluster_of(options).admin();
    let operator = operator();
    webhooks.serve("widget-operator-webhook.default.svc", operator.webhooks());
    let admin = client.clone();
    install(&client, &operator).await;
    tokio::spawn(async move { operator.run(admin, pending()).await.unwrap() });
    sleep(Duration::from_millis(10)).await;
    client
}

fn widget(name: &str, size: i64) -> Widget {
    Widget::new(name, WidgetSpec { size, mode: None })
}

fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> (u16, String, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.reason, status.message),
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn rejection_reaches_the_client_with_code_reason_and_causes() {
    let widgets: Api<Widget> = Api::namespaced(simulated().await, "default");
    let make = async |name: &str, size| widgets.create(&PostParams::default(), &widget(name, size)).await;
    let denial = |text: &str| format!("admission webhook \"validate.widgets.example.com\" denied the request: {text}");
    assert_eq!(refusal(make("a", 100).await), (403, "Forbidden".into(), denial("nobody needs 100")));
    assert_eq!(refusal(make("a", 101).await), (500, "InternalError".into(), denial("the scales are broken")));
    let Err(kube::Error::Api(invalid)) = make("a", -1).await else { panic!("not refused") };
    assert_eq!((invalid.code, invalid.reason.as_str()), (422, "Invalid"));
    let expected = "Widget.example.com \"a\" is invalid: [spec.size: Invalid value: -1: must not be negative, \
                    spec.mode: Required value: for negative sizes]";
    assert_eq!(invalid.message, denial(expected));
    let fields: Vec<String> = invalid.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    assert_eq!(fields, ["spec.size", "spec.mode"]);
    let (code, _, message) = refusal(make("a", 102).await);
    assert!(code == 500 && message.contains("the webhook panicked: the floor gave way"), "{message}");
    make("a", 2).await.unwrap();
    let shrink = widgets.patch("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 1}}))).await;
    assert_eq!(
        refusal(shrink).2,
        denial("Widget.example.com \"a\" is invalid: spec.size: Forbidden: widgets do not shrink")
    );
}

#[tokio::test(start_paused = true)]
async fn deletions_are_reviewed_but_finalizer_removals_are_not() {
    let widgets: Api<Widget> = Api::namespaced(simulated().await, "default");
    let mut blocked = widget("held", 8);
    blocked.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    widgets.create(&PostParams::default(), &widget("seven", 7)).await.unwrap();
    widgets.create(&PostParams::default(), &blocked).await.unwrap();
    let (code, ..) = refusal(widgets.delete("seven", &DeleteParams::default()).await);
    assert_eq!(code, 403);
    widgets.delete("held", &DeleteParams::default()).await.unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    widgets.patch("held", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    assert!(widgets.get_opt("held").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn defaults_are_set_and_unknown_fields_are_kept() {
    // A kind whose Rust type has only a part of the fields.
    let webhooks = LocalWebhooks::default();
    let options = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(simulated_clock(), 1) };
    let client = cluster_of(options).admin();
    let mut crd = Widget::crd();
    let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    schema.x_kubernetes_preserve_unknown_fields = Some(true);
    schema.properties.as_mut().unwrap().get_mut("spec").unwrap().x_kubernetes_preserve_unknown_fields = Some(true);
    let defaults = |widget: &mut Widget, _: &AdmissionRequest<Widget>| {
        widget.spec.mode.get_or_insert_with(|| "plain".into());
        widget.metadata.labels.get_or_insert_default().insert("example.com/b".into(), "1".into());
        Ok(())
    };
    let operator = Operator::new("widget-operator").crd(crd).webhook(Webhook::new().defaults(defaults));
    webhooks.serve("widget-operator-webhook.default.svc", operator.webhooks());
    for manifest in operator.manifests() {
        create(&client, manifest).await;
    }
    let admin = client.clone();
    tokio::spawn(async move { operator.run(admin, pending()).await.unwrap() });
    sleep(Duration::from_secs(1)).await;
    let widgets: Api<DynamicObject> = Api::namespaced_with(client, "default", &ApiResource::erase::<Widget>(&()));
    let sent = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"size": 1, "future": {"deep": [1, {"x": null}]}}, "beside": true,
    });
    let created = widgets.create(&PostParams::default(), &serde_json::from_value(sent).unwrap()).await.unwrap();
    assert_eq!(created.labels().get("example.com/b").map(String::as_str), Some("1"));
    assert_eq!(created.data["spec"]["mode"], "plain");
    assert_eq!(created.data["spec"]["future"]["deep"][0], 1);
    assert_eq!(created.data["beside"], true);
}

#[tokio::test(start_paused = true)]
async fn objects_are_converted_between_versions() {
    let client = simulated().await;
    let (new, old): (Api<Widget>, Api<v1beta1::Widget>) =
        (Api::namespaced(client.clone(), "default"), Api::namespaced(client, "default"));
    let beta = v1beta1::Widget::new("a", v1beta1::WidgetSpec { height: 3 });
    old.create(&PostParams::default(), &beta).await.unwrap();
    let read = new.get("a").await.unwrap();
    assert_eq!(read.spec, WidgetSpec { size: 3, mode: Some("mode-3".into()) });
    let read = old.get("a").await.unwrap();
    assert_eq!((read.spec.height, read.annotations().get(MODE).map(String::as_str)), (3, Some("mode-3")));
    let list = old.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].spec.height, 3);
    new.create(&PostParams::default(), &widget("b", 13)).await.unwrap();
    let (code, _, message) = refusal(old.get("b").await);
    assert!(code == 500 && message.contains("13 was unknown in v1beta1"), "{code} {message}");
}

/// Allows a request after the delay in the config map, in milliseconds.
struct Late;

impl Validator<ConfigMap> for Late {
    async fn validate(&self, request: &AdmissionRequest<ConfigMap>) -> flyball::Result<Verdict> {
        let delay = request.object().data.as_ref().and_then(|data| data["delay"].parse().ok());
        sleep(Duration::from_millis(delay.unwrap_or_default())).await;
        Ok(Verdict::allow())
    }
}

/// Creates config maps with a webhook whose delay depends on the seed; returns the delay, the client's waiting time,
/// and the result.
async fn answered_late(seed: u64, optional: bool) -> Vec<(u64, u64, String)> {
    let webhooks = LocalWebhooks::default();
    let options = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(simulated_clock(), seed) };
    let client = cluster_of(options).admin();
    let webhook = Webhook::<ConfigMap>::new().validates(Late).timeout(Duration::from_secs(1));
    let webhook = webhook.match_condition("ours", "has(object.data) && 'delay' in object.data");
    let operator = Operator::new("op").webhook(if optional { webhook.optional() } else { webhook });
    webhooks.serve("op-webhook.default.svc", operator.webhooks());
    for manifest in operator.manifests() {
        create(&client, manifest).await;
    }
    let admin = client.clone();
    tokio::spawn(async move { operator.run(admin, pending()).await.unwrap() });
    sleep(Duration::from_secs(1)).await;
    // The operator runs in default, and its webhook does not apply there.
    create(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})).await;
    let (maps, rng): (Api<ConfigMap>, _) = (Api::namespaced(client, "other"), Rng::from_seed(seed));
    let drawn = (0..12).map(|_| rng.below(2000)).chain([999, 1000, 60_000]);
    let requests = drawn.enumerate().map(async |(n, delay)| {
        let metadata = kube::core::ObjectMeta { name: Some(format!("m-{n}")), ..Default::default() };
        let data = Some([("delay".to_owned(), delay.to_string())].into());
        let map = ConfigMap { metadata, data, ..ConfigMap::default() };
        let began = Instant::now();
        let answer = maps.create(&PostParams::default(), &map).await;
        let message = match answer {
            Ok(_) => String::new(),
            refused => format!("{:?}", refusal(refused)),
        };
        (delay, began.elapsed().as_millis() as u64, message)
    });
    futures_util::future::join_all(requests).await
}

#[tokio::test(start_paused = true)]
async fn late_webhook_response_counts_as_failure() {
    let message = "Internal error occurred: failed calling webhook \"validate.configmaps.core.k8s.io\": failed to call webhook: Post \
                   \"https://op-webhook.default.svc:443/validate--v1-configmap?timeout=1s\": context deadline exceeded";
    let refused = format!("{:?}", (500, "InternalError", message));
    for seed in 1..=5 {
        for (optional, rejection) in [(false, &*refused), (true, "")] {
            let answers = answered_late(seed, optional).await;
            for (delay, took, result) in &answers {
                let expected = if *delay < 1000 { "" } else { rejection };
                assert_eq!((*took, &**result), ((*delay).min(1000), expected), "seed {seed}, {delay} ms");
            }
            assert_eq!(answered_late(seed, optional).await, answers, "seed {seed} gave two different runs");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn conversions_round_trip(size in 0i64..13, mode in proptest::option::of("[a-z]{0,8}"), label in "[a-z]{1,8}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (before, after) = runtime.block_on(async {
            let client = simulated().await;
            let (new, old): (Api<Widget>, Api<v1beta1::Widget>) =
                (Api::namespaced(client.clone(), "default"), Api::namespaced(client, "default"));
            let mut object = Widget::new("a", WidgetSpec { size, mode });
            object.labels_mut().insert("label".into(), label);
            let before = new.create(&PostParams::default(), &object).await.unwrap();
            let there = old.get("a").await.unwrap();
            let back = old.replace("a", &PostParams::default(), &there).await.unwrap();
            prop_assert_eq!(back.metadata.resource_version, there.metadata.resource_version, "nothing changed");
            prop_assert_eq!(back.metadata.managed_fields, there.metadata.managed_fields);
            let after = new.get("a").await.unwrap();
            Ok::<_, TestCaseError>((before, after))
        })?;
        prop_assert_eq!(before.spec, after.spec);
        prop_assert_eq!(before.metadata.labels, after.metadata.labels);
    }
}

/// A clock with an offset to the machine's.
fn at(address: SocketAddr) -> WebhookServer {
    WebhookServer { address: Some(address), ..WebhookServer::default() }
}

fn moved(by: &Arc<AtomicI64>) -> Clock {
    let (by, system) = (by.clone(), Clock::system());
    Clock::new(move || system.now() + SignedDuration::from_hours(by.load(Ordering::Relaxed)))
}

/// Advances tokio's time by a minute, in which replicas check their certificates.
async fn minute() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    sleep(Duration::from_millis(100)).await;
}

/// Reads the CA bundles of all webhook configurations.
async fn bundles(client: &Client) -> Vec<String> {
    let read = async |kind: (&str, &str), name: &str, path: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.0, "v1", kind.1));
        let object = Api::<DynamicObject>::all_with(client.clone(), &resource).get(name).await.unwrap();
        object.data.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let webhook = "/webhooks/0/clientConfig/caBundle";
    vec![
        read(("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"), "widget-operator-webhook", webhook)
            .await,
        read(("admissionregistration.k8s.io", "MutatingWebhookConfiguration"), "widget-operator-webhook", webhook)
            .await,
        read(
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            "widgets.example.com",
            "/spec/conversion/webhook/clientConfig/caBundle",
        )
        .await,
    ]
}

#[tokio::test]
async fn certificates_are_rotated_without_failed_calls() {
    // Two replicas; the server calls one after the other.
    let sockets = [0, 1].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    drop(sockets);
    let turn = Arc::new(AtomicUsize::new(0));
    let dialer = Dialer::with_resolver(move |_| Some(addresses[turn.fetch_add(1, Ordering::Relaxed) % 2].to_string()));
    let cluster = Cluster::new(Options { webhooks: Arc::new(dialer), ..Options::system().unwrap() });
    let admin = cluster.admin();
    install_with_rights(&cluster, &operator()).await;

    // The offset is large enough that all certificates are valid today by the machine's clock, with which the server
    // verifies them.
    let hours = Arc::new(AtomicI64::new(-250 * 24));
    for address in addresses {
        let operator = operator().clock(moved(&hours)).webhook_server(at(address)).namespace("default");
        let client = cluster.client(User::new("widget-operator", &["system:authenticated"]));
        tokio::spawn(async move { operator.run(client, pending()).await.unwrap() });
    }
    let widgets: Api<v1beta1::Widget> = Api::namespaced(admin.clone(), "default");
    let make = async |name: &str| {
        let beta = v1beta1::Widget::new(name, v1beta1::WidgetSpec { height: 3 });
        widgets.create(&PostParams::default(), &beta).await
    };
    eventually("the first answer", || async { make("first").await.is_ok() }).await;
    minute().await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "default");
    let served = async || {
        let secret = secrets.get("widget-operator-webhook-certificates").await.unwrap();
        secret.data.unwrap()["tls.crt"].clone()
    };
    let (first, alone) = (served().await, bundles(&admin).await);
    assert!(!alone[0].is_empty() && alone.iter().all(|bundle| *bundle == alone[0]));

    for step in 0..12 {
        hours.store(-6 * 24 + step, Ordering::Relaxed);
        minute().await;
        for call in 0..6 {
            make(&format!("w-{step}-{call}")).await.unwrap();
        }
    }
    assert_ne!(served().await, first, "the certificate is another one");
    let both = bundles(&admin).await;
    assert!(
        both[0].len() > alone[0].len() && both.iter().all(|bundle| *bundle == both[0]),
        "both authorities are in the bundle"
    );
}

#[tokio::test]
async fn overwritten_bundle_is_restored_within_seconds() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let dialer = Dialer::with_resolver(move |_| Some(address.to_string()));
    let cluster = Cluster::new(Options { webhooks: Arc::new(dialer), ..Options::system().unwrap() });
    let admin = cluster.admin();
    install_with_rights(&cluster, &operator()).await;
    let client = cluster.client(User::new("widget-operator", &["system:authenticated"]));
    let operator = operator().webhook_server(at(address)).namespace("default");
    tokio::spawn(async move { operator.run(client, pending()).await.unwrap() });
    eventually("all bundles", || async { bundles(&admin).await.iter().all(|bundle| !bundle.is_empty()) }).await;
    // The check after the operator's own writes is complete.
    minute().await;
    let good = bundles(&admin).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    ));
    let configurations = Api::<DynamicObject>::all_with(admin.clone(), &resource);
    let mut configuration = configurations.get("widget-operator-webhook").await.unwrap();
    configuration.data["webhooks"][0]["clientConfig"]["caBundle"] = "".into();
    configurations.replace("widget-operator-webhook", &PostParams::default(), &configuration).await.unwrap();
    assert_ne!(bundles(&admin).await, good);
    sleep(Duration::from_millis(100)).await;
    tokio::time::pause();
    for _ in 0..8 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    // Earlier than the next period.
    let restored = eventually("the bundle", || async { bundles(&admin).await == good });
    tokio::time::timeout(Duration::from_secs(20), restored).await.unwrap();
}

/// Installs an operator, and creates a client with only the permissions of its roles.
async fn install_with_rights(cluster: &Cluster, operator: &Operator) {
    let admin = cluster.admin();
    let server = cluster.clone();
    tokio::spawn(async move { server.run(&flyball_cluster::Controllers::all()).await });
    eventually("namespace default", || async {
        Api::<ConfigMap>::namespaced(admin.clone(), "default").list(&ListParams::default()).await.is_ok()
    })
    .await;
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "widget-operator"}]);
    for manifest in operator.manifests().iter().filter(|manifest| manifest["kind"].as_str().unwrap().ends_with("Role"))
    {
        let kind = manifest["kind"].as_str().unwrap();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": manifest["metadata"],
            "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": manifest["metadata"]["name"]},
        });
        create(&admin, binding).await;
    }
    install(&admin, operator).await;
}
