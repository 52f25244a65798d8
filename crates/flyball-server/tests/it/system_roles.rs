//! The roles of a cluster's components.

use crate::facts::{post, send, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn get(server: &Server, path: &str) -> Value {
    send(server, Method::GET, &format!("{RBAC}/{path}"), "application/json", json!(null)).await.1
}

#[tokio::test]
async fn cluster_has_the_roles_of_its_components() {
    let server = server().await;
    let count = async |path: &str| {
        let list = get(&server, path).await;
        let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        names.filter(|name| name.starts_with("system:")).count()
    };
    assert_eq!((count("clusterroles").await, count("clusterrolebindings").await), (67, 51));
    assert_eq!(get(&server, "namespaces/kube-system/roles").await["items"].as_array().unwrap().len(), 6);
    assert_eq!(get(&server, "namespaces/kube-system/rolebindings").await["items"].as_array().unwrap().len(), 6);

    let role = get(&server, "clusterroles/system:certificates.k8s.io:kubelet-serving-approver").await;
    let rule = json!([{"verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
                       "resourceNames": ["kubernetes.io/kubelet-serving"]}]);
    assert_eq!(role["rules"], rule);
    assert_eq!(role["metadata"]["annotations"], json!({"rbac.authorization.kubernetes.io/autoupdate": "true"}));
    let binding = get(&server, "clusterrolebindings/system:controller:job-controller").await;
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "job-controller", "namespace": "kube-system"}])
    );
    assert_eq!(get(&server, "clusterrolebindings/system:node").await.get("subjects"), None);
    let reader = get(&server, "namespaces/kube-system/roles/extension-apiserver-authentication-reader").await;
    assert_eq!(reader["rules"][0]["resourceNames"], json!(["extension-apiserver-authentication"]));
    let binding =
        get(&server, "namespaces/kube-system/rolebindings/system::extension-apiserver-authentication-reader").await;
    assert_eq!(binding["roleRef"]["name"], "extension-apiserver-authentication-reader");
}

#[tokio::test]
async fn built_in_objects_have_creation_metadata() {
    let server = server().await;
    let [role, other] = [get(&server, "clusterroles/system:node").await, get(&server, "clusterroles/view").await];
    let metadata = &role["metadata"];
    assert_eq!(metadata["creationTimestamp"], "2027-01-15T08:00:00Z");
    assert_eq!(metadata["managedFields"][0]["time"], metadata["creationTimestamp"]);
    assert_ne!(metadata["uid"], other["metadata"]["uid"]);
    assert_ne!(metadata["resourceVersion"], other["metadata"]["resourceVersion"]);
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 100);
}

#[tokio::test]
async fn forbidden_role_binding_lists_the_missing_rules() {
    let server = server().await;
    let role = json!({"metadata": {"name": "binder"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"], "verbs": ["create"]},
    ]});
    post(&server, &format!("{RBAC}/clusterroles"), role).await;
    let bind = |name: &str, to: &str, user: &str| {
        json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": to},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        })
    };
    post(&server, &format!("{RBAC}/clusterrolebindings"), bind("binder", "binder", "mo")).await;
    for (role, missing) in [
        ("system:kube-dns", "{APIGroups:[\"\"], Resources:[\"endpoints\"], Verbs:[\"list\" \"watch\"]}"),
        ("system:persistent-volume-provisioner", "{APIGroups:[\"storage.k8s.io\"], Resources:[\"storageclasses\"]"),
        ("system:controller:ttl-controller", "{APIGroups:[\"events.k8s.io\"], Resources:[\"events\"]"),
    ] {
        let body = Full::new(Bytes::from(bind("more", role, "mo").to_string()));
        let request =
            Request::post(format!("{RBAC}/clusterrolebindings")).extension(User::new("mo", &[])).body(body).unwrap();
        let response = server.handle(request).await;
        assert_eq!(response.status(), 403, "{role}");
        let body: Value = serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
        let message = body["message"].as_str().unwrap();
        assert!(message.contains("is attempting to grant RBAC permissions not currently held"), "{message}");
        assert!(message.contains(missing), "{message}");
    }
}

#[tokio::test]
async fn later_servers_have_the_same_default_roles() {
    let clock = || flyball_core::Clock::new(|| flyball_core::time::Timestamp::UNIX_EPOCH);
    let start = |seed| Server::new(flyball_server::Options::simulated(clock(), seed));
    let servers: Vec<Server> = (0..20).map(start).collect();
    let counts: Vec<usize> =
        servers.iter().map(|server| server.count("rbac.authorization.k8s.io", "clusterroles")).collect();
    assert!(counts.iter().all(|count| *count == 71), "{counts:?}");
}
