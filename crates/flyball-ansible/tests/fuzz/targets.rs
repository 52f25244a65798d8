//! The files of a project, with any content.

use crate::engine;
use flyball_ansible::{Executor, Watches, operator};
use std::fs;
use std::path::{Path, PathBuf};

/// A target; the input is the content of project files.
pub(crate) struct Target {
    name: &'static str,
    seeds: fn() -> Vec<&'static str>,
    /// The files that receive the input, one after the other.
    files: &'static [&'static str],
}

impl engine::Target for Target {
    type World = PathBuf;

    fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)().into_iter().map(|seed| seed.as_bytes().to_vec()).collect()
    }

    async fn open(&self) -> PathBuf {
        project(self.name, ROLE)
    }

    async fn play(&self, folder: &mut PathBuf, input: &[u8]) -> String {
        let mut output = String::new();
        for path in self.files {
            let file = folder.join(path);
            let own = fs::read(&file);
            fs::write(&file, input).unwrap();
            let operator =
                Watches::read(folder.join("watches.yaml")).and_then(|watches| operator(&watches, Executor::BuiltIn));
            output += &operator.map_or_else(|error| outline(&error.to_string()), |_| "taken ".into());
            match own {
                Ok(own) => fs::write(&file, own).unwrap(),
                Err(_) => fs::remove_file(&file).unwrap(),
            }
        }
        output
    }
}

/// The first words of a message after its file path.
fn outline(message: &str) -> String {
    let words = message.split(' ').filter(|word| !word.contains('/'));
    let words = words.flat_map(|word| word.split(|c: char| !c.is_ascii_alphabetic())).filter(|word| word.len() > 1);
    words.take(14).collect::<Vec<_>>().join(" ")
}

/// A role and a playbook.
const WATCHES: &str = "- {group: shop.example.com, version: v1, kind: Shop, role: roles/shop}\n\
                       - {group: shop.example.com, version: v1, kind: Mall, playbook: playbook.yml}\n";
/// The tasks of a minimal role.
pub(crate) const ROLE: &str = "- debug: {msg: '{{ title }}'}\n";

/// Creates a project with one role and one playbook.
pub(crate) fn project(name: &str, tasks: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-projects").join(name);
    let _ = fs::remove_dir_all(&folder);
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/projects/shop/config/crd/bases/shops.yaml");
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ meta.name }}-page\ndata:\n  title: {{ title | default('x') }}\n";
    let files = [
        ("watches.yaml", WATCHES),
        ("config/crd/bases/shops.yaml", &fs::read_to_string(definition).unwrap()),
        ("roles/shop/tasks/main.yml", tasks),
        ("roles/shop/tasks/more.yml", "- debug: {msg: more}\n"),
        ("roles/shop/defaults/main.yml", "title: none\n"),
        ("roles/shop/templates/page.yaml.j2", page),
        ("playbook.yml", "- hosts: localhost\n  tasks: []\n"),
    ];
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// `watches.yaml`.
pub(crate) fn watches_yaml() -> Target {
    Target {
        name: "watches_yaml",
        seeds: || {
            vec![
                "- {group: shop.example.com, version: v1, kind: Shop, role: roles/shop}\n",
                "- group: shop.example.com\n  version: v1\n  kind: Shop\n  playbook: playbook.yml\n  vars: {a: '{{ b }}', c: $HOME, d: [1, {e: 2}]}\n  reconcilePeriod: 1h30m5.5s\n  finalizer: {name: shop.example.com/done, role: roles/shop, vars: {state: absent}}\n",
                "- {group: '', version: v1, kind: ConfigMap, role: roles/shop, selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}, blacklist: [{group: a, version: b, kind: C}]}\n",
                "- {group: a, version: v1, kind: B, role: ../../x, manageStatus: false, snakeCaseParameters: false, allowVariables: [a], allowNamespaces: ['*'], passEnvironment: [PATH]}\n",
                "- &a {group: a.b, version: v1, kind: K, role: roles/shop}\n- *a\n",
            ]
        },
        files: &["watches.yaml"],
    }
}

/// Tasks of a role, and plays.
pub(crate) fn playbooks() -> Target {
    Target {
        name: "playbooks",
        seeds: || {
            vec![
                "- hosts: localhost\n  vars: {a: 1}\n  vars_files: [vars.yml]\n  roles: [shop, {role: shop, when: a}]\n  pre_tasks: []\n  tasks:\n  - debug: {msg: '{{ a }}'}\n  handlers:\n  - {name: h, debug: {var: a}}\n",
                "- set_fact: {helper: '{{ title | default(\"none\") }}'}\n- assert: {that: ['helper is defined', 'result is not defined'], fail_msg: no}\n",
                "- name: n\n  k8s:\n    state: present\n    definition: \"{{ lookup('template', 'page.yaml.j2') | from_yaml_all | list }}\"\n  register: r\n  until: r is succeeded\n  retries: 3\n  delay: 1\n  ignore_errors: true\n",
                "- block:\n  - include_tasks: '{{ file | default(\"more\") }}.yml'\n  - import_tasks: more.yml\n  rescue:\n  - fail: {msg: '{{ ansible_failed_result.msg }}'}\n  always:\n  - meta: flush_handlers\n  when: title and not (title == 'x' or title in ['y'])\n",
                "- include_tasks: main.yml\n- import_tasks: main.yml\n- include_role: {name: shop}\n",
                "- debug: {msg: '{{ item.key }}'}\n  loop: '{{ items | dict2items | sort(attribute=\"key\") | selectattr(\"value\", \"equalto\", 1) | map(attribute=\"key\") | list }}'\n  loop_control: {loop_var: item, label: x, index_var: i}\n",
                "- k8s_info: {api_version: v1, kind: Secret, namespace: x, name: y, label_selectors: [a=b], wait: true, wait_timeout: 5}\n- operator_sdk.util.k8s_status: {api_version: a/b, kind: C, name: d, namespace: e, status: {x: y}}\n",
                "- debug: msg=\"a {{ b }}\" verbosity=1\n- {pause: {seconds: 99999999999}, vars: {a: '{% for i in range(9) %}{{ i }}{% endfor %}'}}\n- &t {debug: {var: a}}\n- *t\n",
            ]
        },
        files: &["roles/shop/tasks/main.yml", "playbook.yml"],
    }
}

/// Other files of a role and a project: defaults, variables, templates, CRDs.
pub(crate) fn role_files() -> Target {
    Target {
        name: "role_files",
        seeds: || {
            vec![
                "title: '{{ other | default(1) }}'\nother: &a [x, x]\nmore: [*a, *a]\ntext: |\n  apiVersion: v1\n  kind: Secret\n",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: '{{ meta.name }}', namespace: {{ x }}}\n---\n{% if a %}kind: Service{% endif %}\n",
                "{% macro m(a) %}{{ a }}{% endmacro %}{% set x = namespace(y=1) %}{{ m(x.y) | b64encode | hash('sha1') | regex_replace('(a+)+', '\\\\1') }}{# c #}{% raw %}{{ x }}{% endraw %}",
                "dependencies: [{role: shop, vars: {a: b}}, shop]\ngalaxy_info: {min_ansible_version: 2.9}\n",
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: shops.shop.example.com}\nspec:\n  group: shop.example.com\n  scope: Namespaced\n  names: {kind: Shop, plural: shops}\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n",
                "projectName: shop\ndomain: example.com\nlayout: [ansible.sdk.operatorframework.io/v1]\n",
            ]
        },
        files: &[
            "roles/shop/defaults/main.yml",
            "roles/shop/tasks/more.yml",
            "roles/shop/templates/page.yaml.j2",
            "config/crd/bases/shops.yaml",
            "PROJECT",
        ],
    }
}
