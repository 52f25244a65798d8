//! Names that users choose: of variables, and of commands.

use super::{named, outcome, outcomes, test_of};
use crate::project::{Project, api, condition, shops};
use flyball_ansible::Executor;
use serde_json::json;

with_both_executors! {
    computed_names_run_no_command
    spec_fields_run_no_command
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
