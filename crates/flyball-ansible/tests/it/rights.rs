//! Text of users creates no objects of unintended kinds, and output with `no_log` stays hidden.

use crate::project::{Project, api, condition, operator_of, shops};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

/// A role with permissions for kinds that it creates only on request, and a template into which users can inject
/// documents.
const TASKS: &str = r#"
- name: what the role makes itself
  k8s:
    definition:
      - {apiVersion: v1, kind: Namespace, metadata: {name: 'of-{{ ansible_operator_meta.name }}'}}
      - {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: x}}
      - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: x}}
      - {apiVersion: v1, kind: Secret, metadata: {name: x}}
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: shared}}
  when: never is defined
- name: a namespace
  k8s: {definition: {apiVersion: v1, kind: Namespace, metadata: {name: 'of-{{ ansible_operator_meta.name }}'}}}
- name: a page
  k8s: {definition: "{{ lookup('template', 'page.yaml.j2') | from_yaml_all | list }}"}
"#;
const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ ansible_operator_meta.name }}\ndata:\n  title: {{ title }}\n";

const RBAC: &str = "rbac.authorization.k8s.io";

async fn start(name: &str, watches: &str) -> Test {
    let files =
        [("watches.yaml", watches), ("roles/a/tasks/main.yml", TASKS), ("roles/a/templates/page.yaml.j2", PAGE)];
    let written = Project::new(name, &files);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).allows_changes_of::<Namespace>().start().await;
    test.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shared}}").await;
    test
}

/// Applies an object whose title ends its document and starts another.
async fn inject(test: &Test, name: &str, document: &str) {
    let spec = json!({"title": format!("x\n---\n{document}\n")});
    let object = json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
    test.apply(&object.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn user_documents_create_nothing_in_other_namespaces_and_grant_nothing() {
    let test = start("injected", "- {group: shop.example.com, version: v1, kind: Shop, role: a}\n").await;
    let documents = [
        format!(
            "apiVersion: {RBAC}/v1\nkind: ClusterRoleBinding\nmetadata: {{name: planted}}\nroleRef: {{apiGroup: {RBAC}, kind: ClusterRole, name: cluster-admin}}"
        ),
        format!(
            "apiVersion: {RBAC}/v1\nkind: RoleBinding\nmetadata: {{name: planted}}\nroleRef: {{apiGroup: {RBAC}, kind: ClusterRole, name: cluster-admin}}"
        ),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: planted}".to_owned(),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: planted, namespace: shared}".to_owned(),
        "apiVersion: v1\nkind: Secret\nmetadata: {name: planted}\ntype: kubernetes.io/service-account-token".to_owned(),
    ];
    for (number, document) in documents.iter().enumerate() {
        inject(&test, &format!("p{number}"), document).await;
    }
    inject(&test, "good", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}").await;
    sleep(Duration::from_secs(10)).await;
    let objects = api(&test, &shops());
    for (number, document) in documents.iter().enumerate() {
        let failure = condition(&objects.get(&format!("p{number}")).await.unwrap(), "Failure");
        assert!(failure["message"].as_str().unwrap_or_default().contains("allowKinds"), "{document}: {failure}");
    }
    let client = test.client();
    assert!(Api::<ClusterRoleBinding>::all(client.clone()).get_opt("planted").await.unwrap().is_none());
    assert!(test.api::<RoleBinding>().get_opt("planted").await.unwrap().is_none());
    assert!(Api::<Namespace>::all(client.clone()).get_opt("planted").await.unwrap().is_none());
    assert!(Api::<ConfigMap>::namespaced(client.clone(), "shared").get_opt("planted").await.unwrap().is_none());
    // In its own namespace, a template may create any object; and a task may create the objects that it names.
    assert_eq!(condition(&objects.get("good").await.unwrap(), "Successful")["status"], "True");
    assert!(test.api::<ConfigMap>().get_opt("second").await.unwrap().is_some());
    assert!(Api::<Namespace>::all(client).get_opt("of-good").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn watches_may_allow_kinds_in_templates() {
    let watches =
        "- {group: shop.example.com, version: v1, kind: Shop, role: a, allowKinds: [{version: v1, kind: Namespace}]}\n";
    let test = start("allowed", watches).await;
    inject(&test, "corner", "apiVersion: v1\nkind: Namespace\nmetadata: {name: wanted}").await;
    test.assert_converges().await;
    let spaces = Api::<Namespace>::all(test.client());
    assert!(spaces.get_opt("wanted").await.unwrap().is_some());
    let object = api(&test, &shops()).get("corner").await.unwrap();
    assert_eq!(condition(&object, "Successful")["status"], "True", "{}", object.data);
}

#[tokio::test(start_paused = true)]
async fn no_log_applies_to_nested_tasks() {
    let check = async |name: &str, files: &[(&str, &str)], is_hidden: bool| {
        let written = Project::new(&format!("no-log-{name}"), files);
        let folder = written.folder().to_owned();
        let test = Test::of(move || operator_of(&folder)).start().await;
        test.apply("{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}}").await;
        sleep(Duration::from_secs(5)).await;
        let failure = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure");
        let message = failure["message"].as_str().unwrap_or_default();
        assert!(message.contains(if is_hidden { "has been hidden" } else { "SECRET" }), "{name}: {failure}");
        assert_eq!(is_hidden, !message.contains("SECRET"), "{name}: {failure}");
    };
    const FAIL: &str = "- fail: {msg: SECRET}\n";
    let role = async |name: &str, tasks: &str, is_hidden: bool| {
        let files =
            [("roles/a/tasks/main.yml", tasks), ("roles/a/tasks/more.yml", FAIL), ("roles/b/tasks/main.yml", FAIL)];
        check(name, &files, is_hidden).await;
    };
    role("block", "- {block: [{block: [{fail: {msg: SECRET}}]}], no_log: true}", true).await;
    role("unless", "- {block: [{fail: {msg: SECRET}, no_log: false}], no_log: true}", false).await;
    role("import-tasks", "- {import_tasks: more.yml, no_log: true}", true).await;
    role("include-tasks", "- {include_tasks: more.yml, no_log: true}", true).await;
    role("applied", "- include_tasks: {file: more.yml, apply: {no_log: true}}", true).await;
    role("import-role", "- {import_role: {name: b}, no_log: true}", true).await;
    role("include-role", "- {include_role: {name: b}, no_log: true}", true).await;
    // The items of a loop come from a template, which fails before the first item.
    let failing = "{debug: {msg: a}, loop: \"{{ lost | mandatory('SECRET') }}\"}";
    role("loop", &format!("- {{block: [{failing}], no_log: true}}"), true).await;
    role("loop-said", &format!("- {failing}"), false).await;
    let dependency = [
        ("roles/a/meta/main.yml", "dependencies: [{role: b, no_log: true}]"),
        ("roles/a/tasks/main.yml", "[]"),
        ("roles/b/tasks/main.yml", FAIL),
    ];
    check("dependency", &dependency, true).await;
    let watches = "- {group: shop.example.com, version: v1, kind: Shop, playbook: play.yml}\n";
    for (name, play) in [
        ("play", "- {hosts: localhost, no_log: true, tasks: [{fail: {msg: SECRET}}]}"),
        ("role", "- {hosts: localhost, roles: [{role: b, no_log: true}]}"),
    ] {
        let files = [("watches.yaml", watches), ("play.yml", play), ("roles/b/tasks/main.yml", FAIL)];
        check(name, &files, true).await;
    }
}
