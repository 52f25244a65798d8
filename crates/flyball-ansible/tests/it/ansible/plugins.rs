//! Modules, lookups, collections and options of plugins that users choose.

use super::{named, outcomes, test_of};
use crate::features::VARIABLES;
use crate::project::Project;
use flyball_ansible::Executor;
use serde_json::json;

with_both_executors! {
    computed_names_of_modules_and_lookups_run_no_command
    computed_names_reach_no_collection
    vaults_are_not_opened_for_users
    fields_configure_no_plugin
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
