//! Requests that are unexpectedly accepted or rejected.

use crate::facts::{post, send, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const APPLY: &str = "application/apply-patch+yaml";

async fn raw(
    server: &Server,
    method: Method,
    url: &str,
    headers: &[(&'static str, &'static str)],
    body: &str,
) -> (u16, HeaderMap, Value) {
    let mut request = Request::new(Full::new(Bytes::from(body.to_owned())));
    *request.method_mut() = method;
    *request.uri_mut() = url.parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    request.extensions_mut().insert(User::admin());
    let response = server.handle(request).await;
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = Value::from(String::from_utf8_lossy(&body).into_owned());
    (code, headers, serde_json::from_slice(&body).unwrap_or(text))
}

#[tokio::test]
async fn first_yaml_document_of_a_body_is_used() {
    let server = server().await;
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ";
    for (name, body) in [
        ("a", format!("{head}a\n---\n{head}z\n")),
        ("b", format!("# comment\n---\n{head}b\n--- {{}}\n")),
        ("c", format!("%YAML 1.2\n---\n{head}c\n...\nnot: [yaml\n")),
        ("d", format!("{head}d\ndata:\n  k: |\n    x\n    ---\n    y\n---\nother: 1\n")),
    ] {
        let (code, _, created) = raw(&server, Method::POST, MAPS, &[("content-type", "application/yaml")], &body).await;
        assert_eq!((code, created["metadata"]["name"].as_str()), (201, Some(name)), "{created}");
        let url = format!("{MAPS}/{name}?fieldManager=m&force=true");
        assert_eq!(raw(&server, Method::PATCH, &url, &[("content-type", APPLY)], &body).await.0, 200);
    }
    let (_, _, map) = raw(&server, Method::GET, &format!("{MAPS}/d"), &[], "").await;
    assert_eq!(map["data"], json!({"k": "x\n---\ny\n"}));
}

#[tokio::test]
async fn conflict_is_reported_before_duplicate_keys() {
    let server = server().await;
    let body =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  k: old\n  k: {value}\n");
    let plain = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  k: one\n";
    let apply = async |manager: &str, body: &str| {
        let url = format!("{MAPS}/m?fieldManager={manager}&fieldValidation=Strict");
        raw(&server, Method::PATCH, &url, &[("content-type", APPLY)], body).await
    };
    assert_eq!(apply("first", plain).await.0, 201);
    assert_eq!(apply("second", &body("two")).await.0, 409);
    let (code, _, response) = apply("second", &body("one")).await;
    assert!(code == 400 && response["message"].as_str().unwrap().contains("strict decoding YAML"), "{response}");
    assert_eq!(raw(&server, Method::GET, &format!("{MAPS}/m"), &[], "").await.2["data"], json!({"k": "one"}));
}

#[tokio::test]
async fn list_options_report_all_errors_in_order() {
    let server = server().await;
    let cases = [
        (
            "resourceVersionMatch=Exact&sendInitialEvents=true",
            vec![
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                ),
                ("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"),
            ],
        ),
        (
            "watch=1&resourceVersionMatch=Exact",
            vec![
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
                ("resourceVersionMatch", "Unsupported value: \"Exact\": supported values: \"NotOlderThan\""),
            ],
        ),
    ];
    for (query, expected) in cases {
        for path in [MAPS, "/api/v1/nodes", "/apis/apps/v1/deployments"] {
            let (code, _, response) = raw(&server, Method::GET, &format!("{path}?{query}"), &[], "").await;
            let causes: Vec<(&str, &str)> = response["details"]["causes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cause| (cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()))
                .collect();
            assert_eq!((code, causes), (422, expected.clone()), "{path}?{query}");
        }
    }
}

#[tokio::test]
async fn not_acceptable_error_lists_all_media_types() {
    let server = server().await;
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let all = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for path in [MAPS, "/apis/apps/v1/deployments"] {
        let refuse = async |query: &str, accept: &'static str| {
            let (code, _, response) =
                raw(&server, Method::GET, &format!("{path}{query}"), &[("accept", accept)], "").await;
            assert_eq!(code, 406);
            response.to_string()
        };
        let response = refuse("?watch=1", "application/yaml").await;
        assert!(response.contains(&format!("types are accepted: {streams}")), "{response}");
        for query in ["", "?watch=1"] {
            let response = refuse(query, "text/html").await;
            assert!(response.contains(&format!("{all}, {streams}")), "{response}");
        }
    }
    let (_, _, response) = raw(&server, Method::GET, &format!("{MAPS}/x"), &[("accept", "text/html")], "").await;
    assert!(response.to_string().contains(all) && !response.to_string().contains("stream=watch"), "{response}");
}

#[tokio::test]
async fn empty_v1beta1_table_has_null_rows() {
    let server = server().await;
    for (version, rows) in [("v1beta1", Value::Null), ("v1", json!([]))] {
        let accept = if version == "v1" {
            "application/json;as=Table;v=v1;g=meta.k8s.io"
        } else {
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
        };
        for path in ["/api/v1/namespaces/ns/secrets", "/api/v1/namespaces/ns/pods"] {
            let (code, _, table) = raw(&server, Method::GET, path, &[("accept", accept)], "").await;
            assert_eq!((code, &table["rows"]), (200, &rows), "{table}");
        }
    }
}

async fn pod(server: &Server, name: &str, node: Option<&str>) {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    let account = json!({"metadata": {"name": "default"}});
    post(server, "/api/v1/namespaces/ns/serviceaccounts", account).await;
    let (code, response) = post(server, "/api/v1/namespaces/ns/pods", pod).await;
    assert_eq!(code, 201, "{response}");
}

#[tokio::test]
async fn commands_require_an_upgrade_and_empty_logs_have_no_content() {
    let server = server().await;
    pod(&server, "bound", Some("n")).await;
    pod(&server, "free", None).await;
    let pods = "/api/v1/namespaces/ns/pods";
    for action in ["exec", "attach", "portforward"] {
        let (code, _, response) = raw(&server, Method::POST, &format!("{pods}/bound/{action}"), &[], "").await;
        assert_eq!((code, response["message"].as_str()), (400, Some("Upgrade request required")), "{action}");
    }
    let (code, headers, _) = raw(&server, Method::GET, &format!("{pods}/free/log"), &[], "").await;
    assert_eq!((code, headers.get("content-type")), (204, None));
}

#[tokio::test]
async fn invalid_log_options_are_rejected_before_the_pod_lookup() {
    let server = server().await;
    let invalid = |why: &str| format!("PodLogOptions \"none\" is invalid: {why}");
    for (query, code, expected) in [
        ("tailLines=-1", 422, invalid("tailLines: Invalid value: -1: must be greater than or equal to 0")),
        (
            "limitBytes=0&sinceSeconds=0",
            422,
            invalid(
                "[limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be greater than 0]",
            ),
        ),
        (
            "sinceSeconds=0&sinceTime=2026-01-01T00:00:00Z",
            422,
            invalid(": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
        ),
        ("tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
        ("tailLines=0&limitBytes=1&sinceSeconds=1", 404, "pods \"none\" not found".to_owned()),
    ] {
        let url = format!("/api/v1/namespaces/ns/pods/none/log?{query}");
        let (found, _, response) = raw(&server, Method::GET, &url, &[], "").await;
        assert_eq!((found, response["message"].as_str()), (code, Some(&*expected)), "{query}");
    }
}

#[tokio::test]
async fn v1beta1_evictions_are_accepted() {
    let server = server().await;
    pod(&server, "p", None).await;
    for (version, kind, expected) in
        [("policy/v1alpha1", "Eviction", 400), ("policy/v1beta1", "Binding", 400), ("policy/v1beta1", "Eviction", 201)]
    {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}});
        let (code, response) = post(&server, "/api/v1/namespaces/ns/pods/p/eviction", body).await;
        assert_eq!(code, expected, "{version}: {response}");
    }
}

#[tokio::test]
async fn uid_mismatch_of_a_bound_object_names_its_kind() {
    let server = server().await;
    pod(&server, "x", None).await;
    post(&server, "/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": "x"}})).await;
    for kind in ["Pod", "Secret"] {
        let reference = json!({"kind": kind, "apiVersion": "v1", "name": "x", "uid": "other"});
        let request = json!({"spec": {"audiences": [], "boundObjectRef": reference}});
        let url = "/api/v1/namespaces/ns/serviceaccounts/default/token";
        let (code, response) = post(&server, url, request).await;
        assert_eq!((code, response["details"]["kind"].as_str()), (409, Some(kind)), "{response}");
    }
}

#[tokio::test]
async fn invalid_scale_is_reported_as_a_scale() {
    let server = server().await;
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (plural, kind) in
        [("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("statefulsets", "StatefulSet")]
    {
        let url = format!("/apis/apps/v1/namespaces/ns/{plural}");
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod, "serviceName": "s"});
        let (code, response) = post(&server, &url, json!({"metadata": {"name": "x"}, "spec": spec})).await;
        assert_eq!(code, 201, "{kind}: {response}");
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}, "spec": {"replicas": -1}});
        let (code, response) =
            send(&server, Method::PATCH, &format!("{url}/x/scale?fieldManager=m&force=true"), APPLY, scale).await;
        let message = response["message"].as_str().unwrap();
        assert!(code == 422 && message.starts_with("Scale.autoscaling \"x\" is invalid: spec.replicas"), "{response}");
    }
}

#[tokio::test]
async fn bodies_of_other_versions_and_kinds_are_rejected() {
    let server = server().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let other = |found: &str, expected: &str| {
        format!("the API version in the data ({found}) does not match the expected API version ({expected})")
    };
    let cases = [
        ("/apis/apps/v1/namespaces/ns/deployments", "apps/v1beta2", "Deployment", other("apps/v1beta2", "apps/v1")),
        (
            "/apis/autoscaling/v1/namespaces/ns/horizontalpodautoscalers",
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            other("autoscaling/v2", "autoscaling/v1"),
        ),
        (
            definitions,
            "apiextensions.k8s.io/v1beta1",
            "CustomResourceDefinition",
            other("apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v1"),
        ),
        (
            definitions,
            "v1",
            "ConfigMap",
            "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55\"".into(),
        ),
        (
            MAPS,
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "no kind \"CustomResourceDefinition\" is registered for version \"apiextensions.k8s.io/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"".into(),
        ),
        (MAPS, "v1", "List", "converting (v1.List) to (core.ConfigMap): unknown conversion".into()),
    ];
    for (url, version, kind, why) in cases {
        let (code, response) =
            post(&server, url, json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}})).await;
        assert_eq!(code, 400, "{response}");
        assert!(response["message"].as_str().unwrap().ends_with(&why), "{response}");
    }
}

/// With its feature `raw_value`, `serde_json` parses the value of this key, without a limit of nesting.
#[tokio::test]
async fn keys_of_maps_have_no_meaning_for_the_decoder() {
    let server = server().await;
    let mut nested = "1".to_owned();
    for _ in 0..20 {
        nested = format!("{}{}{}", "[".repeat(100), json!({"$serde_json::private::RawValue": nested}), "]".repeat(100));
        // One backslash stays one backslash.
        nested = nested.replace("\\\"", "\\u0022").replace("\\\\", "\\u005c");
    }
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let crd = json!({"metadata": {"name": "widgets.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced", "names": names, "versions": [version]}});
    assert_eq!(post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.0, 201);
    let widgets = "/apis/e.com/v1/namespaces/ns/widgets";
    let change = async |method: Method, change: Value| {
        send(&server, method, &format!("{widgets}/x"), "application/merge-patch+json", change).await
    };
    for value in ["not JSON", "{\"a\":1}", &nested] {
        let spec = json!({"$serde_json::private::RawValue": value, "b": "c"});
        let widget = json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": spec});
        let (code, created) = post(&server, widgets, widget).await;
        assert_eq!(code, 201, "{created:.500}");
        let (code, changed) = change(Method::PATCH, json!({"spec": {"b": "d"}})).await;
        assert_eq!((code, &changed["spec"]["$serde_json::private::RawValue"]), (200, &json!(value)));
        let url = format!("{widgets}/x");
        assert_eq!(send(&server, Method::DELETE, &url, "application/json", json!({})).await.0, 200);
    }
}

#[tokio::test]
async fn non_list_element_order_names_its_type() {
    let server = server().await;
    pod(&server, "p", None).await;
    for (order, type_name) in [
        (json!("x"), "string"),
        (json!({}), "map[string]interface {}"),
        (json!(1), "int64"),
        (Value::Null, "%!s(<nil>)"),
    ] {
        let patch = json!({"spec": {"$setElementOrder/containers": order}});
        let merge = "application/strategic-merge-patch+json";
        let (code, response) = send(&server, Method::PATCH, "/api/v1/namespaces/ns/pods/p", merge, patch).await;
        let why = format!("expected a []interface {{}}, but received a {type_name}");
        assert_eq!((code, response["message"].as_str()), (500, Some(&*why)), "{response}");
    }
}

/// Returns the texts of a response's warnings.
fn warned(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all("warning").iter().map(|value| value.to_str().unwrap().replace("\\\"", "\""));
    all.map(|text| text.trim_start_matches("299 - \"").strip_suffix('"').unwrap().to_owned()).collect()
}

fn definition(spec: Value) -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec},
            }}}],
        },
    })
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: (&str, &str) = ("content-type", "application/json");
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

#[tokio::test]
async fn unknown_formats_warn_once() {
    let server = server().await;
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "format": "k8s-short-name"},
        "c": {"type": "integer", "format": "int64"}, "d": {"type": "string", "format": "quantity"},
        "e": {"type": "array", "items": {"type": "integer", "format": "uint8"}}, "f": {"type": "boolean", "format": "date"},
    }});
    let (code, headers, response) =
        raw(&server, Method::POST, DEFINITIONS, &[JSON], &definition(spec).to_string()).await;
    assert_eq!(code, 201, "{response}");
    let mut found = warned(&headers);
    found.sort();
    assert_eq!(
        found,
        ["unrecognized format \"date\"", "unrecognized format \"quantity\"", "unrecognized format \"uint8\""]
    );
    let url = format!("{DEFINITIONS}/widgets.example.com");
    let patch = r#"{"metadata": {"labels": {"a": "b"}}}"#;
    let (code, headers, _) = raw(&server, Method::PATCH, &url, &[MERGE], patch).await;
    assert_eq!((code, warned(&headers)), (200, Vec::new()));
}

#[tokio::test]
async fn fields_without_effect_warn() {
    let server = server().await;
    let account = json!({"metadata": {"name": "default"}});
    post(&server, "/api/v1/namespaces/ns/serviceaccounts", account).await;
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [constraint]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let workload = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let nothing = |path: &str| {
        format!("{path}topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod")
    };
    let service = json!({"externalName": "a.example", "ports": [{"port": 1}]});
    let ignored = "spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned();
    for (path, spec, expected) in [
        ("/api/v1/namespaces/ns/pods", pod.clone(), nothing("spec.")),
        ("/apis/apps/v1/namespaces/ns/deployments", workload.clone(), nothing("spec.template.spec.")),
        ("/apis/apps/v1/namespaces/ns/daemonsets", workload, nothing("spec.template.spec.")),
        ("/api/v1/namespaces/ns/services", service, ignored),
    ] {
        let object = json!({"metadata": {"name": "x"}, "spec": spec}).to_string();
        let (code, headers, response) = raw(&server, Method::POST, path, &[JSON], &object).await;
        assert_eq!((code, warned(&headers)), (201, vec![expected]), "{path}: {response}");
    }
}

#[tokio::test]
async fn changes_of_immutable_specs_are_reported_as_a_diff() {
    let server = server().await;
    pod(&server, "x", None).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "x"}, "spec": claim});
    assert_eq!(post(&server, "/api/v1/namespaces/ns/persistentvolumeclaims", claim).await.0, 201);
    let volume = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}});
    let volume = json!({"metadata": {"name": "x"}, "spec": volume});
    assert_eq!(post(&server, "/api/v1/persistentvolumes", volume).await.0, 201);
    for (path, patch, before, after) in [
        (
            "/api/v1/namespaces/ns/pods/x",
            json!({"hostNetwork": true}),
            "\"HostNetwork\": false",
            "\"HostNetwork\": true",
        ),
        (
            "/api/v1/namespaces/ns/persistentvolumeclaims/x",
            json!({"accessModes": ["ReadOnlyMany"]}),
            "\"ReadWriteOnce\"",
            "\"ReadOnlyMany\"",
        ),
        ("/api/v1/persistentvolumes/x", json!({"hostPath": {"path": "/b"}}), "\"Path\": \"/a\"", "\"Path\": \"/b\""),
    ] {
        let patch = json!({"spec": patch}).to_string();
        let (code, _, response) = raw(&server, Method::PATCH, path, &[MERGE], &patch).await;
        let message = response["message"].as_str().unwrap();
        assert_eq!(code, 422, "{response}");
        let has_line =
            |sign: &str, part: &str| message.lines().any(|line| line.starts_with(sign) && line.contains(part));
        let is_diff = has_line("@@ -", "") && has_line("-", before) && has_line("+", after);
        assert!(is_diff, "{path}: {message}");
    }
}

#[tokio::test]
async fn rule_failures_of_unchanged_values_only_warn() {
    let server = server().await;
    let field = |rules: Value| json!({"type": "integer", "x-kubernetes-validations": rules});
    let spec =
        |rules: Value| json!({"type": "object", "properties": {"old": field(rules), "new": {"type": "integer"}}});
    assert_eq!(post(&server, DEFINITIONS, definition(spec(json!([])))).await.0, 201);
    let widgets = "/apis/example.com/v1/namespaces/ns/widgets";
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"old": 1}});
    assert_eq!(post(&server, widgets, widget).await.0, 201);
    let rules = json!([{"rule": "self > 5", "message": "too small"}, {"rule": "self >= oldSelf + 0 && self > 0"}]);
    let patch = json!({"spec": {"versions": definition(spec(rules))["spec"]["versions"]}});
    let url = format!("{DEFINITIONS}/widgets.example.com");
    assert_eq!(send(&server, Method::PATCH, &url, MERGE.1, patch).await.0, 200);
    let url = format!("{widgets}/w");
    let change = async |patch: &str| raw(&server, Method::PATCH, &url, &[MERGE], patch).await;
    let (code, headers, response) = change(r#"{"spec": {"new": 2}}"#).await;
    assert_eq!((code, warned(&headers)), (200, vec!["spec.old: Invalid value: 1: too small".to_owned()]), "{response}");
    let (code, headers, _) = change(r#"{"spec": {"old": 2}}"#).await;
    assert_eq!((code, warned(&headers)), (422, Vec::new()));
    let (code, headers, _) = change(r#"{"spec": {"old": 6}}"#).await;
    assert_eq!((code, warned(&headers)), (200, Vec::new()));
}

#[tokio::test]
async fn expression_errors_have_gos_messages() {
    let server = server().await;
    let rules = |rule: &str| {
        let text = json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
        definition(json!({"type": "object", "properties": {"t": text}}))
    };
    const UNREAD: &str = "network address parse error during conversion from string";
    let cases = [
        ("int(self) > 0", "x", "type conversion error from 'string' to 'int'".to_owned()),
        ("uint(self) > uint(0)", "-1", "type conversion error from 'string' to 'uint'".into()),
        ("double(self) > 0.0", "x", "type conversion error from 'string' to 'double'".into()),
        (
            "cidr(self).prefixLength() > 0",
            "10.0.0.0",
            format!("{UNREAD}: {UNREAD}: netip.ParsePrefix(\"10.0.0.0\"): no '/'"),
        ),
        (
            "ip(self).family() == 4",
            "1.2.3",
            "IP Address \"1.2.3\" parse error during conversion from string: ParseAddr(\"1.2.3\"): IPv4 address too short".into(),
        ),
        ("'a'.matches(self)", "[", "error parsing regexp: missing closing ]: `[`".into()),
        ("'a'.find(self) == 'a'", "a**", "Illegal regex: error parsing regexp: invalid nested repetition operator: `**`".into()),
    ];
    assert_eq!(post(&server, DEFINITIONS, rules("true")).await.0, 201);
    for (rule, text, why) in cases {
        let patch = json!({"spec": {"versions": rules(rule)["spec"]["versions"]}});
        let (code, response) =
            send(&server, Method::PATCH, &format!("{DEFINITIONS}/widgets.example.com"), MERGE.1, patch).await;
        assert_eq!(code, 200, "{rule}: {response}");
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"t": text}});
        let (code, response) = post(&server, "/apis/example.com/v1/namespaces/ns/widgets", widget).await;
        let message = response["message"].as_str().unwrap();
        assert!(code == 422 && message.contains(&format!("{why} evaluating rule: {rule}")), "{response}");
    }
    // Valid texts are passed to the library.
    let fine = "cidr('10.0.0.0/8').containsIP(self) && cidr('10.0.0.0/8').ip().family() == ip(self).family() \
                && self.find('[0-9]+') == '10' && self.findAll('[0-9]+', 2) == ['10', '1'] && self.matches('^10')";
    let patch = json!({"spec": {"versions": rules(fine)["spec"]["versions"]}});
    let url = format!("{DEFINITIONS}/widgets.example.com");
    assert_eq!(send(&server, Method::PATCH, &url, MERGE.1, patch).await.0, 200);
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"t": "10.1.2.3"}});
    let (code, response) = post(&server, "/apis/example.com/v1/namespaces/ns/widgets", widget).await;
    assert_eq!(code, 201, "{response}");
}

#[tokio::test]
async fn unknown_fields_of_unstored_objects_warn() {
    let server = server().await;
    pod(&server, "p", None).await;
    let account = json!({"metadata": {"name": "a"}});
    assert_eq!(post(&server, "/api/v1/namespaces/ns/serviceaccounts", account).await.0, 201);
    let cases = [
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({"spec": {"user": "u", "x": 1,
            "nonResourceAttributes": {"path": "/", "verb": "get"}}}),
            "spec.x",
        ),
        ("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": "t", "x": 1}}), "spec.x"),
        ("/api/v1/namespaces/ns/serviceaccounts/a/token", json!({"spec": {"x": 1}}), "spec.x"),
        (
            "/api/v1/namespaces/ns/pods/p/binding",
            json!({"metadata": {"name": "p"}, "target": {"name": "n", "x": 1}}),
            "target.x",
        ),
        (
            "/api/v1/namespaces/ns/pods/p/eviction",
            json!({"metadata": {"name": "p"}, "deleteOptions": {"x": 1}}),
            "deleteOptions.x",
        ),
    ];
    for (url, body, field) in cases {
        let json = [("content-type", "application/json")];
        let (code, headers, _) = raw(&server, Method::POST, url, &json, &body.to_string()).await;
        assert_eq!((code, warned(&headers)), (201, vec![format!("unknown field \"{field}\"")]), "{url}");
        let strict = format!("{url}?fieldValidation=Strict");
        assert_eq!(raw(&server, Method::POST, &strict, &json, &body.to_string()).await.0, 400, "{url}");
    }
}
