//! Records of clusters in `$XDG_STATE_HOME/flyball`, else `~/.local/state/flyball`.

use crate::error::{Result, ResultExt};
use crate::files::{entries, private};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Record of a running cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) pid: i32,
    pub(crate) url: String,
    /// The cluster's own kubeconfig, which exists while it runs.
    pub(crate) own_kubeconfig: PathBuf,
    /// The kubeconfig to which a context was added, if any.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The previous current context.
    pub(crate) context_before: Option<String>,
    pub(crate) started: String,
    /// Data directory, if any.
    #[serde(default)]
    pub(crate) data_dir: Option<PathBuf>,
    /// The file in which it is recorded, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recording: Option<PathBuf>,
    /// The moment of a recording that it continues from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replayed: Option<Replayed>,
    /// Number of simulated nodes at the start.
    #[serde(default)]
    pub(crate) nodes: u32,
}

/// A moment of a recording.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replayed {
    pub(crate) recording: PathBuf,
    /// As a string, like resource versions.
    pub(crate) revision: String,
}

/// The files of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    name: String,
}

impl Files {
    pub(crate) fn of(name: &str) -> Result<Self> {
        Ok(Self { folder: private::state_directory()?, name: name.to_owned() })
    }

    /// Returns the files of all clusters that were started on this machine, in the order of their names.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let folder = private::state_directory()?;
        // The lock remains when a cluster ends.
        let name = |path: &Path| Some(path.file_name()?.to_str()?.strip_suffix(".lock")?.to_owned());
        let mut names: Vec<String> = entries(&folder)?.iter().filter_map(|path| name(path)).collect();
        names.sort();
        Ok(names.into_iter().map(|name| Self { folder: folder.clone(), name }).collect())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.file("log")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// Creates the directory.
    pub(crate) fn prepare(&self) -> Result<()> {
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        created.context(format!("cannot create {}", self.folder.display()))
    }

    /// Acquires the lock of the cluster; `None` if a running cluster holds it.
    pub(crate) fn lock(&self) -> Result<Option<File>> {
        let path = self.file("lock");
        let what = format!("cannot lock {}", path.display());
        let file = flyball_files::private(OpenOptions::new().write(true).create(true).truncate(false)).open(&path);
        let file = file.context(what.clone())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).context(what),
        }
    }

    /// Reads the record, if it exists.
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        let path = self.file("json");
        let what = format!("cannot read {}", path.display());
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).context(what).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context(what),
        }
    }

    /// Returns true if the cluster runs, and its record, which may remain after a crash.
    pub(crate) fn find(&self) -> Result<(bool, Option<Record>)> {
        if !self.folder.exists() {
            return Ok((false, None));
        }
        Ok((self.lock()?.is_none(), self.read()?))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let path = self.file("json");
        let written = serde_json::to_vec_pretty(record).map_err(std::io::Error::other);
        written.and_then(|text| private::write(&path, &text)).context(format!("cannot write {}", path.display()))
    }

    /// Records the progress of a start.
    pub(crate) fn write_progress(&self, text: &str) {
        // The progress is informative only; errors are ignored.
        let _ = private::write(&self.file("starting"), text.as_bytes());
    }

    /// Reads the progress of a start; empty if there is none.
    pub(crate) fn read_progress(&self) -> String {
        fs::read_to_string(self.file("starting")).unwrap_or_default()
    }

    pub(crate) fn remove_progress(&self) {
        let _ = fs::remove_file(self.file("starting"));
    }

    /// Removes the record of a cluster, but not its log.
    pub(crate) fn remove(&self) {
        self.remove_progress();
        for ending in ["json", "kubeconfig"] {
            let _ = fs::remove_file(self.file(ending));
        }
    }

    /// Returns the last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Record {
    /// Removes the context from the kubeconfig.
    pub(crate) fn remove_context(&self) -> Result<()> {
        match &self.kubeconfig {
            Some(path) => crate::cluster::kubeconfig::remove(path, &self.name, self.context_before.as_deref()),
            None => Ok(()),
        }
    }

    /// Returns the additional arguments for kubectl.
    pub(crate) fn kubectl_flags(&self) -> String {
        match &self.kubeconfig {
            Some(path) if crate::cluster::kubeconfig::path().is_ok_and(|usual| usual == *path) => String::new(),
            Some(path) => format!(" --kubeconfig {}", shell_quoted(path)),
            None => format!(" --kubeconfig {}", shell_quoted(&self.own_kubeconfig)),
        }
    }
}

fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains(' ') { format!("'{text}'") } else { text }
}
