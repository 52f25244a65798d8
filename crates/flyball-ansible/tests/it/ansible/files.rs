//! Files that runs may access.

use super::{named, outcome, outcomes, test_of};
use crate::project::Project;
use flyball_ansible::Executor;
use serde_json::json;
use std::path::{Path, PathBuf};

with_both_executors! {
    computed_names_in_a_role_stay_within_the_project
    computed_names_of_static_imports_stay_within_the_project
    literal_names_may_leave_the_project
    computed_names_of_lookups_stay_within_the_project
    computed_names_do_not_read_files_of_the_run
    runs_access_only_their_own_files_and_literal_paths
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
