//! Classes and claims of devices, templates of claims, and the slices in which drivers publish devices.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn get(server: &Server, url: &str) -> Value {
    send(server, Method::GET, url, MERGE, json!(null)).await.1
}

async fn patch(server: &Server, url: &str, change: Value) -> (u16, Value) {
    send(server, Method::PATCH, url, MERGE, change).await
}

/// Asserts that new objects are rejected with these errors.
async fn refused<E: AsRef<str>>(server: &Server, url: &str, cases: impl IntoIterator<Item = (Value, E)>) {
    let mut others = Vec::new();
    for (spec, error) in cases {
        let (code, answer) = post(server, url, json!({"metadata": {"name": "x"}, "spec": spec})).await;
        let (message, error) = (answer["message"].as_str().unwrap_or_default(), error.as_ref());
        if code != 422 || !message.contains(error) {
            others.push(format!("{error}\n  but {code}: {answer}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

fn claim(requests: Value) -> Value {
    json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
}

fn request() -> Value {
    json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}})
}

fn slice(name: &str, node: &str, driver: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "8Gi"}}}],
    }})
}

#[tokio::test]
async fn discovery_names_one_version_and_no_short_names() {
    let server = server().await;
    let group = get(&server, "/apis/resource.k8s.io").await;
    assert_eq!(group["versions"], json!([{"groupVersion": "resource.k8s.io/v1", "version": "v1"}]));
    let list = get(&server, "/apis/resource.k8s.io/v1").await;
    let resources = list["resources"].as_array().unwrap();
    let shown: Vec<String> =
        resources.iter().map(|of| format!("{} {} {}", of["name"], of["kind"], of["namespaced"])).collect();
    assert_eq!(
        shown,
        [
            r#""deviceclasses" "DeviceClass" false"#,
            r#""resourceclaims" "ResourceClaim" true"#,
            r#""resourceclaims/status" "ResourceClaim" true"#,
            r#""resourceclaimtemplates" "ResourceClaimTemplate" true"#,
            r#""resourceslices" "ResourceSlice" false"#,
        ]
    );
    assert!(resources.iter().all(|of| of.get("shortNames").is_none() && of.get("categories").is_none()));
    let (code, _) = send(&server, Method::GET, "/apis/resource.k8s.io/v1beta1", MERGE, json!(null)).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn requests_default_to_one_device() {
    let server = server().await;
    let tolerant = json!([{"key": "k", "effect": "NoSchedule"}, {"operator": "Exists"}]);
    let requests = json!([
        {"name": "a", "exactly": {"deviceClassName": "c", "tolerations": tolerant}},
        {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {"name": "d", "firstAvailable": [{"name": "e", "deviceClassName": "c"}, {"name": "f", "deviceClassName": "c", "count": 2}]},
    ]);
    let filled = json!([
        {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "tolerations": [
            {"key": "k", "operator": "Equal", "effect": "NoSchedule"}, {"operator": "Exists"},
        ]}},
        {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {"name": "d", "firstAvailable": [
            {"name": "e", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1},
            {"name": "f", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 2},
        ]},
    ]);
    let (code, created) = post(&server, CLAIMS, claim(requests.clone())).await;
    assert_eq!((code, &created["spec"]["devices"]["requests"]), (201, &filled), "{created}");
    assert!(
        created["metadata"].get("generation").is_none()
            && created.get("status").is_none_or(|status| status == &json!({}))
    );
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}});
    let (code, created) = post(&server, TEMPLATES, template).await;
    assert_eq!((code, &created["spec"]["spec"]["devices"]["requests"]), (201, &filled), "{created}");
}

#[tokio::test]
async fn tainted_devices_are_dated_and_fields_of_disabled_features_dropped() {
    let server = server().await;
    let mut input = slice("s", "n", "gpu.example.com");
    input["spec"]["devices"][0]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
    input["spec"]["devices"][0]["nodeAllocatableResourceMappings"] = json!({"cpu": {}});
    let (code, created) = post(&server, SLICES, input).await;
    assert_eq!((code, &created["metadata"]["generation"]), (201, &json!(1)), "{created}");
    let device = &created["spec"]["devices"][0];
    assert_eq!(device["taints"][0]["timeAdded"], created["metadata"]["creationTimestamp"]);
    assert!(device.get("nodeAllocatableResourceMappings").is_none());
    let mut input = slice("l", "n", "gpu.example.com");
    input["spec"]["devices"][0]["attributes"] = json!({"numa": {"ints": [1]}});
    let (code, answer) = post(&server, SLICES, input).await;
    let message = "spec.devices[0].attributes[numa]: Invalid value: \"\": exactly one value must be specified";
    assert!(code == 422 && answer["message"].as_str().unwrap().contains(message), "{answer}");
}

#[tokio::test]
async fn invalid_claims_are_rejected() {
    let server = server().await;
    let exactly = |change: Value| {
        let mut request = request();
        for (field, value) in change.as_object().unwrap() {
            request["exactly"][field] = value.clone();
        }
        json!({"devices": {"requests": [request]}})
    };
    let with = |field: &str, value: Value| json!({"devices": {"requests": [request()], field: value}});
    let of = |requests: Value| json!({"devices": {"requests": requests}});
    let many: Vec<Value> =
        (0..33).map(|i| json!({"name": format!("r{i}"), "exactly": {"deviceClassName": "c"}})).collect();
    let cases = [
        (
            of(json!([{"name": "a"}])),
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ),
        (
            of(json!([{"name": "A", "exactly": {"deviceClassName": "c"}}])),
            "spec.devices.requests[0].name: Invalid value: \"A\": a lowercase RFC 1123 label",
        ),
        (of(json!([request(), request()])), "spec.devices.requests[1]: Duplicate value: \"gpu\""),
        (of(json!(many)), "spec.devices.requests: Too many: 33: must have at most 32 items"),
        (exactly(json!({"deviceClassName": ""})), "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        (
            exactly(json!({"count": -1})),
            "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (
            exactly(json!({"allocationMode": "All", "count": 1})),
            "spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'",
        ),
        (
            exactly(json!({"allocationMode": "Some"})),
            "spec.devices.requests[0].exactly.allocationMode: Unsupported value: \"Some\": supported values: \"All\", \"ExactCount\"",
        ),
        (exactly(json!({"selectors": [{}]})), "spec.devices.requests[0].exactly.selectors[0].cel: Required value"),
        (
            exactly(json!({"selectors": [{"cel": {"expression": "device.model == 1"}}]})),
            "selectors[0].cel.expression: Invalid value: \"device.model == 1\": compilation failed: ",
        ),
        (
            exactly(json!({"selectors": [{"cel": {"expression": "device.driver"}}]})),
            "must evaluate to bool or the unknown type, not string",
        ),
        (
            exactly(json!({"selectors": [{"cel": {"expression": "x".repeat(10241)}}]})),
            "selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
        ),
        (
            exactly(json!({"tolerations": [{"operator": "Exists", "value": "v"}]})),
            "tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
        ),
        (
            exactly(json!({"tolerations": [{"effect": "Never"}]})),
            "tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ),
        (
            with("constraints", json!([{"requests": ["x"], "matchAttribute": "a.com/b"}])),
            "spec.devices.constraints[0].requests[0]: Invalid value: \"x\": must be the name of a request in the claim",
        ),
        (
            with("constraints", json!([{"matchAttribute": "b"}])),
            "spec.devices.constraints[0].matchAttribute: Invalid value: \"b\": a fully qualified name must be a domain and a name separated by a slash",
        ),
        (
            with("constraints", json!([{}])),
            "spec.devices.constraints[0]: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is required",
        ),
        (with("config", json!([{}])), "spec.devices.config[0].opaque: Required value"),
        (
            with("config", json!([{"opaque": {"driver": "d", "parameters": "text"}}])),
            "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ),
        (
            with("config", json!([{"opaque": {"driver": "", "parameters": {"a": "x".repeat(10240)}}}])),
            "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
        ),
    ];
    let of_template = |(spec, error): &(Value, &str)| (json!({"spec": spec}), format!("spec.{error}"));
    refused(&server, TEMPLATES, cases.iter().filter(|(_, error)| error.starts_with("spec.")).map(of_template)).await;
    refused(&server, CLAIMS, cases).await;
    let expression = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'a' && device.capacity['gpu.example.com'].memory.compareTo(quantity('1Gi')) >= 0";
    let good = exactly(json!({"selectors": [{"cel": {"expression": expression}}]}));
    let (code, answer) = post(&server, CLAIMS, json!({"metadata": {"name": "good"}, "spec": good})).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn invalid_classes_and_slices_are_rejected() {
    let server = server().await;
    let selectors = vec![json!({"cel": {"expression": "true"}}); 33];
    let classes = [
        (json!({"selectors": selectors}), "spec.selectors: Too many: 33: must have at most 32 items"),
        (json!({"config": [{"opaque": {"driver": "d"}}]}), "spec.config[0].opaque.parameters: Required value"),
        (
            json!({"extendedResourceName": "gpu"}),
            "spec.extendedResourceName: Invalid value: \"gpu\": must be a valid extended resource name",
        ),
    ];
    refused(&server, CLASSES, classes).await;
    let changed = |path: &str, value: Value| {
        let mut spec = slice("s", "n", "gpu.example.com")["spec"].take();
        match path.rsplit_once('/').map(|(outer, field)| (spec.pointer_mut(outer), field)) {
            Some((Some(outer), field)) => outer[field] = value,
            _ => spec[path] = value,
        }
        spec
    };
    let devices: Vec<Value> = (0..129).map(|i| json!({"name": format!("d{i}")})).collect();
    let attributes: Value =
        (0..33).map(|i| (format!("a{i}"), json!({"int": i}))).collect::<serde_json::Map<_, _>>().into();
    let policy = |policy: Value| json!({"memory": {"value": "8Gi", "requestPolicy": policy}});
    let shared = |capacity: Value| json!([{"name": "d", "allowMultipleAllocations": true, "capacity": capacity}]);
    let cases = [
        (changed("driver", json!("")), "spec.driver: Required value"),
        (
            changed("nodeName", json!("")),
            "spec.nodeName: Invalid value: \"\": must be either unset or set to a non-empty string",
        ),
        (
            changed("nodeName", json!(null)),
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        (
            changed("allNodes", json!(true)),
            "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
        ),
        (changed("allNodes", json!(false)), "spec.allNodes: Invalid value: false: must be either unset or set to true"),
        (
            changed("/pool/resourceSliceCount", json!(0)),
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
        ),
        (
            changed("/pool/generation", json!(-1)),
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ),
        (changed("/pool/name", json!("a//b")), "spec.pool.name: Invalid value: \"\": a lowercase RFC 1123 subdomain"),
        (
            changed("sharedCounters", json!([{"name": "s", "counters": {"c": {"value": "1"}}}])),
            "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
        ),
        (changed("devices", json!(devices)), "spec.devices: Too many: 129: must have at most 128 items"),
        (changed("devices", json!([{"name": "d"}, {"name": "d"}])), "spec.devices[1]: Duplicate value: \"d\""),
        (
            changed("devices", json!([{"name": "d", "attributes": attributes}])),
            "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
        ),
        (
            changed("devices", json!([{"name": "d", "attributes": {"a": {"int": 1, "bool": true}}}])),
            "spec.devices[0].attributes[a]: Invalid value: ",
        ),
        (
            changed("devices", json!([{"name": "d", "attributes": {"a": {"version": "1.0"}}}])),
            "spec.devices[0].attributes[a].version: Invalid value: \"1.0\": must be a string compatible with semver.org spec 2.0.0",
        ),
        (
            changed("devices", json!([{"name": "d", "attributes": {"a": {"string": "x".repeat(65)}}}])),
            "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
        ),
        (
            changed("devices", json!([{"name": "d", "attributes": {"a-b": {"int": 1}}}])),
            "spec.devices[0].attributes: Invalid value: \"a-b\": a valid C identifier",
        ),
        (
            changed("devices", json!([{"name": "d", "taints": [{"key": "k"}]}])),
            "spec.devices[0].taints[0].effect: Required value",
        ),
        (
            changed("devices", json!([{"name": "d", "allNodes": true}])),
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if",
        ),
        (
            changed("devices", json!([{"name": "d", "bindingConditions": ["a"]}])),
            "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
        ),
        (
            changed("devices", json!([{"name": "d", "consumesCounters": [{"counterSet": "c"}]}])),
            "spec.devices[0].consumesCounters[0].counters: Required value",
        ),
        (
            changed("devices", json!([{"name": "d", "capacity": policy(json!({"default": "1Gi"}))}])),
            "spec.devices[0].capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true",
        ),
        (
            changed("devices", shared(policy(json!({"default": "1Gi", "validValues": ["2Gi", "16Gi"]})))),
            "spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Invalid value: \"16Gi\": option is larger than capacity value: 8Gi",
        ),
        (
            changed("devices", shared(policy(json!({"default": "1Gi", "validValues": ["2Gi"]})))),
            "requestPolicy.validValues: Invalid value: \"1Gi\": default value is not valid according to the requestPolicy",
        ),
        (
            changed("devices", shared(policy(json!({"validRange": {"min": "1Gi"}})))),
            "requestPolicy.default: Required value: required when validRange is defined",
        ),
        (
            changed(
                "devices",
                shared(policy(json!({"default": "1536Mi", "validRange": {"min": "1Gi", "step": "1Gi"}}))),
            ),
            "requestPolicy.validRange.step: Invalid value: \"1536Mi\": value is not a multiple of a given step (1Gi) from (1Gi)",
        ),
    ];
    refused(&server, SLICES, cases).await;
}

#[tokio::test]
async fn claim_and_template_specs_and_slice_placement_are_immutable() {
    let server = server().await;
    assert_eq!(post(&server, CLAIMS, claim(json!([request()]))).await.0, 201);
    let (code, answer) = patch(&server, &format!("{CLAIMS}/c"), json!({"spec": {"devices": {"requests": []}}})).await;
    let message = "ResourceClaim.resource.k8s.io \"c\" is invalid: spec: Invalid value: {\"Devices\":{\"Requests\":[],\"Constraints\":null,\"Config\":null}}: field is immutable";
    assert_eq!((code, answer["message"].as_str()), (422, Some(message)));
    assert_eq!(patch(&server, &format!("{CLAIMS}/c"), json!({"metadata": {"labels": {"a": "b"}}})).await.0, 200);
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request()]}}}});
    assert_eq!(post(&server, TEMPLATES, template).await.0, 201);
    let change = json!({"spec": {"metadata": {"labels": {"a": "b"}}}});
    let (code, answer) = patch(&server, &format!("{TEMPLATES}/t"), change).await;
    assert!(code == 422 && answer["message"].as_str().unwrap().ends_with(": field is immutable"), "{answer}");
    assert_eq!(post(&server, SLICES, slice("s", "n", "gpu.example.com")).await.0, 201);
    for (change, error) in [
        (
            json!({"spec": {"driver": "other.example.com"}}),
            "spec.driver: Invalid value: \"other.example.com\": field is immutable",
        ),
        (json!({"spec": {"nodeName": "m"}}), "spec.nodeName: Invalid value: \"m\": field is immutable"),
        (json!({"spec": {"pool": {"name": "m"}}}), "spec.pool.name: Invalid value: \"m\": field is immutable"),
    ] {
        let (code, answer) = patch(&server, &format!("{SLICES}/s"), change).await;
        assert!(code == 422 && answer["message"].as_str().unwrap().ends_with(error), "{answer}");
    }
    let (code, grown) = patch(&server, &format!("{SLICES}/s"), json!({"spec": {"pool": {"generation": 2}}})).await;
    assert_eq!((code, &grown["metadata"]["generation"]), (200, &json!(2)), "{grown}");
}

#[tokio::test]
async fn claims_are_allocated_through_status_only() {
    let server = server().await;
    let (url, status) = (format!("{CLAIMS}/c"), format!("{CLAIMS}/c/status"));
    let results = json!([{"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}]);
    let allocation = json!({"devices": {"results": results}});
    let mut input = claim(json!([request()]));
    input["status"] = json!({"allocation": allocation});
    let (code, created) = post(&server, CLAIMS, input).await;
    assert!(code == 201 && created["status"].get("allocation").is_none(), "{created}");
    let (_, same) = patch(&server, &url, json!({"status": {"allocation": allocation}})).await;
    assert!(same["status"].get("allocation").is_none(), "{same}");
    let user = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    for (change, error) in [
        (
            json!({"reservedFor": user}),
            "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
        ),
        (
            json!({"allocation": {"devices": {"results": [{"request": "x", "driver": "d", "pool": "n", "device": "g"}]}}}),
            "status.allocation.devices.results[0].request: Invalid value: \"x\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
        ),
        (
            json!({"allocation": {"devices": {"config": [{"source": "FromAir", "opaque": {"driver": "d", "parameters": {}}}]}}}),
            "status.allocation.devices.config[0].source: Unsupported value: \"FromAir\": supported values: \"FromClaim\", \"FromClass\"",
        ),
        (
            json!({"devices": [{"driver": "d", "pool": "n", "device": "g"}]}),
            "status.devices[0]: Invalid value: d/n/g: must be an allocated device in the claim",
        ),
    ] {
        let (code, answer) = patch(&server, &status, json!({"status": change})).await;
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(error), "{error}\n{answer}");
    }
    let ready = json!({"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let device = json!({"driver": "gpu.example.com", "pool": "n", "device": "gpu-0", "conditions": [ready], "networkData": {"ips": ["10.9.8.7/24"]}});
    let change = json!({"spec": {"devices": {"requests": []}}, "status": {"allocation": allocation, "reservedFor": user, "devices": [device]}});
    let (code, allocated) = patch(&server, &status, change).await;
    assert_eq!((code, allocated["spec"]["devices"]["requests"][0]["name"].as_str()), (200, Some("gpu")), "{allocated}");
    let other = json!({"status": {"allocation": {"devices": {"results": []}}}});
    let (code, answer) = patch(&server, &status, other).await;
    assert!(code == 422 && answer["message"].as_str().unwrap().contains(": field is immutable"), "{answer}");
    let wrong = json!({"status": {"devices": [{"driver": "gpu.example.com", "pool": "n", "device": "gpu-0", "conditions": [], "networkData": {"ips": ["10.9.8.7"]}}]}});
    let (code, answer) = patch(&server, &status, wrong).await;
    let error = "status.devices[0].networkData.ips[0]: Invalid value: \"10.9.8.7\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
    assert!(code == 422 && answer["message"].as_str().unwrap().ends_with(error), "{answer}");
    // The status of devices is removed with them.
    let (code, freed) = patch(&server, &status, json!({"status": {"allocation": null, "reservedFor": null}})).await;
    assert!(code == 200 && freed["status"].get("devices").is_none(), "{freed}");
}

#[tokio::test]
async fn slices_are_selected_by_driver_and_node() {
    let server = server().await;
    for (name, node, driver) in [("a", "n", "x.example.com"), ("b", "n", "y.example.com"), ("c", "m", "x.example.com")]
    {
        assert_eq!(post(&server, SLICES, slice(name, node, driver)).await.0, 201);
    }
    let names = async |selector: &str| {
        let list = get(&server, &format!("{SLICES}?fieldSelector={selector}")).await;
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}")).clone();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<String>>()
            .join(" ")
    };
    assert_eq!(names("spec.driver%3Dx.example.com").await, "a c");
    assert_eq!(names("spec.nodeName%3Dn").await, "a b");
    assert_eq!(names("spec.nodeName%3Dn,spec.driver!%3Dx.example.com").await, "b");
    let (code, _) =
        send(&server, Method::GET, &format!("{SLICES}?fieldSelector=spec.pool.name%3Dn"), MERGE, json!(null)).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn tables_show_claim_state_and_slice_nodes() {
    let server = server().await;
    let cells = async |url: &str| {
        let mut request = http::Request::new(http_body_util::Full::new(bytes::Bytes::new()));
        *request.uri_mut() = url.parse().unwrap();
        let accept = http::HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");
        request.headers_mut().insert("accept", accept);
        request.extensions_mut().insert(flyball_server::User::admin());
        let body = http_body_util::BodyExt::collect(server.handle(request).await.into_body()).await.unwrap().to_bytes();
        let table: Value = serde_json::from_slice(&body).unwrap();
        let names: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        format!("{} {}", names.join(","), table["rows"][0]["cells"])
    };
    assert_eq!(post(&server, CLAIMS, claim(json!([request()]))).await.0, 201);
    assert_eq!(cells(CLAIMS).await, r#"Name,State,Age ["c","pending","0s"]"#);
    let status = json!({"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]});
    let (code, answer) = patch(&server, &format!("{CLAIMS}/c/status"), json!({"status": status})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(cells(CLAIMS).await, r#"Name,State,Age ["c","allocated,reserved","0s"]"#);
    assert_eq!(post(&server, SLICES, slice("s", "n", "x.example.com")).await.0, 201);
    assert_eq!(cells(SLICES).await, r#"Name,Node,Driver,Pool,Age ["s","n","x.example.com","n","0s"]"#);
}

#[tokio::test]
async fn consumers_merge_by_uid_and_requests_are_atomic() {
    let server = server().await;
    let apply = async |url: &str, manager: &str, mut object: Value| {
        object["apiVersion"] = "resource.k8s.io/v1".into();
        object["kind"] = "ResourceClaim".into();
        let (code, answer) =
            send(&server, Method::PATCH, &format!("{url}?fieldManager={manager}"), APPLY, object).await;
        assert!(matches!(code, 200 | 201), "{answer}");
        answer
    };
    let created = apply(&format!("{CLAIMS}/c"), "one", claim(json!([request()]))).await;
    let owned = json!({"f:spec": {"f:devices": {"f:requests": {}}}});
    assert_eq!(created["metadata"]["managedFields"][0]["fieldsV1"], owned);
    let status = format!("{CLAIMS}/c/status");
    let user = |uid: &str| json!({"resource": "pods", "name": "p", "uid": uid});
    let name = json!({"name": "c"});
    apply(&status, "one", json!({"metadata": name, "status": {"allocation": {}, "reservedFor": [user("u")]}})).await;
    let both = apply(&status, "two", json!({"metadata": name, "status": {"reservedFor": [user("v")]}})).await;
    assert_eq!(both["status"]["reservedFor"], json!([user("u"), user("v")]));
}

#[tokio::test]
async fn admin_access_requires_a_namespace_label() {
    let server = server().await;
    let claim = claim(json!([{"name": "gpu", "exactly": {"deviceClassName": "c", "adminAccess": true}}]));
    let (code, answer) = post(&server, CLAIMS, claim.clone()).await;
    let message = "ResourceClaim.resource.k8s.io \"c\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    assert_eq!((code, answer["message"].as_str()), (422, Some(message)));
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    assert_eq!(patch(&server, "/api/v1/namespaces/ns", label).await.0, 200);
    assert_eq!(post(&server, CLAIMS, claim).await.0, 201);
}
