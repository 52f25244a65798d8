//! Deletions of custom resources, which end their runs; see also `ansible/processes.rs`.

use crate::project::{Project, api, data, operator_of, shops};
use flyball_cluster::testing::Test;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

pub(crate) const SHOP: &str =
    "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {title: corner}}";
pub(crate) const GUEST: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: guest}, data: {a: b}}";

/// An entry with a finalizer that is a playbook and has variables.
pub(crate) const FINALIZED: (&str, &str) = (
    "watches.yaml",
    "- {group: shop.example.com, version: v1, kind: Shop, role: a, vars: {leaver: nobody}, \
     finalizer: {name: shop.example.com/own, playbook: farewell.yml, vars: {leaver: guest}}}\n",
);
pub(crate) const FAREWELL: (&str, &str) = (
    "farewell.yml",
    "- hosts: localhost\n  gather_facts: false\n  tasks:\n  - kubernetes.core.k8s: {state: absent, kind: ConfigMap, \
     name: '{{ leaver }}', namespace: '{{ ansible_operator_meta.namespace }}'}\n",
);

const LONG: (&str, &str) = (
    "roles/a/tasks/main.yml",
    "- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: begun}, data: {leaver: '{{ leaver | default(1) | string }}'}}}\n\
     - pause: {minutes: 25}\n\
     - k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: late}}}\n",
);

/// Deletes a custom resource during its run, and returns the test after 5 s.
async fn deleted_in_a_run(name: &str, files: &[(&str, &str)]) -> Test {
    let folder = Project::new(name, files).folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply(GUEST).await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    assert_ne!(data(&test, "begun").await, Value::Null, "the run has begun");
    api(&test, &shops()).delete("corner", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(api(&test, &shops()).get_opt("corner").await.unwrap().is_none());
    test
}

#[tokio::test(start_paused = true)]
async fn deletion_ends_a_run() {
    let test = deleted_in_a_run("deleted", &[LONG]).await;
    let before = test.requests();
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(test.requests().since(&before).writes, 0);
    assert_eq!(data(&test, "guest").await, json!({"a": "b"}));
}

#[tokio::test(start_paused = true)]
async fn deletion_ends_a_run_before_its_finalizer() {
    let test = deleted_in_a_run("deleted-finalized", &[LONG, FINALIZED, FAREWELL]).await;
    assert_eq!(data(&test, "guest").await, Value::Null, "the playbook of the finalizer ran with its own variables");
}
