//! Aggregated cluster roles.

use crate::{cluster, eventually};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn aggregated_role_has_the_rules_of_selected_roles() {
    let client = cluster().admin();
    let roles: Api<ClusterRole> = Api::all(client);
    let create = async |role: Value| {
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        roles.create(&PostParams::default(), &role).await.unwrap()
    };
    let part = |name: &str| {
        json!({
            "metadata": {"name": name, "labels": {"lend": "yes"}},
            "rules": [{"apiGroups": ["example.com"], "resources": [name], "verbs": ["get"]}],
        })
    };
    create(part("b")).await;
    create(json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"lend": "yes"}}]}}))
        .await;
    create(part("a")).await;
    let has = async |expected: &[&str]| {
        let rules = roles.get("all").await.unwrap().rules.unwrap_or_default();
        let found: Vec<String> = rules.into_iter().filter_map(|rule| rule.resources).flatten().collect();
        found == expected
    };
    eventually("both parts", || has(&["a", "b"])).await;
    roles.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("the part that is left", || has(&["b"])).await;
}
