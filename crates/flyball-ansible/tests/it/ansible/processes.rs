//! The processes of runs: what they have in common, and their end.

use super::{named, test_of};
use crate::deletions::{FAREWELL, FINALIZED, GUEST};
use crate::project::{Project, api, condition, data, shops};
use flyball_ansible::Executor;
use flyball_cluster::testing::Test;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

with_both_executors! {
    runs_have_nothing_in_common
    processes_of_a_canceled_run_are_killed
    deletion_ends_a_run_before_its_finalizer
}

/// A module that does not end, and starts a daemon and a program in other sessions.
const LINGER: &str = r#"#!/usr/bin/python
import os
import subprocess
import time
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"folder": {"type": "path"}})
    path = os.path.join(module.params["folder"], "%s")

    def note(name, pid):
        with open(path % "new-" + name, "w") as file:
            file.write(str(pid))
        os.rename(path % "new-" + name, path % name)

    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note("daemon", os.getpid())
            time.sleep(1000)
        os._exit(0)
    note("program", subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    note("module", os.getpid())
    time.sleep(1000)


main()
"#;

/// A filter that changes the state of its process, and returns the state that it found.
const LEAKS: &str = r#"
import os
import sys


def leaks(_):
    found = [getattr(sys, "leak", ""), os.environ.get("LEAK", ""), *sys.modules.get("leak", [])]
    sys.leak, os.environ["LEAK"], sys.modules["leak"] = "attribute", "variable", ["module"]
    return "".join(found)


class FilterModule:
    def filters(self):
        return {"leaks": leaks}
"#;

async fn runs_have_nothing_in_common(executor: Executor) {
    let tasks = "
- ansible.builtin.assert:
    that: [fact is not defined, ('' | leaks) == '', title == ansible_operator_meta.name]
- name: \"found {{ '' | leaks }}\"
  ansible.builtin.set_fact: {fact: 1}
- ansible.builtin.shell: env >FOLDER/{{ title }}
";
    // Runs cannot write to their project.
    let folder = folder_of("common-output", executor);
    let tasks = tasks.replace("FOLDER", &folder);
    let files = [("roles/a/tasks/main.yml", &*tasks), ("roles/a/filter_plugins/leaks.py", LEAKS)];
    let written = Project::new(&named("common", executor), &files);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let mut environments = Vec::new();
    for name in ["first", "second"] {
        apply(&test, name).await;
        let shops = api(&test, &shops());
        let is_successful = async || condition(&shops.get(name).await.unwrap(), "Successful")["status"] == "True";
        test.eventually("it is successful", is_successful).await;
        environments.push(fs::read_to_string(Path::new(&folder).join(name)).unwrap());
    }
    let [first, second] = environments.try_into().unwrap();
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "Cargo sets a variable of the operator");
    for variable in first.lines().chain(second.lines()) {
        assert!(!variable.starts_with("CARGO"), "runs have a variable of the operator: {variable}");
    }
    let run = first.lines().find_map(|line| line.strip_prefix("FLYBALL_ANSIBLE_RUN=")).unwrap();
    assert!(!second.contains(run) && second.contains("FLYBALL_ANSIBLE_RUN="), "{second}");
    assert!(!Path::new(run).exists(), "{run}");
}

/// Returns the directory of a project that does not exist yet.
fn folder_of(name: &str, executor: Executor) -> String {
    Project::new(&named(name, executor), &[]).folder().display().to_string()
}

async fn apply(test: &Test, name: &str) {
    let (kind, spec) = ("Shop", json!({"title": name}));
    let shop = json!({"apiVersion": "shop.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    test.apply(&shop.to_string()).await;
}

/// Creates an operator whose first run does not end, and returns the IDs of the processes of that run.
async fn start_lingering(
    name: &str,
    executor: Executor,
    others: &[(&str, &str)],
) -> Option<(Project, Test, Vec<String>)> {
    let folder = folder_of(&format!("{name}-output"), executor);
    let tasks = format!("- linger: {{folder: {folder}}}\n  when: not ('{folder}/module' is exists)\n");
    let files = [&[("roles/a/tasks/main.yml", &*tasks), ("roles/a/library/linger.py", LINGER)], others].concat();
    let written = Project::new(&named(name, executor), &files);
    let test = test_of(written.folder().to_owned(), executor).await?;
    apply(&test, "corner").await;
    let files = ["module", "daemon", "program"].map(|name| Path::new(&folder).join(name));
    test.eventually("it has started", async || files.iter().all(|file| file.exists())).await;
    let pids = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    Some((written, test, pids))
}

/// Returns the state and the parent of a process; `None` after its end.
fn stat(pid: &str) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ').map(str::to_owned);
    Some((fields.next()?, fields.next()?)).filter(|(state, _)| state != "Z")
}

async fn assert_killed(pids: &[String]) {
    for _ in 0..500 {
        if pids.iter().all(|pid| stat(pid).is_none()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("some of the processes {pids:?} are still running");
}

async fn processes_of_a_canceled_run_are_killed(executor: Executor) {
    let Some((_written, mut test, pids)) = start_lingering("canceled", executor, &[]).await else { return };
    test.crash().await;
    assert_killed(&pids).await;
}

async fn deletion_ends_a_run_before_its_finalizer(executor: Executor) {
    let started = start_lingering("deleted", executor, &[FINALIZED, FAREWELL]).await;
    let Some((_written, test, pids)) = started else { return };
    test.apply(GUEST).await;
    let shops = api(&test, &shops());
    shops.delete("corner", &DeleteParams::default()).await.unwrap();
    assert_killed(&pids).await;
    test.eventually("it is deleted", async || shops.get_opt("corner").await.unwrap().is_none()).await;
    assert_eq!(data(&test, "guest").await, Value::Null, "the playbook of the finalizer ran with its own variables");
}

#[tokio::test]
async fn run_of_a_killed_worker_is_repeated_by_another_one() {
    let Some((_written, test, pids)) = start_lingering("killed", Executor::Worker, &[]).await else { return };
    let mut worker = pids[0].clone();
    while let Some((_, parent)) = stat(&worker).filter(|(_, parent)| *parent != std::process::id().to_string()) {
        worker = parent;
    }
    assert!(Command::new("kill").args(["-KILL", &worker]).status().unwrap().success());
    let shops = api(&test, &shops());
    let is = async |kind: &str| condition(&shops.get("corner").await.unwrap(), kind);
    let has_failed = async || {
        let message = is("Failure").await["message"].as_str().unwrap_or_default().to_owned();
        message.contains("the Ansible worker ended during the run")
    };
    test.eventually("the run has failed", has_failed).await;
    assert_killed(&pids).await;
    test.eventually("it is successful", async || is("Successful").await["status"] == "True").await;
}
