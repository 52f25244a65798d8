//! Projects of charts or roles: a `watches.yaml` and its directories.

use super::changes::Changes;
use super::template::fill;
use crate::error::{Error, Result, yaml_problem};
use crate::files::WATCHES;
use crate::project::{FILE, Project, ProjectType, Resource};
use serde_json::{Value, json};
use std::cmp::Ordering;

/// Entries are inserted above this line.
const ANCHOR: &str = "# +flyball:watch";
/// The collections of a project, for runs of `ansible-playbook`.
const REQUIREMENTS: &str = "requirements.yml";
/// Fields of an entry, in their order.
const FIELDS: [&str; 6] = ["group", "version", "kind", "chart", "role", "helmVersion"];
/// The version of Helm that new charts are rendered with.
const HELM_VERSION: u32 = 4;

/// Writes a project without kinds.
pub(crate) fn write(changes: &mut Changes, project: &Project) -> Result<()> {
    let (watches, readme, gitignore) = match project.project_type {
        ProjectType::Ansible => (
            include_str!("../../../templates/ansible/watches.yaml"),
            include_str!("../../../templates/ansible/README.md"),
            include_str!("../../../templates/ansible/gitignore"),
        ),
        ProjectType::Helm | ProjectType::Rust => (
            include_str!("../../../templates/helm/watches.yaml"),
            include_str!("../../../templates/helm/README.md"),
            include_str!("../../../templates/helm/gitignore"),
        ),
    };
    changes.create(WATCHES, watches, false)?;
    if project.project_type == ProjectType::Ansible {
        changes.create(REQUIREMENTS, include_str!("../../../templates/ansible/requirements.yml"), false)?;
    }
    changes.create("README.md", fill(readme, &[("name", &project.project_name)]), false)?;
    changes.create(FILE, project.text()?, false)?;
    // Hidden files may exist in an empty directory.
    match changes.read(".gitignore")? {
        Some(_) => Ok(()),
        None => changes.create(".gitignore", gitignore, false),
    }
}

/// Adds the entry of a kind: its chart, or its role. An existing entry of the kind remains.
pub(crate) fn add_entry(changes: &mut Changes, resource: &Resource, field: &str, value: &str) -> Result<()> {
    let Resource { group, version, kind, .. } = resource;
    let mut entry = json!({"group": group, "version": version, "kind": kind, (field): value});
    if field == "chart" {
        entry["helmVersion"] = HELM_VERSION.into();
    }
    let text = changes.read(WATCHES)?.unwrap_or_default();
    let block = flyball_chart::to_yaml(&json!([entry]), order);
    let by_hand = |why: String| {
        Error::new(format!("cannot add {} to {WATCHES}: {why}", resource.api_kind())).hint(format!(
            "nothing was written; add this entry by hand, then run the command again with --force:\n{block}"
        ))
    };
    let mut entries = entries(&text).map_err(by_hand)?;
    let is_of_kind = |other: &Value| ["group", "version", "kind"].iter().all(|name| other[*name] == entry[*name]);
    if entries.iter().any(is_of_kind) {
        return Ok(());
    }
    let mut lines: Vec<&str> = text.lines().filter(|line| line.trim_end() != "[]").collect();
    let at = lines.iter().position(|line| line.trim_end() == ANCHOR).unwrap_or(lines.len());
    lines.insert(at, block.trim_end());
    let after = lines.join("\n") + "\n";
    entries.push(entry);
    // Flow sequences and indented lists cannot be extended by a line.
    match self::entries(&after) {
        Ok(read) if read.len() == entries.len() && entries.iter().all(|entry| read.contains(entry)) => {
            changes.put(WATCHES, after)
        }
        _ => Err(by_hand("it is not a list whose entries begin with `- ` in the first column".into())),
    }
}

/// Sets the version of the entry of a kind.
pub(crate) fn set_version(changes: &mut Changes, old: &Resource, version: &str) -> Result<()> {
    let text = changes.read(WATCHES)?.unwrap_or_default();
    let is_of_kind = |entry: &Value| entry["group"] == *old.group && entry["kind"] == *old.kind;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("- ")).collect();
    for (at, begin) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(lines.len());
        let entry = entries(&lines[*begin..end].join("\n")).unwrap_or_default();
        let field = lines[*begin..end].iter_mut().find(|line| {
            line.trim_start_matches(['-', ' '])
                .strip_prefix("version:")
                .is_some_and(|value| value.trim() == old.version)
        });
        if let (true, Some(line)) = (entry.first().is_some_and(is_of_kind), field) {
            *line = line.replace(&old.version, version);
        }
    }
    let after = lines.join("\n") + "\n";
    let is_set = |entry: &Value| is_of_kind(entry) && entry["version"] == version;
    match entries(&after) {
        Ok(read) if read.iter().any(is_set) => changes.put(WATCHES, after),
        _ => Err(Error::new(format!("{WATCHES} has no entry for {} with the line version: {}", old.kind, old.version))
            .hint(format!("nothing was written; set version: {version} in its entry by hand"))),
    }
}

/// Reads the entries of a `watches.yaml`.
fn entries(text: &str) -> Result<Vec<Value>, String> {
    let is_blank = |line: &str| matches!(line.trim(), "" | "---") || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        return Ok(Vec::new());
    }
    serde_saphyr::from_str(text).map_err(|error| yaml_problem(&error))
}

fn order(one: &str, other: &str) -> Ordering {
    let rank = |name: &str| FIELDS.iter().position(|field| *field == name);
    rank(one).cmp(&rank(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;
    use std::fs;

    #[test]
    fn entries_are_added_and_text_is_kept() {
        let folder = PrivateDirectory::new("flyball-watches").unwrap();
        let resource =
            Resource { group: "a.io".into(), version: "v1".into(), kind: "On".into(), ..Resource::default() };
        let check = |before: &str, expected: Option<&str>| {
            fs::write(folder.path().join(WATCHES), before).unwrap();
            let mut changes = Changes::new(folder.path());
            let added = add_entry(&mut changes, &resource, "chart", "helm-charts/on");
            let after = changes.read(WATCHES).unwrap().unwrap();
            assert_eq!(added.is_ok().then_some(after.as_str()), expected, "{before}: {added:?}");
        };
        let entry = "- group: a.io\n  version: v1\n  kind: \"On\"\n  chart: helm-charts/on\n  helmVersion: 4\n";
        check("", Some(entry));
        check("# Mine.\n[]\n", Some(&format!("# Mine.\n{entry}")));
        check("# Mine.\n# +flyball:watch\n# Last.\n", Some(&format!("# Mine.\n{entry}# +flyball:watch\n# Last.\n")));
        let other = "- {group: a.io, version: v1, kind: Site, chart: x}  # mine\n";
        check(other, Some(&format!("{other}{entry}")));
        check(entry, Some(entry));
        check("[{group: a.io, version: v1, kind: Site, chart: x}]\n", None);
        check("  - {group: a.io, version: v1, kind: Site, chart: x}\n", None);
        check("kind: Site\n", None);
    }
}
