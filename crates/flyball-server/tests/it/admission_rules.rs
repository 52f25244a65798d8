//! Rules of policies and webhooks: results of expressions, and misconfigured policies.

use crate::facts::{post, send, server};
use flyball_core::Clock;
use flyball_server::{Caller, Options, Server, WebhookCall, WebhookFuture, WebhookResponse};
use http::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn constraints() -> Value {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    json!({"resourceRules": [rule]})
}

async fn causes(server: &Server, plural: &str, object: Value) -> Vec<String> {
    let (code, answer) = post(server, &format!("{GROUP}/{plural}?dryRun=All"), object).await;
    assert!(matches!(code, 201 | 422), "{answer}");
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    causes.map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"]))).collect()
}

#[tokio::test]
async fn conditions_must_be_boolean() {
    let server = server().await;
    let conditions = json!([
        {"name": "a", "expression": "object.spec.on"},
        {"name": "a", "expression": "object.spec.on == true"},
    ]);
    let wrong = "Invalid value: \"object.spec.on\": must evaluate to bool but got dyn";
    let hook = json!({
        "name": "a.b.c", "clientConfig": {"url": "https://h"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "matchConditions": conditions,
    });
    for plural in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let found = causes(&server, plural, json!({"metadata": {"name": "x"}, "webhooks": [hook]})).await;
        let at = "webhooks[0].matchConditions";
        let expected = [format!("{at}[0].expression: {wrong}"), format!("{at}[1].name: Duplicate value: \"a\"")];
        assert_eq!(found, expected, "{plural}");
    }
    let policy = json!({"metadata": {"name": "x"}, "spec": {
        "matchConstraints": constraints(), "matchConditions": conditions, "validations": [{"expression": "true"}],
    }});
    let found = causes(&server, "validatingadmissionpolicies", policy).await;
    assert_eq!(found[0], format!("spec.matchConditions[0].expression: {wrong}"));
}

#[tokio::test]
async fn expressions_with_an_invalid_variable_are_rejected() {
    let server = server().await;
    let policy = json!({"metadata": {"name": "x"}, "spec": {
        "matchConstraints": constraints(),
        "variables": [{"name": "bad", "expression": "nothing > 1"}, {"name": "good", "expression": "1 > 0"}],
        "validations": [
            {"expression": "variables.bad"},
            {"expression": "variables.good", "messageExpression": "variables.bad"},
        ],
        "auditAnnotations": [{"key": "a", "valueExpression": "variables.bad"}],
    }});
    let found = causes(&server, "validatingadmissionpolicies", policy).await;
    let fields = [
        "variables[0].expression",
        "validations[0].expression",
        "validations[1].messageExpression",
        "auditAnnotations[0].valueExpression",
    ];
    assert_eq!(found.len(), fields.len(), "{found:?}");
    for (found, field) in found.iter().zip(fields) {
        assert!(found.starts_with(&format!("spec.{field}: Invalid value")), "{found}");
    }
    for (patch_type, field) in [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")] {
        let policy = json!({"metadata": {"name": "x"}, "spec": {
            "matchConstraints": constraints(), "reinvocationPolicy": "Never",
            "variables": [{"name": "bad", "expression": "nothing > 1"}],
            "mutations": [{"patchType": patch_type, field: {"expression": "variables.bad"}}],
        }});
        let found = causes(&server, "mutatingadmissionpolicies", policy).await;
        assert!(found[1].starts_with(&format!("spec.mutations[0].{field}.expression: Invalid value")), "{found:?}");
    }
}

#[tokio::test]
async fn missing_parameter_is_forbidden_in_mutating_and_invalid_in_validating_policies() {
    let fields = json!({"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"});
    let kinds = [
        (
            "mutating",
            json!({"reinvocationPolicy": "Never", "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": fields},
            ]}),
            json!({}),
            "Forbidden",
            403,
        ),
        (
            "validating",
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny"]}),
            "Invalid",
            422,
        ),
    ];
    for (sort, own, binding, reason, code) in kinds {
        let server = server().await;
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": constraints(), "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        }});
        let mut bound = json!({"metadata": {"name": "b"}, "spec": {
            "policyName": "p", "paramRef": {"name": "none", "namespace": "ns", "parameterNotFoundAction": "Deny"},
        }});
        for (object, own) in [(&mut policy, own), (&mut bound, binding)] {
            let spec = object["spec"].as_object_mut().unwrap();
            spec.extend(own.as_object().unwrap().clone());
        }
        let (status, response) = post(&server, &format!("{GROUP}/{sort}admissionpolicies"), policy).await;
        assert_eq!(status, 201, "{response}");
        let (status, response) = post(&server, &format!("{GROUP}/{sort}admissionpolicybindings"), bound).await;
        assert_eq!(status, 201, "{response}");
        let (found, answer) = post(&server, MAPS, json!({"metadata": {"name": "m"}})).await;
        assert_eq!((found, answer["reason"].as_str()), (code, Some(reason)), "{answer}");
    }
}

#[tokio::test]
async fn disabled_manual_selector_is_reported_for_the_selector_only() {
    let server = server().await;
    let jobs = "/apis/batch/v1/namespaces/ns/jobs";
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let job = json!({"metadata": {"name": "j"}, "spec": {
        "manualSelector": true, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod},
    }});
    assert_eq!(post(&server, jobs, job).await.0, 201);
    let patch = json!({"spec": {"manualSelector": false}});
    let merge = "application/merge-patch+json";
    let (code, answer) = send(&server, Method::PATCH, &format!("{jobs}/j"), merge, patch).await;
    let fields: Vec<&Value> =
        answer["details"]["causes"].as_array().unwrap().iter().map(|cause| &cause["field"]).collect();
    assert_eq!((code, fields), (422, vec![&json!("spec.selector")]), "{answer}");
}

/// A webhook that responds with these fields besides the UID.
struct Answering(Value);

impl Caller for Answering {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
        response.as_object_mut().unwrap().extend(self.0.as_object().unwrap().clone());
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        let content_type = "application/json".to_owned();
        Box::pin(async move { Ok(WebhookResponse { code: 200, content_type, body: body.to_string().into() }) })
    }
}

#[tokio::test]
async fn mistyped_webhook_response_is_a_failed_call() {
    let answers = [
        (json!({"allowed": "no"}), "string into Go struct field AdmissionResponse.response.allowed of type bool"),
        (
            json!({"allowed": false, "status": {"code": "403"}}),
            "string into Go struct field Status.response.status.code of type int32",
        ),
        (
            json!({"allowed": false, "warnings": [1]}),
            "number into Go struct field AdmissionResponse.response.warnings of type string",
        ),
    ];
    let plurals = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
    for ((answer, why), plural) in answers.iter().flat_map(|answer| plurals.map(|plural| (answer, plural))) {
        for policy in ["Fail", "Ignore"] {
            let webhooks = Arc::new(Answering(answer.clone()));
            let server = Server::new(Options { webhooks, ..Options::simulated(Clock::system(), 1) });
            let hook = json!({
                "name": "a.b.c", "clientConfig": {"url": "https://h"}, "sideEffects": "None", "failurePolicy": policy,
                "admissionReviewVersions": ["v1"], "rules": constraints()["resourceRules"],
            });
            let configuration = json!({"metadata": {"name": "x"}, "webhooks": [hook]});
            assert_eq!(post(&server, &format!("{GROUP}/{plural}"), configuration).await.0, 201);
            let map = json!({"metadata": {"name": "m"}});
            let (code, told) = post(&server, "/api/v1/namespaces/default/configmaps", map).await;
            if policy == "Ignore" {
                assert_eq!(code, 201, "{plural} {answer}: {told}");
                continue;
            }
            let expected = format!(
                "Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: json: cannot unmarshal {why}"
            );
            assert_eq!((code, &told["reason"]), (500, &json!("InternalError")), "{plural} {answer}: {told}");
            assert_eq!(told["message"], expected, "{plural} {answer}");
        }
    }
}

/// A webhook that creates other services before it allows one.
#[derive(Default)]
struct Companions {
    server: OnceLock<Server>,
    codes: Mutex<Vec<u16>>,
}

/// Calls the webhook; a type of its own, as the server is made after its caller.
struct Shared(Arc<Companions>);

impl Caller for Shared {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let companions = self.0.clone();
        Box::pin(async move {
            let review: Value = serde_json::from_slice(&call.body).unwrap();
            let server = companions.server.get().unwrap();
            for (name, node_port) in [("free", 30_081), ("taken", 30_080)] {
                let (code, _) = post(server, SERVICES, node_port_service(name, node_port)).await;
                companions.codes.lock().unwrap().push(code);
            }
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Ok(WebhookResponse { code: 200, content_type: "application/json".into(), body: body.to_string().into() })
        })
    }
}

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn node_port_service(name: &str, node_port: u16) -> Value {
    let ports = json!([{"port": 80, "nodePort": node_port}]);
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "selector": {"a": "b"}, "ports": ports}})
}

#[tokio::test(start_paused = true)]
async fn webhook_can_write_services_during_its_call() {
    let companions = Arc::new(Companions::default());
    let webhooks = Arc::new(Shared(companions.clone()));
    let server = Server::new(Options { webhooks, ..Options::simulated(Clock::system(), 1) });
    companions.server.set(server.clone()).ok().unwrap();
    let hook = json!({
        "name": "a.b.c", "clientConfig": {"url": "https://h"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "objectSelector": {"matchLabels": {"hooked": "yes"}},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}],
    });
    let configuration = json!({"metadata": {"name": "x"}, "webhooks": [hook]});
    assert_eq!(post(&server, &format!("{GROUP}/validatingwebhookconfigurations"), configuration).await.0, 201);
    let mut service = node_port_service("hooked", 30_080);
    service["metadata"]["labels"] = json!({"hooked": "yes"});
    let (code, answer) = post(&server, SERVICES, service).await;
    assert_eq!(code, 201, "{answer}");
    // The port of a service that is not stored yet is already reserved.
    assert_eq!(*companions.codes.lock().unwrap(), [201, 422]);
    let patch = json!({"metadata": {"labels": {"c": "d"}}});
    let url = format!("{SERVICES}/hooked");
    let (code, answer) = send(&server, Method::PATCH, &url, "application/merge-patch+json", patch).await;
    assert_eq!(code, 200, "{answer}");
}
