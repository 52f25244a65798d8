//! File changes that are written together, or not at all.
//!
//! Each is written to a temporary file first, and renamed after all of them were written. Existing content is
//! preserved: lines are added above a comment such as `// +flyball:api`, the anchor, or among the `use` lines.

use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use flyball_files::Replace;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Pending changes of the files of one directory.
#[derive(Debug)]
pub(crate) struct Changes {
    root: PathBuf,
    files: BTreeMap<PathBuf, Change>,
    missing: Vec<String>,
}

#[derive(Debug)]
struct Change {
    before: Option<Vec<u8>>,
    after: Vec<u8>,
}

/// Result for one file.
#[derive(Debug, serde::Serialize)]
pub(crate) struct WrittenFile {
    pub(crate) file: String,
    pub(crate) outcome: &'static str,
}

impl Changes {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.into(), files: BTreeMap::new(), missing: Vec::new() }
    }

    /// Returns the directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the texts that are written, as they are about to be.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, change)| Some((path.to_str()?, str::from_utf8(&change.after).ok()?)))
    }

    /// Returns the future content of a file, if it will exist.
    pub(crate) fn read(&self, path: &str) -> Result<Option<String>> {
        let bytes = match self.files.get(Path::new(path)) {
            Some(change) => Some(change.after.clone()),
            None => self.read_bytes(path)?,
        };
        let what = || format!("cannot read {}", self.root.join(path).display());
        bytes.map(String::from_utf8).transpose().map_err(|error| error.utf8_error()).context(what())
    }

    fn read_bytes(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let whole = self.root.join(path);
        match fs::read(&whole) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context(format!("cannot read {}", whole.display())),
        }
    }

    /// Writes a new file; an existing one is overwritten only if `force` is set.
    pub(crate) fn create(&mut self, path: &str, content: impl Into<Vec<u8>>, force: bool) -> Result<()> {
        if !force && (self.files.contains_key(Path::new(path)) || self.read_bytes(path)?.is_some()) {
            return Err(Error::new(format!("{} already exists", self.root.join(path).display()))
                .hint("nothing was written; move the file first"));
        }
        self.put(path, content)
    }

    /// Writes a generated file.
    pub(crate) fn put(&mut self, path: &str, content: impl Into<Vec<u8>>) -> Result<()> {
        let after = content.into();
        match self.files.get_mut(Path::new(path)) {
            Some(change) => change.after = after,
            None => {
                let before = self.read_bytes(path)?;
                self.files.insert(path.into(), Change { before, after });
            }
        }
        Ok(())
    }

    /// Adds lines above an anchor, with its indentation; existing lines are not added again.
    pub(crate) fn insert(&mut self, path: &str, anchor: &str, lines: &[String]) -> Result<()> {
        let anchor = format!("// +flyball:{anchor}");
        self.add(path, &format!("the line `{anchor}`"), lines, |text, lines| {
            let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
            let first = all.iter().position(|line| line.trim() == anchor)?;
            let indent = all[first].split_once('/').map_or("", |(indent, _)| indent).to_owned();
            let is_within = |line: &&String| line.is_empty() || line.starts_with(&indent);
            let block: Vec<String> = all[..first].iter().rev().take_while(is_within).cloned().collect();
            let new = lines.iter().filter(|line| !block.iter().any(|known| known.trim() == line.trim()));
            // The anchor moves down by each line that is added.
            for (at, line) in (first..).zip(new) {
                // Modules are in the order of their names, as rustfmt puts them.
                let later = all[..at].iter().rev().take_while(|known| {
                    line.starts_with("pub mod ")
                        && known.trim().starts_with("pub mod ")
                        && order(known.trim()) > order(line)
                });
                let place = at - later.count();
                all.insert(place, format!("{indent}{line}"));
            }
            Some(all.join("\n") + "\n")
        })
    }

    /// Adds a `use` line in its place among those of a file.
    pub(crate) fn import(&mut self, path: &str, line: &str) -> Result<()> {
        self.add(path, "a line that begins with `use`", &[line.to_owned()], |text, lines| {
            let mut all: Vec<&str> = text.lines().collect();
            if all.contains(&lines[0].as_str()) {
                return Some(text.to_owned());
            }
            let first = all.iter().position(|line| line.starts_with("use "))?;
            let uses = all[first..].iter().take_while(|line| line.starts_with("use ")).count();
            let before = all[first..first + uses].iter().take_while(|known| order(known) < order(&lines[0])).count();
            all.insert(first + before, &lines[0]);
            Some(all.join("\n") + "\n")
        })
    }

    fn add(
        &mut self,
        path: &str,
        place: &str,
        lines: &[String],
        insert: impl Fn(&str, &[String]) -> Option<String>,
    ) -> Result<()> {
        let Some(text) = self.read(path)? else {
            self.missing.push(format!("{path} not found; add these lines to it:\n{}", lines.join("\n")));
            return Ok(());
        };
        if let Some(after) = insert(&text, lines) {
            return self.put(path, after);
        }
        // The lines may have been added by hand, without the anchor.
        let is_there = |line: &&String| text.lines().any(|known| known.trim() == line.trim());
        let new: Vec<&str> = lines.iter().filter(|line| !is_there(line)).map(|line| line.trim_end()).collect();
        if !new.is_empty() {
            let remedy = "restore it, or add these lines by hand";
            self.missing.push(format!("{place} is missing in {path}: {remedy}:\n{}", new.join("\n")));
        }
        Ok(())
    }

    /// Writes all files, or none, and returns the result for each file.
    pub(crate) fn commit(mut self) -> Result<Vec<WrittenFile>> {
        if !self.missing.is_empty() {
            let error = Error::new("cannot find where to add code; nothing was written");
            return Err(self.missing.into_iter().fold(error, Error::hint).hint("then run the command again"));
        }
        for (path, change) in &mut self.files {
            // Other formatting is preserved.
            let is_laid_out = |code: &[u8]| format(code, &self.root).is_none_or(|formatted| formatted == code);
            let is_code = path.extension().is_some_and(|extension| extension == "rs");
            if is_code
                && change.before.as_deref().is_none_or(is_laid_out)
                && let Some(formatted) = format(&change.after, &self.root)
            {
                change.after = formatted;
            }
        }
        let changed: Vec<(&PathBuf, &Change)> =
            self.files.iter().filter(|(_, change)| change.before.as_ref() != Some(&change.after)).collect();
        let mut folders = Vec::new();
        let mut done = 0;
        let mut write = || -> Result<()> {
            let mut staged = Vec::new();
            for (path, change) in &changed {
                let whole = self.root.join(path);
                let what = || format!("cannot write {}", whole.display());
                create_directories(whole.parent().unwrap_or(&self.root), &mut folders).context(what())?;
                let mut file = Replace::default().stage(&whole).context(what())?;
                file.write_all(&change.after).context(what())?;
                staged.push((file, whole));
            }
            for (file, whole) in staged {
                file.commit().context(format!("cannot write {}", whole.display()))?;
                done += 1;
            }
            Ok(())
        };
        let written = write();
        if let Err(error) = written {
            let remaining = restore(&self.root, &changed[..done]);
            for folder in folders.iter().rev() {
                let _ = fs::remove_dir(folder);
            }
            return Err(error.hint(match remaining.as_slice() {
                [] => "nothing was written".to_owned(),
                files => format!("these files were written and could not be restored: {}", files.join(", ")),
            }));
        }
        let describe = |(path, change): &(&PathBuf, &Change)| WrittenFile {
            file: path.display().to_string(),
            outcome: if change.before.is_some() { "changed" } else { "created" },
        };
        Ok(changed.iter().map(describe).collect())
    }
}

/// Prints the files that were written, with the outcome of each.
pub(crate) fn print_written(written: &[WrittenFile], output: Option<Output>) -> Result<()> {
    if let Some(output) = output {
        return output.print(&written);
    }
    for one in written {
        print_line(&format!("{} {}", paint(Style::Good, one.outcome), one.file));
    }
    Ok(())
}

/// Restores the content of files. Returns the files that still differ from it.
fn restore(root: &Path, changed: &[(&PathBuf, &Change)]) -> Vec<String> {
    let is_restored = |path: &Path, change: &Change| match &change.before {
        Some(before) => fs::write(root.join(path), before).is_ok(),
        None => match fs::remove_file(root.join(path)) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        },
    };
    let remaining = changed.iter().filter(|(path, change)| !is_restored(path, change));
    remaining.map(|(path, _)| path.display().to_string()).collect()
}

/// Returns the sort key of rustfmt for `use` lines: modules before types, lists last.
pub(crate) fn order(line: &str) -> String {
    let swapped = |c: char| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
    line.trim_end_matches(';').chars().map(swapped).collect()
}

/// Formats code with the project's rustfmt, if available, since line widths depend on names.
fn format(code: &[u8], root: &Path) -> Option<Vec<u8>> {
    // A new project uses the settings of its parent directory.
    let folder = root.ancestors().find(|folder| folder.is_dir())?;
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition=2024", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut rustfmt = rustfmt.current_dir(folder).spawn().ok()?;
    rustfmt.stdin.take()?.write_all(code).ok()?;
    let formatted = rustfmt.wait_with_output().ok()?;
    formatted.status.success().then_some(formatted.stdout)
}

/// Creates a directory and its parents, and records the new ones.
fn create_directories(folder: &Path, created: &mut Vec<PathBuf>) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_directories(above, created)?;
    }
    fs::create_dir(folder)?;
    created.push(folder.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;

    #[test]
    fn files_that_cannot_be_restored_are_named() {
        let folder = PrivateDirectory::new("flyball-changes").unwrap();
        let root = folder.path();
        let [changed, created, deleted, blocked, lost] =
            ["changed", "created", "gone", "blocked", "lost/changed"].map(PathBuf::from);
        fs::write(root.join(&changed), "after").unwrap();
        fs::write(root.join(&created), "after").unwrap();
        fs::create_dir(root.join(&blocked)).unwrap();
        let change = |before: Option<&str>| Change { before: before.map(Into::into), after: "after".into() };
        let (old, new) = (change(Some("before")), change(None));
        let files = [(&changed, &old), (&created, &new), (&deleted, &new), (&blocked, &new), (&lost, &old)];
        assert_eq!(restore(root, &files), ["blocked", "lost/changed"]);
        assert_eq!(fs::read_to_string(root.join(&changed)).unwrap(), "before");
        assert!(!root.join(&created).exists());
    }
}
