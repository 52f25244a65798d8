//! Pod Security: rejections, warnings and labels of namespaces, through the API.

use crate::send::send;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Options, Server};
use http::Method;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const NAMESPACES: &str = "/api/v1/namespaces";
const PODS: &str = "/api/v1/namespaces/n/pods";

/// The violations of a pod with the container `c` and no security context, by the newest level `restricted`.
const PLAIN: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
    securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
    securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
    securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
    securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

/// Starts a server with the namespace `n`, given its labels without their prefix.
async fn server(labels: &[(&str, &str)]) -> Server {
    let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
    let server = Server::new(Options::simulated(clock, 1));
    let (code, response, _) = send(&server, Method::POST, NAMESPACES, JSON, namespace("n", labels).to_string()).await;
    assert_eq!(code, 201, "{response}");
    let account = json!({"metadata": {"name": "default"}}).to_string();
    let path = "/api/v1/namespaces/n/serviceaccounts";
    assert_eq!(send(&server, Method::POST, path, JSON, account).await.0, 201);
    server
}

fn labels(labels: &[(&str, &str)]) -> Value {
    let labels = labels.iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), json!(value)));
    labels.collect()
}

fn namespace(name: &str, given: &[(&str, &str)]) -> Value {
    json!({"metadata": {"name": name, "labels": labels(given)}})
}

fn pod(name: &str, security: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i", "securityContext": security}],
    }})
}

/// Sends a write, and returns its code, its message and its warnings without their quoting.
async fn write(
    server: &Server,
    method: Method,
    path: &str,
    media: &'static str,
    body: Value,
) -> (u16, String, Vec<String>) {
    let (code, response, warnings) = send(server, method, path, media, body.to_string()).await;
    let warnings = warnings.iter().map(|warning| {
        let warning = warning.strip_prefix("299 - \"").and_then(|warning| warning.strip_suffix('"')).unwrap();
        warning.replace("\\\"", "\"").replace("\\\\", "\\")
    });
    (code, response["message"].as_str().unwrap_or_default().to_owned(), warnings.collect())
}

async fn post(server: &Server, path: &str, body: Value) -> (u16, String, Vec<String>) {
    write(server, Method::POST, path, JSON, body).await
}

#[tokio::test]
async fn pods_that_violate_the_enforced_level_are_rejected() {
    let server = server(&[("enforce", "restricted")]).await;
    let (code, message, warnings) = post(&server, PODS, pod("x", json!({"privileged": true}))).await;
    let privileged = "privileged (container \"c\" must not set securityContext.privileged=true)";
    let expected =
        format!("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": {privileged}, {PLAIN}");
    assert_eq!((code, message, warnings), (403, expected, Vec::new()));

    let (_, response, _) = send(&server, Method::POST, PODS, JSON, pod("x", json!({})).to_string()).await;
    assert_eq!(response["reason"], "Forbidden");
    assert_eq!(response["details"], json!({"name": "x", "kind": "pods"}));

    let mut generated = pod("x", json!({}));
    generated["metadata"] = json!({"generateName": "x-"});
    let (code, message, _) = post(&server, PODS, generated).await;
    assert_eq!(code, 403);
    let name = message.strip_prefix("pods \"x-").and_then(|rest| rest.split('"').next());
    assert_eq!(name.map(str::len), Some(5), "{message}");
}

#[tokio::test]
async fn versions_of_labels_select_checks() {
    let server = server(&[("enforce", "restricted"), ("enforce-version", "v1.7")]).await;
    let (code, message, _) = post(&server, PODS, pod("x", json!({}))).await;
    let expected = "pods \"x\" is forbidden: violates PodSecurity \"restricted:v1.7\": runAsNonRoot != true \
                    (pod or container \"c\" must set securityContext.runAsNonRoot=true)";
    assert_eq!((code, &*message), (403, expected));
    assert_eq!(post(&server, PODS, pod("x", json!({"runAsNonRoot": true}))).await, (201, String::new(), vec![]));
}

#[tokio::test]
async fn without_labels_everything_is_allowed() {
    let unlabeled = server(&[]).await;
    let audited = server(&[("audit", "restricted"), ("warn", "privileged"), ("enforce", "privileged")]).await;
    for server in [unlabeled, audited] {
        let mut host = pod("x", json!({"privileged": true}));
        host["spec"]["hostNetwork"] = true.into();
        assert_eq!(post(&server, PODS, host).await, (201, String::new(), vec![]));
    }
}

#[tokio::test]
async fn pods_that_violate_the_level_of_warnings_are_warned_of() {
    let server = server(&[("warn", "restricted"), ("enforce", "baseline"), ("warn-version", "v1.36")]).await;
    let warning = format!("would violate PodSecurity \"restricted:v1.36\": {PLAIN}");
    assert_eq!(post(&server, PODS, pod("x", json!({}))).await, (201, String::new(), vec![warning]));
    // A rejection has no warnings.
    let (code, _, warnings) = post(&server, PODS, pod("y", json!({"privileged": true}))).await;
    assert_eq!((code, warnings), (403, vec![]));
}

#[tokio::test]
async fn templates_of_all_workloads_are_warned_of() {
    let server = server(&[("enforce", "restricted")]).await;
    let template = || json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x", json!({}))["spec"]});
    let endless = || json!({"selector": {"matchLabels": {"a": "b"}}, "template": template()});
    let mut finite = template();
    finite["spec"]["restartPolicy"] = "Never".into();
    let job = json!({"template": finite});
    let mut set = endless();
    set["serviceName"] = "s".into();
    let workloads = [
        ("/apis/apps/v1/namespaces/n/deployments", json!({"spec": endless()})),
        ("/apis/apps/v1/namespaces/n/replicasets", json!({"spec": endless()})),
        ("/apis/apps/v1/namespaces/n/daemonsets", json!({"spec": endless()})),
        ("/apis/apps/v1/namespaces/n/statefulsets", json!({"spec": set})),
        ("/apis/batch/v1/namespaces/n/jobs", json!({"spec": job.clone()})),
        (
            "/apis/batch/v1/namespaces/n/cronjobs",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}),
        ),
        (
            "/api/v1/namespaces/n/replicationcontrollers",
            json!({"spec": {"selector": {"a": "b"}, "template": template()}}),
        ),
        ("/api/v1/namespaces/n/podtemplates", json!({"template": template()})),
    ];
    let warning = vec![format!("would violate PodSecurity \"restricted:latest\": {PLAIN}")];
    for (path, mut workload) in workloads {
        workload["metadata"] = json!({"name": "w"});
        assert_eq!(post(&server, path, workload).await, (201, String::new(), warning.clone()), "{path}");
        // Also by an update that does not change the template, but not by one of a subresource.
        let change = json!({"metadata": {"labels": {"x": "y"}}});
        let changed = write(&server, Method::PATCH, &format!("{path}/w"), MERGE, change).await;
        assert_eq!(changed, (200, String::new(), warning.clone()), "{path}");
        if path.ends_with("deployments") {
            for (part, change) in [("scale", json!({"spec": {"replicas": 2}})), ("status", json!({"status": {}}))] {
                let changed = write(&server, Method::PATCH, &format!("{path}/w/{part}"), MERGE, change).await;
                assert_eq!(changed, (200, String::new(), vec![]), "{part}");
            }
        }
    }
    let none = json!({"metadata": {"name": "none"}, "spec": {"selector": {"a": "b"}}});
    let (_, _, warnings) = post(&server, "/api/v1/namespaces/n/replicationcontrollers", none).await;
    assert_eq!(warnings, [""; 0]);
}

#[tokio::test]
async fn only_significant_updates_of_pods_are_checked() {
    let server = server(&[]).await;
    let mut two = pod("x", json!({"privileged": true}));
    let init = json!([{"name": "i", "image": "i"}]);
    two["spec"]["initContainers"] = init;
    assert_eq!(post(&server, PODS, two).await.0, 201);
    let path = format!("{PODS}/x");
    let enforce = json!({"metadata": {"labels": labels(&[("enforce", "baseline")])}});
    let (code, _, warnings) = write(&server, Method::PATCH, &format!("{NAMESPACES}/n"), MERGE, enforce).await;
    let expected = [
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "x: privileged",
    ];
    assert_eq!((code, &*warnings), (200, &expected.map(str::to_owned)[..]));

    let image = |list: &str, name: &str, image: &str| json!({"spec": {list: [{"name": name, "image": image}]}});
    let debugger = |image: &str| json!({"spec": {"ephemeralContainers": [{"name": "d", "image": image}]}});
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let rejected = "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"c\" must \
                    not set securityContext.privileged=true)";
    let cases = [
        ("", json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}), None),
        ("", json!({"spec": {"activeDeadlineSeconds": 9}}), None),
        ("", image("containers", "c", "i"), None),
        ("", image("containers", "c", "j"), Some(rejected)),
        ("", image("initContainers", "i", "j"), Some(rejected)),
        ("/ephemeralcontainers", debugger("i"), Some(rejected)),
        ("/status", ready, None),
    ];
    for (part, patch, expected) in cases {
        let (code, message, _) =
            write(&server, Method::PATCH, &format!("{path}{part}"), STRATEGIC, patch.clone()).await;
        assert_eq!((code, &*message), expected.map_or((200, ""), |message| (403, message)), "{part}: {patch}");
    }
    assert_eq!(send(&server, Method::DELETE, &path, JSON, "").await.0, 200);
}

#[tokio::test]
async fn ephemeral_containers_are_checked() {
    let server = server(&[("enforce", "baseline")]).await;
    assert_eq!(post(&server, PODS, pod("x", json!({}))).await.0, 201);
    let path = format!("{PODS}/x/ephemeralcontainers");
    let add = |name: &str, privileged: bool| {
        let container = json!({"name": name, "image": "i", "securityContext": {"privileged": privileged}});
        json!({"spec": {"ephemeralContainers": [container]}})
    };
    let (code, message, _) = write(&server, Method::PATCH, &path, STRATEGIC, add("d", true)).await;
    let expected = "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"d\" must \
                    not set securityContext.privileged=true)";
    assert_eq!((code, &*message), (403, expected));
    assert_eq!(write(&server, Method::PATCH, &path, STRATEGIC, add("d", false)).await.0, 200);
}

#[tokio::test]
async fn invalid_labels_are_rejected_unless_they_were_stored() {
    let server = server(&[]).await;
    let invalid = namespace("x", &[("enforce", "x"), ("warn-version", "1.2"), ("audit", "baseline")]);
    let (code, message, _) = post(&server, NAMESPACES, invalid).await;
    let expected = "Namespace \"x\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \
                    \"x\": must be one of privileged, baseline, restricted, \
                    metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.2\": must be \"latest\" \
                    or \"v1.x\"]";
    assert_eq!((code, &*message), (422, expected));

    // An update of the status is not checked.
    let (path, patch) = (format!("{NAMESPACES}/n"), json!({"metadata": {"labels": labels(&[("enforce", "x")])}}));
    let (code, message, _) = write(&server, Method::PATCH, &path, MERGE, patch.clone()).await;
    assert_eq!(code, 422, "{message}");
    assert_eq!(write(&server, Method::PATCH, &format!("{path}/status"), MERGE, patch).await.0, 200);
    let other = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(write(&server, Method::PATCH, &path, MERGE, other).await, (200, String::new(), vec![]));
    let further = json!({"metadata": {"labels": labels(&[("warn", "y")])}});
    assert_eq!(write(&server, Method::PATCH, &path, MERGE, further).await.0, 422);
    // An invalid level enforces the strictest one.
    let (code, message, _) = post(&server, PODS, pod("x", json!({}))).await;
    let expected = format!("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": {PLAIN}");
    assert_eq!((code, message), (403, expected));
}

/// Sets the labels of the namespace `n`, and returns the warnings.
async fn relabel(server: &Server, given: &[(&str, &str)]) -> Vec<String> {
    let patch = json!({"metadata": {"labels": labels(given)}});
    let (code, message, warnings) = write(server, Method::PATCH, &format!("{NAMESPACES}/n"), MERGE, patch).await;
    assert_eq!(code, 200, "{message}");
    warnings
}

#[tokio::test]
async fn stricter_labels_warn_of_existing_pods() {
    let server = server(&[]).await;
    for name in ["b2", "b1", "b3"] {
        assert_eq!(post(&server, PODS, pod(name, json!({"privileged": true}))).await.0, 201);
    }
    for name in ["a2", "a1"] {
        let mut host = pod(name, json!({"privileged": true}));
        host["spec"]["hostPID"] = true.into();
        assert_eq!(post(&server, PODS, host).await.0, 201);
    }
    assert_eq!(post(&server, PODS, pod("ok", json!({}))).await.0, 201);
    let found = |policy: &str| {
        [
            format!("existing pods in namespace \"n\" violate the new PodSecurity enforce level \"{policy}\""),
            "a1 (and 1 other pod): host namespaces, privileged".into(),
            "b1 (and 2 other pods): privileged".into(),
        ]
    };
    assert_eq!(relabel(&server, &[("enforce", "baseline")]).await, found("baseline:latest"));
    // The same policy, another mode, and relaxed levels.
    assert_eq!(relabel(&server, &[("enforce", "baseline"), ("warn", "restricted")]).await, [""; 0]);
    let version = relabel(&server, &[("enforce", "baseline"), ("enforce-version", "v1.30")]).await;
    assert_eq!(version, found("baseline:v1.30"));
    assert_eq!(relabel(&server, &[("enforce", "restricted")]).await.len(), 4);
    assert_eq!(relabel(&server, &[("enforce", "baseline")]).await, [""; 0]);
    assert_eq!(relabel(&server, &[("enforce", "privileged"), ("enforce-version", "latest")]).await, [""; 0]);
}

#[tokio::test]
async fn at_most_three_thousand_existing_pods_are_checked() {
    let server = server(&[]).await;
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true}]);
    // Later by name, but the first one of its controller.
    let mut last = pod("z", json!({"privileged": true}));
    last["metadata"]["ownerReferences"] = owner("other");
    assert_eq!(post(&server, PODS, last).await.0, 201);
    for number in 0..3_001 {
        let mut copy = pod(&format!("p{number}"), json!({}));
        copy["metadata"]["ownerReferences"] = owner("all");
        assert_eq!(post(&server, PODS, copy).await.0, 201);
    }
    let expected = [
        "new PodSecurity enforce level only checked against the first 3000 of 3002 existing pods",
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "z: privileged",
    ];
    assert_eq!(relabel(&server, &[("enforce", "baseline")]).await, expected);
}
