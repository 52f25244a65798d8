//! The real `ansible-playbook`, as a new process and with a worker. These tests run if `FLYBALL_TEST_ANSIBLE` is set,
//! `ansible-playbook` is in `PATH`, and the collections of the package `ansible` and Python's `kubernetes` are
//! installed; they use real time, since it is a process.

use crate::features::{ROLE_VARIABLES, VARIABLES};
use crate::project::{Project, api, change, condition, data, shops};
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

mod metrics;
mod processes;

with_both_executors! {
    sample_runs_with_ansible_playbook
    failing_task_reports_reason_without_evaluating_user_text
    computed_names_run_no_command
    computed_names_in_a_role_stay_within_the_project
    computed_names_of_static_imports_stay_within_the_project
    literal_names_may_leave_the_project
    computed_names_of_lookups_stay_within_the_project
    computed_names_do_not_read_files_of_the_run
    runs_access_only_their_own_files_and_literal_paths
    computed_names_of_modules_and_lookups_run_no_command
    computed_names_reach_no_collection
    vaults_are_not_opened_for_users
    fields_configure_no_plugin
    processes_of_runs_are_limited
    users_do_not_choose_objects_of_others
    spec_fields_run_no_command
    verbosity_decides_on_debug_tasks
    roles_replace_imports_of_modules
    variables_of_roles_are_those_of_the_built_in_executor
    objects_are_applied_and_their_results_registered
    files_beside_a_playbook_are_included
    kinds_of_included_roles_are_known
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

/// Ways to set a variable under a name that users choose, and the errors of `ansible-playbook` and of the built-in
/// executor. A custom resource has the names and values of `facts`, and the first of them as `alias` and `values`.
const COMPUTED_NAMES: [(&str, &str, &str, &str); 15] = [
    (
        "loop-var",
        "- command: echo a\n  loop: '{{ values }}'\n  loop_control: {loop_var: '{{ alias }}'}\n",
        "under a computed name",
        "must not be a template",
    ),
    (
        "index-var",
        "- debug: {}\n  loop: '{{ values }}'\n  loop_control: {index_var: '{{ alias }}'}\n",
        "under a computed name",
        "must not be a template",
    ),
    (
        "loop-of-include",
        "- include_tasks: command.yml\n  loop: '{{ values }}'\n  loop_control: {loop_var: '{{ alias }}', extended: true}\n",
        "under a computed name",
        "must not be a template",
    ),
    (
        "add-host",
        "- add_host: '{{ {\"name\": \"localhost\"} | combine(facts) }}'\n",
        "under a computed name",
        "add_host",
    ),
    (
        "delegate-to",
        "- add_host:\n  args: '{{ {\"name\": \"other\"} | combine(facts) }}'\n- command: echo a\n  delegate_to: other\n",
        "under a computed name",
        "args: must be a map",
    ),
    (
        "delegate-facts",
        "- set_fact:\n  args: '{{ facts }}'\n  delegate_to: other\n  delegate_facts: true\n- command: echo a\n  delegate_to: other\n",
        "under a computed name",
        "delegate_to",
    ),
    (
        "temporary-file",
        "- tempfile:\n  register: place\n- copy: {content: '{{ facts | to_json }}', dest: '{{ place.path }}'}\n- include_vars: '{{ place.path }}'\n",
        "outside of the project",
        "tempfile",
    ),
    (
        "literal-file",
        "- copy: {content: '{{ facts | to_json }}', dest: OUTSIDE}\n- include_vars: OUTSIDE\n",
        "under a computed name",
        "copy",
    ),
    (
        "file-in-a-name",
        "- include_vars: {file: known.yml, name: '{{ alias }}'}\n",
        "under a computed name",
        "must not be a template",
    ),
    (
        "key",
        "- set_fact: {'{{ item.key }}': '{{ item.value }}', cacheable: true}\n  loop: '{{ facts | dict2items }}'\n",
        "under a computed name",
        "must not be a template",
    ),
    ("facts", "- set_fact: {'{{ facts_name }}': '{{ facts }}'}\n", "under a computed name", "must not be a template"),
    ("action", "- action: '{{ module }}'\n  args: '{{ facts }}'\n", "under a computed name", "args: must be a map"),
    ("apply", "- include_tasks: {file: command.yml, apply: {vars: '{{ facts }}'}}\n", "under a computed name", ""),
    ("apply-to-role", "- include_role: {name: b, apply: {vars: '{{ facts }}'}}\n", "under a computed name", ""),
    (
        "module",
        "- facts: {facts: '{{ facts }}'}\n  until: false\n  retries: 2\n  delay: 0\n  ignore_errors: true\n",
        "",
        "facts",
    ),
];

/// A module that returns facts.
const FACTS_MODULE: &str = "
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec={'facts': {'type': 'dict'}})
module.exit_json(ansible_facts=module.params['facts'])
";

/// Tasks that use a connection, a shell and an interpreter.
const COMMAND: &str = "- command: echo a\n- file: {path: /tmp, state: directory}\n- meta: reset_connection\n";

#[test]
fn built_in_executor_rejects_computed_variable_names() {
    for (name, tasks, _, problem) in COMPUTED_NAMES {
        let files = [
            ("roles/a/tasks/main.yml", tasks),
            ("roles/a/tasks/command.yml", "- debug: {}\n"),
            ("roles/a/vars/known.yml", "known: 1\n"),
            ("roles/b/tasks/main.yml", "- debug: {}\n"),
        ];
        let project = Project::new(&format!("built-in-{name}"), &files);
        // `apply` has no effect there.
        if problem.is_empty() {
            continue;
        }
        let error = project.refused().to_string();
        assert!(error.contains(problem), "{name}: {error}");
    }
}

async fn computed_names_run_no_command(executor: Executor) {
    let outside = Project::new(&named("computed-outside", executor), &[]);
    let files: Vec<(String, String)> = COMPUTED_NAMES
        .iter()
        .map(|(name, tasks, ..)| {
            let path = outside.folder().join(format!("{name}.json")).display().to_string();
            (format!("roles/a/tasks/{name}.yml"), format!("{}{COMMAND}", tasks.replace("OUTSIDE", &path)))
        })
        .collect();
    let main = "
- ansible.builtin.set_fact: {place: here}
- include_tasks: '{{ way }}.yml'
- debug: {msg: '{{ ansible_known }}'}
  vars: {ansible_known: 1}
";
    let mut all = vec![
        ("roles/a/tasks/main.yml", main),
        ("roles/a/tasks/command.yml", COMMAND),
        ("roles/a/tasks/good.yml", "- set_fact: {'{{ item.key }}': 1}\n  loop: '{{ facts | dict2items }}'\n"),
        ("roles/a/vars/known.yml", "known: 1\n"),
        ("roles/a/library/facts.py", FACTS_MODULE),
        ("roles/b/tasks/main.yml", COMMAND),
    ];
    all.extend(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let written = Project::new(&named("computed", executor), &all);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let canary = written.folder().join("CANARY");
    let script = written.folder().join("script");
    std::fs::write(&script, format!("#!/bin/sh\ntouch {}\nexec /bin/sh \"$@\"\n", canary.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let proxy = format!("-o ProxyCommand={script}");
    let facts = [
        ("ansible_shell_executable", json!({"ansible_shell_executable": script})),
        ("ansible_connection", json!({"ansible_connection": "ssh", "ansible_ssh_common_args": proxy})),
        ("ansible_python_interpreter", json!({"ansible_python_interpreter": script})),
        (
            "ansible_become",
            json!({"ansible_become": true, "ansible_become_exe": script, "ansible_become_user": "root"}),
        ),
        ("ansible_remote_tmp", json!({"ansible_remote_tmp": format!("$({script})")})),
        ("place", json!({"place": "elsewhere"})),
    ];
    let mut cases = Vec::new();
    for (way, _, problem, _) in COMPUTED_NAMES {
        // One way suffices for a variable of the role.
        for (alias, facts) in facts.iter().filter(|(alias, _)| *alias != "place" || way == "key") {
            let spec = json!({"way": way, "facts": facts, "alias": alias, "values": [facts[*alias]], "module": "set_fact", "factsName": "ansible_facts"});
            cases.push((spec, problem));
        }
    }
    outcomes(&test, &cases, |spec, problem, message| {
        assert!(problem.is_empty() || message.is_some(), "{spec} succeeds");
        let message = message.unwrap_or_default();
        assert!(message.contains(problem), "{spec}: {message}");
    })
    .await;
    assert!(!canary.exists(), "a command ran");
    let good = json!({"way": "good", "facts": {"other": "a"}});
    assert_eq!(outcome(&test, "good", &good).await, None);
}

/// Runs an operator for objects that refer to files outside of its project in each of the fields, and for one that
/// does not.
async fn assert_refused_outside(written: Project, fields: &[&str], executor: Executor) {
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let folder = written.folder();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let outside = folder.with_file_name(format!("outside-of-{name}"));
    let canary = outside.join("CANARY");
    let _ = std::fs::remove_dir_all(&outside);
    let tasks = format!("- ansible.builtin.command: touch {}\n", canary.display());
    let play = format!("- hosts: localhost\n  tasks:\n  {tasks}");
    let files = [
        ("tasks/main.yml", &*tasks),
        ("vars.yml", "ansible_become: true\n"),
        ("tasks.yml", &*tasks),
        ("play.yml", &*play),
    ];
    for (path, text) in files {
        let path = outside.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    // The path starts at the root, independent of the depth of the base.
    let relative = PathBuf::from("../".repeat(20)).join(outside.strip_prefix("/").unwrap());
    let mut cases = Vec::new();
    for field in fields {
        let file = match *field {
            "vars_file" | "page" | "template_file" | "copied" | "table" | "user" | "moved" | "slurped" | "fetched"
            | "sent" => "vars.yml",
            "tasks_file" | "part" => "tasks.yml",
            "book" => "play.yml",
            _ => "",
        };
        cases.extend([&outside, &relative].map(|base| (json!({*field: base.join(file)}), ())));
        // A parent of the project would make all files below it readable.
        if file.is_empty() {
            cases.extend([Path::new("/"), folder.parent().unwrap()].map(|parent| (json!({*field: parent}), ())));
        }
    }
    outcomes(&test, &cases, |spec, (), message| {
        let message = message.unwrap_or_default();
        let reasons = ["outside of the project", "not inside the expected role path"];
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{spec}: {message}");
    })
    .await;
    assert!(!canary.exists(), "a command ran");
    assert_eq!(outcome(&test, "good", &json!({})).await, None);
}

async fn computed_names_in_a_role_stay_within_the_project(executor: Executor) {
    let tasks = "
- ansible.builtin.include_vars: '{{ vars_file | default(\"more.yml\") }}'
- ansible.builtin.include_tasks: '{{ tasks_file | default(\"more.yml\") }}'
- ansible.builtin.include_role: {name: '{{ included | default(\"b\") }}'}
- ansible.builtin.include_role: {name: b, tasks_from: '{{ part | default(\"main.yml\") }}'}
- ansible.builtin.include_vars: /dev/null
- ansible.builtin.assert: {that: more == 1}
";
    let files = [
        ("roles/a/tasks/main.yml", tasks),
        ("roles/a/tasks/more.yml", "- ansible.builtin.debug: {}\n"),
        ("roles/a/vars/more.yml", "more: 1\n"),
        ("roles/b/tasks/main.yml", "- ansible.builtin.debug: {}\n"),
    ];
    assert_refused_outside(
        Project::new(&named("dynamic", executor), &files),
        &["vars_file", "tasks_file", "included", "part"],
        executor,
    )
    .await;
}

async fn computed_names_of_static_imports_stay_within_the_project(executor: Executor) {
    let play = "
- import_playbook: '{{ book | default(\"more.yml\") }}'
- hosts: localhost
  gather_facts: false
  vars_files: ['{{ vars_file | default(\"vars.yml\") }}']
  roles: ['{{ listed | default(\"b\") }}']
  tasks:
  - ansible.builtin.import_role: {name: '{{ imported | default(\"b\") }}'}
  - ansible.builtin.import_tasks: '{{ tasks_file | default(\"tasks.yml\") }}'
";
    let files = [
        ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, playbook: play.yml}\n"),
        ("play.yml", play),
        ("more.yml", "- {hosts: localhost, gather_facts: false, tasks: []}\n"),
        ("vars.yml", "more: 1\n"),
        ("tasks.yml", "- ansible.builtin.assert: {that: more == 1}\n"),
        ("roles/b/tasks/main.yml", "- ansible.builtin.debug: {}\n"),
    ];
    let fields = ["book", "vars_file", "listed", "imported", "tasks_file"];
    assert_refused_outside(Project::new(&named("static", executor), &files), &fields, executor).await;
}

async fn literal_names_may_leave_the_project(executor: Executor) {
    let elsewhere = Project::new(
        &named("elsewhere", executor),
        &[
            ("c/tasks/main.yml", "- ansible.builtin.import_tasks: more.yml\n"),
            ("c/tasks/more.yml", "- ansible.builtin.debug: {}\n"),
            ("tasks.yml", "- ansible.builtin.import_tasks: imported.yml\n"),
            ("imported.yml", "- ansible.builtin.set_fact: {imported: 1}\n"),
        ],
    );
    let folder = elsewhere.folder().display().to_string();
    let tasks = format!(
        "
- ansible.builtin.import_role: {{name: {folder}/c}}
- ansible.builtin.include_role: {{name: {folder}/c}}
- ansible.builtin.import_tasks: {folder}/tasks.yml
- ansible.builtin.include_tasks: {folder}/tasks.yml
- ansible.builtin.assert: {{that: imported == 1}}
- ansible.builtin.debug: {{msg: \"{{{{ lookup('file', '{folder}/tasks.yml') }}}}\"}}
"
    );
    assert_refused_outside(Project::role(&named("literal", executor), &tasks), &[], executor).await;
}

async fn computed_names_of_lookups_stay_within_the_project(executor: Executor) {
    let tasks = r#"
- {debug: {msg: "{{ lookup('file', page) }}"}, when: page is defined}
- {template: {src: '{{ template_file }}', dest: '{{ lookup("env", "TMPDIR") }}/a'}, when: template_file is defined}
- {copy: {src: '{{ copied }}', dest: '{{ lookup("env", "TMPDIR") }}/b'}, when: copied is defined}
- {debug: {msg: "{{ lookup('csvfile', 'more', file=table) }}"}, when: table is defined}
- {debug: {msg: "{{ lookup('password', user ~ ' length=20') }}"}, when: user is defined}
- {copy: {src: '{{ moved }}', dest: '{{ lookup("env", "TMPDIR") }}/d', remote_src: true}, when: moved is defined}
- {slurp: {src: '{{ slurped }}'}, when: slurped is defined}
- {fetch: {src: '{{ fetched }}', dest: '{{ lookup("env", "TMPDIR") }}/e', flat: true}, when: fetched is defined}
- {uri: {url: 'http://127.0.0.1:1', method: POST, src: '{{ sent }}'}, when: sent is defined}
- {assemble: {src: '{{ parts }}', dest: '{{ lookup("env", "TMPDIR") }}/f'}, when: parts is defined}
- {copy: {src: inside.txt, dest: '{{ lookup("env", "TMPDIR") }}/c'}}
- {slurp: {src: '{{ role_path }}/files/{{ inner | default("inside") }}.txt'}}
- {debug: {msg: "{{ lookup('template', 'inside.j2') }}"}}
- {debug: {msg: "{{ lookup('password', 'credentials/' ~ ansible_operator_meta.name) }}"}}
"#;
    let files = [
        ("roles/a/tasks/main.yml", tasks),
        ("roles/a/files/inside.txt", "a"),
        ("roles/a/templates/inside.j2", "{{ title | default('a') }}"),
    ];
    assert_refused_outside(
        Project::new(&named("lookups", executor), &files),
        &["page", "template_file", "copied", "table", "user", "moved", "slurped", "fetched", "sent", "parts"],
        executor,
    )
    .await;
}

async fn computed_names_do_not_read_files_of_the_run(executor: Executor) {
    let tasks = r#"
- {debug: {msg: "{{ lookup('file', page) }}"}, when: page is defined}
- {debug: {msg: "{{ lookup('csvfile', 'apiVersion', file=table) }}"}, when: table is defined}
- {include_vars: '{{ vars_file }}', when: vars_file is defined}
- {copy: {src: '{{ copied }}', dest: '{{ lookup("env", "TMPDIR") }}/b'}, when: copied is defined}
- {slurp: {src: '{{ slurped }}'}, when: slurped is defined}
- {debug: {msg: "{{ lookup('password', 'credentials/' ~ user) }}"}, when: user is defined}
- {copy: {content: '{{ title | default("a") }}', dest: '{{ lookup("env", "TMPDIR") }}/c'}}
"#;
    let written = Project::role(&named("run-files", executor), tasks);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let cases = [
        (json!({"page": "kubeconfig"}), true),
        (json!({"page": "tmp/../run.json"}), true),
        (json!({"page": "connection.json"}), true),
        (json!({"page": "/proc/self/cwd/variables.json"}), true),
        (json!({"table": "kubeconfig"}), true),
        (json!({"vars_file": "run.json"}), true),
        (json!({"copied": "kubeconfig"}), true),
        (json!({"slurped": "kubeconfig"}), true),
        (json!({"slurped": "$KUBECONFIG"}), true),
        (json!({"user": "../kubeconfig"}), true),
        (json!({}), false),
    ];
    outcomes(&test, &cases, |spec, is_refused, message| {
        let message = message.unwrap_or_default();
        assert_eq!(message.contains("is a file of the run"), *is_refused, "{spec}: {message}");
    })
    .await;
}

/// Ways to access files that users choose.
const FILES: &str = r#"
- {tempfile: {state: directory}, register: work}
- {copy: {content: '{{ text | default("a") }}', dest: '{{ work.path }}/{{ key }}'}, when: key is defined}
- {lineinfile: {path: '{{ edited }}', line: a, create: true}, when: edited is defined}
- {replace: {path: '{{ replaced }}', regexp: a, replace: b}, when: replaced is defined}
- {blockinfile: {path: '{{ extended }}', block: a, create: true}, when: extended is defined}
- {get_url: {url: 'http://127.0.0.1:1', dest: '{{ loaded }}'}, when: loaded is defined}
- {unarchive: {src: '{{ role_path }}/files/a.tar', dest: '{{ unpacked }}'}, when: unpacked is defined}
- {fetch: {src: '{{ role_path }}/files/a.tar', dest: '{{ fetched }}', flat: true}, when: fetched is defined}
- {get_url: {url: '{{ url }}', dest: '{{ work.path }}/a'}, when: url is defined}
- {debug: {msg: "{{ lookup('url', read_url) }}"}, when: read_url is defined}
- {unarchive: {src: '{{ archive }}', dest: '{{ work.path }}', remote_src: true}, when: archive is defined}
- {slurp: {src: '{{ slurped }}'}, when: slurped is defined}
- {find: {paths: '{{ searched }}', contains: a}, when: searched is defined}
- {wait_for: {path: '{{ awaited }}', search_regex: a, timeout: 1}, when: awaited is defined}
- {setup: {fact_path: '{{ facts }}', gather_subset: ['!all', local]}, when: facts is defined}
- {command: {argv: [cat, '{{ printed }}']}, when: printed is defined}
- {shell: 'echo a >"$TARGET"', environment: {TARGET: '{{ target }}'}, when: target is defined}
- kubernetes.core.k8s: {definition: {apiVersion: v1, kind: ConfigMap, data: {a: "token_file: OUTSIDE/inline", b: OUTSIDE/inline}}}
  when: false
- {slurp: {src: OUTSIDE/literal}}
- {command: cat OUTSIDE/literal}
- {copy: {content: a, dest: 'OUTSIDE/new/{{ ansible_operator_meta.name }}'}}
- {command: 'cat OUTSIDE/new/{{ ansible_operator_meta.name }}'}
"#;

async fn runs_access_only_their_own_files_and_literal_paths(executor: Executor) {
    let other = [("secret", "a"), ("inline", "a"), ("literal", "a"), ("new/a", "a")];
    let other = Project::new(&named("walled-outside", executor), &other);
    let outside = |name: &str| other.folder().join(name).display().to_string();
    let tasks = FILES.replace("OUTSIDE", &outside(""));
    let tasks = tasks.replace("//", "/").replace("http:/", "http://");
    let files = [("roles/a/tasks/main.yml", &*tasks), ("roles/a/files/a.tar", "a")];
    let written = Project::new(&named("walled", executor), &files);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let inside = |name: &str| written.folder().join(name).display().to_string();
    let (secret, canary) = (outside("secret"), inside("roles/a/tasks/canary.yml"));
    let (not_written, not_read, denied) = ("neither a temporary file", "outside of the project", "runs may not access");
    let module = "../../home/collections/ansible_collections/kubernetes/core/plugins/modules/canary.py";
    let cases = [
        (json!({"key": module}), not_written),
        (json!({"key": "../../callbacks/canary.py"}), not_written),
        (json!({"edited": canary}), not_written),
        (json!({"edited": secret}), not_written),
        (json!({"edited": "library/canary.py"}), not_written),
        (json!({"replaced": inside("roles/a/tasks/main.yml")}), not_written),
        (json!({"extended": canary}), not_written),
        (json!({"loaded": canary}), not_written),
        (json!({"unpacked": inside("roles/a")}), not_written),
        (json!({"fetched": canary}), not_written),
        (json!({"url": format!("file://{secret}")}), "is that of a file"),
        (json!({"readUrl": format!(" URL:File:{secret}")}), "is that of a file"),
        (json!({"archive": format!("file://{secret}")}), "is that of a file"),
        (json!({"slurped": outside("inline")}), not_read),
        (json!({"slurped": format!("$NONE~/{}{secret}", "../".repeat(20))}), "File not found"),
        (json!({"slurped": format!("~/{}{secret}", "../".repeat(20))}), not_read),
        (json!({"searched": format!("/nowhere,{secret}")}), not_read),
        (json!({"awaited": secret}), not_read),
        (json!({"facts": other.folder()}), not_read),
        (json!({"printed": secret}), denied),
        (json!({"printed": outside("inline")}), denied),
        (json!({"target": canary}), denied),
        (json!({"target": secret}), denied),
        (json!({"key": "a/../b"}), "does not exist"),
        (json!({"key": "a"}), ""),
    ];
    outcomes(&test, &cases, |spec, problem, message| {
        assert_eq!(message.is_some(), !problem.is_empty(), "{spec}: {message:?}");
        let message = message.unwrap_or_default();
        assert!(message.contains(problem), "{spec}: {message}");
    })
    .await;
    assert!(!Path::new(&canary).exists(), "a file of the role was written");
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "a");
}

async fn computed_names_of_modules_and_lookups_run_no_command(executor: Executor) {
    let tasks = r#"
- {action: '{{ module | default("debug") }}', args: '{{ facts | default({}) }}'}
- {debug: {msg: "{{ lookup(source, 'touch CANARY') }}"}, when: source is defined}
- {set_fact: {sources: [env, file], modules: {fast: ansible.builtin.ping}, words: "shell and pipe"}}
- {action: "{{ modules['fast'] }}"}
- {debug: {msg: "{{ query(sources[0], 'HOME') }} {{ lookup('ansible.builtin.vars', 'words') }}"}}
"#;
    let name = named("plugins-by-name", executor);
    let written = Project::role(&name, "");
    let canary = written.folder().join("CANARY");
    let written = Project::role(&name, &tasks.replace("CANARY", &canary.display().to_string()));
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let command = json!({"cmd": format!("touch {}", canary.display())});
    let refused = "has a computed name";
    let cases = [
        (json!({"module": "ansible.builtin.command", "facts": command}), refused),
        (json!({"module": "shell", "facts": command}), refused),
        (json!({"module": "expect", "facts": command}), refused),
        (json!({"module": "ansible.builtin.git", "facts": {"repo": "ext::id", "dest": "a"}}), refused),
        (json!({"source": "pipe"}), refused),
        (json!({"source": "ansible.builtin.pipe"}), refused),
        (json!({"source": "lines"}), refused),
        (json!({"source": "url"}), refused),
        (json!({}), ""),
    ];
    outcomes(&test, &cases, |spec, problem, message| {
        assert_eq!(message.is_some(), !problem.is_empty(), "{spec}: {message:?}");
        let message = message.unwrap_or_default();
        assert!(message.contains(problem), "{spec}: {message}");
    })
    .await;
    assert!(!canary.exists(), "a command ran");
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

async fn computed_names_reach_no_collection(executor: Executor) {
    let tasks = "
- {include_tasks: '{{ part }}.yml', when: part is defined}
- {include_role: {name: '{{ flavor }}'}, when: flavor is defined}
- {import_role: {name: community.sops._install_age}, when: false}
- import_tasks: ../../../common/tasks.yml
- include_tasks: ../../../common/tasks.yml
";
    let collection = "collections/ansible_collections/acme/shop";
    let path = format!("{collection}/tests/b/tasks/main.yml");
    let command = "- ansible.builtin.command: '{{ program }}'\n";
    let play = "- {hosts: localhost, gather_facts: false, roles: [a]}\n";
    let watches = "- {group: shop.example.com, version: v1, kind: Shop, playbook: play.yml}\n";
    let files = [
        ("watches.yaml", watches),
        ("play.yml", play),
        ("roles/a/tasks/main.yml", tasks),
        ("roles/b/tasks/main.yml", "- debug: {}\n"),
        ("roles/b/tests/part.yml", command),
        ("common/tasks.yml", "- debug: {}\n"),
        ("common/other.yml", command),
        (&*path, command),
    ];
    let written = Project::new(&named("collections", executor), &files);
    let canary = written.folder().join("CANARY");
    let tests = written.folder().join(collection).join("tests/b");
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let cases = [
        (json!({"part": tests.join("tasks/main")}), true),
        (json!({"part": format!("../../../{collection}/tests/b/tasks/main")}), true),
        (json!({"part": "../../../common/other"}), true),
        (json!({"part": "../../b/tests/part"}), true),
        (json!({"flavor": tests}), true),
        (json!({"flavor": "community.sops.install"}), true),
        (json!({"flavor": format!("../{collection}/tests/b")}), true),
        (json!({"flavor": "b"}), false),
        (json!({}), false),
    ];
    let cases = cases.map(|(mut spec, is_refused)| {
        spec["program"] = format!("touch {}", canary.display()).into();
        (spec, is_refused)
    });
    outcomes(&test, &cases, |spec, is_refused, message| {
        assert_eq!(message.is_some(), *is_refused, "{spec}: {message:?}");
        let message = message.unwrap_or_default();
        assert!(!is_refused || message.contains("outside of the project"), "{spec}: {message}");
    })
    .await;
    assert!(!canary.exists(), "a command ran");
}

async fn vaults_are_not_opened_for_users(executor: Executor) {
    let tasks = r#"
- {debug: {msg: "{{ lookup('file', page) }}"}, when: page is defined}
- {fail: {msg: "{{ lookup('file', 'literal.yml') }}"}, when: literal is defined}
- {copy: {content: '{{ text }}', dest: '{{ lookup("env", "TMPDIR") }}/a'}, when: text is defined}
- {fail: {msg: "copied {{ lookup('file', lookup('env', 'TMPDIR') ~ '/a') }}"}, when: text is defined}
"#;
    let watches = "- {group: shop.example.com, version: v1, kind: Shop, role: a, vaultPasswordFile: vault-password}\n";
    let files = [
        ("watches.yaml", watches),
        ("vault-password", "swordfish"),
        ("roles/a/tasks/main.yml", tasks),
        ("roles/a/files/literal.yml", VARIABLES),
        ("roles/a/files/computed.yml", VARIABLES),
    ];
    let written = Project::new(&named("vaults", executor), &files);
    let password = written.folder().join("vault-password");
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let cases = [
        (json!({"page": password}), "password of a vault"),
        (json!({"page": "../../../vault-password"}), "password of a vault"),
        (json!({"page": "computed.yml"}), "use a literal path"),
        (json!({"text": VARIABLES}), "copied $ANSIBLE_VAULT"),
        (json!({"literal": true}), "greeting: hello"),
    ];
    outcomes(&test, &cases, |spec, expected, message| {
        let message = message.unwrap_or_default();
        assert!(message.contains(expected), "{spec}: {message}");
    })
    .await;
}

/// A lookup with options of variables without a prefix, like `community.sops.sops`.
const OPTIONS: &str = r#"
DOCUMENTATION = """
name: runs
options:
  binary: {type: str, default: none, vars: [{name: runs_binary}]}
  word: {type: str, default: none, vars: [{name: runs_word}]}
"""
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        return [self.get_option("binary") + " " + self.get_option("word")]
"#;

async fn fields_configure_no_plugin(executor: Executor) {
    let files = [
        ("roles/a/tasks/main.yml", "- fail: {msg: \"found {{ lookup('runs') }}\"}\n"),
        ("roles/a/defaults/main.yml", "runs_word: a\n"),
        ("roles/a/lookup_plugins/runs.py", OPTIONS),
    ];
    let written = Project::new(&named("plugins", executor), &files);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    let cases = [
        (json!({"runsBinary": "/bin/echo"}), "the field 'runs_binary' sets the option 'binary'"),
        (json!({"runsWord": "b"}), "found none b"),
        (json!({}), "found none a"),
    ];
    outcomes(&test, &cases, |spec, expected, message| {
        let message = message.unwrap_or_default();
        assert!(message.contains(expected), "{spec}: {message}");
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

/// A role whose users choose the objects that it deletes and patches.
const CHOICES: &str = r#"
- kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: '{{ ansible_operator_meta.name }}-own'
        namespace: '{{ ansible_operator_meta.namespace }}'
      data:
        a: a
- kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: legacy
    namespace: '{{ ansible_operator_meta.namespace }}'
    state: absent
- kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: '{{ obsolete }}'
    namespace: '{{ ansible_operator_meta.namespace }}'
    state: absent
  when: obsolete is defined
- kubernetes.core.k8s:
    state: patched
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: '{{ extra }}'
        namespace: '{{ ansible_operator_meta.namespace }}'
      data:
        a: changed
  when: extra is defined
- kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    namespace: '{{ ansible_operator_meta.namespace }}'
    state: absent
    delete_all: true
  when: all is defined
- kubernetes.core.k8s_info:
    api_version: v1
    kind: Pod
    name: '{{ pod }}'
    namespace: '{{ ansible_operator_meta.namespace }}'
  when: pod is defined
- kubernetes.core.k8s_exec:
    pod: '{{ pod }}'
    namespace: '{{ ansible_operator_meta.namespace }}'
    command: id
  when: pod is defined
"#;

async fn users_do_not_choose_objects_of_others(executor: Executor) {
    let written = Project::role(&named("choices", executor), CHOICES);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    for name in ["theirs", "legacy"] {
        test.apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{a: a}}}}")).await;
    }
    test.apply("{apiVersion: v1, kind: Pod, metadata: {name: theirs}, spec: {containers: [{name: a, image: a}]}}")
        .await;
    let objects = api(&test, &shops());
    let attacks = [
        ("first", json!({}), None),
        ("itself", json!({"extra": "itself-own"}), None),
        ("unowned", json!({"obsolete": "theirs"}), Some("was not created for it")),
        ("patched", json!({"extra": "theirs"}), Some("was not created for it")),
        ("owned", json!({"obsolete": "first-own"}), Some("belongs to Shop first")),
        ("all", json!({"all": true}), Some("belongs to Shop first")),
        ("connected", json!({"pod": "theirs"}), Some("was not created for it")),
    ];
    for (name, spec, problem) in attacks {
        let shop =
            json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
        test.apply(&shop.to_string()).await;
        let found = async |kind: &str| condition(&objects.get(name).await.unwrap(), kind);
        let has = async |kind: &str| found(kind).await["status"] == "True";
        test.eventually("it has ended", async || has("Successful").await || has("Failure").await).await;
        let failure = found("Failure").await["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(has("Failure").await, problem.is_some(), "{spec}: {failure}");
        assert!(problem.is_none_or(|problem| failure.contains(problem)), "{spec}: {failure}");
    }
    assert_eq!(data(&test, "theirs").await, json!({"a": "a"}));
    assert_eq!(data(&test, "first-own").await, json!({"a": "a"}));
    assert_eq!(data(&test, "legacy").await, Value::Null);
}

async fn spec_fields_run_no_command(executor: Executor) {
    let written =
        Project::role(&named("canary", executor), "- ansible.builtin.command: echo {{ title | default('x') }}\n");
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
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
        let is_successful = async || condition(&objects.get(&name).await.unwrap(), "Successful")["status"] == "True";
        test.eventually("it is successful", is_successful).await;
        let accepted = condition(&objects.get(&name).await.unwrap(), "VariablesAccepted");
        assert_eq!(accepted["status"], "False", "{spec}");
    }
    assert!(!canary.exists(), "a command ran");
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
