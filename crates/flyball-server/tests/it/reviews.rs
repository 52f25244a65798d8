//! Policies on requests that write no object: connections, bindings, evictions, token requests.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Creates a policy for all requests in the namespace with this expression.
async fn insist(server: &Server, name: &str, expression: &str, message: &str) {
    let everything = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [everything]},
        "matchConditions": [{"name": "ours", "expression": "request.namespace == 'ns'"}],
        "validations": [{"expression": expression, "messageExpression": message}],
    }});
    let (code, answer) = post(server, POLICIES, policy).await;
    assert_eq!(code, 201, "{answer}");
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    assert_eq!(post(server, BINDINGS, binding).await.0, 201);
}

/// Creates a server with a namespace, a pod and an account.
async fn with_pod() -> Server {
    let server = server().await;
    let of = |what: &str| format!("/api/v1/namespaces/ns/{what}");
    let account = json!({"metadata": {"name": "default"}});
    assert_eq!(post(&server, &of("serviceaccounts"), account).await.0, 201);
    let pod =
        json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let (code, answer) = post(&server, &of("pods"), pod).await;
    assert_eq!(code, 201, "{answer}");
    server
}

#[tokio::test]
async fn policies_review_subresource_requests() {
    let server = with_pod().await;
    let message = "request.operation + ' ' + request.resource.resource + '/' + (has(request.subResource) ? request.subResource : '') \
                   + ' ' + request.kind.kind + ' ' + (has(request.name) ? request.name : '-') + ' ' + object.kind + ' ' + string(request.dryRun) \
                   + ' ' + (has(request.options) && request.options != null ? request.options.kind : 'none')";
    insist(&server, "all", "false", message).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "n"}});
    let unnamed = json!({"apiVersion": "v1", "kind": "Binding", "target": {"name": "n"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}});
    let cases = [
        (Method::POST, "pods/a/binding", binding.clone(), "CREATE pods/binding Binding a Binding false CreateOptions"),
        (Method::POST, "bindings?dryRun=All", binding, "CREATE bindings/ Binding a Binding true CreateOptions"),
        (Method::POST, "bindings", unnamed, "CREATE bindings/ Binding - Binding false CreateOptions"),
        (Method::POST, "pods/a/eviction", eviction, "CREATE pods/eviction Eviction a Eviction false CreateOptions"),
        (
            Method::POST,
            "serviceaccounts/default/token",
            token,
            "CREATE serviceaccounts/token TokenRequest default TokenRequest false CreateOptions",
        ),
        (
            Method::POST,
            "pods/a/exec?command=ls",
            Value::Null,
            "CONNECT pods/exec PodExecOptions a PodExecOptions false none",
        ),
        (
            Method::GET,
            "pods/zz/portforward?ports=80",
            Value::Null,
            "CONNECT pods/portforward PodPortForwardOptions zz PodPortForwardOptions false none",
        ),
        (
            Method::PUT,
            "services/https:s:1/proxy/x",
            Value::Null,
            "CONNECT services/proxy ServiceProxyOptions https:s:1 ServiceProxyOptions false none",
        ),
    ];
    for (method, path, body, expected) in cases {
        let url = format!("/api/v1/namespaces/ns/{path}");
        let (code, answer) = send(&server, method, &url, "application/json", body).await;
        let message = answer["message"].as_str().unwrap();
        assert!(code == 422 && message.ends_with(&format!("denied request: {expected}")), "{path}: {code} {message}");
    }
    // Policies do not apply to access reviews.
    let question =
        json!({"spec": {"user": "u", "resourceAttributes": {"namespace": "ns", "verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/namespaces/ns/localsubjectaccessreviews";
    assert_eq!(post(&server, reviews, question).await.0, 201);
}

#[tokio::test]
async fn policies_see_exec_options() {
    let server = with_pod().await;
    let expression =
        "request.operation != 'CONNECT' || object.command == ['ls', '-l'] && object.stdout && !has(object.tty)";
    insist(&server, "exec", expression, "'no'").await;
    let exec = |query: &str| format!("/api/v1/namespaces/ns/pods/a/exec?{query}");
    // An admitted request requires a protocol upgrade.
    for (query, code) in [("command=ls&command=-l&stdout=1&tty=0", 400), ("command=ls&stdout=1", 422)] {
        let (found, answer) = send(&server, Method::POST, &exec(query), "application/json", Value::Null).await;
        assert_eq!(found, code, "{answer}");
    }
    let wrong = "/api/v1/namespaces/ns/pods/a/portforward?ports=x";
    let (code, answer) = send(&server, Method::POST, wrong, "application/json", Value::Null).await;
    let why = "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax";
    assert_eq!((code, answer["message"].as_str()), (400, Some(why)));
}

#[tokio::test]
async fn expressions_can_authorize_the_request() {
    let server = with_pod().await;
    insist(&server, "asks", "authorizer.requestResource.check('get').allowed()", "'no'").await;
    insist(&server, "never", "!authorizer.requestResource.name('secret').check('get').allowed()", "'never'").await;
    let map = json!({"metadata": {"name": "m"}});
    let (code, answer) = post(&server, "/api/v1/namespaces/ns/configmaps", map).await;
    assert_eq!(code, 422);
    assert!(answer["message"].as_str().unwrap().ends_with("with binding 'never' denied request: never"), "{answer}");
}

#[tokio::test]
async fn expressions_beyond_the_cost_limit_fail() {
    let server = with_pod().await;
    let expensive = "object.kind != 'ConfigMap' || object.data.all(a, object.data.all(b, object.data.all(c, a != b || b != c || true)))";
    insist(&server, "dear", expensive, "'no'").await;
    let data: Value = (0..200).map(|i| (format!("k{i}"), "v".into())).collect::<serde_json::Map<_, _>>().into();
    let map = |data: Value| json!({"metadata": {"name": "m"}, "data": data});
    let maps = "/api/v1/namespaces/ns/configmaps?dryRun=All";
    assert_eq!(post(&server, maps, map(json!({"a": "b", "c": "d"}))).await.0, 201);
    let (code, answer) = post(&server, maps, map(data)).await;
    let why = format!("expression '{expensive}' resulted in error: operation cancelled: actual cost limit exceeded");
    assert!(code == 422 && answer["message"].as_str().unwrap().ends_with(&why), "{answer}");
}
