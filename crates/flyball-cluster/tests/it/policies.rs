//! The policies of an operator, which the server enforces alone: the operator does not run here.

use crate::cluster;
use flyball::Operator;
use flyball::policy::{Policy, Reason, Rule};
use flyball_cluster::{Cluster, User};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResource, CustomResourceExt, ResourceExt};
use myapp::api::myapp_v1alpha1::MyApp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

#[derive(CustomResource, Clone, Debug, Deserialize, PartialEq, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    size: i64,
}

fn operator() -> Operator {
    let mut crd = Widget::crd();
    let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    // A kind whose Rust type has only a part of the fields.
    schema.properties.as_mut().unwrap().get_mut("spec").unwrap().x_kubernetes_preserve_unknown_fields = Some(true);
    let widgets = Policy::<Widget>::new()
        .variable("most", "int(namespaceObject.metadata.?labels[?'most'].orValue('10'))")
        .defaults("spec.size", "3")
        .defaults("spec.parts", "[string(object.spec.size), 'lid']")
        .defaults("metadata.labels[example.com/made-by]", "request.userInfo.username.replace(':', '-')")
        .applies("Object{metadata: Object.metadata{annotations: {'parts': object.spec.parts.join(' ')}}}")
        .validates(
            Rule::new("object.spec.size <= variables.most", "too large")
                .message_expression("'no more than ' + string(variables.most) + ', not ' + string(object.spec.size)"),
        )
        .validates(
            Rule::new("oldObject == null || object.spec.size >= oldObject.spec.size", "widgets do not shrink")
                .reason(Reason::Forbidden),
        )
        .match_condition("no-exception", "!has(object.metadata.labels) || !('exception' in object.metadata.labels)");
    Operator::new("widget-operator").crd(crd).policy(widgets)
}

/// Applies the manifests of an operator, until one is rejected.
async fn apply(client: &Client, manifests: &[Value]) -> kube::Result<()> {
    for manifest in manifests {
        let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
        let resource = ApiResource::from_gvk(&object.types.as_ref().unwrap().try_into().unwrap());
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        api.patch(&object.name_any(), &PatchParams::apply("deploy"), &Patch::Apply(manifest)).await?;
    }
    Ok(())
}

/// Creates a client for installation, with permissions on policies only.
async fn installer(cluster: &Cluster, verbs: &[&str]) -> Client {
    let rules = json!([{
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
        "verbs": verbs,
    }]);
    let api = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": {"name": "policies"}, "rules": rules});
    let binding = json!({"apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "policies"},
        "subjects": [{"apiGroup": api, "kind": "User", "name": "deployer"}],
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "policies"}});
    apply(&cluster.admin(), &[role, binding]).await.unwrap();
    cluster.client(User::new("deployer", &["system:authenticated"]))
}

async fn widgets(cluster: &Cluster) -> Api<DynamicObject> {
    let admin = cluster.admin();
    apply(&admin, &operator().manifests()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    Api::namespaced_with(admin, "default", &ApiResource::erase::<Widget>(&()))
}

fn widget(name: &str, spec: Value) -> DynamicObject {
    DynamicObject::new(name, &ApiResource::erase::<Widget>(&())).data(json!({"spec": spec}))
}

fn refusal(answer: kube::Result<DynamicObject>) -> (u16, String, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.reason, status.message),
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn defaults_are_set_and_unknown_fields_are_kept() {
    let widgets = widgets(&cluster()).await;
    let created =
        widgets.create(&PostParams::default(), &widget("a", json!({"future": {"deep": [1, {"x": "y"}]}}))).await;
    let created = created.unwrap();
    assert_eq!(created.data["spec"], json!({"size": 3, "parts": ["3", "lid"], "future": {"deep": [1, {"x": "y"}]}}));
    assert_eq!(created.annotations()["parts"], "3 lid");
    assert!(created.labels().contains_key("example.com/made-by"), "{created:?}");

    let explicit = widget("b", json!({"size": 5, "parts": []}));
    let created = widgets.create(&PostParams::default(), &explicit).await.unwrap();
    assert_eq!(created.data["spec"], json!({"size": 5, "parts": []}), "existing objects remain");
    // A default cannot be removed.
    let patch = Patch::Merge(json!({"spec": {"parts": null}}));
    let patched = widgets.patch("b", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data["spec"]["parts"], json!(["5", "lid"]));
}

#[tokio::test(start_paused = true)]
async fn violation_is_rejected_with_message_and_reason() {
    let cluster = cluster();
    let widgets = widgets(&cluster).await;
    let create = async |object| refusal(widgets.create(&PostParams::default(), &object).await);
    let update = async |object: DynamicObject| {
        refusal(widgets.patch("a", &PatchParams::default(), &Patch::Merge(&object)).await)
    };
    let denial = |text: &str| {
        let name = "widget-operator-widgets.example.com";
        format!(
            "widgets.example.com \"a\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {text}"
        )
    };
    let (code, reason, message) = create(widget("a", json!({"size": 11}))).await;
    assert_eq!((code, reason.as_str(), message), (422, "Invalid", denial("no more than 10, not 11")));

    widgets.create(&PostParams::default(), &widget("a", json!({"size": 4}))).await.unwrap();
    let (code, reason, message) = update(widget("a", json!({"size": 2}))).await;
    assert_eq!((code, reason.as_str(), message), (403, "Forbidden", denial("widgets do not shrink")));
    // A failing expression rejects the request as well.
    let labels = json!({"metadata": {"labels": {"most": "many"}}});
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.admin());
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    let (code, _, message) = update(widget("a", json!({"size": 5}))).await;
    assert!(code == 422 && message.contains("variables.most"), "{message}");

    let mut exception = widget("a", json!({"size": 1}));
    exception.labels_mut().insert("exception".into(), "yes".into());
    widgets.patch("a", &PatchParams::default(), &Patch::Merge(&exception)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rules_do_not_block_deletion() {
    let cluster = cluster();
    let widgets = widgets(&cluster).await;
    let mut blocked = widget("a", json!({"size": 8}));
    blocked.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    widgets.create(&PostParams::default(), &blocked).await.unwrap();
    let labels = json!({"metadata": {"labels": {"most": "5"}}});
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.admin());
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let refused = widgets.patch("a", &PatchParams::default(), &free).await;
    assert!(refused.unwrap_err().to_string().contains("no more than 5, not 8"));
    widgets.delete("a", &Default::default()).await.unwrap();
    widgets.patch("a", &PatchParams::default(), &free).await.unwrap();
    assert!(widgets.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn policy_permissions_are_needed_to_apply_but_not_by_the_operator() {
    let policy = Policy::<ConfigMap>::new().defaults("data.a", "'b'").validates(Rule::new("true", "never"));
    let operator = Operator::new("op").policy(policy);
    assert!(operator.rules().iter().all(|rule| !json!(rule).to_string().contains("admissionregistration")));
    let manifests: Vec<Value> = operator.manifests().into_iter().filter(|one| one["kind"] != "ClusterRole").collect();
    assert_eq!(manifests.len(), 4);
    let cluster = cluster();
    let refused = apply(&installer(&cluster, &["get", "patch"]).await, &manifests).await.unwrap_err();
    assert!(refused.to_string().contains("cannot create resource \"mutatingadmissionpolicies\""), "{refused}");
    apply(&installer(&cluster, &["create", "patch"]).await, &manifests).await.unwrap();
    let created: ConfigMap = Api::namespaced(cluster.admin(), "default")
        .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap())
        .await
        .unwrap();
    assert_eq!(created.data.unwrap()["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn volume_of_an_application_cannot_shrink() {
    let operator = Operator::new("myapp-operator").crd(MyApp::crd()).policy(myapp::controllers::myapp::policy());
    let admin = cluster().admin();
    apply(&admin, &operator.manifests()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let apps: Api<MyApp> = Api::namespaced(admin, "default");
    let spec = json!({"images": "registry.example.com/shop", "version": "1.0", "storage": "2Gi"});
    let app = MyApp::new("shop", serde_json::from_value(spec).unwrap());
    apps.create(&PostParams::default(), &app).await.unwrap();
    let store = async |size: &str| {
        apps.patch("shop", &PatchParams::default(), &Patch::Merge(json!({"spec": {"storage": size}}))).await
    };
    store("3Gi").await.unwrap();
    let refused = store("3G").await.unwrap_err().to_string();
    assert!(refused.contains("denied request: the database's volume cannot become smaller"), "{refused}");
}

/// The warnings in a real server's status for these expressions.
#[tokio::test(start_paused = true)]
async fn expressions_are_type_checked_against_their_kinds() {
    let cluster = cluster();
    let (admin, api) = (cluster.admin(), "admissionregistration.k8s.io/v1");
    let pods = "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas == 'a'\n | ...........^\n";
    let deployments = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'\n | object.spec.replicas == 'a'\n | .....................^\n";
    let elsewhere = "apps/v1, Kind=Deployment: ERROR: <input>:1:46: undefined field 'img'\n | object.spec.template.spec.containers.all(c, c.img.startsWith('x') && c.resources.limits['cpu'] == '1')\n | .............................................^\nERROR: <input>:1:81: undefined field 'limits'\n | object.spec.template.spec.containers.all(c, c.img.startsWith('x') && c.resources.limits['cpu'] == '1')\n | ................................................................................^\n";
    let policy = |name: &str, rules: Value, expressions: &[&str]| {
        let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": rules}, "validations": validations,
            "variables": [{"name": "good", "expression": "object.spec.replicas"}, {"name": "bad", "expression": "object.nope"}],
        }})
    };
    let rule = |group: &str, resources: Value| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources});
    let both = json!([rule("apps", json!(["deployments", "deployments/scale"])), rule("", json!(["pods"]))]);
    let replicas = "object.spec.replicas == 'a'";
    let far = "object.spec.template.spec.containers.all(c, c.img.startsWith('x') && c.resources.limits['cpu'] == '1')";
    let apps = json!([rule("apps", json!(["deployments"]))]);
    let fine = [
        "object.spec.replicas > 5 && object.metadata.labels.x == 'a' && variables.bad == 1",
        "object.spec.strategy.rollingUpdate.maxSurge == 1 || oldObject.status.replicas == 1",
    ];
    let manifests = [
        policy("both", both, &["true", replicas]),
        policy("far", apps.clone(), &[far]),
        policy("fine", apps.clone(), &fine),
        policy("variable", apps, &["variables.good == 'x'"]),
        policy("any", json!([rule("*", json!(["*"]))]), &[replicas]),
    ];
    apply(&admin, &manifests).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let resource = ApiResource::erase::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy>(&());
    let policies: Api<DynamicObject> = Api::all_with(admin, &resource);
    let found = |field: &str, warning: &str| json!({"expressionWarnings": [{"fieldRef": field, "warning": warning}]});
    let variable = "apps/v1, Kind=Deployment: ERROR: <input>:1:16: found no matching overload for '_==_' applied to '(int, string)'\n | variables.good == 'x'\n | ...............^\n";
    for (name, expected) in [
        ("both", found("spec.validations[1].expression", &format!("{pods}\n{deployments}"))),
        ("far", found("spec.validations[0].expression", elsewhere)),
        ("fine", json!({})),
        ("variable", found("spec.validations[0].expression", variable)),
        ("any", json!({})),
    ] {
        let status = policies.get(name).await.unwrap().data["status"].take();
        assert_eq!(status, json!({"observedGeneration": 1, "typeChecking": expected}), "{name}");
    }
}
