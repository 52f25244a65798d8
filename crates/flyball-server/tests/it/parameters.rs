//! Parameters of policies: users cannot read objects through a policy without permission.

use crate::facts::{post, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";

/// Grants a rule to a user, in the cluster or in a namespace.
async fn grant(server: &Server, user: &str, namespace: Option<&str>, name: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    assert_eq!(post(server, &format!("{RBAC}/clusterroles"), role).await.0, 201);
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": user}],
    });
    let path = namespace.map_or_else(
        || format!("{RBAC}/clusterrolebindings"),
        |namespace| format!("{RBAC}/namespaces/{namespace}/rolebindings"),
    );
    assert_eq!(post(server, &path, binding).await.0, 201);
}

/// Sends a request as a user; returns the status code, and the field and message of a refusal.
async fn send(server: &Server, user: &User, method: Method, url: &str, body: Value) -> (u16, String) {
    let content_type = if method == Method::PATCH { MERGE } else { "application/json" };
    let request = Request::builder().method(method).uri(url).header("content-type", content_type);
    let request = request.extension(user.clone()).body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cause = &body["details"]["causes"][0];
    (code, if code < 300 { String::new() } else { format!("{}: {}", text(&cause["field"]), text(&cause["message"])) })
}

/// The names of each kind of policies and of its bindings, with their specs without parameters.
fn sorts() -> [(String, String, Value, Value); 2] {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let constraints = json!({"resourceRules": [rule]});
    let patch = r#"[JSONPatch{op: "remove", path: "/data"}]"#;
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}});
    [
        (
            format!("{GROUP}/validatingadmissionpolicies"),
            format!("{GROUP}/validatingadmissionpolicybindings"),
            json!({"matchConstraints": constraints, "validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny"]}),
        ),
        (
            format!("{GROUP}/mutatingadmissionpolicies"),
            format!("{GROUP}/mutatingadmissionpolicybindings"),
            json!({"matchConstraints": constraints, "mutations": [mutation], "reinvocationPolicy": "Never"}),
            json!({}),
        ),
    ]
}

fn with(name: &str, spec: &Value, fields: Value) -> Value {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn policies_and_bindings_require_read_access_to_parameters() {
    let server = server().await;
    let policies = json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]);
    let secrets = |verb: &str, names: Value| json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": [verb]}]);
    for user in ["ann", "bob"] {
        grant(&server, user, None, &format!("{user}-policies"), policies.clone()).await;
    }
    grant(&server, "ann", Some("ns"), "ann-own", secrets("get", json!(["own"]))).await;
    // Neither a right in one namespace nor one to single names is one to all Secrets.
    grant(&server, "ann", Some("ns"), "ann-ns", secrets("list", json!([]))).await;
    grant(&server, "ann", None, "ann-named", secrets("get", json!(["*", "some"]))).await;
    grant(&server, "bob", None, "bob-get", secrets("get", json!([]))).await;
    let (ann, bob, admin) = (User::new("ann", &[]), User::new("bob", &[]), User::admin());
    let kind = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}});
    let params =
        |namespace: &str, name: &str| json!({"namespace": namespace, "name": name, "parameterNotFoundAction": "Deny"});
    let shown = "user &{ann  [system:authenticated] map[]}";
    let no_kind = format!(
        "spec.paramKind: Forbidden: {shown} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
    );
    let no_object = |verb: &str| {
        format!(
            "spec.paramRef: Forbidden: {shown} does not have \"{verb}\" permission on the object referenced by paramRef"
        )
    };
    let fine = (201, String::new());
    for (policies, bindings, policy, binding) in sorts() {
        let create = async |user: &User, url: &str, body: Value| send(&server, user, Method::POST, url, body).await;
        let patch = async |user: &User, url: String, body: Value| send(&server, user, Method::PATCH, &url, body).await;
        let bind = |name: &str, policy: &str, fields: Value| {
            let mut fields = fields;
            fields["policyName"] = policy.into();
            with(name, &binding, fields)
        };

        // Policies: created with a kind, and changed to have one.
        assert_eq!(create(&ann, &policies, with("p", &policy, kind.clone())).await, (422, no_kind.clone()));
        assert_eq!(create(&ann, &policies, with("plain", &policy, json!({}))).await, fine);
        let changed = patch(&ann, format!("{policies}/plain"), json!({"spec": kind})).await;
        assert_eq!(changed, (422, no_kind.clone()));
        let other = json!({"paramKind": {"apiVersion": "v1", "kind": "Unknown"}});
        assert_eq!(create(&bob, &policies, with("q", &policy, other)).await.0, 422, "{policies}");
        assert_eq!(create(&bob, &policies, with("bobs", &policy, kind.clone())).await, fine);
        assert_eq!(create(&admin, &policies, with("p", &policy, kind.clone())).await, fine);
        // Changes other than of the kind need no permission.
        let labeled = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(patch(&ann, format!("{policies}/p"), labeled.clone()).await.0, 200);

        // Bindings: to one object, to any, and of a policy that does not exist.
        let top = json!({"paramRef": params("other", "top")});
        assert_eq!(create(&ann, &bindings, bind("b", "p", top.clone())).await, (422, no_object("get")));
        let everywhere = json!({"paramRef": {"name": "own", "parameterNotFoundAction": "Deny"}});
        assert_eq!(create(&ann, &bindings, bind("b", "p", everywhere)).await, (422, no_object("get")));
        for missing in ["plain", "none"] {
            let own = json!({"paramRef": params("ns", "own")});
            assert_eq!(create(&ann, &bindings, bind("b", missing, own)).await, (422, no_object("get")), "{missing}");
        }
        let any = |namespace: &str| json!({"paramRef": {"namespace": namespace, "selector": {}, "parameterNotFoundAction": "Deny"}});
        assert_eq!(create(&ann, &bindings, bind("b", "p", any("other"))).await, (422, no_object("list")));
        assert_eq!(create(&ann, &bindings, bind("any", "p", any("ns"))).await, fine);
        assert_eq!(create(&bob, &bindings, bind("bobs", "p", top.clone())).await, fine);
        assert_eq!(create(&admin, &bindings, bind("admins", "p", any("other"))).await, fine);

        // A change of the reference, or of the policy with its kind, refers to another object.
        assert_eq!(create(&ann, &bindings, bind("empty", "p", json!({}))).await, fine);
        let changed = patch(&ann, format!("{bindings}/empty"), json!({"spec": top})).await;
        assert_eq!(changed, (422, no_object("get")));
        assert_eq!(create(&ann, &bindings, bind("own", "p", json!({"paramRef": params("ns", "own")}))).await, fine);
        let changed = patch(&ann, format!("{bindings}/own"), json!({"spec": top})).await;
        assert_eq!(changed, (422, no_object("get")));
        let changed = patch(&ann, format!("{bindings}/own"), json!({"spec": {"policyName": "none"}})).await;
        assert_eq!(changed, (422, no_object("get")));
        assert_eq!(patch(&ann, format!("{bindings}/bobs"), labeled).await.0, 200);
    }
}
