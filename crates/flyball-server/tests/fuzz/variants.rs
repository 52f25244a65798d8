//! Targets with one fuzzed part: operations on an existing object, headers, and responses of webhooks.
//!
//! Inputs are structured, so that changes pass the parser and are applied.

use crate::targets::{
    ACCOUNTS, DEFINITIONS, DEPLOYMENTS, JSON, MAPS, PODS, Target, WIDGETS, account, definition, deployment, json_of,
    map, pod, schema, texts, widget,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flyball_server::User;
use serde_json::{Value, json};

/// Operations of JSON patches, each applied to the stored result of the previous ones.
pub(crate) fn json_patches() -> Target {
    Target {
        seeds: || {
            texts(&[
                r#"[{"op":"add","path":"/metadata/labels/x~1y","value":"y"},{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]"#,
                r#"[{"op":"copy","from":"/data","path":"/data/k"},{"op":"copy","from":"/data","path":"/data/k/k"},{"op":"copy","from":"/data","path":"/data/k"}]"#,
                r#"[{"op":"add","path":"/spec/l/-","value":{"k":"b","v":"x"}},{"op":"move","from":"/spec/l/0","path":"/spec/l/1"}]"#,
                r#"[{"op":"test","path":"/metadata/name","value":"a"},{"op":"replace","path":"","value":{}}]"#,
                r#"[{"op":"remove","path":"/metadata/resourceVersion"},{"op":"add","path":"/metadata/managedFields","value":[{}]}]"#,
                r#"[{"op":"move","from":"/spec","path":"/spec/o/o"},{"op":"add","path":"/spec/l/99999999999999999999","value":1}]"#,
            ])
        },
        setup: || vec![(DEFINITIONS, definition(&schema())), (MAPS, map()), (WIDGETS, widget())],
        play: |world, input| {
            Box::pin(async move {
                let mut output = String::new();
                for path in [MAPS, WIDGETS] {
                    let url = format!("{path}/a");
                    let headers = [("content-type", "application/json-patch+json")];
                    output += &world.ask("PATCH", &url, &headers, input.to_vec()).await;
                    let read = world.ask("GET", &url, &[], Vec::new()).await;
                    assert!(read.starts_with("200"), "{url}: after {output}: {read}");
                }
                output
            })
        },
    }
}

/// Strategic merge patches with their directives, stored.
pub(crate) fn strategic_patches() -> Target {
    Target {
        seeds: || {
            let spec = |spec: Value| json!({"spec": {"template": {"spec": spec}}}).to_string();
            vec![
                spec(json!({"containers": [{"name": "c", "$patch": "delete"}, {"name": "d", "image": "i"}]})),
                spec(json!({"containers": [{"$patch": "replace"}, {"name": "c", "image": "j"}]})),
                spec(
                    json!({"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}], "containers": [{"name": "d", "image": "i"}]}),
                ),
                spec(json!({"$retainKeys": ["volumes"], "volumes": [{"name": "v", "$retainKeys": ["name"]}]})),
                spec(
                    json!({"volumes": [{"name": "v", "$patch": "merge", "emptyDir": null, "hostPath": {"path": "/"}}]}),
                ),
                spec(
                    json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "protocol": "UDP"}], "$setElementOrder/ports": [{"containerPort": 80}]}]}),
                ),
                json!({"metadata": {"finalizers": ["a/b"], "$deleteFromPrimitiveList/finalizers": ["a/b"], "$setElementOrder/finalizers": ["c/d"]}}).to_string(),
                json!({"metadata": {"ownerReferences": [{"uid": "a", "$patch": "delete"}], "labels": {"$patch": "replace", "x": "y"}}}).to_string(),
                json!({"$patch": "delete", "spec": {"$patch": "bogus"}}).to_string(),
            ]
        },
        setup: || vec![(ACCOUNTS, account()), (DEPLOYMENTS, deployment()), (PODS, pod())],
        play: |world, input| {
            Box::pin(async move {
                let mut output = String::new();
                for path in [DEPLOYMENTS, PODS] {
                    let url = format!("{path}/a?fieldManager=m");
                    let headers = [("content-type", "application/strategic-merge-patch+json")];
                    output += &world.ask("PATCH", &url, &headers, input.to_vec()).await;
                    let read = world.ask("GET", &url, &[], Vec::new()).await;
                    assert!(read.starts_with("200"), "{url}: after {output}: {read}");
                }
                output
            })
        },
    }
}

/// Headers, each on a line: impersonation, media types and credentials, of an administrator and of an anonymous user.
pub(crate) fn headers() -> Target {
    Target {
        seeds: || {
            texts(&[
                "impersonate-user: jane\nimpersonate-group: a\nimpersonate-group: b\nimpersonate-uid: 1\nimpersonate-extra-a%2fb: c\nimpersonate-extra-A%2FB: d",
                "impersonate-user: system:serviceaccount:default:a\nimpersonate-extra-authentication.kubernetes.io%2fpod-name: x",
                "impersonate-group: system:masters",
                "impersonate-user: system:node:a\nimpersonate-group: system:nodes\nimpersonate-extra-%zz: c\nimpersonate-extra-: d",
                "accept: application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml;q=0.1, */*;q=0",
                "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                "accept: application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq\naccept-encoding: gzip;q=1.0, *;q=0",
                "content-type: application/json; charset=\"utf-8\"; a=\"b\\\"c\"\ncontent-length: 99999999999999999999",
                "content-type: application/apply-patch+yaml\nuser-agent: kubectl/v1 (linux) a b",
                "authorization: Bearer e30.e30.AA\nimpersonate-user: a",
                "authorization: bEaReR  eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.AA",
                "authorization: Basic YTpi\nauthorization: Bearer x",
                "if-none-match: \"a\", W/\"b\", *\nx-remote-user: admin\nx-remote-group: system:masters",
                "warning: 299 - x\nkubectl-session: \u{e4}\naudit-id: ../..\ntraceparent: 00-ff-ff-01",
            ])
        },
        setup: || vec![(MAPS, map())],
        play: |world, input| {
            Box::pin(async move {
                let text = String::from_utf8_lossy(input);
                let headers: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(": ")).collect();
                let mut output = String::new();
                for user in [Some(User::admin()), None] {
                    let unknown = user.is_none();
                    for (method, url, body) in [
                        ("GET", MAPS.to_owned(), Vec::new()),
                        ("GET", format!("{MAPS}?watch=true&timeoutSeconds=1"), Vec::new()),
                        ("POST", format!("{MAPS}?dryRun=All"), map().to_string().into_bytes()),
                        ("PATCH", format!("{MAPS}/a?dryRun=All&fieldManager=m"), b"{\"data\":{\"x\":\"y\"}}".to_vec()),
                        ("GET", "/openapi/v3".into(), Vec::new()),
                    ] {
                        let answer = world.ask_as(user.clone(), method, &url, &headers, body).await;
                        // No header authenticates an anonymous user.
                        let refused = !answer.starts_with('2') || url.starts_with("/openapi");
                        assert!(!unknown || refused, "{method} {url}: {answer}");
                        output += &answer;
                    }
                }
                output
            })
        },
    }
}

/// Parts of the responses of webhooks: the patch of an `AdmissionReview`, the objects of a `ConversionReview`.
pub(crate) fn reviews() -> Target {
    Target {
        seeds: || {
            let converted = |objects: Value| json!({"converted": objects}).to_string();
            let own = widget();
            let mut second = own.clone();
            second["apiVersion"] = "example.com/v2".into();
            second["metadata"]["namespace"] = "default".into();
            vec![
                json!({"patch": [{"op": "add", "path": "/data/x", "value": "y"}]}).to_string(),
                json!({"patch": [{"op": "replace", "path": "/metadata/name", "value": "b"}, {"op": "remove", "path": "/kind"}]}).to_string(),
                json!({"patch": [{"op": "add", "path": "/metadata/managedFields", "value": [{}]}, {"op": "copy", "from": "", "path": "/data/k"}]}).to_string(),
                json!({"patch": {"data": {"x": "y"}}, "type": "MergePatch"}).to_string(),
                json!({"patch": [], "rest": {"warnings": ["w"], "auditAnnotations": {"a": "b"}, "status": {"code": 200}}}).to_string(),
                converted(json!([second])),
                converted(json!([second, own])),
                converted(json!([])),
                json!({"converted": [own], "result": {"status": "Failure", "message": "m", "code": 99, "details": {"retryAfterSeconds": -1}}}).to_string(),
            ]
        },
        setup: (crate::targets::webhooks)().setup,
        play: |world, input| {
            Box::pin(async move {
                let input_value = json_of(input);
                let mut response = json!({"uid": "UID", "allowed": true});
                let kind = if input_value["converted"].is_null() { "AdmissionReview" } else { "ConversionReview" };
                let group =
                    if input_value["converted"].is_null() { "admission.k8s.io/v1" } else { "apiextensions.k8s.io/v1" };
                if input_value["converted"].is_null() {
                    response["patchType"] = input_value.get("type").cloned().unwrap_or("JSONPatch".into());
                    response["patch"] = STANDARD.encode(input_value["patch"].to_string()).into();
                } else {
                    response["result"] = input_value.get("result").cloned().unwrap_or(json!({"status": "Success"}));
                    response["convertedObjects"] = input_value["converted"].clone();
                }
                for (name, value) in input_value["rest"].as_object().into_iter().flatten() {
                    response[name] = value.clone();
                }
                let review = json!({"apiVersion": group, "kind": kind, "response": response});
                *world.answer.lock().unwrap() = Some(Bytes::from(review.to_string()));
                let headers = [("content-type", JSON)];
                let mut output =
                    world.ask("POST", &format!("{MAPS}?dryRun=All"), &headers, map().to_string().into_bytes()).await;
                for path in [WIDGETS.replace("v1", "v2"), format!("{}/a", WIDGETS.replace("v1", "v2"))] {
                    output += &world.ask("GET", &path, &[], Vec::new()).await;
                }
                let read = world.ask("GET", &format!("{WIDGETS}/a"), &[], Vec::new()).await;
                assert!(read.starts_with("200"), "after {output}: {read}");
                output
            })
        },
    }
}
