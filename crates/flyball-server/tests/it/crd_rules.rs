//! Validation errors of CRDs as in the real server: complete, with the same order and messages.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd(schema: Value) -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns the causes of a rejection, without their common prefix; none if the CRD is accepted.
async fn causes(server: &Server, crd: Value) -> Vec<String> {
    let (code, answer) = post(server, &format!("{ALL}?dryRun=All"), crd).await;
    if code == 201 {
        return Vec::new();
    }
    assert_eq!(code, 422, "{answer}");
    let causes = answer["details"]["causes"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().replace("spec.validation.openAPIV3Schema", "$");
    causes.map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"]))).collect()
}

async fn with_spec(server: &Server, spec: Value) -> Vec<String> {
    causes(server, crd(json!({"type": "object", "properties": {"spec": spec}}))).await
}

#[tokio::test]
async fn conversion_webhooks_require_https() {
    let server = server().await;
    let client = "spec.conversion.webhookClientConfig";
    let one = format!("{client}: Required value: exactly one of url or service is required");
    let service = json!({"namespace": "ns", "name": "s"});
    let form = "desired format: https://host[/path]";
    let cases = [
        (json!({"url": "https://h/p"}), json!(["v1"]), vec![]),
        (json!({"service": service}), json!(["v9", "v1beta1"]), vec![]),
        (json!({}), json!(["v1"]), vec![one.clone()]),
        (json!({"url": "https://h", "service": service}), json!(["v1"]), vec![one]),
        (
            json!({"url": "http://h?q=1#f"}),
            json!(["v1"]),
            vec![
                format!("{client}.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; {form}"),
                format!("{client}.url: Invalid value: \"f\": fragments are not permitted in the URL"),
                format!("{client}.url: Invalid value: \"q=1\": query parameters are not permitted in the URL"),
            ],
        ),
        (
            json!({"url": "://"}),
            json!(["v1"]),
            vec![format!(
                "{client}.url: Required value: url must be a valid URL: parse \"://\": missing protocol scheme; {form}"
            )],
        ),
        (
            json!({"url": "https://h"}),
            json!(["v2", "v2"]),
            vec![
                "spec.conversion.conversionReviewVersions[1]: Invalid value: \"v2\": duplicate version".into(),
                "spec.conversion.conversionReviewVersions: Invalid value: [\"v2\",\"v2\"]: must include at least one of v1, v1beta1".into(),
            ],
        ),
    ];
    for (config, versions, expected) in cases {
        let mut crd = crd(json!({"type": "object"}));
        crd["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {"clientConfig": config, "conversionReviewVersions": versions},
        });
        assert_eq!(causes(&server, crd).await, expected, "{config}");
    }
}

#[tokio::test]
async fn deprecation_warning_requires_a_deprecated_version() {
    let server = server().await;
    for (deprecated, warning, expected) in [
        (true, "use v2".to_owned(), None),
        (false, "use v2".to_owned(), Some("can only be set for deprecated versions")),
        (true, String::new(), Some("must not be an empty string")),
        (true, "x".repeat(257), Some("must be <= 256 characters long")),
        (
            true,
            "a\nb".to_owned(),
            Some("must only contain printable UTF-8 characters; non-printable character found at index 1"),
        ),
    ] {
        let mut crd = crd(json!({"type": "object"}));
        crd["spec"]["versions"][0]["deprecated"] = deprecated.into();
        crd["spec"]["versions"][0]["deprecationWarning"] = warning.as_str().into();
        let shown = json!(warning);
        let expected = expected
            .map(|why| format!("spec.versions[0].deprecationWarning: Invalid value: {shown}: {why}"))
            .into_iter()
            .collect::<Vec<_>>();
        assert_eq!(causes(&server, crd).await, expected);
    }
}

#[tokio::test]
async fn embedded_resources_require_their_type() {
    let server = server().await;
    let at = "$.properties[spec]";
    let bare =
        "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
    let cases = [
        (
            json!({"type": "string", "x-kubernetes-embedded-resource": true}),
            vec![
                format!("{at}.properties: Required value: {bare}"),
                format!(
                    "{at}.type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true"
                ),
            ],
        ),
        (
            json!({
                "type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true, "default": {"x": 1},
            }),
            vec![format!("{at}.default.apiVersion: Required value"), format!("{at}.default.kind: Required value")],
        ),
        (
            json!({
                "type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true, "default": {"apiVersion": "v1", "kind": "Pod"},
            }),
            vec![],
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(with_spec(&server, spec.clone()).await, expected, "{spec}");
    }
}

#[tokio::test]
async fn value_validations_must_not_contain_structural_fields() {
    let server = server().await;
    for (list, inside) in [("allOf", "allOf[0]"), ("anyOf", "anyOf[0]"), ("oneOf", "oneOf[0]"), ("not", "not")] {
        for (field, value, required) in [
            ("x-kubernetes-validations", json!([{"rule": "true"}]), "empty"),
            ("x-kubernetes-list-type", json!("set"), "undefined"),
            ("default", json!(1), "undefined"),
            ("nullable", json!(true), "false"),
            ("title", json!("t"), "empty"),
        ] {
            let schema = json!({field: value});
            let validation = if list == "not" { schema } else { json!([schema]) };
            let found =
                with_spec(&server, json!({"type": "array", "items": {"type": "string"}, list: validation})).await;
            let expected =
                format!("$.properties[spec].{inside}.{field}: Forbidden: must be {required} to be structural");
            assert!(found.contains(&expected), "{found:?}");
        }
    }
}

#[tokio::test]
async fn int_or_string_default_may_have_any_type() {
    let server = server().await;
    let union = json!({"x-kubernetes-int-or-string": true, "default": true});
    assert_eq!(with_spec(&server, union).await, [""; 0]);
    let inner = json!({"type": "object", "default": {"port": true}, "properties": {
        "port": {"x-kubernetes-int-or-string": true},
    }});
    assert_eq!(with_spec(&server, inner).await, [""; 0]);
    assert_eq!(with_spec(&server, json!({"type": "string", "default": true})).await.len(), 1);
}

#[tokio::test]
async fn all_errors_are_reported_together() {
    let server = server().await;
    let lists = json!({"type": "object", "properties": {
        "a": {"type": "array"},
        "b": {},
        "c": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "o", "u"], "items": {
            "type": "object", "properties": {"k": {"type": "object"}, "o": {"type": "string"}},
        }},
    }});
    let at = "$.properties[spec].properties";
    let must = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
    assert_eq!(
        with_spec(&server, lists).await,
        [
            format!("{at}[a].items: Required value: must be specified"),
            format!("{at}[b].type: Required value: must not be empty for specified object fields"),
            format!(
                "{at}[c].items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map"
            ),
            format!(
                "{at}[c].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"o\",\"u\"]: entries must all be names of item properties"
            ),
            format!("{at}[c].items.properties[k].default: Required value: {must}"),
            format!("{at}[c].items.properties[o].default: Required value: {must}"),
        ]
    );
    let default =
        json!({"type": "object", "default": {"n": "x", "other": 1}, "properties": {"n": {"type": "integer"}}});
    let found = with_spec(&server, default).await;
    assert!(found.len() == 2 && found[0].ends_with("must not have unknown fields"), "{found:?}");
    assert!(found[1].starts_with("$.properties[spec].default.n: Invalid value"), "{found:?}");
    let rules = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [
        {"rule": "self.nothing"}, {"rule": ""}, {"rule": "self.n > 0", "fieldPath": ".m"},
    ]});
    let list = "$.properties[spec].x-kubernetes-validations";
    assert_eq!(
        with_spec(&server, rules).await,
        [
            format!("{list}[1].rule: Required value: rule is not specified"),
            format!("{list}[2].fieldPath: Invalid value: \".m\": must be a valid path"),
        ]
    );
}

#[tokio::test]
async fn errors_are_in_the_order_of_kube_apiserver() {
    let server = server().await;
    let mut named = crd(json!({"type": "object"}));
    named["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget", "listKind": "Widget", "shortNames": ["A"]});
    let found = causes(&server, named).await;
    assert!(
        found[0].starts_with("spec.names.shortNames[0]") && found[1].starts_with("spec.names.listKind"),
        "{found:?}"
    );
    let unique = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "$ref": "#/x"});
    let found = with_spec(&server, unique).await;
    assert!(found[0].starts_with("$.properties[spec].$ref") && found[1].contains(".uniqueItems"), "{found:?}");
    let several = json!({"type": "array", "items": [{"type": "string"}]});
    let found = with_spec(&server, several).await;
    assert_eq!(found, ["$.properties[spec].items: Forbidden: items must be a schema object and not an array"]);
}

#[tokio::test]
async fn approval_is_a_url_or_unapproved() {
    let server = server().await;
    for (group, approval, expected) in [
        ("a.k8s.io", None, Some("Required value")),
        ("a.k8s.io", Some(""), Some("Required value")),
        ("a.k8s.io", Some("yes"), Some("Invalid value: \"yes\"")),
        ("b.kubernetes.io", Some("https://"), Some("Invalid value: \"https://\"")),
        ("b.kubernetes.io", Some("https://example.com/1"), None),
        ("a.k8s.io", Some("unapproved, a trial"), None),
        ("a.my-k8s.io", None, None),
    ] {
        let mut crd = crd(json!({"type": "object"}));
        crd["metadata"] = json!({"name": format!("widgets.{group}")});
        if let Some(approval) = approval {
            crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": approval});
        }
        crd["spec"]["group"] = group.into();
        let found = causes(&server, crd).await;
        match expected {
            None => assert_eq!(found, [""; 0], "{group}"),
            Some(start) => assert!(
                found.len() == 1
                    && found[0].starts_with(&format!("metadata.annotations[api-approved.kubernetes.io]: {start}")),
                "{found:?}"
            ),
        }
    }
}

#[tokio::test]
async fn condition_reports_api_approval() {
    let server = server().await;
    let url = format!("{ALL}/widgets.a.k8s.io");
    let mut crd = crd(json!({"type": "object"}));
    crd["metadata"] = json!({"name": "widgets.a.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}});
    crd["spec"]["group"] = "a.k8s.io".into();
    assert_eq!(post(&server, ALL, crd).await.0, 201);
    for (approval, expected) in [
        ("unapproved", ["False", "UnapprovedAnnotation", "not approved: \"unapproved\""]),
        ("https://example.com/1", ["True", "ApprovedAnnotation", "approved in https://example.com/1"]),
    ] {
        let patch = json!({"metadata": {"annotations": {"api-approved.kubernetes.io": approval}}});
        assert_eq!(send(&server, Method::PATCH, &url, "application/merge-patch+json", patch).await.0, 200);
        let (_, crd) = send(&server, Method::GET, &url, "application/json", Value::Null).await;
        let condition = &crd["status"]["conditions"][2];
        assert_eq!(condition["type"], "KubernetesAPIApprovalPolicyConformant");
        assert_eq!(["status", "reason", "message"].map(|field| &condition[field]), expected);
    }
}

#[tokio::test]
async fn status_accepts_any_stored_versions() {
    let server = server().await;
    assert_eq!(post(&server, ALL, crd(json!({"type": "object"}))).await.0, 201);
    let store = async |versions: Value| {
        let url = format!("{ALL}/widgets.example.com/status?fieldManager=storer");
        let patch = json!({"status": {"storedVersions": versions}});
        send(&server, Method::PATCH, &url, "application/merge-patch+json", patch).await
    };
    let (code, emptied) = store(json!([])).await;
    assert_eq!((code, &emptied["status"]["storedVersions"]), (200, &json!(["v1"])));
    assert!(!emptied["metadata"]["managedFields"].to_string().contains("storer"), "{emptied}");
    let (code, other) = store(json!(["v3"])).await;
    assert_eq!((code, &other["status"]["storedVersions"]), (200, &json!(["v3"])));
    assert!(other["metadata"]["managedFields"].to_string().contains("storer"), "{other}");
}

#[tokio::test]
async fn message_expression_without_old_value_falls_back_to_the_rule() {
    let server = server().await;
    let rule = json!({
        "rule": "oldSelf.hasValue() || self.n > 1", "optionalOldSelf": true,
        "messageExpression": "oldSelf.hasValue() ? 'changed' : 'made'",
    });
    let spec = json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [rule],
    });
    let created = post(&server, ALL, crd(json!({"type": "object", "properties": {"spec": spec}}))).await;
    assert_eq!(created.0, 201, "{}", created.1);
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"n": 1},
    });
    let (code, response) = post(&server, "/apis/example.com/v1/namespaces/ns/widgets", widget).await;
    let message = response["message"].as_str().unwrap();
    assert!(code == 422 && message.ends_with("failed rule: oldSelf.hasValue() || self.n > 1"), "{response}");
}

#[tokio::test]
async fn invalid_selectable_field_paths_are_reported() {
    let server = server().await;
    let invalid = "is an invalid path: ";
    for (path, why) in [
        ("spec.a", format!("{invalid}expected [ or . but got: spec")),
        (".spec.none", format!("{invalid}does not refer to a valid field")),
        (".spec['a']", format!("{invalid}array notation is not allowed")),
        (".spec.", format!("{invalid}unexpected end of JSON path")),
        (".metadata.name", format!("{invalid}does not refer to a valid field")),
        (".spec", "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.".into()),
        (".spec.a", String::new()),
    ] {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let mut crd = crd(json!({"type": "object", "properties": {"spec": spec}}));
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": path}]);
        let found = causes(&server, crd).await;
        let expected = if why.is_empty() { Vec::new() } else {
            vec![format!("spec.selectableFields[0].jsonPath: Invalid value: {path:?}: {why}")]
        };
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn invalid_patterns_are_rejected_with_gos_messages() {
    let server = server().await;
    for (pattern, why) in [
        ("[a", "missing closing ]: `[a`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
    ] {
        let found = with_spec(&server, json!({"type": "string", "pattern": pattern})).await;
        let wrong = format!("must be a valid regular expression, but isn't: error parsing regexp: {why}");
        assert_eq!(found, [format!("$.properties[spec].pattern: Invalid value: {pattern:?}: {wrong}")]);
    }
}
