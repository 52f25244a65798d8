//! Flow schemas and priority levels.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const MERGE: &str = "application/merge-patch+json";

async fn get(server: &Server, url: &str) -> Value {
    send(server, Method::GET, url, MERGE, json!(null)).await.1
}

#[tokio::test]
async fn new_cluster_has_mandatory_and_suggested_objects() {
    let server = server().await;
    let names = async |url: &str| {
        let list = get(&server, url).await;
        let names =
            list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<String>>().join(" ")
    };
    let levels = "catch-all exempt global-default leader-election node-high system workload-high workload-low";
    assert_eq!(names(LEVELS).await, levels);
    let schemas = "catch-all endpoint-controller exempt global-default kube-controller-manager kube-scheduler kube-system-service-accounts \
                   probes service-accounts system-leader-election system-node-high system-nodes workload-leader-election";
    assert_eq!(names(SCHEMAS).await, schemas);
    let probes = get(&server, &format!("{SCHEMAS}/probes")).await;
    assert_eq!(probes["spec"]["priorityLevelConfiguration"]["name"], "exempt");
    assert_eq!(probes["metadata"]["annotations"], json!({"apf.kubernetes.io/autoupdate-spec": "true"}));
    let condition = &probes["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Dangling"), &json!("False")));
    assert_eq!(condition["lastTransitionTime"], probes["metadata"]["creationTimestamp"]);
    let high = get(&server, &format!("{LEVELS}/workload-high")).await;
    let queuing = json!({"queues": 128, "handSize": 6, "queueLengthLimit": 50});
    assert_eq!(high["spec"]["limited"]["limitResponse"], json!({"type": "Queue", "queuing": queuing}));
}

#[tokio::test]
async fn omitted_fields_are_defaulted() {
    let server = server().await;
    let spec = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}});
    let (code, level) = post(&server, LEVELS, json!({"metadata": {"name": "l"}, "spec": spec})).await;
    assert_eq!(code, 201, "{level}");
    let queuing = json!({"queues": 64, "handSize": 8, "queueLengthLimit": 50});
    let limited = json!({"nominalConcurrencyShares": 30, "lendablePercent": 0, "limitResponse": {"type": "Queue", "queuing": queuing}});
    assert_eq!(level["spec"]["limited"], limited);
    let spec = json!({"priorityLevelConfiguration": {"name": "l"}});
    let (code, schema) = post(&server, SCHEMAS, json!({"metadata": {"name": "s"}, "spec": spec})).await;
    assert_eq!(
        (code, &schema["spec"]["matchingPrecedence"], &schema["metadata"]["generation"]),
        (201, &json!(1000), &json!(1))
    );
}

#[tokio::test]
async fn invalid_objects_are_rejected() {
    let server = server().await;
    let rule = json!({"subjects": [{"kind": "User", "group": {"name": "g"}}], "resourceRules": [
        {"verbs": ["*", "get"], "apiGroups": [], "resources": ["pods"], "namespaces": ["A"]},
    ]});
    let schemas = [
        (
            json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "x"}}),
            "only the schema named 'exempt' may have matchingPrecedence 1",
        ),
        (json!({"matchingPrecedence": 10001, "priorityLevelConfiguration": {}}), "must reference a priority level"),
        (
            json!({"priorityLevelConfiguration": {"name": "x"}, "rules": [{}]}),
            "subjects must contain at least one value",
        ),
        (
            json!({"priorityLevelConfiguration": {"name": "x"}, "rules": [rule]}),
            "user is required when subject kind is 'User'",
        ),
        (
            json!({"priorityLevelConfiguration": {"name": "x"}, "rules": [rule]}),
            "group is forbidden when subject kind is not 'Group'",
        ),
        (
            json!({"priorityLevelConfiguration": {"name": "x"}, "rules": [rule]}),
            "if '*' is present, must not specify other verbs",
        ),
        (
            json!({"priorityLevelConfiguration": {"name": "x"}, "rules": [rule]}),
            "each member of this list must be '*' or a DNS-1123 label",
        ),
    ];
    for (spec, why) in schemas {
        let (code, answer) = post(&server, SCHEMAS, json!({"metadata": {"name": "s"}, "spec": spec})).await;
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(why), "{why}: {answer}");
    }
    let queues = |queues: i64, hand: i64| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 1});
        json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}})
    };
    let levels = [
        (json!({"type": "Exempt"}), "type must be 'Exempt' if and only if name is 'exempt'"),
        (json!({"type": "Limited"}), "must not be empty when type is Limited"),
        (
            json!({"type": "Limited", "limited": {"limitResponse": {"type": "Other"}}}),
            "supported values: \"Queue\", \"Reject\"",
        ),
        (queues(4, 5), "should not be greater than queues (4)"),
        (queues(10_000_000, 9_000_000), "should not be greater than 60"),
    ];
    for (spec, why) in levels {
        let (code, answer) = post(&server, LEVELS, json!({"metadata": {"name": "l"}, "spec": spec})).await;
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(why), "{why}: {answer}");
    }
}

#[tokio::test]
async fn mandatory_specs_are_immutable() {
    let server = server().await;
    let cases = [
        (format!("{SCHEMAS}/exempt"), json!({"spec": {"matchingPrecedence": 3}}), 422),
        (format!("{SCHEMAS}/probes"), json!({"spec": {"matchingPrecedence": 3}}), 200),
        (format!("{LEVELS}/catch-all"), json!({"spec": {"limited": {"lendablePercent": 7}}}), 422),
        (format!("{LEVELS}/exempt"), json!({"spec": {"exempt": {"lendablePercent": 7}}}), 200),
        (format!("{LEVELS}/exempt"), json!({"metadata": {"labels": {"a": "b"}}}), 200),
    ];
    for (url, change, expected) in cases {
        let (code, answer) = send(&server, Method::PATCH, &url, MERGE, change).await;
        assert_eq!(code, expected, "{url}: {answer}");
    }
}
