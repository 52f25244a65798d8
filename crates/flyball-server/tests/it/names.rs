//! Names of objects obey the rule of their kind.

use crate::send::send;
use flyball_core::Clock;
use flyball_server::{Options, Server};
use http::Method;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const NETWORKING: &str = "/apis/networking.k8s.io/v1";

/// Kinds whose names may be any segment of a path, as in Kubernetes.
const ANY_SEGMENT: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];

async fn get(server: &Server, path: &str) -> Value {
    let (code, answer, _) = send(server, Method::GET, path, JSON, "").await;
    assert_eq!(code, 200, "{path}");
    answer
}

/// Creates an object, and returns the code and the messages about a field.
async fn create(server: &Server, path: &str, object: Value, field: &str) -> (u16, Vec<String>) {
    let (code, answer, _) = send(server, Method::POST, &format!("{path}?dryRun=All"), JSON, object.to_string()).await;
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    let causes = causes.filter(|cause| cause["field"] == field);
    (code, causes.map(|cause| cause["message"].as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn name_that_is_no_segment_of_every_url_is_rejected() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    // Pods need it.
    let account = json!({"metadata": {"name": "default"}}).to_string();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(send(&server, Method::POST, accounts, JSON, account).await.0, 201);
    let groups = get(&server, "/apis").await;
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap());
    let roots = versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
    let mut accepted = Vec::new();
    let mut checked = 0;
    for root in ["/api/v1".to_owned()].into_iter().chain(roots) {
        for resource in get(&server, &root).await["resources"].as_array().unwrap() {
            let plural = resource["name"].as_str().unwrap();
            // Reviews and bindings are not stored.
            let is_stored =
                ["create", "get"].iter().all(|verb| resource["verbs"].as_array().unwrap().contains(&json!(verb)));
            if plural.contains('/') || !is_stored {
                continue;
            }
            let namespace = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            let (path, name) = (format!("{root}{namespace}/{plural}"), "?watch=true&x=");
            let (code, wrong) = create(&server, &path, json!({"metadata": {"name": name}}), "metadata.name").await;
            checked += 1;
            if code != 422 || wrong.is_empty() {
                accepted.push(format!("{plural} {code}"));
            }
        }
    }
    accepted.retain(|plural| !ANY_SEGMENT.iter().any(|any| plural.starts_with(&format!("{any} "))));
    assert!(accepted.is_empty(), "{accepted:?}");
    assert!(checked > 50, "{checked}");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (name, expected) in [("a/b", 422), ("a%b", 422), ("..", 422), ("system:A?", 201)] {
        let object = json!({"metadata": {"name": name}, "rules": []});
        assert_eq!(create(&server, roles, object, "metadata.name").await.0, expected, "{name}");
    }
}

#[tokio::test]
async fn ip_addresses_are_named_after_their_address() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    let path = format!("{NETWORKING}/ipaddresses");
    let parent = json!({"resource": "services", "namespace": "default", "name": "s"});
    let address = |name: &str| json!({"metadata": {"name": name}, "spec": {"parentRef": parent}});
    for name in ["10.0.0.1", "2001:db8::1"] {
        assert_eq!(create(&server, &path, address(name), "metadata.name").await, (201, vec![]), "{name}");
    }
    for (name, expected) in [
        ("name", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("010.0.0.1", "must not have leading 0s"),
        ("2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
    ] {
        let (code, wrong) = create(&server, &path, address(name), "metadata.name").await;
        assert_eq!(code, 422);
        assert!(wrong.iter().any(|wrong| wrong.contains(expected)), "{wrong:?}");
    }
    let orphan = json!({"metadata": {"name": "10.0.0.1"}});
    assert_eq!(create(&server, &path, orphan, "spec.parentRef").await, (422, vec!["Required value".to_owned()]));
}

#[tokio::test]
async fn service_cidrs_have_one_block_of_each_family() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    let path = format!("{NETWORKING}/servicecidrs");
    for (blocks, field, expected) in [
        (json!(["10.0.0.0/24"]), "spec.cidrs", None),
        (json!(["10.0.0.0/24", "2001:db8::/64"]), "spec.cidrs", None),
        (json!([]), "spec.cidrs", Some("at least one CIDR required")),
        (
            json!(["10.0.0.0/24", "10.0.1.0/24"]),
            "spec.cidrs",
            Some("may specify no more than one IP for each IP family"),
        ),
        (json!(["10.0.0.0/24", "10.0.1.0/24", "::/64"]), "spec.cidrs", Some("may only hold up to 2 values")),
        (json!(["10.0.0.1"]), "spec.cidrs[0]", Some("must be a valid CIDR value")),
    ] {
        let object = json!({"metadata": {"name": "c"}, "spec": {"cidrs": blocks}});
        let (code, wrong) = create(&server, &path, object, field).await;
        match expected {
            None => assert_eq!((code, wrong), (201, vec![]), "{blocks}"),
            Some(expected) => {
                assert!(code == 422 && wrong.iter().any(|why| why.contains(expected)), "{blocks}: {wrong:?}")
            }
        }
    }
}
