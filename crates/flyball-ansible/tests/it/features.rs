//! Features of roles in public operators: lookups of the cluster, generated passwords, scaling, vaults, collections.

use crate::project::{Project, api, condition, data, operator_of, shops};
use flyball_cluster::testing::Test;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::ListParams;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const SHOP: &str = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {}}";

/// A role that asserts the values of variables as Ansible has them: of including roles and of dependencies, magic ones,
/// null, and those of rescue tasks.
pub(crate) const ROLE_VARIABLES: [(&str, &str); 8] = [
    ("roles/a/meta/main.yml", "dependencies: [c]\n"),
    ("roles/a/defaults/main.yml", "team: red\nshade: '{{ team }}-a'\nlevel: a\n"),
    ("roles/a/vars/main.yml", "fixed: a\n"),
    (
        "roles/a/tasks/main.yml",
        "
- set_fact: {host: old}
- set_fact: {host: \"{{ 'nohost' | regex_search('h:([0-9]+)') }}\", nothing: \"{{ none }}\"}
- assert:
    that:
    - host | default('fallback', true) == 'fallback'
    - nothing is defined and nothing is none
    - level == 'a' and of_dependency == 'c'
    - role_name == 'a' and ansible_role_name == 'a' and role_path is search('/roles/a$')
    - not ansible_check_mode and ansible_version.major == 2 and playbook_dir is defined
    - \"'localhost' in groups.all and 'localhost' in ansible_play_hosts\"
- include_role: {name: b}
  vars: {label: '{{ team }}!'}
- block:
  - name: scale down
    fail: {msg: broken}
  rescue:
  - assert:
      that:
      - ansible_failed_task.name == 'scale down' and ansible_failed_task.action is search('fail$')
      - ansible_failed_result.msg == 'broken' and ansible_failed_result.failed
",
    ),
    ("roles/b/defaults/main.yml", "level: b\n"),
    (
        "roles/b/tasks/main.yml",
        "
- assert:
    that:
    - team == 'red' and shade == 'red-a' and fixed == 'a' and level == 'b' and label == 'red!'
    - of_dependency == 'c'
    - role_name == 'b' and ansible_parent_role_names == ['a']
",
    ),
    ("roles/c/defaults/main.yml", "level: c\nof_dependency: c\n"),
    ("roles/c/tasks/main.yml", "- assert: {that: level == 'c'}\n"),
];

#[tokio::test(start_paused = true)]
async fn variables_of_roles_are_those_of_ansible() {
    let project = Project::new("role-variables", &ROLE_VARIABLES);
    let test = test_of(&project).await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let shop = api(&test, &shops()).get("corner").await.unwrap();
    assert_eq!(condition(&shop, "Successful")["status"], "True", "{:?}", shop.data["status"]);
}

async fn test_of(project: &Project) -> Test {
    let folder = project.folder().to_owned();
    Test::of(move || operator_of(&folder)).nodes(1).start().await
}

#[tokio::test(start_paused = true)]
async fn lookups_find_objects_of_the_cluster() {
    let tasks = "
- set_fact:
    api_groups: \"{{ lookup('k8s', cluster_info='api_groups') }}\"
    version: \"{{ lookup('k8s', cluster_info='version').kubernetes.major }}\"
    guests: \"{{ lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ansible_operator_meta.namespace, resource_name='guests') }}\"
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: 'found-{{ item }}'}
      data:
        groups: \"{{ ['apps' in api_groups, 'none.example.com' in api_groups] | to_json }}\"
        version: '{{ version }}'
        guest: '{{ guests.data.first }}'
        absent: \"{{ query('k8s', kind='ConfigMap', namespace=ansible_operator_meta.namespace, resource_name='none') | to_json }}\"
        labeled: \"{{ query('k8s', kind='ConfigMap', namespace=ansible_operator_meta.namespace, label_selector='app=guests') | json_query('[].metadata.name') | to_json }}\"
        year: \"{{ lookup('pipe', 'date -u +%Y') | length | string }}\"
  when: \"'apps' in lookup('k8s', cluster_info='api_groups')\"
  with_sequence: count=2
";
    let project = Project::role("lookups", tasks);
    let test = test_of(&project).await;
    test.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: guests, labels: {app: guests}}, data: {first: Ann}}",
    )
    .await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let expected = json!({"groups": "[true, false]", "version": "1", "guest": "Ann", "absent": "[]", "labeled": "[\"guests\"]", "year": "4"});
    assert_eq!(data(&test, "found-1").await, expected);
    assert_eq!(data(&test, "found-2").await, expected);
}

#[tokio::test(start_paused = true)]
async fn generated_password_stays_and_objects_are_scaled() {
    let tasks = "
- k8s_info: {kind: Secret, name: password, namespace: '{{ ansible_operator_meta.namespace }}'}
  register: known
- k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: password}
      stringData: {password: \"{{ lookup('password', '/dev/null length=32 chars=ascii_letters,digits') }}\"}
  when: known.resources | length == 0
- k8s:
    append_hash: true
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: '1'}}
- k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {containers: [{name: web, image: web}]}
- k8s_scale: {api_version: apps/v1, kind: Deployment, name: web, namespace: '{{ ansible_operator_meta.namespace }}', replicas: 3}
";
    let project = Project::role("scaled", tasks);
    let test = test_of(&project).await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let secret = test.api::<Secret>().get("password").await.unwrap();
    let password = String::from_utf8(secret.data.unwrap()["password"].0.clone()).unwrap();
    assert!(password.len() == 32 && password.chars().all(|letter| letter.is_ascii_alphanumeric()), "{password}");
    assert_eq!(test.api::<Deployment>().get("web").await.unwrap().spec.unwrap().replicas, Some(3));
    // The hash of kubernetes.core.
    assert_eq!(data(&test, "settings-gd4k275f27").await, json!({"a": "1"}));
}

#[tokio::test(start_paused = true)]
async fn objects_have_generated_names_and_are_selected_by_labels() {
    let tasks = "
- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {app: other}}}, label_selectors: [app=web]}
  register: filtered
- k8s_info: {kind: ConfigMap, namespace: '{{ ansible_operator_meta.namespace }}', label_selectors: [app=made]}
  register: known
- k8s: {generate_name: made-, definition: {apiVersion: v1, kind: ConfigMap, metadata: {labels: {app: made}}}}
  when: known.resources | length == 0
  register: made
- k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: '{{ item }}', labels: {app: web}}
      spec:
        selector: {matchLabels: {app: '{{ item }}'}}
        template:
          metadata: {labels: {app: '{{ item }}'}}
          spec: {containers: [{name: web, image: web}]}
  loop: [a, b]
- k8s_scale:
    api_version: apps/v1
    kind: Deployment
    namespace: '{{ ansible_operator_meta.namespace }}'
    label_selectors: [app=web]
    replicas: 2
    wait: false
  register: scaled
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: result}
      data: {filtered: '{{ filtered.msg }}', scaled: '{{ scaled.results | length | string }}'}
";
    let test = test_of(&Project::role("generated", tasks)).await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    assert_eq!(data(&test, "result").await, json!({"filtered": "filtered by label_selectors", "scaled": "2"}));
    let maps = test.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items;
    let made: Vec<_> = maps.iter().filter(|map| map.name_any().starts_with("made-")).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].owner_references()[0].kind, "Shop");
    for deployment in test.api::<Deployment>().list(&ListParams::default()).await.unwrap().items {
        assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn all_objects_of_a_kind_are_deleted_if_watches_allow_it() {
    let tasks = "- k8s: {state: absent, kind: Secret, delete_all: true, wait: true}\n";
    for (options, remaining) in [(", allowKinds: [{version: v1, kind: Secret}]", 0), ("", 2)] {
        let watches = format!("- {{group: shop.example.com, version: v1, kind: Shop, role: a{options}}}\n");
        let files = [("watches.yaml", &*watches), ("roles/a/tasks/main.yml", tasks)];
        let test = test_of(&Project::new(&format!("delete-all-{remaining}"), &files)).await;
        for name in ["a", "b"] {
            test.apply(&format!("{{apiVersion: v1, kind: Secret, metadata: {{name: {name}}}}}")).await;
        }
        test.apply(SHOP).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(test.api::<Secret>().list(&ListParams::default()).await.unwrap().items.len(), remaining);
        let message = condition(&api(&test, &shops()).get("corner").await.unwrap(), "Failure")["message"].to_string();
        assert_eq!(message.contains("Secret a is not changed for"), remaining > 0, "{message}");
    }
}

/// Encrypted with the password `swordfish` by ansible-vault of ansible-core 2.19.
pub(crate) const VARIABLES: &str = "$ANSIBLE_VAULT;1.1;AES256
36373931643733383630313462316134653462313636353964663837303364376139336165623737
6539633935303362613363656663383366356263613039390a393037623630393364333838613535
65316133316665326264633332633432323130663738323233343164323264396639626635666665
3363353437363136350a356234653534373764346139376638333863303935613865613937366237
37346565616533386438613539353863326335633832613961616566623135626332373839346331
3066373530636364306236313962386531633933303961653131
";
pub(crate) const TOKEN: &str = "name: corner
token: !vault |
  $ANSIBLE_VAULT;1.1;AES256
  31373232336363383065373862313531393730383734376437316261373231646363353836383661
  3039356538373166336333646134356132656630613239350a353737343131623739316139323664
  37643135656635323830306332373565373035353639373962613432636262343733663236326464
  6365336230353165630a636230356636636132356131333036663963663064373039623564616564
  6631
unsafe: !unsafe '{{ name }}'
";

#[tokio::test(start_paused = true)]
async fn role_of_a_collection_has_vaults_and_shared_templates() {
    let tasks = "
- include_vars: secret.yml
- k8s: {definition: \"{{ lookup('template', './page.yaml.j2') | from_yaml }}\"}
";
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata:\n  greeting: {{ greeting }}\n  \
                token: {{ token | to_json }}\n  unsafe: {{ unsafe | to_json }}\n  motto: {{ motto | to_json }}\n  \
                footer: {{ lookup('template', '../common/templates/footer.j2') | trim }}\n";
    let watches =
        "- {group: shop.example.com, version: v1, kind: Shop, role: acme.shop.a, vaultPasswordFile: password}\n";
    let role = "collections/ansible_collections/acme/shop/roles/a";
    let path = |file: &str| format!("{role}/{file}");
    let files = [
        ("watches.yaml".to_owned(), watches),
        ("password".to_owned(), "swordfish\n"),
        (path("tasks/main.yml"), tasks),
        (path("vars/secret.yml"), VARIABLES),
        (path("vars/main.yml"), TOKEN),
        (path("defaults/main.yml"), "motto: none\n"),
        (path("templates/page.yaml.j2"), page),
        (format!("{role}/../common/templates/footer.j2"), "made by {{ name }}\n"),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let project = Project::new("vault", &files);
    let test = test_of(&project).await;
    let shop = json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "corner"}, "spec": {"motto": VARIABLES}});
    test.apply(&shop.to_string()).await;
    test.assert_converges().await;
    let expected = json!({"greeting": "hello corner", "token": "pa{{ 1 }}ss é", "unsafe": "{{ name }}", "motto": VARIABLES, "footer": "made by corner"});
    assert_eq!(data(&test, "page").await, expected);
}

#[tokio::test(start_paused = true)]
async fn templates_include_others_of_the_role() {
    let page = "
{% from 'macros.j2' import label with context %}
apiVersion: v1
kind: ConfigMap
metadata: {name: page}
data:
  label: {{ label('a') | to_json }}
{% for day in ['mon', 'tue'] %}
{% include 'parts/day.j2' %}

{% endfor %}
";
    let files = [
        ("roles/a/tasks/main.yml", "- k8s: {template: page.j2}\n"),
        ("roles/a/templates/page.j2", page),
        ("roles/a/templates/macros.j2", "{% macro label(x) %}{{ x }}-{{ motto }}{% endmacro %}\n"),
        ("roles/a/templates/parts/day.j2", "  {{ day }}: {{ motto | to_json }}\n"),
        ("roles/a/defaults/main.yml", "motto: none\n"),
    ];
    let test = test_of(&Project::new("template-includes", &files)).await;
    test.apply("{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {motto: '{{ x }}'}}")
        .await;
    test.assert_converges().await;
    let expected = json!({"label": "a-{{ x }}", "mon": "{{ x }}", "tue": "{{ x }}"});
    assert_eq!(data(&test, "page").await, expected);
}

#[test]
fn wrong_password_of_a_vault_is_reported_with_its_file() {
    let with = |password: &str, watches: &str| {
        let files = [
            ("watches.yaml", watches),
            ("password", password),
            ("roles/a/tasks/main.yml", "- debug: {msg: '{{ greeting }}'}\n"),
            ("roles/a/vars/main.yml", VARIABLES),
        ];
        Project::new(&format!("vault-{}", password.len()), &files).refused().to_string()
    };
    let watches = "- {group: shop.example.com, version: v1, kind: Shop, role: a, vaultPasswordFile: password}\n";
    let error = with("salmon", watches);
    assert!(error.contains("vars/main.yml") && error.contains("does not decrypt"), "{error}");
    let error = with("", watches);
    assert!(error.contains("vaultPasswordFile") && error.contains("is empty"), "{error}");
    let error = with("swordfish", "- {group: shop.example.com, version: v1, kind: Shop, role: a}\n");
    assert!(error.contains("set vaultPasswordFile"), "{error}");
}

#[test]
fn coverage_lists_missing_features_with_their_places() {
    let tasks = "
- name: fine
  debug: {msg: '{{ size | default(1) }}'}
- block:
    - ansible.builtin.shell: ls
    - debug: {msg: '{{ a | ipaddr }}'}
      environment: {A: b}
  rescue:
    - k8s: {definition: \"{{ lookup('template', 'x.j2') }}\"}
- assert: {that: a is blue}
- debug: {msg: \"{{ lookup('pipe', 'ls') }} {{ lookup('file', 'none') }}\"}
- import_tasks: more.yml
";
    let project = Project::new(
        "coverage",
        &[
            ("roles/a/tasks/main.yml", tasks),
            ("roles/a/tasks/more.yml", "- meta: end_play\n"),
            ("roles/a/templates/x.j2", "a: 1\nb: {{ 1 | stripnone }}\n"),
            ("roles/b/tasks/main.yml", "- debug:\n"),
            ("playbooks/p.yml", "- hosts: localhost\n  roles: [b]\n  tasks: [{command: ls}]\n"),
        ],
    );
    let found = flyball_ansible::coverage(project.folder()).unwrap();
    assert_eq!((found.tasks, found.built_in), (10, 4));
    let parts: Vec<_> = found
        .parts
        .iter()
        .map(|part| (part.path.to_str().unwrap(), part.tasks, part.built_in, part.rejected.is_none()))
        .collect();
    assert_eq!(parts, [("roles/a", 8, 3, false), ("roles/b", 1, 1, true), ("playbooks/p.yml", 1, 0, false)]);
    let gaps = found.parts.iter().flat_map(|part| &part.gaps);
    let mut gaps: Vec<_> = gaps
        .flat_map(|gap| gap.places.iter().map(move |place| (place.file.to_str().unwrap(), place.line, &*gap.name)))
        .collect();
    gaps.sort_unstable();
    assert_eq!(
        gaps,
        [
            ("playbooks/p.yml", 3, "command"),
            ("roles/a/tasks/main.yml", 5, "ansible.builtin.shell"),
            ("roles/a/tasks/main.yml", 6, "environment"),
            ("roles/a/tasks/main.yml", 6, "ipaddr"),
            ("roles/a/tasks/main.yml", 10, "blue"),
            ("roles/a/tasks/main.yml", 11, "file none not found in the project"),
            ("roles/a/tasks/main.yml", 11, "pipe"),
            ("roles/a/templates/x.j2", 2, "stripnone"),
        ]
    );
}

const LOCKED: &str = "$ANSIBLE_VAULT;1.1;AES256\n3164\n";

#[tokio::test(start_paused = true)]
async fn encrypted_files_concern_only_roles_that_use_them() {
    let greet = "- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: motd}, data: {a: '1'}}}\n";
    let watches = "
- {group: shop.example.com, version: v1, kind: Shop, role: a}
- {group: shop.example.com, version: v1, kind: Stand, role: b}
";
    let stands = std::fs::read_to_string(crate::project::project("shop").join("config/crd/bases/shops.yaml"))
        .unwrap()
        .replace("shops", "stands")
        .replace("Shop", "Stand");
    let project = Project::new(
        "vault-of-another",
        &[
            ("watches.yaml", watches),
            ("config/crd/bases/stands.yaml", &stands),
            (
                "roles/a/tasks/main.yml",
                &format!("{greet}- include_tasks: '{{{{ shelf }}}}.yml'\n  when: shelf is defined\n"),
            ),
            ("roles/a/tasks/never.yml", LOCKED),
            ("roles/a/files/unused.pem", LOCKED),
            ("roles/b/tasks/main.yml", "- include_vars: secret.yml\n- debug: {msg: '{{ password }}'}\n"),
            ("roles/b/vars/secret.yml", "password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3164\n"),
            ("roles/c/vars/main.yml", LOCKED),
        ],
    );
    let watches = flyball_ansible::Watches::read(project.folder().join("watches.yaml")).unwrap();
    let requirements = flyball_ansible::ansible_requirements(&watches, flyball_ansible::Executor::Auto);
    assert!(requirements.is_empty(), "{requirements:?}");
    let create = |watches: flyball_ansible::Watches| {
        flyball_ansible::operator(&watches.deterministic(), flyball_ansible::Executor::BuiltIn)
    };
    let error = create(watches.clone()).unwrap_err().to_string();
    for part in ["watches.yaml: entry 2 (Stand): ", "secret.yml:1: ", "set vaultPasswordFile in watches.yaml"] {
        assert!(error.contains(part), "{error}");
    }
    let watches = watches.allow_locked_entries();
    let logged = LoggedErrors::default();
    let _log = tracing::subscriber::set_default(logged.clone());
    let test = Test::of(move || create(watches.clone()).unwrap()).nodes(1).start().await;
    test.apply(SHOP).await;
    test.apply("{apiVersion: shop.example.com/v1, kind: Stand, metadata: {name: corner}, spec: {}}").await;
    test.assert_converges().await;
    assert_eq!(data(&test, "motd").await, json!({"a": "1"}));
    let stand = api(&test, &flyball::Kind::new("shop.example.com", "v1", "Stand")).get("corner").await.unwrap();
    let message = condition(&stand, "Failure")["message"].to_string();
    assert!(message.contains("secret.yml") && message.contains("set vaultPasswordFile"), "{message}");
    let logged = logged.0.lock().clone();
    assert!(logged.iter().any(|line| line.contains("entry 2 (Stand): ") && line.contains("secret.yml")), "{logged:?}");
}

/// Records the messages of errors in the log.
#[derive(Clone, Default)]
struct LoggedErrors(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for LoggedErrors {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            if field.name() == "message" {
                self.0.lock().push(format!("{value:?}"));
            }
        });
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn error_of_an_encrypted_file_names_it_if_no_entry_can_run() {
    let files = [
        ("roles/a/tasks/main.yml", "- debug: {msg: \"{{ lookup('file', 'key.pem') }}\"}\n- include_vars: b.yml\n"),
        ("roles/a/vars/b.yml", LOCKED),
    ];
    let error = Project::new("vault-only", &files).refused().to_string();
    assert!(error.contains("vars/b.yml: encrypted by ansible-vault: set vaultPasswordFile"), "{error}");
}
