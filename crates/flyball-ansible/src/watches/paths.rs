//! The places of roles and playbooks: in the project, in paths of the environment, and in collections.

use crate::fields::FieldError;
use std::env;
use std::path::{Path, PathBuf};

pub(super) fn find_role(folder: &Path, role: &str) -> Result<PathBuf, FieldError> {
    let mut candidates = role_paths(folder, role);
    match candidates.iter().position(|path| path.is_dir()) {
        Some(path) => Ok(candidates.swap_remove(path)),
        None => {
            let candidates: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
            Err(FieldError::new(
                "role",
                format!(
                    "role {role} not found in {}: set the path of its folder, or add the parent folder to \
                     ANSIBLE_ROLES_PATH",
                    candidates.join(", ")
                ),
            ))
        }
    }
}

/// Returns the possible paths of a role: as a path, below `ANSIBLE_ROLES_PATH`, in the project's roles, as a path in
/// the project.
pub(crate) fn role_paths(folder: &Path, role: &str) -> Vec<PathBuf> {
    if Path::new(role).is_absolute() {
        return absolute_places(folder, role);
    }
    let paths = roles_path().into_iter();
    let mut places: Vec<_> = paths.flat_map(|path| [path.join(role), path.join("roles").join(role)]).collect();
    places.extend([folder.join("roles").join(role), folder.join(role)]);
    places.extend(collection_places(folder, role).into_iter().map(|(place, name)| place.join("roles").join(name)));
    places
}

/// Returns the directories in `ANSIBLE_ROLES_PATH`.
pub(crate) fn roles_path() -> Vec<PathBuf> {
    let paths = env::var_os("ANSIBLE_ROLES_PATH").unwrap_or_default();
    env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Returns the possible paths of an absolute path: images of operator-sdk have the project in `/opt/ansible`.
pub(super) fn absolute_places(folder: &Path, path: &str) -> Vec<PathBuf> {
    let in_project = Path::new(path).strip_prefix("/opt/ansible").ok();
    [PathBuf::from(path)].into_iter().chain(in_project.map(|path| folder.join(path))).collect()
}

/// Returns the possible directories of the collection of a name such as `community.general.site`, and the last part of
/// the name: in the project, in `ANSIBLE_COLLECTIONS_PATH`, or in Ansible's default directories.
pub(super) fn collection_places(folder: &Path, name: &str) -> Vec<(PathBuf, String)> {
    let parts: Vec<&str> = name.split('.').collect();
    let is_name = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let [namespace, collection, name] = parts[..] else { return Vec::new() };
    if !parts.iter().all(is_name) {
        return Vec::new();
    }
    let mut folders = vec![folder.join("collections")];
    match env::var_os("ANSIBLE_COLLECTIONS_PATH").filter(|paths| !paths.is_empty()) {
        Some(paths) => folders.extend(env::split_paths(&paths)),
        None => {
            folders.extend(env::var_os("HOME").map(|home| PathBuf::from(home).join(".ansible/collections")));
            folders.push("/usr/share/ansible/collections".into());
        }
    }
    let of = |folder: PathBuf| {
        let all = if folder.ends_with("ansible_collections") { folder } else { folder.join("ansible_collections") };
        (all.join(namespace).join(collection), name.to_owned())
    };
    folders.into_iter().map(of).collect()
}
