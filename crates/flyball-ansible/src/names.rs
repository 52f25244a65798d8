//! Rules for the fields of a spec that become variables of a run.
//!
//! Variables of an object override all variables of a role, with `ansible-playbook` and with the built-in executor.
//! So names with a special meaning in Ansible, names of the operator, and names that the role sets itself are
//! rejected here, independent of the executor. This module depends on names only, not on values. Invariant: an
//! accepted name has no other meaning than the role's input of that name.

use crate::snake::snake;
use flyball::GroupVersionKind;
use std::collections::BTreeSet;

/// Names that Ansible itself sets or interprets, besides all with the prefix `ansible_`; see
/// <https://docs.ansible.com/ansible/latest/reference_appendices/special_variables.html>.
const MAGIC: [&str; 21] = [
    "delegated_vars",
    "group_names",
    "groups",
    "hostvars",
    "inventory_dir",
    "inventory_file",
    "inventory_hostname",
    "inventory_hostname_short",
    "item",
    "omit",
    "play_hosts",
    "playbook_dir",
    "playbook_name",
    "role_name",
    "role_names",
    "role_path",
    "role_uuid",
    "self",
    "undef",
    "undefined",
    "vars",
];

/// Prefixes of such names.
const MAGIC_PREFIXES: [&str; 3] = ["ansible", "become", "discovered"];

/// Prefixes of names that Ansible may set in some release; a role may use them as inputs if it declares them.
const RESERVED_PREFIXES: [&str; 4] = ["delegate", "inventory", "play", "role"];

/// Functions of templates, and `environment`, which Ansible sets for each task. A role that uses one of them as an
/// input declares it in its defaults.
///
/// Other names of `ansible.vars.reserved` are keywords of plays and tasks, such as `no_log` and `timeout`. Ansible
/// warns of variables with these names, but no part of it reads them: they have only the meaning that the role gives
/// them.
const RESERVED: [&str; 11] =
    ["cycler", "dict", "environment", "joiner", "lipsum", "lookup", "namespace", "now", "q", "query", "range"];

/// Reason why a field does not become a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Ansible interprets it.
    Magic,
    /// The name has a meaning in templates or in some release of Ansible, and is not declared in the role's defaults.
    Reserved,
    /// The operator sets it.
    Operator,
    /// The role sets it, and does not declare it in its defaults.
    Role,
    /// The name is not an identifier.
    NotAName,
    /// Another field has the same variable name.
    SecondSpelling,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Magic => "reserved by Ansible",
            Self::Reserved => "a function or variable of Ansible, and not in the role's defaults",
            Self::Operator => "set by the operator",
            Self::Role => "set by the role, and not in its defaults",
            Self::NotAName => "not a variable name",
            Self::SecondSpelling => "another field has the same variable name",
        }
    }
}

/// The relevant names for the objects of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Names in the defaults or argument specs of roles.
    pub(crate) inputs: BTreeSet<String>,
    /// Names that roles and plays set themselves, without declaring them as inputs.
    pub(crate) own: BTreeSet<String>,
    /// Names that `watches.yaml` allows unconditionally.
    pub(crate) allowed: BTreeSet<String>,
}

/// Returns the reason why no field may become this variable, even with `allowVariables`; `None` if one may.
pub(crate) fn never_allowed(name: &str, own: &[String]) -> Option<Reason> {
    if is_meta(name) || own.iter().any(|own| own == name) {
        return Some(Reason::Operator);
    }
    (!is_identifier(name)).then_some(Reason::NotAName)
}

/// Returns true if it is a spelling of the variable with name and namespace.
fn is_meta(name: &str) -> bool {
    folded(name) == "meta"
}

/// Returns names that Ansible interprets, and prefixes of such names; see [`MAGIC`].
pub(crate) fn special_names() -> (&'static [&'static str], &'static [&'static str]) {
    (&MAGIC, &MAGIC_PREFIXES)
}

/// Returns true if Ansible interprets a variable with this name.
pub(crate) fn is_special(name: &str) -> bool {
    let name = folded(name);
    MAGIC.contains(&name.as_str()) || begins(&name, &MAGIC_PREFIXES)
}

fn begins(name: &str, prefixes: &[&str]) -> bool {
    let is_word = |rest: &str| rest.is_empty() || rest.starts_with('_');
    prefixes.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_word))
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Names {
    /// Returns the reason why a field may not become this variable; `None` if it may.
    pub(crate) fn rejection(&self, field: &str, name: &str) -> Option<Reason> {
        let spellings = [folded(field), folded(name), folded(&snake(field))];
        if spellings.iter().any(|spelling| is_meta(spelling)) {
            return Some(Reason::Operator);
        }
        if !is_identifier(name) {
            return Some(Reason::NotAName);
        }
        if self.allowed.contains(name) {
            return None;
        }
        if spellings.iter().any(|spelling| is_special(spelling)) {
            return Some(Reason::Magic);
        }
        if self.own.contains(name) {
            return Some(Reason::Role);
        }
        let is_reserved = |name: &String| RESERVED.contains(&name.as_str()) || begins(name, &RESERVED_PREFIXES);
        (spellings.iter().any(is_reserved) && !self.inputs.contains(name)).then_some(Reason::Reserved)
    }
}

/// Normalizes a name, so that spellings with different case or leading underscores are equal.
fn folded(name: &str) -> String {
    name.trim_start_matches(['_', '-', ' ']).replace(['-', ' ', '.'], "_").to_ascii_lowercase()
}

/// Returns the variables that the operator sets: name and namespace (also under the name before version 1.0), the
/// whole object, and its spec.
pub(crate) fn own_names(kind: &GroupVersionKind) -> [String; 4] {
    let key = format!("_{}_{}", kind.group, kind.kind.to_lowercase()).replace(['.', '-'], "_");
    let spec = format!("{key}_spec");
    ["ansible_operator_meta".to_owned(), "meta".to_owned(), key, spec]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_rejected_in_every_spelling() {
        let names = Names::default();
        let corpus = [
            "ansible_connection",
            "ansibleConnection",
            "AnsibleConnection",
            "ANSIBLE_CONNECTION",
            "Ansible_Ssh_Common_Args",
            "ansible-python-interpreter",
            "__ansible_shell_executable",
            "ansible",
            "ansibleFacts",
            "vars",
            "Vars",
            "_vars",
            "hostVars",
            "hostvars",
            "groupNames",
            "inventoryHostname",
            "inventory_dir",
            "playbookDir",
            "rolePath",
            "role_name",
            "omit",
            "OMIT",
            "environment",
            "discoveredInterpreterPython",
            "becomeUser",
            "become",
            "item",
        ];
        for field in corpus {
            for name in [field.to_owned(), snake(field)] {
                assert!(names.rejection(field, &name).is_some(), "{field} as {name}");
            }
        }
        for field in ["size", "replicaCount", "becoming", "ansibles", "itemCount", "metadata", "roles1", "player"] {
            assert_eq!(names.rejection(field, &snake(field)), None, "{field}");
        }
    }

    #[test]
    fn invalid_identifiers_are_rejected() {
        let names = Names::default();
        for field in ["", "with.dot", "éCole", "ａnsible_connection", "1st", "a\nb", "{{ x }}", "аnsible_connection"]
        {
            assert!(names.rejection(field, &snake(field)).is_some(), "{field:?}");
        }
    }

    #[test]
    fn keywords_without_meaning_as_a_variable_are_inputs() {
        for name in ["no_log", "noLog", "timeout", "tags", "port", "retries", "when", "hosts", "name", "serial"] {
            assert_eq!(Names::default().rejection(name, &snake(name)), None, "{name}");
        }
        for name in ["now", "query", "range", "environment", "becomeUser", "delegate_to", "vars", "playbook_dir"] {
            assert!(Names::default().rejection(name, &snake(name)).is_some(), "{name}");
        }
    }

    #[test]
    fn defaults_allow_reserved_names_as_inputs() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let names = Names { inputs: set(&["port", "ansible_port"]), own: set(&["result"]), allowed: BTreeSet::new() };
        assert_eq!(names.rejection("port", "port"), None);
        assert_eq!(names.rejection("lookup", "lookup"), Some(Reason::Reserved));
        assert_eq!(names.rejection("roleName2", "role_name2"), Some(Reason::Reserved));
        assert_eq!(names.rejection("ansiblePort", "ansible_port"), Some(Reason::Magic));
        assert_eq!(names.rejection("result", "result"), Some(Reason::Role));
        let names = Names { allowed: set(&["result", "ansible_port", "meta"]), ..names };
        assert_eq!(names.rejection("result", "result"), None);
        assert_eq!(names.rejection("ansiblePort", "ansible_port"), None);
        assert_eq!(
            names.rejection("meta", "meta"),
            Some(Reason::Operator),
            "the name is always reserved for the operator"
        );
    }
}
