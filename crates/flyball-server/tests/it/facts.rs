//! Single responses of a real API server, as tables of requests and responses.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Options, Server, User};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const SERVICES: &str = "/api/v1/namespaces/ns/services";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Starts a server with a namespace to work in.
pub(crate) async fn server() -> Server {
    let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
    let server = Server::new(Options::simulated(clock, 1));
    let namespace = json!({"metadata": {"name": "ns"}});
    assert_eq!(send(&server, Method::POST, "/api/v1/namespaces", "application/json", namespace).await.0, 201);
    server
}

pub(crate) async fn send(
    server: &Server,
    method: Method,
    url: &str,
    content_type: &'static str,
    body: Value,
) -> (u16, Value) {
    let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
    *request.method_mut() = method;
    *request.uri_mut() = url.parse().unwrap();
    request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    request.extensions_mut().insert(User::admin());
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

pub(crate) async fn post(server: &Server, url: &str, body: Value) -> (u16, Value) {
    send(server, Method::POST, url, "application/json", body).await
}

#[tokio::test]
async fn invalid_patches_have_kube_apiservers_messages() {
    let server = server().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "b"}});
    assert_eq!(post(&server, MAPS, map).await.0, 201);
    let cases = [
        (STRATEGIC, json!({"data": "x"}), "\"map[data:x]\": cannot restore map from string"),
        (STRATEGIC, json!({"data": {"a": 1}}), "\"map[data:map[a:1]]\": cannot convert int64 to string"),
        (STRATEGIC, json!({"immutable": "x"}), "\"map[immutable:x]\": unrecognized type: bool"),
        (
            STRATEGIC,
            json!({"immutable": 9_223_372_036_854_775_808_u64}),
            "\"map[immutable:9.223372036854776e+18]\": unrecognized type: bool",
        ),
        (STRATEGIC, json!({"binaryData": {"c": "x"}}), "error decoding from json: illegal base64 data at input byte 0"),
        (STRATEGIC, json!({"binaryData": {"c": ["x"]}}), "\"map[binaryData:map[c:[x]]]\": unrecognized type: uint8"),
        (
            MERGE,
            json!({"binaryData": {"c": ["x"]}}),
            "json: cannot unmarshal string into Go struct field ConfigMap.binaryData of type uint8",
        ),
        (
            STRATEGIC,
            json!({"metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go value of type string",
        ),
        (
            MERGE,
            json!({"metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (MERGE, json!({"metadata": {"creationTimestamp": ""}}), "cannot parse \"\" as \"2006\""),
        (STRATEGIC, json!([]), "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (MERGE, Value::Null, "Invalid JSON Patch"),
    ];
    for (content_type, patch, expected) in cases {
        let (code, answer) = send(&server, Method::PATCH, &format!("{MAPS}/m"), content_type, patch.clone()).await;
        let message = answer["message"].as_str().unwrap();
        assert!(matches!(code, 400 | 422) && message.ends_with(expected), "{patch}: {code} {message}");
    }
}

#[tokio::test]
async fn rules_beyond_the_cost_budget_are_rejected() {
    let server = server().await;
    let refused = async |properties: Value, rule: &str| {
        let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "kind": "Widget"},
        }});
        let (code, answer) = post(&server, DEFINITIONS, definition).await;
        if code == 201 { None } else { Some(answer["details"]["causes"][0]["message"].clone()) }
    };
    let texts =
        |max: u64| json!({"l": {"type": "array", "maxItems": max, "items": {"type": "string", "maxLength": 10}}});
    let twice = "self.l.all(x, self.l.exists_one(y, x == y))";
    assert_eq!(refused(texts(20), twice).await, None);
    let cause = refused(texts(5000), twice).await.unwrap();
    assert!(
        cause.as_str().unwrap().starts_with("Forbidden: estimated rule cost exceeds budget by factor of"),
        "{cause}"
    );
    assert_eq!(refused(texts(20), "self.?l[?0].orValue('') == '' && self.l.all(i, x, i < 7 || x != '')").await, None);
}

#[tokio::test]
async fn bound_mutating_policies_change_objects() {
    let server = server().await;
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let fields = "Object{metadata: Object.metadata{labels: {'by': variables.name}}}";
    let steps = "[JSONPatch{op: 'add', path: '/data/added', value: object.metadata.name}]";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "named", "expression": "object.metadata.name != 'skipped'"}],
        "variables": [{"name": "name", "expression": "'policy-' + request.operation.lowerAscii()"}],
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": fields}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": steps}},
        ],
    }});
    assert_eq!(post(&server, POLICIES, policy).await.0, 201);
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "1"}});
    assert_eq!(post(&server, MAPS, map("early")).await.1["data"], json!({"a": "1"}));
    assert_eq!(post(&server, BINDINGS, json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}})).await.0, 201);
    let (_, changed) = post(&server, MAPS, map("m")).await;
    assert_eq!(changed["data"], json!({"a": "1", "added": "m"}));
    assert_eq!(changed["metadata"]["labels"], json!({"by": "policy-create"}));
    assert_eq!(post(&server, MAPS, map("skipped")).await.1["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn concurrent_services_get_unique_addresses_and_ports() {
    let server = server().await;
    let service = |i: usize| json!({"metadata": {"name": format!("s{i}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let created = (0..40).map(|i| post(&server, SERVICES, service(i)));
    let created = futures_util::future::join_all(created).await;
    let mut drawn: Vec<String> = created
        .iter()
        .flat_map(|(_, service)| [&service["spec"]["clusterIP"], &service["spec"]["ports"][0]["nodePort"]])
        .map(ToString::to_string)
        .collect();
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), 80);
}

#[tokio::test]
async fn invalid_objects_have_kube_apiservers_messages() {
    let server = server().await;
    let cases = [
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            json!({"metadata": {"name": "x"}, "spec": {"group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}),
            "APIService.apiregistration.k8s.io \"x\" is invalid: metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a.b\"",
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            json!({"metadata": {"name": "x"}, "spec": {"fsGroupPolicy": "x"}}),
            "CSIDriver.storage.k8s.io \"x\" is invalid: spec.fsGroupPolicy: Unsupported value: \"x\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({"metadata": {"name": "x"}}),
            "RuntimeClass.node.k8s.io \"x\" is invalid: handler: Required value",
        ),
        (
            "/api/v1/namespaces",
            json!({"metadata": {"name": "x", "labels": {"pod-security.kubernetes.io/enforce": "x"}}}),
            "Namespace \"x\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one of privileged, baseline, restricted",
        ),
        (
            "/apis/authorization.k8s.io/v1/namespaces/ns/localsubjectaccessreviews",
            json!({"spec": {"user": "u"}}),
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
    ];
    for (path, object, expected) in cases {
        let (code, answer) = post(&server, path, object).await;
        assert_eq!((code, answer["message"].as_str()), (422, Some(expected)), "{path}");
    }
}

#[tokio::test]
async fn strategic_patches_convert_numbers_as_in_go() {
    let server = server().await;
    let budgets = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}});
    assert_eq!(post(&server, budgets, budget).await.0, 201);
    for (given, why) in
        [(json!(1.5), "number 1.5"), (json!(true), "bool"), (json!(2_147_483_648_u64), "number 2147483648")]
    {
        let patch = json!({"spec": {"minAvailable": given}});
        let url = format!("{budgets}/b");
        let (_, answer) = send(&server, Method::PATCH, &url, STRATEGIC, patch.clone()).await;
        let expected = format!("json: cannot unmarshal {why} into Go value of type int32");
        assert!(answer["message"].as_str().unwrap().ends_with(&expected), "{answer}");
        let (_, answer) = send(&server, Method::PATCH, &url, MERGE, patch).await;
        let field = "Go struct field PodDisruptionBudgetSpec.spec.minAvailable";
        let expected = format!("json: cannot unmarshal {why} into {field} of type int32");
        assert!(answer["message"].as_str().unwrap().ends_with(&expected), "{answer}");
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
    assert_eq!(post(&server, leases, json!({"metadata": {"name": "l"}, "spec": {}})).await.0, 201);
    let patch = json!({"spec": {"leaseDurationSeconds": 2_147_483_648_u64}});
    let (code, answer) = send(&server, Method::PATCH, &format!("{leases}/l"), STRATEGIC, patch).await;
    let why = "spec.leaseDurationSeconds: Invalid value: -2147483648: must be greater than 0";
    assert!(code == 422 && answer["message"].as_str().unwrap().ends_with(why), "{answer}");
    let patch = json!({"spec": {"leaseDurationSeconds": 5.0}});
    let (code, answer) = send(&server, Method::PATCH, &format!("{leases}/l"), STRATEGIC, patch).await;
    assert_eq!((code, &answer["spec"]["leaseDurationSeconds"]), (200, &json!(5)));
}
