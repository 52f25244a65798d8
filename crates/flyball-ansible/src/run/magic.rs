//! Variables that describe the run, as of `ansible-playbook` on the host `localhost`; see
//! <https://docs.ansible.com/ansible/latest/reference_appendices/special_variables.html>.

use crate::playbook::{Play, Role};
use crate::template::{Var, Vars};
use crate::value::{Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Variables that are the same in all runs. The version is that of the documented behavior.
static CONSTANTS: LazyLock<Vars> = LazyLock::new(|| {
    let hosts = || json!(["localhost"]);
    let values = [
        ("inventory_hostname", "localhost".into()),
        ("inventory_hostname_short", "localhost".into()),
        ("group_names", json!(["ungrouped"])),
        ("groups", json!({"all": hosts(), "ungrouped": hosts()})),
        ("ansible_play_hosts", hosts()),
        ("ansible_play_hosts_all", hosts()),
        ("ansible_play_batch", hosts()),
        ("play_hosts", hosts()),
        ("ansible_check_mode", false.into()),
        ("ansible_diff_mode", false.into()),
        ("ansible_facts", json!({})),
        ("ansible_forks", 5.into()),
        ("ansible_run_tags", json!(["all"])),
        ("ansible_skip_tags", json!([])),
        ("ansible_version", json!({"full": "2.19.4", "major": 2, "minor": 19, "revision": 4, "string": "2.19.4"})),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), Var::Data(Arc::new(value)))).collect()
});

/// Returns the variables for tasks of a play or a role; the innermost parent is the last one.
pub(super) fn vars(play: &Play, role: Option<&Role>, parents: &[&Arc<Role>]) -> Arc<Vars> {
    let mut vars = CONSTANTS.clone();
    let mut insert = |name: &str, value: Value| vars.insert(name.to_owned(), Var::Data(Arc::new(value)));
    insert("playbook_dir", play.folder.to_string_lossy().into());
    if let Some(role) = role {
        let parents: Vec<&str> = parents.iter().rev().map(|parent| name_of(&parent.folder)).collect();
        for name in ["role_name", "ansible_role_name"] {
            insert(name, name_of(&role.folder).into());
        }
        insert("role_path", role.folder.to_string_lossy().into());
        insert("ansible_parent_role_names", parents.into());
    }
    Arc::new(vars)
}

fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
