//! The commands that install what a run of `ansible-playbook` lacks: Python packages and collections.
//!
//! Messages of Ansible and Python name what is missing. They may contain text of users, so only names that consist of
//! identifiers are repeated in a command.

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
    if let Some(name) = collections.find(|name| is_name(name)) {
        // Roles in collections have the name of the collection and their own.
        let parts: Vec<&str> = name.splitn(3, '.').take(2).collect();
        return Some(collections_command(project, &parts.join(".")));
    }
    let mut packages = OF_PACKAGES.into_iter().flat_map(|(before, after)| named(message, before, after));
    let package = packages.find(|name| is_name(name))?;
    match package.split('.').next().unwrap_or(package) {
        "ansible" => Some(INSTALL.to_owned()),
        // A module of a collection, whose name is in another message.
        "ansible_collections" => {
            let parts: Vec<&str> = package.split('.').skip(1).take(2).collect();
            Some(collections_command(project, &parts.join(".")))
        }
        "yaml" => Some("pip install PyYAML".to_owned()),
        package => Some(format!("pip install {package}")),
    }
}

/// Returns the command that installs a collection: all of the project, if it lists them.
fn collections_command(project: &Path, collection: &str) -> String {
    match project.join(REQUIREMENTS).is_file() {
        true => format!("ansible-galaxy collection install -r {REQUIREMENTS}"),
        false => format!("ansible-galaxy collection install {collection}"),
    }
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
        let without = Path::new("/none");
        let check = |message: &str, expected: Option<&str>| {
            assert_eq!(remedy(message, without).as_deref(), expected, "{message}");
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
        let folder = std::env::temp_dir().join(format!("flyball-setup-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(REQUIREMENTS), "collections: []\n").unwrap();
        let message = with_remedy("The lookup plugin 'acme.none.f' was not found".to_owned(), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = "not found: install it with: ansible-galaxy collection install -r requirements.yml";
        assert!(message.ends_with(expected), "{message}");
    }
}
