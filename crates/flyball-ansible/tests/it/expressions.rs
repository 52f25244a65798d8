//! Expressions, loops and variable files of playbooks, with the results that Ansible has; and the names that the
//! built-in executor rejects and the coverage report lists.

use crate::project::{Project, api, condition, operator_of, shops};
use flyball_ansible::{Coverage, GapKind};
use flyball_cluster::testing::Test;

const SHOP: &str = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {shelves: 3}}";

/// A playbook that asserts the values that Ansible has.
pub(crate) const PLAYBOOK: [(&str, &str); 6] = [
    ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, playbook: site.yml}\n"),
    ("more/first.yml", "from_file: first\nlevel: file\n"),
    ("vars/included.yml", "from_included: '{{ from_file }}-included'\n"),
    ("vars/ordered.yml", "zebra: 1\nalpha: {y: 1, x: 2}\nmango: 3\n"),
    ("tasks/never.yml", "- fail: {msg: tasks with the tag never do not run}\n"),
    (
        "site.yml",
        "
- hosts: localhost
  gather_facts: false
  vars: {level: play, who: 'a-{{ from_file }}'}
  vars_files: [[more/none.yml, more/first.yml]]
  tasks:
  - assert:
      that:
      - level == 'file' and who == 'a-first'
      - \"'%s-%d' % (who, 3) == 'a-first-3' and '%s' % who == who and 7 % 4 == 3\"
      - now(utc=true).year > 2000 and now(fmt='%Y') | int > 2000 and now().strftime('%Y') | length == 4
      - \"query('items', [1, [2]]) == [1, [2]] and query('dict', {'a': 1})[0].key == 'a'\"
      - lookup('vars', 'level') == 'file' and 'level' in query('varnames', '^lev')
  - include_vars: included.yml
  - set_fact: {fact: '{{ from_included }}'}
  - include_vars: {file: more/first.yml, name: named}
  - assert:
      that:
      - fact == 'first-included' and named.from_file == 'first'
      - hostvars['localhost'].fact == fact and hostvars[inventory_hostname].inventory_hostname == 'localhost'
      - hostvars.localhost.shelves == shelves and hostvars.localhost.ansible_operator_meta.name == 'corner'
      - hostvars['localhost'].ansible_connection == 'local' and '%*d' % (3, 1) == '  1'
      - hostvars.localhost.level is not defined and hostvars['other'] is not defined and 'localhost' in hostvars
  - include_vars: {file: ordered.yml, name: ordered}
  - set_fact: {order: \"{{ order | default([]) + [item.key] }}\"}
    with_dict: '{{ ordered }}'
  - set_fact:
      stored: \"{{ ordered | combine({'new': 1, 'alpha': 0}) }}\"
      literal: {d: 1, c: '{{ ordered }}', a: 2}
  - assert:
      that:
      - order == ['zebra', 'alpha', 'mango'] and stored.keys() | list == order + ['new']
      - literal.keys() | join == 'dca' and literal.c.keys() | list == order and literal.c.alpha.keys() | join == 'yx'
      - ordered | to_json | from_json | dict2items | map(attribute='key') | list == order
      - ordered | to_nice_yaml(sort_keys=False) | from_yaml | list == order
      - ordered | to_yaml | from_yaml | first == 'alpha'
  - set_fact:
      seen: \"{{ seen | default([]) + [[item, position, ansible_loop.index, ansible_loop.first, ansible_loop.last,
        ansible_loop.length, ansible_loop.revindex, ansible_loop.previtem | default('-'),
        ansible_loop.nextitem | default('-'), ansible_loop.allitems | length, ansible_loop_var]] }}\"
    loop: [a, b]
    loop_control: {extended: true, index_var: position}
    register: looped
  - assert:
      that:
      - seen[0] == ['a', 0, 1, true, false, 2, 2, '-', 'b', 2, 'item']
      - seen[1] == ['b', 1, 2, false, true, 2, 1, 'a', '-', 2, 'item']
      - looped.results[1].ansible_loop.index0 == 1 and looped.results[1].position == 1
      - looped.results[1].ansible_loop_var == 'item' and looped.results[1].ansible_index_var == 'position'
  - assert: {that: ansible_loop.allitems is not defined and ansible_loop.revindex0 == 1 - ansible_loop.index0}
    loop: [a, b]
    loop_control: {extended: true, extended_allitems: false}
  - set_fact: {pairs: \"{{ pairs | default([]) + [item] }}\"}
    with_together: [[1, 2], [a]]
  - set_fact: {nested: \"{{ nested | default([]) + [item.0 ~ item.1] }}\"}
    with_nested: [[a, b], [1, 2]]
  - set_fact: {tagged: \"{{ tagged | default([]) + [item.0.name ~ item.1] }}\"}
    with_subelements: [[{name: x, tags: [1, 2]}, {name: y}], tags, {skip_missing: true}]
  - assert:
      that:
      - pairs == [[1, 'a'], [2, none]] and nested == ['a1', 'a2', 'b1', 'b2'] and tagged == ['x1', 'x2']
  - fail: {msg: tasks with the tag never do not run}
    tags: [never, more]
  - import_tasks: tasks/never.yml
    tags: never
  - block:
    - fail: {msg: tasks with the tag never do not run}
    - set_fact: {always_in_never: true}
      tags: always
    tags: never
  - block:
    - set_fact: {never_in_always: true}
      tags: [never]
    tags: always
  - assert: {that: always_in_never and never_in_always}
  - assert: {that: absent | mandatory('needs absent')}
    ignore_errors: true
    register: failed
  - assert: {that: failed is failed and failed.msg is search('needs absent')}
- hosts: localhost
  gather_facts: false
  tags: never
  tasks:
  - fail: {msg: plays with the tag never do not run}
  - set_fact: {always_in_never_play: true}
    tags: always
- hosts: localhost
  gather_facts: false
  tasks:
  - assert: {that: always_in_never_play}
",
    ),
];

#[tokio::test(start_paused = true)]
async fn expressions_of_a_playbook_have_the_results_of_ansible() {
    let project = Project::new("expressions", &PLAYBOOK);
    let folder = project.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).nodes(1).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    let shop = api(&test, &shops()).get("corner").await.unwrap();
    assert_eq!(condition(&shop, "Successful")["status"], "True", "{:?}", shop.data["status"]);
}

#[tokio::test(start_paused = true)]
async fn time_of_templates_is_that_of_the_clock() {
    let tasks = "
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: times}
      data: {now: '{{ now() }}', formatted: \"{{ now(fmt='%Y-%m-%dT%H:%M:%S') }}\", date: \"{{ '%Y' | strftime }}\"}
  when: lookup('k8s', kind='ConfigMap', namespace=ansible_operator_meta.namespace, resource_name='times') == []
";
    let times = async || {
        let project = Project::role("times", tasks);
        let folder = project.folder().to_owned();
        let test = Test::of(move || operator_of(&folder)).nodes(1).start().await;
        test.apply(SHOP).await;
        test.assert_converges().await;
        crate::project::data(&test, "times").await
    };
    let first = times().await;
    assert!(first["now"].as_str().is_some_and(|now| now.len() >= 19), "{first}");
    assert_eq!(first, times().await, "two simulations have the same time");
}

/// A feature that the built-in executor lacks, in a task or a template, and its name.
const MISSING: [(&str, GapKind, &str); 23] = [
    ("- debug: {msg: '{{ lipsum(5) }}'}\n", GapKind::Function, "lipsum"),
    ("- debug: {msg: \"{{ {'a': undef(hint='x')} }}\"}\n", GapKind::Function, "undef"),
    ("- debug: {}\n  when: lipsum() is defined\n", GapKind::Function, "lipsum"),
    ("- debug: {}\n  until: ansible_date_time.epoch | int > 1\n", GapKind::Variable, "ansible_date_time"),
    ("- debug: {}\n  loop: \"{{ ansible_facts['mounts'] }}\"\n", GapKind::Variable, "ansible_facts.mounts"),
    ("- debug: {msg: '{{ ansible_env.HOME | default(1) }}'}\n", GapKind::Variable, "ansible_env"),
    ("- assert: {that: \"'x' in inventory_file\"}\n", GapKind::Variable, "inventory_file"),
    ("- debug: {msg: '{{ [1].append(2) }}'}\n", GapKind::Function, "append"),
    ("- debug: {msg: \"{{ ['a'] | map('ipaddr') | list }}\"}\n", GapKind::Filter, "ipaddr"),
    ("- debug: {msg: \"{{ ['a'] | select('vault_encrypted') }}\"}\n", GapKind::Test, "vault_encrypted"),
    ("- debug: {msg: \"{{ [{}] | selectattr('a', 'blue') }}\"}\n", GapKind::Test, "blue"),
    ("- debug: {msg: \"{{ 'a' | hash('md5') }}\"}\n", GapKind::Filter, "hash('md5')"),
    ("- debug: {}\n  when: a is version('1', version_type='semver')\n", GapKind::Test, "version with version_type"),
    ("- debug: {msg: \"{{ query('first_found', []) }}\"}\n", GapKind::Lookup, "first_found"),
    ("- debug: {}\n  with_fileglob: ['*']\n", GapKind::Keyword, "with_fileglob"),
    ("- debug: {}\n  check_mode: true\n", GapKind::Keyword, "check_mode"),
    ("- debug: {}\n  timeout: 5\n", GapKind::Keyword, "timeout"),
    ("- debug: {}\n  module_defaults: {debug: {msg: a}}\n", GapKind::Keyword, "module_defaults"),
    ("- include_vars: {dir: vars}\n", GapKind::Other, "dir"),
    ("- k8s: {sate: absent}\n", GapKind::Other, "sate"),
    ("- debug: {msg: \"{{ lookup('template', 'x.j2') }}\"}\n", GapKind::Function, "cycler"),
    ("- set_fact: {a: '{{ shade }}'}\n", GapKind::Function, "joiner"),
    ("- block: [{block: [{debug: {msg: '{{ a | ipaddr }}'}}]}]\n", GapKind::Filter, "ipaddr"),
];

fn with_gaps(name: &str, tasks: &str) -> Project {
    let other = |needs: bool, text: &'static str| if needs { text } else { "{{ 1 }}\n" };
    let files = [
        ("roles/a/tasks/main.yml", tasks),
        ("roles/a/templates/x.j2", other(tasks.contains("x.j2"), "{% set row = cycler('a', 'b') %}{{ row }}\n")),
        ("roles/a/vars/main.yml", if tasks.contains("shade") { "shade: '{{ joiner() }}'\n" } else { "{}\n" }),
    ];
    Project::new(name, &files)
}

#[test]
fn unsupported_names_are_rejected_and_counted() {
    for (number, (tasks, kind, name)) in MISSING.into_iter().enumerate() {
        let project = with_gaps(&format!("missing-{number}"), tasks);
        let error = project.refused().to_string();
        assert!(error.contains(name) && error.contains(".yml") | error.contains(".j2"), "{tasks}: {error}");
        let Coverage { tasks: count, built_in, parts } = flyball_ansible::coverage(project.folder()).unwrap();
        assert_eq!((count, built_in), (1, 0), "{tasks}");
        let gap = parts[0].gaps.iter().find(|gap| gap.kind == kind && gap.name.contains(name));
        assert!(gap.is_some_and(|gap| gap.places[0].line > 0), "{tasks}: {:?}", parts[0].gaps);
        assert!(parts[0].rejected.as_ref().is_some_and(|reason| reason.contains(name)), "{tasks}: {parts:?}");
    }
}

#[test]
fn supported_names_are_not_reported() {
    let tasks = "
- debug: {msg: \"{{ range(3) | list }}{{ dict(a=1) }}{{ 'a,b'.split(',') }}{{ x.items() }}{{ 'environment' }}\"}
- debug: {msg: \"{% macro m(a, b=1) %}{{ a }}{% endmacro %}{{ m(1) }}{% for f in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}\"}
- debug: {msg: \"{% set ns = namespace(x=1) %}{{ ns.x }}{{ f(x) if f is defined else '' }}\"}
  when: false and (a or (b)) and not (c) and d in (1, 2) and ansible_facts.get('x', none) is none
- debug: {msg: \"{{ query(plugin) }}{{ a | community.general.json_query('b') is ansible.builtin.search('(x)') }}\"}
  vars: {ansible_python_interpreter: '{{ ansible_playbook_python }}'}
";
    let tasks = tasks.replace("{{ f(x) if f is defined else '' }}", "");
    let found = flyball_ansible::coverage(with_gaps("supported", &tasks).folder()).unwrap();
    assert_eq!((found.tasks, found.built_in), (4, 4), "{:?}", found.parts);
    assert!(found.parts[0].rejected.is_none(), "{:?}", found.parts);
}

#[test]
fn templates_beside_task_files_are_no_tasks() {
    let template = "---\nkind: ConfigMap\nmetadata:\n  name: {{ name }}\n---\nkind: Secret\n";
    let files = [("roles/a/tasks/main.yml", "- debug:\n"), ("roles/a/tasks/objects.yml", template)];
    let found = flyball_ansible::coverage(Project::new("templates-beside", &files).folder()).unwrap();
    assert_eq!((found.tasks, found.built_in), (1, 1));
}

#[test]
fn values_that_cannot_be_decrypted_do_not_end_the_coverage() {
    let locked = "!vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      3164\n";
    let files = [
        ("roles/a/tasks/main.yml", "- debug:\n"),
        ("roles/a/tasks/more.yml", &*format!("- debug:\n    msg: {locked}")),
        ("play.yml", &*format!("- hosts: localhost\n  vars:\n    a: {locked}")),
        ("tool.yml", "a: [\n"),
        ("secrets.yml", &*format!("a: {locked}")),
    ];
    let found = flyball_ansible::coverage(Project::new("coverage-vault", &files).folder()).unwrap();
    let gaps = |part: &flyball_ansible::PartCoverage| part.gaps.iter().map(|gap| gap.name.clone()).collect::<Vec<_>>();
    let found: Vec<_> = found.parts.iter().map(|part| (part.path.to_str().unwrap(), part.tasks, gaps(part))).collect();
    let [("roles/a", 1, of_role), ("play.yml", 0, of_play)] = &found[..] else { panic!("{found:?}") };
    assert!([of_role, of_play].iter().all(|gaps| gaps[0].contains("encrypted by ansible-vault")), "{found:?}");
}

#[test]
fn invalid_yaml_is_an_error_with_file_and_line() {
    for file in ["roles/a/tasks/main.yml", "roles/a/tasks/more.yml", "roles/a/vars/main.yml", "play.yml"] {
        let files = [("roles/a/tasks/main.yml", "- debug:\n"), (file, "- hosts: 1\n  b: [\n")];
        let project = Project::new("invalid-yaml", &files);
        let error = flyball_ansible::coverage(project.folder()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("at line 2"), "{error}");
    }
}
