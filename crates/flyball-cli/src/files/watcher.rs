//! Watches the source files of a program for changes.
//!
//! Polling is cheap, works on every file system, and detects editors that write a temporary file and rename it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// Polling interval. Changes in quicker succession are one change.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// New files are looked for less often: a directory is read for it.
const POLLS_PER_LISTING: u32 = 4;
/// Files beyond this number are ignored.
const MAX_FILES: usize = 20_000;

/// Modification time and size of a file; none if it does not exist.
type State = Option<(SystemTime, u64)>;

/// Watches files by polling.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FileWatcher(BTreeMap<PathBuf, State>);

impl FileWatcher {
    /// Adds files to watch. Known files keep their recorded state.
    pub(crate) fn add(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        for file in files {
            if self.0.len() < MAX_FILES {
                self.0.entry(file).or_insert_with_key(|file| state(file));
            }
        }
    }

    /// Waits until one of them was saved, or another file was created, and no further changes follow; returns the
    /// first of them. The function lists the files again.
    pub(crate) async fn change(&mut self, list: impl Fn() -> Vec<PathBuf>) -> PathBuf {
        let (mut changed, mut polls) = (None, 0_u32);
        loop {
            sleep(POLL_INTERVAL).await;
            polls = polls.wrapping_add(1);
            let is_listing = polls.is_multiple_of(POLLS_PER_LISTING);
            let mut created = None;
            if is_listing {
                let listed = list();
                created = listed.iter().find(|file| !self.0.contains_key(*file)).cloned();
                let known = self.0.len();
                self.add(listed);
                created = created.filter(|_| self.0.len() > known);
            }
            let change = self.poll().or(created);
            match (changed, change) {
                (Some(changed), None) => return changed,
                (before, change) => changed = before.or(change),
            }
        }
    }

    /// Updates the states of the files, and returns the first that changed.
    fn poll(&mut self) -> Option<PathBuf> {
        let mut changed = None;
        for (file, known) in &mut self.0 {
            let now = state(file);
            if now != *known && changed.is_none() {
                changed = Some(file.clone());
            }
            *known = now;
        }
        changed
    }
}

fn state(file: &Path) -> State {
    let found = fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Returns the known source files of the project in a directory: those in cargo's dep-info of the program, including
/// path dependencies and included files, and all files in `src`.
pub(crate) fn sources(folder: &Path, program: Option<&Path>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for above in folder.ancestors() {
        let manifest = above.join("Cargo.toml");
        if manifest.is_file() {
            files.extend([manifest, above.join("Cargo.lock"), above.join("build.rs")]);
        }
    }
    collect_files(&folder.join("src"), &mut files);
    let noted = program.and_then(|program| fs::read_to_string(program.with_extension("d")).ok());
    files.extend(noted.iter().flat_map(|noted| prerequisites(noted)));
    files
}

/// Appends the files below a directory, or the file itself, without hidden files and those of editors.
pub(crate) fn collect_files(path: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else {
        files.push(path.to_owned());
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with('.') || is_of_editor(&name.to_string_lossy()) || files.len() >= MAX_FILES
        {
            continue;
        }
        // Links are not followed, since they may lead back.
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => collect_files(&entry.path(), files),
            false => files.push(entry.path()),
        }
    }
}

/// Returns true if an editor writes a file of this name beside the one that it edits.
pub(crate) fn is_of_editor(name: &str) -> bool {
    // Vim checks with a file of this number whether it can write to a directory.
    const NAMES: [&str; 1] = ["4913"];
    const ENDINGS: [&str; 11] =
        ["~", ".swp", ".swo", ".swx", ".swpx", ".bak", ".orig", ".rej", ".tmp", "___jb_tmp___", "___jb_old___"];
    NAMES.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || name.starts_with(".#")
        || name.len() > 2 && name.starts_with('#') && name.ends_with('#')
}

/// Removes logs, and the files to which this command writes: each line would be a change.
pub(crate) fn remove_outputs(files: &mut Vec<PathBuf>) {
    remove(files, &["/dev/stdout", "/dev/stderr"].map(|output| id(Path::new(output))));
}

fn remove(files: &mut Vec<PathBuf>, outputs: &[Option<(u64, u64)>]) {
    files.retain(|file| {
        let is_log = file.extension().is_some_and(|extension| extension == "log");
        !is_log && id(file).is_none_or(|id| !outputs.contains(&Some(id)))
    });
}

/// Returns device and inode of a file; none if it does not exist.
fn id(file: &Path) -> Option<(u64, u64)> {
    fs::metadata(file).map(|file| (file.dev(), file.ino())).ok()
}

/// Reads the files that a rule of a makefile names, whose spaces have a backslash before them.
fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let Some((_, files)) = rule.lines().next().and_then(|line| line.split_once(": ")) else { return Vec::new() };
    let whole = files.replace("\\ ", "\0");
    whole.split(' ').filter(|file| !file.is_empty()).map(|file| file.replace('\0', " ").into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_spaces_do_not_separate_names() {
        let files = prerequisites("/t/debug/op: /a/src/main.rs /a\\ b/lib.rs\n\n/a/src/main.rs:\n");
        assert_eq!(files, [PathBuf::from("/a/src/main.rs"), PathBuf::from("/a b/lib.rs")]);
        assert!(prerequisites("").is_empty() && prerequisites("x").is_empty());
    }

    #[test]
    fn outputs_and_logs_are_not_watched() {
        let folder = std::env::temp_dir().join(format!("flyball-outputs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [log, output, source, missing] = ["a.log", "output", "source", "missing"].map(|name| folder.join(name));
        [&log, &output, &source].into_iter().for_each(|file| fs::write(file, "").unwrap());
        let mut files = vec![log, output.clone(), source.clone(), missing.clone()];
        remove(&mut files, &[None, id(&output)]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(files, [source, missing]);
    }

    #[tokio::test]
    async fn created_changed_and_deleted_files_are_detected() {
        let folder = std::env::temp_dir().join(format!("flyball-saved-{}", std::process::id()));
        fs::create_dir_all(folder.join("src/inner")).unwrap();
        let file = folder.join("src/inner/a.rs");
        let mut saved = FileWatcher::default();
        saved.add([file.clone(), folder.join("src/b.rs")]);
        assert_eq!(saved.poll(), None);
        for text in [Some("a"), Some("ab"), None] {
            match text {
                Some(text) => fs::write(&file, text).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            assert_eq!(saved.change(Vec::new).await, file);
            assert_eq!(saved.poll(), None, "a change is reported once");
        }
        let new = folder.join("src/new.rs");
        fs::write(&new, "").unwrap();
        assert_eq!(saved.change(|| vec![new.clone()]).await, new);
        fs::write(folder.join("Cargo.toml"), "").unwrap();
        fs::write(&file, "").unwrap();
        for name in ["4913", "a.rs~", "#a.rs#", ".#a.rs", ".a.rs.swp", "a.rs.orig"] {
            fs::write(folder.join("src/inner").join(name), "").unwrap();
        }
        let found = sources(&folder, None);
        assert!(found.contains(&file) && found.contains(&folder.join("Cargo.lock")), "{found:?}");
        assert_eq!(found.iter().filter(|file| file.starts_with(folder.join("src/inner"))).count(), 1, "{found:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
