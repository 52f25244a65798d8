//! The real `ansible-playbook`, as a new process and with a worker. These tests run if `FLYBALL_TEST_ANSIBLE` is set,
//! `ansible-playbook` is in `PATH`, and the collections of the package `ansible` and Python's `kubernetes` are
//! installed; they use real time, since it is a process.

use crate::expressions::PLAYBOOK;
use crate::features::ROLE_VARIABLES;
use crate::project::{Project, api, change, condition, shops};
use flyball::Kind;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::{Setup, Test};
use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Runs tests with both ways to start `ansible-playbook`.
macro_rules! with_both_executors {
    ($($name:ident)*) => {
        mod by_process {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Executor::AnsiblePlaybook).await;
            })*
        }

        mod by_worker {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Executor::Worker).await;
            })*
        }
    };
}

mod files;
mod metrics;
mod names;
mod objects;
mod plugins;
mod processes;

with_both_executors! {
    sample_runs_with_ansible_playbook
    failing_task_reports_reason_without_evaluating_user_text
    processes_of_runs_are_limited
    verbosity_decides_on_debug_tasks
    roles_replace_imports_of_modules
    variables_of_roles_are_those_of_the_built_in_executor
    objects_are_applied_and_their_results_registered
    files_beside_a_playbook_are_included
    kinds_of_included_roles_are_known
    expressions_are_those_of_the_built_in_executor
}

/// Returns the name of a project of one test.
fn named(name: &str, executor: Executor) -> String {
    format!("{name}-{executor:?}").to_lowercase()
}

fn setup_of(folder: PathBuf, executor: Executor) -> Option<Setup> {
    std::env::var_os("FLYBALL_TEST_ANSIBLE")?;
    let operator = move || operator(&Watches::read(folder.join("watches.yaml")).unwrap(), executor).unwrap();
    Some(Test::of(operator).nodes(1))
}

async fn test_of(folder: PathBuf, executor: Executor) -> Option<Test> {
    Some(setup_of(folder, executor)?.start().await)
}

async fn sample_runs_with_ansible_playbook(executor: Executor) {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/memcached-ansible");
    let Some(test) = test_of(sample.clone(), executor).await else { return };
    let object = std::fs::read_to_string(sample.join("config/samples/cache_v1alpha1_memcached.yaml")).unwrap();
    test.apply(&object).await;
    let memcacheds = api(&test, &Kind::new("cache.example.com", "v1alpha1", "Memcached"));
    let is_successful =
        async || condition(&memcacheds.get("memcached-sample").await.unwrap(), "Successful")["status"] == "True";
    test.eventually("it is successful", is_successful).await;
    let deployments = test.api::<Deployment>();
    let deployment = deployments.get("memcached-sample").await.unwrap();
    assert_eq!(deployment.metadata.owner_references.unwrap()[0].kind, "Memcached");
    assert_eq!(deployment.spec.unwrap().replicas, Some(3));
    deployments.delete("memcached-sample", &DeleteParams::default()).await.unwrap();
    test.eventually("it is made again", async || deployments.get_opt("memcached-sample").await.unwrap().is_some())
        .await;
}

async fn failing_task_reports_reason_without_evaluating_user_text(executor: Executor) {
    let tasks = "
- name: sizes are checked
  ansible.builtin.fail: {msg: 'size must be > 1, not {{ size }}: {{ word }}'}
  when: size | int < 2
- ansible.builtin.shell: test -n \"$KUBECONFIG\"
";
    let written = Project::role(&named("real", executor), tasks);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    test.apply(
        "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {size: 1, word: '{{ 1 + 1 }}'}}",
    )
    .await;
    let objects = api(&test, &shops());
    let is = async |kind: &str| condition(&objects.get("corner").await.unwrap(), kind)["status"] == "True";
    test.eventually("it has failed", async || is("Failure").await).await;
    let failure = condition(&objects.get("corner").await.unwrap(), "Failure");
    assert_eq!(failure["message"], "size must be > 1, not 1: {{ 1 + 1 }}");
    change(&objects, "corner", json!({"spec": {"size": 2}})).await;
    test.eventually("it is successful", async || is("Successful").await).await;
}

/// Number of custom resources of a table that exist at a time.
const CONCURRENCY: usize = 4;

/// Runs a role for a custom resource with this spec, and returns the message with which the run fails; `None` after
/// success. The custom resource is deleted, so that a failed run is not repeated.
async fn outcome(test: &Test, name: &str, spec: &Value) -> Option<String> {
    let shop = json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
    test.apply(&shop.to_string()).await;
    let objects = api(test, &shops());
    let found = async |kind: &str| condition(&objects.get(name).await.unwrap(), kind);
    let has = async |kind: &str| found(kind).await["status"] == "True";
    test.eventually("it has ended", async || has("Successful").await || has("Failure").await).await;
    let failure = found("Failure").await;
    objects.delete(name, &DeleteParams::default()).await.unwrap();
    (failure["status"] == "True").then(|| failure["message"].as_str().unwrap_or_default().to_owned())
}

/// Runs a role for each spec of a table, and passes each case and its [`outcome`] to a function.
async fn outcomes<C>(test: &Test, cases: &[(Value, C)], check: impl Fn(&Value, &C, Option<String>)) {
    let check = &check;
    stream::iter(cases.iter().enumerate())
        .for_each_concurrent(CONCURRENCY, async |(number, (spec, case))| {
            check(spec, case, outcome(test, &format!("tenant{number}"), spec).await);
        })
        .await;
}

async fn processes_of_runs_are_limited(executor: Executor) {
    let tasks = "
- {debug: {msg: \"{{ ('a' * count) | length }}\"}, when: count is defined}
- ansible.builtin.shell: cat /proc/self/limits /proc/self/oom_score_adj
  register: limits
- ansible.builtin.fail: {msg: \"{{ limits.stdout_lines | map('regex_replace', ' +', ' ') | join(';') }}\"}
";
    let written = Project::role(&named("limits", executor), tasks);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let message = outcome(&test, "small", &json!({})).await.unwrap_or_default();
    let limits =
        ["cpu time 600 600", "data size 1073741824 1073741824", "file size 268435456 268435456", "core file size 0 0"];
    for limit in limits {
        assert!(message.contains(&format!("Max {limit} ")), "{limit}: {message}");
    }
    assert!(message.ends_with(";1000"), "{message}");
    let message = outcome(&test, "large", &json!({"count": 2_000_000_000})).await;
    assert!(message.is_some_and(|message| !message.contains("Max cpu time")), "it had enough memory");
}

/// Runs a role, and returns the message with which it fails.
async fn failure_of(project: Project, executor: Executor) -> Option<String> {
    let test = test_of(project.folder().to_owned(), executor).await?;
    test.apply("{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}}").await;
    let objects = api(&test, &shops());
    let failure = async || condition(&objects.get("corner").await.unwrap(), "Failure");
    test.eventually("it fails", async || failure().await["status"] == "True").await;
    failure().await["message"].as_str().map(str::to_owned)
}

async fn verbosity_decides_on_debug_tasks(executor: Executor) {
    let tasks = "
- ansible.builtin.debug: {verbosity: 2}
  register: quiet
- ansible.builtin.debug: {verbosity: 3}
  register: loud
- ansible.builtin.fail: {msg: '{{ [quiet is skipped, loud is skipped, ansible_verbosity] | to_json }}'}
";
    let project = Project::role(&named("verbosity", executor), tasks);
    let Some(failure) = failure_of(project, executor).await else { return };
    assert_eq!(failure, "[false, true, 2]");
}

async fn roles_replace_imports_of_modules(executor: Executor) {
    let tasks = "
- ansible.builtin.command: 'true'
  register: called
  ignore_errors: true
- ansible.builtin.fail: {msg: \"replaced: {{ 'no collections' in (called | string) }}\"}
";
    // The worker knows the usual imports of this module.
    let files = [
        ("roles/a/tasks/main.yml", tasks),
        ("roles/a/module_utils/common/collections.py", "raise SystemExit('no collections')\n"),
        ("roles/a/module_utils/common/__init__.py", ""),
    ];
    let project = Project::new(&named("imports", executor), &files);
    let Some(failure) = failure_of(project, executor).await else { return };
    assert_eq!(failure, "replaced: True");
}

async fn variables_of_roles_are_those_of_the_built_in_executor(executor: Executor) {
    let project = Project::new(&named("role-variables", executor), &ROLE_VARIABLES);
    let Some(test) = test_of(project.folder().to_owned(), executor).await else { return };
    assert_eq!(outcome(&test, "corner", &json!({})).await, None);
}

async fn objects_are_applied_and_their_results_registered(executor: Executor) {
    let tasks = "
- kubernetes.core.k8s:
    apply: true
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: applied, namespace: '{{ ansible_operator_meta.namespace }}'}
      data: {a: '1'}
  register: applied_result
- assert: {that: applied_result.result.data.a == '1'}
";
    let project = Project::role(&named("applied", executor), tasks);
    let Some(test) = test_of(project.folder().to_owned(), executor).await else { return };
    assert_eq!(outcome(&test, "corner", &json!({})).await, None);
}

async fn files_beside_a_playbook_are_included(executor: Executor) {
    let play = "
- hosts: localhost
  gather_facts: false
  tasks:
  - include_vars: {file: defs.yml, name: defs}
  - include_vars: more.yml
  - assert: {that: defs.a == 1 and b == 2}
";
    let files = [
        ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, playbook: playbooks/main.yml}\n"),
        ("playbooks/main.yml", play),
        ("playbooks/defs.yml", "a: 1\n"),
        ("playbooks/more.yml", "b: 2\n"),
    ];
    let project = Project::new(&named("beside", executor), &files);
    let Some(test) = test_of(project.folder().to_owned(), executor).await else { return };
    assert_eq!(outcome(&test, "corner", &json!({})).await, None);
}

async fn kinds_of_included_roles_are_known(executor: Executor) {
    let namespace = "
- kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: Namespace, metadata: {name: '{{ team }}'}}
";
    let files = [
        ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, role: a, allowNamespaces: ['*']}\n"),
        ("roles/a/tasks/main.yml", "- include_role: {name: common, tasks_from: space}\n"),
        ("roles/a/defaults/main.yml", "team: unset\n"),
        ("roles/common/tasks/space.yml", namespace),
    ];
    let project = Project::new(&named("kinds-of-roles", executor), &files);
    let Some(setup) = setup_of(project.folder().to_owned(), executor) else { return };
    let test = setup.allows_changes_of::<Namespace>().start().await;
    assert_eq!(outcome(&test, "corner", &json!({"team": format!("{executor:?}").to_lowercase()})).await, None);
}

async fn expressions_are_those_of_the_built_in_executor(executor: Executor) {
    let project = Project::new(&named("expressions", executor), &PLAYBOOK);
    let Some(test) = test_of(project.folder().to_owned(), executor).await else { return };
    assert_eq!(outcome(&test, "corner", &json!({"shelves": 3})).await, None);
}
