//! The cargo workspace of a new project, if it is created within one.
//!
//! Only the required parts of Cargo.toml are parsed: its tables, and the names of their entries. See
//! <https://doc.rust-lang.org/cargo/reference/workspaces.html>.

use crate::error::{Error, Result, ResultExt};
use std::fs;
use std::path::{Path, PathBuf};

/// A workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    text: String,
}

impl Workspace {
    /// Finds the workspace that a directory is in, or would be.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>> {
        for root in folder.ancestors().skip(1) {
            let path = root.join("Cargo.toml");
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if !text.lines().any(|line| line.trim().starts_with("[workspace")) {
                continue;
            }
            let workspace = Self { root: root.into(), text };
            let relative = workspace.relative(folder);
            let excluded = workspace.list("exclude").map(|(_, _, all)| all).unwrap_or_default();
            let is_excluded = excluded.iter().any(|excluded| Path::new(&relative).starts_with(excluded));
            return Ok(if is_excluded { None } else { Some(workspace) });
        }
        Ok(None)
    }

    fn relative(&self, folder: &Path) -> String {
        folder.strip_prefix(&self.root).unwrap_or(folder).display().to_string()
    }

    /// Returns true if a table such as `workspace.dependencies` has an entry.
    pub(crate) fn has(&self, table: &str, name: &str) -> bool {
        let mut within = String::new();
        self.text.lines().map(str::trim).any(|line| {
            if let Some(header) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
                within = header.to_owned();
                return within == format!("{table}.{name}");
            }
            let key = line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"');
            within == table && key == name && line.contains('=')
        })
    }

    /// Returns true if it has a table.
    pub(crate) fn has_table(&self, table: &str) -> bool {
        let begins = |line: &str| {
            line.trim().strip_prefix(&format!("[{table}")).is_some_and(|rest| rest.starts_with(['.', ']']))
        };
        self.text.lines().any(begins)
    }

    /// Returns the range of a list of paths in the table `workspace`, and its items.
    fn list(&self, name: &str) -> Option<(usize, usize, Vec<String>)> {
        let table = self.text.find("[workspace]")?;
        let end = self.text[table..].find("\n[").map_or(self.text.len(), |at| table + at);
        let begins = |line: &str| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim().starts_with('='));
        let line = self.text[table..end].lines().find(|line| begins(line))?;
        // It is a slice of the text, so its address determines the position.
        let at = line.as_ptr().addr() - self.text.as_ptr().addr();
        let open = at + self.text[at..end].find('[')?;
        let close = open + self.text[open..end].find(']')?;
        let items = self.text[open + 1..close].split(',').map(|item| item.trim().trim_matches(['"', '\'']));
        Some((open + 1, close, items.filter(|item| !item.is_empty()).map(str::to_owned).collect()))
    }

    /// Returns Cargo.toml with a directory added to the members, if it is missing.
    pub(crate) fn with_member(&self, folder: &Path) -> Result<Option<String>> {
        let relative = self.relative(folder);
        let what = || format!("cannot add a member to {}: unsupported form of `members`", self.manifest().display());
        let by_hand = format!("add {relative:?} to `workspace.members`, and run the command again");
        let Some((_, close, members)) = self.list("members") else {
            let at = self.text.find("[workspace]").map(|at| at + "[workspace]".len());
            let at = at.ok_or_else(|| Error::new(what()).hint(by_hand))?;
            return Ok(Some(format!("{}\nmembers = [{relative:?}]{}", &self.text[..at], &self.text[at..])));
        };
        if members.iter().any(|member| is_matched(member, &relative)) {
            return Ok(None);
        }
        let before = self.text[..close].trim_end();
        let space = &self.text[before.len()..close];
        let comma = if members.is_empty() || before.ends_with(',') { "" } else { "," };
        let line = if space.contains('\n') { format!("\n    {relative:?},") } else { format!(" {relative:?}") };
        let line = if members.is_empty() { line.trim_start_matches(' ').to_owned() } else { line };
        Ok(Some(format!("{before}{comma}{line}{space}{}", &self.text[close..])))
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.root.join("Cargo.toml")
    }
}

/// Returns true if a path matches a member such as `crates/*`.
fn is_matched(member: &str, path: &str) -> bool {
    let (member, path): (Vec<&str>, Vec<&str>) =
        (member.trim_start_matches("./").trim_end_matches('/').split('/').collect(), path.split('/').collect());
    let part = |(pattern, name): (&&str, &&str)| match pattern.split_once('*') {
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
        None => pattern == name,
    };
    member.len() == path.len() && member.iter().zip(&path).all(part)
}

/// Returns the absolute path of a directory that may not exist yet.
pub(crate) fn absolute(folder: &Path) -> Result<PathBuf> {
    std::path::absolute(folder).context(format!("cannot find {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(text: &str) -> Workspace {
        Workspace { root: "/w".into(), text: text.into() }
    }

    #[test]
    fn member_is_added_to_the_list_of_members() {
        for (before, after) in [
            ("[workspace]\nmembers = [\"a\"]\n", Some("[workspace]\nmembers = [\"a\", \"ops/new\"]\n")),
            ("[workspace]\nmembers = []\n", Some("[workspace]\nmembers = [\"ops/new\"]\n")),
            (
                "[workspace]\nmembers = [\n    \"a\",\n]\n[x]\n",
                Some("[workspace]\nmembers = [\n    \"a\",\n    \"ops/new\",\n]\n[x]\n"),
            ),
            ("[workspace]\nmembers = [\"ops/*\"]\n", None),
            ("[workspace]\nresolver = \"3\"\n", Some("[workspace]\nmembers = [\"ops/new\"]\nresolver = \"3\"\n")),
        ] {
            assert_eq!(workspace(before).with_member(Path::new("/w/ops/new")).unwrap().as_deref(), after, "{before}");
        }
        assert!(workspace("[workspace.dependencies]\n").with_member(Path::new("/w/a")).is_err());
    }

    #[test]
    fn workspace_dependencies_and_tables_are_found() {
        let workspace = workspace(
            "[workspace.dependencies]\nkube = \"5\"\nserde.version = \"1\"\n[workspace.dependencies.tokio]\nversion = \"1\"\n[workspace.lints.rust]\n",
        );
        let known = |name| workspace.has("workspace.dependencies", name);
        assert!(known("kube") && known("serde") && known("tokio") && !known("version") && !known("clap"));
        assert!(workspace.has_table("workspace.lints") && !workspace.has_table("workspace.package"));
    }
}
