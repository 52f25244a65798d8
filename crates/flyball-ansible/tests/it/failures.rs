//! Errors are reported: at load time if possible, otherwise in the status.

use crate::project::{Project, api, change, condition, operator_of, shops};
use flyball_ansible::{Executor, Watches};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

const SHOP: &str = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {size: 1}}";

#[tokio::test(start_paused = true)]
async fn failing_task_reports_reason_and_retries_with_backoff() {
    let tasks = "- {name: sizes are checked, fail: {msg: 'size must be > 1, not {{ size }}'}, when: size < 2}\n";
    let written = Project::role("fails", tasks);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    let objects = api(&test, &shops());
    let object = objects.get("corner").await.unwrap();
    let failure = condition(&object, "Failure");
    assert_eq!((&failure["status"], &failure["reason"]), (&json!("True"), &json!("Failed")));
    assert_eq!(failure["message"], "size must be > 1, not 1");
    assert_eq!(failure["ansibleResult"]["failures"], 1);
    assert_eq!(condition(&object, "Running")["status"], "False");
    let before = test.requests();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(test.requests().since(&before).writes, 0, "an unchanged failure is written once");
    change(&objects, "corner", json!({"spec": {"size": 2}})).await;
    test.assert_converges().await;
    let object = objects.get("corner").await.unwrap();
    assert_eq!(condition(&object, "Failure")["status"], "False");
    assert_eq!(condition(&object, "Successful")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn failed_task_is_reported_by_an_event_without_hidden_output() {
    for (name, options, expected) in [
        ("event", "", "size must be > 1, not 1"),
        ("event-hidden", ", no_log: true", "the output has been hidden due to the fact that 'no_log: true'"),
    ] {
        let tasks =
            format!("- {{name: sizes are checked, fail: {{msg: 'size must be > 1, not {{{{ size }}}}'}}{options}}}\n");
        let folder = Project::role(name, &tasks).folder().to_owned();
        let test = Test::of(move || operator_of(&folder)).start().await;
        test.apply(SHOP).await;
        sleep(Duration::from_secs(5)).await;
        let events = test.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let notes: Vec<_> = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("TaskFailed") && event.type_.as_deref() == Some("Warning"))
            .map(|event| event.note.as_deref().unwrap_or_default())
            .collect();
        let [note] = notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("task sizes are checked (") && note.contains(&format!("): {expected}")), "{note}");
        assert_eq!(note.contains("not 1"), options.is_empty(), "{note}");
        assert!(note.contains("roles/a/tasks/main.yml, module fail): "), "{note}");
    }
}

#[tokio::test(start_paused = true)]
async fn step_limit_cannot_be_ignored_or_rescued() {
    let tasks = "- block:\n  - debug: {msg: '{{ text is search(item) }}'}\n    loop: '{{ items }}'\n    ignore_errors: true\n  \
                 rescue:\n  - debug: {msg: rescued}\n";
    let written = Project::role("works", tasks);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    let spec = json!({"text": "a".repeat(200_000), "items": vec!["b"; 1000]});
    let shop =
        json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "corner"}, "spec": spec});
    test.apply(&shop.to_string()).await;
    sleep(Duration::from_secs(5)).await;
    let failure = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure");
    assert_eq!(failure["status"], "True");
    let message = failure["message"].as_str().unwrap_or_default();
    assert!(message.contains("limit of 8000000 steps: check for lists that are too long"), "{failure}");
    // It is not retried before something changes.
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn task_errors_name_a_remedy() {
    let check = async |name: &str, tasks: &str, expected: &str| {
        let written = Project::role(name, tasks);
        let folder = written.folder().to_owned();
        let test = Test::of(move || operator_of(&folder)).start().await;
        test.apply(SHOP).await;
        sleep(Duration::from_secs(5)).await;
        let message = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure")["message"].clone();
        assert!(message.as_str().unwrap_or_default().contains(expected), "{message}");
    };
    check(
        "unforeseen",
        "- k8s: {definition: {apiVersion: v1, kind: '{{ [\"Po\", \"d\"] | join }}{{ size }}', metadata: {name: a}}}",
        "no permissions for Pod1 of v1",
    )
    .await;
    check("undefined", "- {debug: {msg: 'a {{ nowhere }}'}}", "'nowhere' is undefined").await;
    check(
        "nameless",
        "- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}}",
        "no metadata.name",
    )
    .await;
    check("refused", "- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: A_B}}}", "A_B").await;
    let kind = "- k8s: {definition: {apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: a}}}";
    check("unserved", kind, "the cluster has no kind Issuer of cert-manager.io/v1: install its CRD").await;
    check("unselective", "- k8s: {state: absent, kind: ConfigMap}", "requires a name, labels, or delete_all").await;
    check(
        "status",
        "- k8s_status: {api_version: v1, kind: Pod, name: x, status: {a: 1}}",
        "only supports the status of the reconciled object",
    )
    .await;
    check(
        "late",
        "- {debug: {}, register: x, until: x is failed, retries: 3, delay: 1}",
        "until was false after all retries",
    )
    .await;
    check("items", "- {fail: {msg: 'no {{ item }}'}, loop: [1, 2]}", "One or more items failed: no 1").await;
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_retry_only_on_change() {
    let map =
        |metadata: &str| format!("- k8s: {{definition: {{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}}}");
    let cases = [
        (
            "refused-kind",
            "- k8s: {definition: {apiVersion: v1, kind: '{{ text }}', metadata: {name: a}}}".into(),
            "invalid apiVersion",
        ),
        ("refused-name", map("{name: 'a-{{ text }}'}"), "invalid name of an object"),
        (
            "refused-namespace",
            map("{name: a, namespace: '{{ text | default(\"kube-system\") }}'}"),
            "may not change objects in namespace \"a/../b\"",
        ),
        ("refused-nothing", map("{generateName: a-}"), "no metadata.name"),
        ("refused-hidden", format!("{}\n  no_log: true", map("{name: 'a-{{ text }}'}")), "no_log"),
    ];
    for (name, tasks, expected) in cases {
        let written = Project::role(name, &tasks);
        let folder = written.folder().to_owned();
        let test = Test::of(move || operator_of(&folder)).start().await;
        test.apply(&SHOP.replace("size: 1", "size: 1, text: a/../b")).await;
        // A failure that is retried forever would prevent convergence.
        test.assert_converges().await;
        let objects = api(&test, &shops());
        let failure = condition(&objects.get("corner").await.unwrap(), "Failure");
        assert!(failure["message"].as_str().unwrap_or_default().contains(expected), "{name}: {failure}");
        let before = test.requests();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(test.requests().since(&before).writes, 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_objects_are_not_adopted() {
    let tasks = "- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: mine}, data: {a: b}}}";
    let written = Project::role("foreign", tasks);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}, data: {a: c}}").await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    let message = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure")["message"].clone();
    assert!(message.as_str().unwrap().contains("was not created by"), "{message}");
    let maps = test.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    let mine = maps.items.into_iter().find(|map| map.metadata.name.as_deref() == Some("mine")).unwrap();
    assert_eq!(mine.data.unwrap()["a"], "c");
}

#[test]
fn unsupported_features_are_found_when_a_role_is_read() {
    let check = |name: &str, tasks: &str, expected: &str| {
        let error = Project::role(name, tasks).refused().to_string();
        let place = if name == "list" { "roles/a/tasks/main.yml: " } else { "roles/a/tasks/main.yml:1: " };
        assert!(error.contains(place) && error.contains(expected), "{error}");
    };
    check("module", "- {name: x, shell: ls}", "task \"x\": the built-in executor does not support module shell");
    check(
        "exec",
        "- {name: x, kubernetes.core.k8s_exec: {pod: a}}",
        "module kubernetes.core.k8s_exec needs ansible-playbook",
    );
    check("log", "- {name: x, k8s_log: {name: a}}", "has no connections to containers");
    check("uri", "- {name: x, uri: {url: 'http://a.b.svc'}}", "only for declared services: list them in allowServices");
    check("include-text", "- {debug: {msg: \"{% include 'x.j2' %}\"}}", "only in template files");
    check("keyword", "- {name: x, debug: {}, environment: {A: b}}", "not support keyword environment");
    check("argument", "- {k8s: {definition: {}, host: a}}", "task number 1: k8s: unsupported argument host");
    check(
        "unknown-keyword",
        "- {name: x, debug: {}, strategy: free}",
        "conflicting action statements: debug, strategy",
    );
    check(
        "unknown-argument",
        "- {k8s: {definition: {}, stat: absent}}",
        "task number 1: Unsupported parameters for (k8s) module: stat. Supported parameters include: all, api, ",
    );
    check("unknown-option", "- {include_tasks: {file: a.yml, bogus: 1}}", "Invalid options for include_tasks: bogus");
    check("unknown-in-block", "- {block: [], colour: red}", "'colour' is not a valid attribute for a Block");
    check("filter", "- {debug: {msg: '{{ x | ipaddr }}'}}", "does not support filter ipaddr");
    check("template", "- {debug: {msg: '{{ x'}}", "invalid template");
    check("condition", "- {debug: {}, when: x ==}", "when: invalid template");
    check("loop", "- {debug: {}, with_fileglob: '*'}", "not support this loop");
    check("import", "- import_tasks: none.yml", "not found");
    check("include", "- include_tasks: none.yml", "not found");
    check("role", "- import_role: {name: none}", "role none not found");
    check("computed-role", "- include_role: {name: '{{ x }}'}", "has no literal role name");
    check("computed-import", "- import_role: {name: '{{ x }}'}", "has no literal role name");
    check("computed-part", "- include_role: {name: a, tasks_from: '{{ x }}'}", "not support templates in tasks_from");
    check("computed-tasks", "- import_tasks: '{{ x }}'", "import_tasks does not support templates");
    check("itself", "- import_tasks: main.yml", "imports are nested deeper than");
    check("async", "- {debug: {}, async: 10}", "async");
    check("block", "- {block: [], loop: [1]}", "on the inner tasks");
    check("list", "a: b", "must be a list of tasks");
}

#[test]
fn task_that_is_invalid_for_ansible_has_no_other_executor() {
    for (number, (tasks, problem, is_invalid)) in [
        ("- {name: x, debug: {}, fail: {msg: a}}", "conflicting action statements: debug, fail", true),
        ("- {name: x, debug: {msg: a, bogus: 1}}", "Unsupported parameters for (debug) module: bogus. ", true),
        ("- {name: x, when: true}", "no module", true),
        ("- {name: x, copy: {dest: a}}", "does not support module copy", false),
        ("- {name: x, debug: {}, environment: {}}", "does not support keyword environment", false),
    ]
    .into_iter()
    .enumerate()
    {
        let project = Project::role(&format!("invalid-{number}"), tasks);
        let watches = Watches::read(project.folder().join("watches.yaml")).unwrap();
        let created = flyball_ansible::operator(&watches, Executor::Auto);
        assert_eq!(created.is_err(), is_invalid, "{tasks}");
        if let Err(error) = created {
            let place = "roles/a/tasks/main.yml:1: task \"x\": ";
            assert!(error.to_string().contains(&format!("{place}{problem}")), "{error}");
        }
        let requirements = flyball_ansible::ansible_requirements(&watches, Executor::Auto);
        assert_eq!(requirements.is_empty(), is_invalid, "{tasks}: {requirements:?}");
    }
}

#[test]
fn error_of_an_inner_task_has_its_own_line() {
    let error = Project::role("inner", "- block:\n    - {name: x, shell: ls}").refused().to_string();
    assert!(error.contains("roles/a/tasks/main.yml:2: task \"x\": "), "{error}");
}

#[test]
fn invalid_template_is_reported_with_its_file() {
    let files = [("roles/a/tasks/main.yml", "[]"), ("roles/a/templates/x.j2", "{{ a | nonsense }}")];
    let error = Project::new("templates", &files).refused().to_string();
    assert!(
        error.contains("roles/a/templates/x.j2: ") && error.contains("does not support filter nonsense"),
        "{error}"
    );
    for (template, problem) in [
        ("{% include name %}", "include only with a literal name"),
        ("{% include 'none.j2' %}", "template none.j2 not found"),
        ("{% extends 'x.j2' %}", "template inheritance"),
    ] {
        let files = [("roles/a/tasks/main.yml", "[]"), ("roles/a/templates/x.j2", template)];
        let error = Project::new("includes", &files).refused().to_string();
        assert!(error.contains("roles/a/templates/x.j2: ") && error.contains(problem), "{error}");
    }
    let files = [("roles/a/tasks/main.yml", "[]"), ("roles/a/defaults/main.yml", "a: '{{'")];
    let error = Project::new("defaults", &files).refused().to_string();
    assert!(error.contains("roles/a/defaults/main.yml: a: "), "{error}");
    let files = [("watches.yaml", "- {version: v1, kind: A, role: b}")];
    let error = Project::new("watches", &files).refused().to_string();
    assert!(error.contains("watches.yaml: entry 1 (A): role: role b not found"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn recursive_include_ends_with_an_error() {
    let written = Project::role("endless", "- include_tasks: main.yml");
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply(SHOP).await;
    sleep(Duration::from_secs(5)).await;
    let message = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure")["message"].clone();
    assert!(message.as_str().unwrap().contains("deep"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn computed_names_of_files_stay_within_the_role() {
    let tasks = "
- include_vars: '{{ variables | default(\"more.yml\") }}'
- include_tasks: '{{ tasks_file | default(\"more.yml\") }}'
- assert: {that: more == 1}
";
    let files = [
        ("roles/a/tasks/main.yml", tasks),
        ("roles/a/tasks/more.yml", "- debug: {}\n"),
        ("roles/a/vars/more.yml", "more: 1\n"),
        ("roles/b/tasks/main.yml", "- fail: {msg: this ran}\n"),
        ("roles/b/vars/main.yml", "more: 1\n"),
    ];
    let written = Project::new("computed", &files);
    let folder = written.folder().to_owned();
    let operated = folder.clone();
    let test = Test::of(move || operator_of(&operated)).start().await;
    let b = folder.join("roles/b");
    let specs = [
        json!({"variables": b.join("vars/main.yml")}),
        json!({"variables": "../../b/vars/main.yml"}),
        json!({"tasks_file": b.join("tasks/main.yml")}),
        json!({"tasks_file": "../../b/tasks/main.yml"}),
        json!({"tasks_file": "/dev/stdin"}),
        json!({}),
    ];
    let shop = |name: &str, spec: &serde_json::Value| json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
    for (number, spec) in specs.iter().enumerate() {
        test.apply(&shop(&format!("shop{number}"), spec).to_string()).await;
    }
    sleep(Duration::from_secs(5)).await;
    for (number, spec) in specs.iter().enumerate() {
        let shop = api(&test, &shops()).get(&format!("shop{number}")).await.unwrap();
        let message = condition(&shop, "Failure")["message"].clone();
        let is_refused =
            message.as_str().unwrap_or_default().contains("a computed name is limited to files of the role");
        assert_eq!(is_refused, spec != &json!({}), "{spec}: {message}");
        assert_eq!(condition(&shop, "Successful")["status"] == "True", !is_refused, "{spec}: {message}");
    }
}

#[test]
fn roles_of_a_play_have_no_computed_names() {
    let play = "- {hosts: localhost, roles: ['{{ x }}']}";
    let files = [
        ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, playbook: play.yml}\n"),
        ("play.yml", play),
    ];
    let error = Project::new("computed-roles", &files).refused().to_string();
    assert!(error.contains("play.yml: role {{ x }} not found"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn playbook_with_roles_and_tasks_runs() {
    let watches =
        "- {group: shop.example.com, version: v1, kind: Shop, playbook: play.yml, snakeCaseParameters: false}\n";
    let play = "
- hosts: localhost
  gather_facts: no
  collections: [kubernetes.core]
  vars: {word: hello}
  roles: [{role: a, greeting: '{{ word }}'}]
  tasks:
    - import_role: {name: b}
      when: size > 0
    - k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: last}, data: {facts: '{{ fact }}'}}}
    - meta: end_play
    - fail: {msg: never}
";
    let map = |name: &str| {
        format!(
            "- k8s: {{definition: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{a: '{{{{ greeting | default(word) }}}}'}}}}}}\n- set_fact: fact={name}\n"
        )
    };
    let files = [
        ("watches.yaml", watches),
        ("play.yml", play),
        ("roles/a/tasks/main.yml", &*map("a")),
        ("roles/b/tasks/main.yml", &*map("b")),
    ];
    let written = Project::new("playbook", &files);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    for (name, field, expected) in [("a", "a", "hello"), ("b", "a", "hello"), ("last", "facts", "b")] {
        assert_eq!(test.api::<ConfigMap>().get(name).await.unwrap().data.unwrap()[field], expected, "{name}");
    }
}
