//! The commands that install what a run of `ansible-playbook` lacks: Python packages and collections.
//!
//! Messages of Ansible and Python name what is missing. They may contain text of users, which would make a command
//! install what its author published. So packages are from a fixed list, and collections are those that the project
//! names literally.

use crate::template::walk;
use crate::yaml::read_encrypted;
use std::path::Path;

/// File with the collections of a project, as operator-sdk generates it.
const REQUIREMENTS: &str = "requirements.yml";

/// Installs Ansible itself, and what the modules of `kubernetes.core` import.
pub(crate) const INSTALL: &str = "pip install ansible-core kubernetes";

/// Texts after which a message has the name of a collection's part in quotes.
const OF_COLLECTIONS: [&str; 6] = [
    "resolve module/action '",
    "No filter named '",
    "No test named '",
    "lookup plugin '",
    "the role '",
    "Error loading plugin '",
];

/// Texts after which a message has the name of a Python package.
const OF_PACKAGES: [(&str, char); 2] = [("required Python library (", ')'), ("No module named '", '\'')];

/// Modules that Ansible and the usual collections import, and the packages that have them.
const PACKAGES: [(&str, &str); 20] = [
    ("kubernetes", "kubernetes"),
    ("yaml", "PyYAML"),
    ("PyYAML", "PyYAML"),
    ("jsonpatch", "jsonpatch"),
    ("kubernetes_validate", "kubernetes-validate"),
    ("jinja2", "Jinja2"),
    ("cryptography", "cryptography"),
    ("packaging", "packaging"),
    ("resolvelib", "resolvelib"),
    ("requests", "requests"),
    ("requests_oauthlib", "requests-oauthlib"),
    ("urllib3", "urllib3"),
    ("jmespath", "jmespath"),
    ("netaddr", "netaddr"),
    ("passlib", "passlib"),
    ("psycopg2", "psycopg2-binary"),
    ("pymysql", "PyMySQL"),
    ("boto3", "boto3"),
    ("botocore", "botocore"),
    ("openshift", "openshift"),
];

/// Folders of a project that may name a collection, besides the files in the project's folder.
const NAMING_FOLDERS: [&str; 3] = ["roles", "playbooks", "tasks"];

/// Adds the command that installs what a message reports as missing.
pub(crate) fn with_remedy(message: String, project: &Path) -> String {
    match remedy(&message, project) {
        Some(command) => format!("{message}: install it with: {command}"),
        None => message,
    }
}

fn remedy(message: &str, project: &Path) -> Option<String> {
    let collections = OF_COLLECTIONS.into_iter().flat_map(|before| named(message, before, '\''));
    let mut collections = collections.filter_map(|name| {
        let (collection, _) = name.rsplit_once('.')?;
        // Ansible has this one itself.
        (collection.contains('.') && collection != "ansible.builtin" && collection != "ansible.legacy")
            .then_some(collection)
    });
    // Roles in collections have the name of the collection and their own.
    let of_collection = |name: &str| name.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    if let Some(name) = collections.find(|name| is_name(name)) {
        return collections_command(project, &of_collection(name));
    }
    let mut packages = OF_PACKAGES.into_iter().flat_map(|(before, after)| named(message, before, after));
    let package = packages.find(|name| is_name(name))?;
    match package.split_once('.').unwrap_or((package, "")) {
        ("ansible", _) => Some(INSTALL.to_owned()),
        // A module of a collection, whose name is in another message.
        ("ansible_collections", name) => collections_command(project, &of_collection(name)),
        (module, _) => {
            let (_, package) = PACKAGES.iter().find(|(name, _)| *name == module)?;
            Some(format!("pip install {package}"))
        }
    }
}

/// Returns the command that installs a collection which the project names: all of its collections, if it lists them.
fn collections_command(project: &Path, collection: &str) -> Option<String> {
    if !is_named_in(project, collection) {
        return None;
    }
    Some(match project.join(REQUIREMENTS).is_file() {
        true => format!("ansible-galaxy collection install -r {REQUIREMENTS}"),
        false => format!("ansible-galaxy collection install {collection}"),
    })
}

/// Returns true if a file of the project contains the name of a collection.
fn is_named_in(project: &Path, collection: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    let has_name = |text: String| {
        text.match_indices(collection).any(|(at, _)| {
            let after = text[at + collection.len()..].chars().next();
            !text[..at].ends_with(is_part)
                && !after.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        })
    };
    let entries = std::fs::read_dir(project).into_iter().flatten().flatten().map(|entry| entry.path());
    let beside = entries.filter(|path| path.is_file());
    let below = NAMING_FOLDERS.iter().flat_map(|folder| walk(&project.join(folder)).unwrap_or_default());
    beside.chain(below).any(|file| read_encrypted(&file).is_ok_and(has_name))
}

/// Returns the texts between others.
fn named<'m>(message: &'m str, before: &'m str, after: char) -> impl Iterator<Item = &'m str> {
    message.match_indices(before).filter_map(move |(at, _)| {
        let rest = &message[at + before.len()..];
        rest.find(after).map(|end| &rest[..end])
    })
}

fn is_name(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of ansible-core 2.19.14.
    #[test]
    fn missing_packages_and_collections_have_a_command() {
        let folder = project("setup", "- hosts: localhost\n  roles: [acme.none.role]\n");
        let check = |message: &str, expected: Option<&str>| {
            assert_eq!(remedy(message, &folder).as_deref(), expected, "{message}");
        };
        let acme = Some("ansible-galaxy collection install acme.none");
        check("couldn't resolve module/action 'acme.none.thing'. This often indicates a misspelling", acme);
        check("Error while resolving value for 'msg': Syntax error in template: No filter named 'acme.none.f'.", acme);
        check("Syntax error in template: No test named 'acme.none.f'.", acme);
        check("The lookup plugin 'acme.none.f' was not found.", acme);
        check("the role 'acme.none.role' was not found in /p/roles:/usr/share/ansible/roles", acme);
        check("[WARNING]: Error loading plugin 'x': No module named 'ansible_collections.acme.none'", acme);
        check(
            "Failed to import the required Python library (kubernetes) on a's Python /usr/bin/python3.",
            Some("pip install kubernetes"),
        );
        check("ModuleNotFoundError: No module named 'ansible'", Some(INSTALL));
        check("ModuleNotFoundError: No module named 'yaml'", Some("pip install PyYAML"));
        check("the role 'web' was not found in /p/roles", None);
        check("couldn't resolve module/action 'ansible.builtin.thing'.", None);
        check("No module named 'a; rm -rf /'", None);
        check("the role 'a.b;c.d' was not found", None);
        check("size must be positive", None);
        std::fs::write(folder.join(REQUIREMENTS), "collections: []\n").unwrap();
        let message = with_remedy("The lookup plugin 'acme.none.f' was not found".to_owned(), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = "not found: install it with: ansible-galaxy collection install -r requirements.yml";
        assert!(message.ends_with(expected), "{message}");
    }

    #[test]
    fn text_of_users_names_nothing_to_install() {
        let folder = project("setup-users", "- hosts: localhost\n  roles: [acme.none2.role, xacme.none.role]\n");
        for message in [
            "name is No module named 'evilpkg'",
            "name is No module named 'evilpkg.kubernetes'",
            "Failed to import the required Python library (evilpkg)",
            "couldn't resolve module/action 'evil.collection.thing'",
            "The lookup plugin 'acme.none.f' was not found.",
            "No module named 'ansible_collections.evil.collection'",
        ] {
            assert_eq!(with_remedy(message.to_owned(), &folder), message);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Creates a project with a playbook.
    fn project(name: &str, playbook: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("flyball-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("playbooks")).unwrap();
        std::fs::write(folder.join("playbooks/main.yml"), playbook).unwrap();
        folder
    }
}
