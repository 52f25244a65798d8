//! The payloads of a tenant: specs generated from tables.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Names that must not become variables.
const NAMES: [&str; 28] = [
    "ansible_connection",
    "ansible_ssh_common_args",
    "ansible_python_interpreter",
    "ansible_shell_executable",
    "ansible_host",
    "ansible_become",
    "ansible_facts",
    "ansible_operator_meta",
    "vars",
    "hostvars",
    "groups",
    "group_names",
    "inventory_hostname",
    "playbook_dir",
    "role_path",
    "role_name",
    "omit",
    "environment",
    "delegate_to",
    "become",
    "become_user",
    "remote_user",
    "item",
    "meta",
    "result",
    "helper",
    "lookup",
    "_shop_example_com_shop",
];

const TEMPLATES: [&str; 16] = [
    "{{ lookup('pipe', 'touch CANARY') }}",
    "{{ lookup('file', '/etc/passwd') }}",
    "{{ lookup('env', 'PATH') }}",
    "{{ query('pipe', 'touch CANARY') }}",
    "{% for a in range(1000000000) %}{{ a }}{% endfor %}",
    "{{ 'x' * 1000000000 }}",
    "{{ helper }}",
    "{{ vars }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ undef() }}",
    "{% include 'page.yaml.j2' %}",
    "{% set helper = 1 %}",
    "{{ omit }}",
    "{#",
    "{{",
    "!unsafe {{ lookup('pipe', 'touch CANARY') }}",
];

const DOCUMENTS: [&str; 10] = [
    "x\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: planted, namespace: other}\n",
    "x\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: planted, namespace: kube-system}\n",
    "x\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: planted}\n",
    "x\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: planted}\n",
    "x\n---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: planted, namespace: other}}]\n",
    "&a [*a]",
    "!!python/object/apply:os.system ['touch CANARY']",
    "x\nmetadata: {name: again, namespace: other}",
    "\"\n{}[]&*!|>'%@`",
    "x\n---\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

/// The file that an injected command would create.
pub(crate) fn canary() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("tenant-canary")
}

/// Spellings of a name: snake, camel, capitalized and mixed case.
fn spellings(name: &str) -> [String; 4] {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
    let capitals: String = words.iter().map(|word| capital(word)).collect();
    let camel = words[0].to_owned() + &words[1..].iter().map(|word| capital(word)).collect::<String>();
    [name.to_owned(), camel, capitals, words.iter().map(|word| capital(word)).collect::<Vec<_>>().join("_")]
}

/// Minimum number of objects with rejected names at the top level.
pub(crate) fn count_of_names() -> usize {
    // Some spellings of roles' own names are different names.
    NAMES.len() * 3
}

/// Returns all specs.
pub(crate) fn all() -> Vec<Value> {
    let mut all = Vec::new();
    let command = format!("touch {}", canary().display());
    for name in NAMES {
        for spelling in spellings(name) {
            let values = [
                json!("ssh"),
                json!(format!("-o ProxyCommand=\"{command}\"")),
                json!({"namespace": "other", "name": "x"}),
            ];
            all.extend(values.into_iter().map(|value| json!({spelling.as_str(): value})));
        }
    }
    let texts = TEMPLATES.iter().chain(&DOCUMENTS).map(|text| text.replace("touch CANARY", &command));
    for text in texts {
        for field in ["title", "note", "target", "source", "secret", "file"] {
            all.push(json!({field: text}));
            all.push(json!({field: [text, {text.as_str(): text}]}));
        }
        all.push(json!({text.as_str(): text}));
        all.push(json!({"items": [text, [text], {"a": text}]}));
        all.push(json!({"title": {text.as_str(): {"__ansible_unsafe": text, "__ansible_vault": text}}}));
    }
    for namespace in [
        "other",
        "kube-system",
        "default",
        "",
        " ",
        "*",
        "other/",
        "../other",
        "OTHER",
        "o{{ 't' }}her",
        "other\n",
        "%6fther",
    ] {
        for field in ["target", "source"] {
            for secret in ["crown", "", "../../other/secrets/crown", "crown?x=y", "*"] {
                all.push(json!({field: namespace, "secret": secret}));
            }
        }
        all.push(json!({"target": [namespace]}));
        all.push(json!({"source": {"a": namespace}}));
    }
    for file in ["../../../etc/passwd", "/etc/passwd", "main", "more", "../tasks/main", "more.yml\0"] {
        all.push(json!({"file": file}));
    }
    for depth in 1..=60 {
        let deep = (0..depth).fold(json!("x"), |value, _| json!([value]));
        all.push(json!({"title": deep, "items": deep}));
        all.push(json!({"title": "[".repeat(depth * 50)}));
    }
    for turns in [100, 511, 513, 5000] {
        all.push(json!({"turns": vec![1; turns]}));
    }
    for size in 1..=20 {
        all.push(json!({"title": "x".repeat(size * 4096)}));
        all.push(json!({"items": (0..size * 10).collect::<Vec<_>>()}));
        all.push(json!({"title": "&a [*a,*a]".repeat(size * 100)}));
    }
    for number in 0..60 {
        let twice = format!("fooBar{number}");
        all.push(
            json!({twice.as_str(): 1, twice.to_lowercase(): 2, "foo-Bar": 3, "éCole": 4, "ａnsible_connection": "ssh"}),
        );
    }
    all
}
