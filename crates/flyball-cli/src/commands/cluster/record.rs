//! Records of clusters in `$XDG_STATE_HOME/flyball`, else `~/.local/state/flyball`.

use crate::error::Result;
use crate::files::state::StateFiles;
use crate::files::{entries, private};
use flyball_files::Lock;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
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
pub(crate) struct Files(StateFiles);

impl Files {
    pub(crate) fn of(name: &str) -> Result<Self> {
        StateFiles::of(name).map(Self)
    }

    /// Returns the files of all clusters that were started on this machine, in the order of their names.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let folder = private::state_directory()?;
        // The lock remains when a cluster ends.
        let name = |path: &Path| Some(path.file_name()?.to_str()?.strip_suffix(".lock")?.to_owned());
        let mut names: Vec<String> = entries(&folder)?.iter().filter_map(|path| name(path)).collect();
        names.sort();
        names.iter().map(|name| Self::of(name)).collect()
    }

    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.path("log")
    }

    pub(crate) fn create_log(&self) -> Result<File> {
        self.0.create_log("log")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.path("kubeconfig")
    }

    /// Creates the directory.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.0.prepare()
    }

    /// Acquires the lock of the cluster; `None` if a running cluster holds it.
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        self.0.lock("lock")
    }

    /// Reads the record, if it exists.
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        self.0.read("json")
    }

    /// Returns true if the cluster runs, and its record, which may remain after a crash.
    pub(crate) fn find(&self) -> Result<(bool, Option<Record>)> {
        Ok((self.0.is_locked("lock")?, self.read()?))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        self.0.write("json", record)
    }

    /// Records the progress of a start.
    pub(crate) fn write_progress(&self, text: &str) {
        // The progress is informative only; errors are ignored.
        let _ = private::write(&self.0.path("starting"), text.as_bytes());
    }

    /// Reads the progress of a start; empty if there is none.
    pub(crate) fn read_progress(&self) -> String {
        fs::read_to_string(self.0.path("starting")).unwrap_or_default()
    }

    pub(crate) fn remove_progress(&self) {
        self.0.remove(&["starting"]);
    }

    /// Removes the record of a cluster, but not its log.
    pub(crate) fn remove(&self) {
        self.0.remove(&["starting", "json", "kubeconfig"]);
    }

    /// Returns the last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        self.0.log_tail("log", 10)
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
