//! The real `ansible-playbook`. These tests run where `FLYBALL_TEST_ANSIBLE` is set, an `ansible-playbook` is on the `PATH`, and it has
//! the collection `kubernetes.core` with Python's `kubernetes`; in real time, for it is a process.

use crate::project::{Project, api, change, condition, shops};
use flyball::Kind;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::json;
use std::path::{Path, PathBuf};

async fn test_of(folder: PathBuf) -> Option<Test> {
    std::env::var_os("FLYBALL_TEST_ANSIBLE")?;
    let operator = move || {
        let watches = Watches::read(folder.join("watches.yaml")).unwrap();
        operator(&watches.executor(Executor::AnsiblePlaybook)).unwrap()
    };
    Some(Test::of(operator).nodes(1).start().await)
}

#[tokio::test]
async fn the_sample_runs_by_ansible_playbook_as_well() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/memcached-ansible");
    let Some(test) = test_of(sample.clone()).await else { return };
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

#[tokio::test]
async fn a_task_that_fails_says_why_and_users_write_no_templates() {
    let tasks = "
- name: sizes are checked
  ansible.builtin.fail: {msg: 'size must be > 1, not {{ size }}: {{ word }}'}
  when: size | int < 2
- ansible.builtin.shell: test -n \"$KUBECONFIG\"
";
    let written = Project::role("real", tasks);
    let Some(test) = test_of(written.folder().to_owned()).await else { return };
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

#[tokio::test]
async fn no_field_of_a_spec_runs_a_command() {
    let written = Project::role("canary", "- ansible.builtin.command: echo {{ title | default('x') }}\n");
    let Some(test) = test_of(written.folder().to_owned()).await else { return };
    let canary = written.folder().join("CANARY");
    let script = written.folder().join("script");
    std::fs::write(&script, format!("#!/bin/sh\ntouch {}\n", canary.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let command = format!("-o ProxyCommand=\"touch {}\"", canary.display());
    let script = script.display().to_string();
    let fields = [
        json!({"ansible_connection": "ssh", "ansible_ssh_common_args": command, "ansible_host": "example.com"}),
        json!({"ansibleConnection": "ssh", "ansibleSshCommonArgs": command, "ansibleHost": "example.com"}),
        json!({"AnsibleConnection": "ssh", "Ansible_Ssh_Common_Args": command}),
        json!({"ansible_python_interpreter": script, "ansibleShellExecutable": script}),
        json!({"ansible_become": true, "ansibleBecomeExe": script, "ansible_become_user": "root"}),
        json!({"title": format!("{{{{ lookup('pipe', '{script}') }}}}"), "vars": {"ansible_connection": "ssh"}}),
        json!({"hostvars": {"localhost": {"ansible_shell_executable": script}}, "environment": {"PATH": "/nowhere"}}),
    ];
    let objects = api(&test, &shops());
    for (number, spec) in fields.iter().enumerate() {
        let name = format!("tenant{number}");
        let object =
            json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
        test.apply(&object.to_string()).await;
        let ended = async || condition(&objects.get(&name).await.unwrap(), "Successful")["status"] == "True";
        test.eventually("it is successful", ended).await;
        let told = condition(&objects.get(&name).await.unwrap(), "VariablesAccepted");
        assert_eq!(told["status"], "False", "{spec}");
    }
    assert!(!canary.exists(), "a command ran");
}
