//! The user's kubeconfig: adds and removes a context, and preserves everything else.
//!
//! See <https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/>.

use crate::error::{Error, Result, ResultExt};
use crate::files::private;
use crate::render::yaml;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Map, Value, json};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Attempts to lock the file, every 50 ms.
const MAX_LOCK_ATTEMPTS: u32 = 40;
/// The lists of a kubeconfig whose entries have names.
const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

/// Returns the path of the file that kubectl would change.
pub(crate) fn path() -> Result<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    if let Some(first) = std::env::split_paths(&listed).find(|path| !path.as_os_str().is_empty()) {
        return Ok(first);
    }
    let home = std::env::home_dir()
        .ok_or_else(|| Error::new("no home directory found for a kubeconfig").hint("pass --kubeconfig FILE"))?;
    Ok(home.join(".kube/config"))
}

/// Adds the context of `ours` and makes it the current one; returns the previous one.
pub(crate) fn add(path: &Path, ours: &Value) -> Result<Option<String>> {
    change(path, |config| {
        for list in LISTS {
            for entry in ours[list].as_array().into_iter().flatten() {
                remove_entry(config, list, entry["name"].as_str().unwrap_or_default());
                match config.entry(list).or_insert(Value::Null) {
                    Value::Array(entries) => entries.push(entry.clone()),
                    other => *other = json!([entry]),
                }
            }
        }
        let name = ours["current-context"].clone();
        let before = config.insert("current-context".into(), name.clone());
        before.filter(|before| *before != name).and_then(|before| before.as_str().map(str::to_owned))
    })
}

/// Removes a context; if it is the current one, `before` becomes the current context.
pub(crate) fn remove(path: &Path, name: &str, before: Option<&str>) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    change(path, |config| {
        for list in LISTS {
            remove_entry(config, list, name);
        }
        if config.get("current-context").and_then(Value::as_str) == Some(name) {
            config.insert("current-context".into(), before.unwrap_or_default().into());
        }
    })
}

fn remove_entry(config: &mut Map<String, Value>, list: &str, name: &str) {
    if let Some(Value::Array(entries)) = config.get_mut(list) {
        entries.retain(|entry| entry["name"] != name);
    }
}

/// Writes a file atomically with mode 0600.
pub(crate) fn write(path: &Path, config: &Value) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context(what())?;
    }
    // Symbolic links to the file are preserved.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    private::write(&target, yaml::write(config).as_bytes()).context(what())
}

fn change<T>(path: &Path, change: impl FnOnce(&mut Map<String, Value>) -> T) -> Result<T> {
    let _lock = Lock::acquire(path)?;
    let config: Value = match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => {
            serde_saphyr::from_str(&text).context(format!("{} is not a kubeconfig", path.display()))?
        }
        Ok(_) => Value::Null,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
    };
    let mut config = match config {
        Value::Null => json!({"apiVersion": "v1", "kind": "Config"}),
        Value::Object(config) => Value::Object(config),
        _ => return Err(Error::new(format!("{} is not a kubeconfig", path.display()))),
    };
    let result = change(config.as_object_mut().expect("created or checked as an object"));
    write(path, &config)?;
    Ok(result)
}

/// The lock that kubectl acquires while it changes a kubeconfig: a file beside it. Ours contains its process ID, so
/// that a stale one can be detected; kubectl's is empty, and always counts as held.
struct Lock(PathBuf);

/// First bytes of our lock files.
const LOCK_OWNER: &str = "flyball ";

impl Lock {
    fn acquire(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).context(format!("cannot create {}", folder.display()))?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        for _ in 0..MAX_LOCK_ATTEMPTS {
            match flyball_files::private(OpenOptions::new().write(true).create_new(true)).open(&lock) {
                Ok(mut file) => {
                    let guard = Self(lock);
                    file.write_all(format!("{LOCK_OWNER}{}\n", std::process::id()).as_bytes())
                        .context(format!("cannot lock {}", path.display()))?;
                    return Ok(guard);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    if !remove_stale(&lock) {
                        pause();
                    }
                }
                Err(error) => return Err(error).context(format!("cannot lock {}", path.display())),
            }
        }
        let locked = Error::new(format!("{} is locked by another program", path.display()));
        Err(locked.hint(format!("if no other program uses it, delete {}", lock.display())))
    }
}

/// Removes a lock whose process has ended; returns true if it did.
fn remove_stale(lock: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(lock) else { return false };
    let pid = owner.strip_prefix(LOCK_OWNER).and_then(|pid| pid.trim().parse::<i32>().ok()).filter(|pid| *pid > 0);
    let pid = pid.and_then(Pid::from_raw);
    if pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH)) {
        return false;
    }
    // Only one of several processes succeeds in moving it; a new lock that another process created meanwhile is moved
    // back.
    let mut aside = lock.as_os_str().to_owned();
    aside.push(format!("-stale-{}", std::process::id()));
    let aside = PathBuf::from(aside);
    if fs::rename(lock, &aside).is_err() {
        return false;
    }
    if fs::read_to_string(&aside).is_ok_and(|moved| moved == owner) {
        return fs::remove_file(&aside).is_ok();
    }
    let _ = fs::rename(&aside, lock);
    false
}

#[expect(clippy::disallowed_methods, reason = "another process holds the lock")]
fn pause() {
    thread::sleep(Duration::from_millis(50));
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Value {
        json!({
            "clusters": [{"name": "flyball", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "flyball", "user": {}}],
            "contexts": [{"name": "flyball", "context": {"cluster": "flyball", "user": "flyball"}}],
            "current-context": "flyball",
        })
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flyball-kubeconfig-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder.join("config")
    }

    #[test]
    fn removed_context_leaves_nothing_behind() {
        let path = scratch("existing");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let before = "apiVersion: v1\nkind: Config\ncontexts:\n- name: work\n  context: {cluster: work, extra: kept}\n\
                      current-context: work\nusers: null\n";
        fs::write(&path, before).unwrap();
        assert_eq!(add(&path, &ours()).unwrap().as_deref(), Some("work"));
        assert_eq!(add(&path, &ours()).unwrap(), None, "a second time changes nothing");
        let read = || serde_saphyr::from_str::<Value>(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read()["current-context"], "flyball");
        assert_eq!(read()["contexts"].as_array().unwrap().len(), 2);
        remove(&path, "flyball", Some("work")).unwrap();
        assert_eq!(read()["current-context"], "work");
        assert_eq!(read()["contexts"], json!([{"name": "work", "context": {"cluster": "work", "extra": "kept"}}]));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn stale_lock_is_removed() {
        let path = scratch("stale");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let lock = path.with_extension("lock");
        // Above the maximum process ID of Linux.
        fs::write(&lock, "flyball 2147483646\n").unwrap();
        add(&path, &ours()).unwrap();
        assert!(!lock.exists());
        // Held locks, kubectl's and malformed ones are not removed.
        for owner in [format!("flyball {}\n", std::process::id()), String::new(), "flyball -1".into(), "x".into()] {
            fs::write(&lock, &owner).unwrap();
            assert!(!remove_stale(&lock), "{owner}");
            assert_eq!(fs::read_to_string(&lock).unwrap(), owner);
        }
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn invalid_kubeconfig_is_not_changed() {
        let path = scratch("broken");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for text in ["- a\n- b\n", "{", "just text"] {
            fs::write(&path, text).unwrap();
            assert!(add(&path, &ours()).unwrap_err().to_string().contains("is not a kubeconfig"), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn new_kubeconfig_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let path = scratch("new");
        add(&path, &ours()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let long = "x".repeat(2_000);
        write(&path, &json!({"certificate-authority-data": long})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("certificate-authority-data: {long}\n"));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
