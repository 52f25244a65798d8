//! The coverage report: all gaps, passwords and services of `watches.yaml`, and invalid projects.

use crate::features::{TOKEN, VARIABLES};
use crate::project::Project;
use flyball_ansible::{Coverage, GapKind, coverage};

/// Returns the gaps as lines `FILE:LINE KIND NAME`, sorted.
fn gaps(found: &Coverage) -> Vec<String> {
    let gaps = found.parts.iter().flat_map(|part| &part.gaps);
    let line = |kind: GapKind, name: &str, file: &str, line: usize| format!("{file}:{line} {kind:?} {name}");
    let mut lines: Vec<_> = gaps
        .flat_map(|gap| {
            gap.places.iter().map(|place| line(gap.kind, &gap.name, place.file.to_str().unwrap(), place.line))
        })
        .collect();
    lines.sort();
    lines
}

/// Asserts that there are these gaps, each as the beginning of a line.
#[track_caller]
fn has_gaps(name: &str, files: &[(&str, &str)], expected: &[&str]) -> Coverage {
    let found = coverage(Project::new(name, files).folder()).unwrap();
    let lines = gaps(&found);
    let is_equal = lines.len() == expected.len() && lines.iter().zip(expected).all(|(line, one)| line.starts_with(one));
    assert!(is_equal, "{lines:#?}");
    found
}

#[test]
fn passwords_and_services_are_those_of_the_entries() {
    let entry = |more: &str| format!("- {{group: shop.example.com, version: v1, kind: Shop, role: a{more}}}\n");
    let tasks = "- debug: {msg: '{{ greeting }} {{ token }}'}\n- uri: {url: 'http://api.shop.svc/'}\n";
    let token = format!("# One value.\nother: 1\n{TOKEN}");
    let files = |watches: &'static str| -> Vec<(&'static str, String)> {
        vec![
            ("watches.yaml", watches.to_owned()),
            ("password", "swordfish".to_owned()),
            ("roles/a/tasks/main.yml", tasks.to_owned()),
            ("roles/a/vars/main.yml", VARIABLES.to_owned()),
            ("roles/a/defaults/main.yml", token.clone()),
            // No entry names it.
            ("roles/b/tasks/main.yml", "- debug: {msg: '{{ greeting }}'}\n".to_owned()),
            ("roles/b/vars/main.yml", VARIABLES.to_owned()),
        ]
    };
    let with = |name: &str, watches: String, expected: &[&str]| {
        let files = files(Box::leak(watches.into_boxed_str()));
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        has_gaps(name, &files, expected)
    };
    let found = with("coverage-password", entry(", vaultPasswordFile: password, allowServices: [api.shop]"), &[]);
    assert_eq!((found.tasks, found.built_in), (3, 3));
    assert!(found.parts.iter().all(|part| part.rejected.is_none()), "{found:?}");
    let found = with(
        "coverage-no-password",
        entry(""),
        &[
            "roles/a/defaults/main.yml:4 Other encrypted by ansible-vault: set vaultPasswordFile in watches.yaml",
            "roles/a/tasks/main.yml:2 Module uri",
            "roles/a/vars/main.yml:1 Other encrypted by ansible-vault: set vaultPasswordFile in watches.yaml",
            "roles/b/vars/main.yml:1 Other encrypted by ansible-vault",
        ],
    );
    assert!(found.parts.iter().all(|part| part.rejected.is_some()), "{found:?}");
}

#[test]
fn all_gaps_of_a_task_are_listed() {
    let tasks = "
- command: 'echo {{ a | ipaddr }} {{ b | md5 }}'
  environment: {A: '{{ ansible_env.HOME }}'}
  become: true
  when: c is blue and d | to_datetime
- k8s: {sate: absent, color: red, definition: \"{{ lookup('pipe', 'ls') }}\", merge_type: [json]}
- debug: {msg: a}
  args: {volume: 3}
- k8s: kind=Pod colour=red
";
    let expected = [
        "roles/a/tasks/main.yml:2 Module command",
        "roles/a/tasks/main.yml:2 Keyword become",
        "roles/a/tasks/main.yml:2 Keyword environment",
        "roles/a/tasks/main.yml:2 Filter ipaddr",
        "roles/a/tasks/main.yml:2 Filter md5",
        "roles/a/tasks/main.yml:2 Filter to_datetime",
        "roles/a/tasks/main.yml:2 Test blue",
        "roles/a/tasks/main.yml:2 Variable ansible_env",
        "roles/a/tasks/main.yml:6 Lookup pipe",
        "roles/a/tasks/main.yml:6 Other k8s: the built-in executor does not support merge_type json",
        "roles/a/tasks/main.yml:6 Other Unsupported parameters for (k8s) module: color. ",
        "roles/a/tasks/main.yml:6 Other Unsupported parameters for (k8s) module: sate. ",
        "roles/a/tasks/main.yml:7 Other Unsupported parameters for (debug) module: volume. ",
        "roles/a/tasks/main.yml:9 Other Unsupported parameters for (k8s) module: colour. ",
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    has_gaps("coverage-all-gaps", &[("roles/a/tasks/main.yml", tasks)], &expected);
    let play = "
- hosts: web
  become: true
  vars: {a: '{{ b | ipaddr }}'}
  vars_files: [none.yml]
  serial: 3
  roles: [a, absent, missing]
";
    let expected = [
        "play.yml:2 Filter ipaddr",
        "play.yml:2 Other play: become is not supported",
        "play.yml:2 Other play: hosts: only localhost is supported",
        "play.yml:2 Other play: serial: unknown field",
        "play.yml:2 Other play: vars_files: no file",
        "play.yml:2 Other role absent not found",
        "play.yml:2 Other role missing not found",
    ];
    has_gaps("coverage-play-gaps", &[("roles/a/tasks/main.yml", "- debug:\n"), ("play.yml", play)], &expected);
}

#[test]
fn invalid_projects_are_not_covered() {
    let main = "roles/a/tasks/main.yml";
    for (number, (files, expected)) in [
        (&[(main, "a: 1\n")][..], &["roles/a/tasks/main.yml:1 Other must be a list of tasks, not a map"][..]),
        (&[(main, "- debug:\n- text\n")], &["roles/a/tasks/main.yml:2 Other a task must be a map, not a string"]),
        (&[(main, "- debug:\n---\n- debug:\n")], &["roles/a/tasks/main.yml:1 Other expected one document, found 2"]),
        (
            &[(main, "- include_tasks: more.yml\n"), ("roles/a/tasks/more.yml", "# c\na: 1\n")],
            &["roles/a/tasks/more.yml:2 Other must be a list of tasks, not a map"],
        ),
        (
            &[(main, "- debug: {msg: '{{ a.b( }}'}\n- debug:\n  when: a.b( and c | ipaddr\n")],
            &["roles/a/tasks/main.yml:1 Other invalid template", "roles/a/tasks/main.yml:2 Other invalid template"],
        ),
        (
            &[(main, "- k8s: {template: x.j2}\n"), ("roles/a/templates/x.j2", "a: {{ b | ipaddr }}\n{% if %}\n")],
            &["roles/a/templates/x.j2:1 Other invalid template"],
        ),
        (
            &[(main, "- debug: {msg: a}\n  fail: {msg: b}\n")],
            &["roles/a/tasks/main.yml:1 Other conflicting action statements: debug, fail: a task has one module"],
        ),
        (
            &[(main, "- debug: {msg: a}\n  shell: ls\n")],
            &["roles/a/tasks/main.yml:1 Other conflicting action statements: debug, shell: a task has one module"],
        ),
        (&[(main, "- name: nothing\n")], &["roles/a/tasks/main.yml:1 Other no module: add one"]),
        (&[(main, "- import_role: {name: b}\n")], &["roles/a/tasks/main.yml:1 Other role b not found"]),
        (
            &[(main, "- debug:\n"), ("roles/a/meta/main.yml", "dependencies: [b]\n")],
            &["roles/a/meta/main.yml:1 Other role b not found"],
        ),
        (
            &[
                (
                    "watches.yaml",
                    "\n- {group: a.io, version: v1, kind: A, role: a}\n- {version: v1, kind: B, role: b}\n",
                ),
                (main, "- debug:\n"),
            ],
            &["watches.yaml:3 Other role: role b not found in"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let found = has_gaps(&format!("coverage-invalid-{number}"), files, expected);
        assert!(found.parts.iter().any(|part| part.rejected.is_some()), "{found:?}");
        let rejected = found.parts.iter().find(|part| part.rejected.is_some()).unwrap();
        assert_eq!(rejected.built_in, 0, "{found:?}");
    }
}

#[test]
fn roles_outside_of_the_usual_directory_are_examined() {
    let files = [
        (
            "watches.yaml",
            "- {group: a.io, version: v1, kind: A, role: mine/a, finalizer: {name: a.io/b, role: mine/b}}\n",
        ),
        ("mine/a/tasks/main.yml", "- debug:\n"),
        ("mine/b/tasks/main.yml", "- shell: ls\n"),
    ];
    let found = has_gaps("coverage-elsewhere", &files, &["mine/b/tasks/main.yml:1 Module shell"]);
    assert_eq!((found.tasks, found.built_in), (2, 1));
}
