//! The operators that run as processes on this machine: each has a file with the address of its debug pages.

use crate::files::private::{self, state_directory};
use crate::render::terminal::print_labeled;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Limit of files that are read.
const MAX_FILES: usize = 64;
/// Size limit of a file.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The file of an operator, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    address: String,
    /// Identity of the cluster.
    cluster: String,
    /// URL of its API server: a fork of a cluster has the identity of the cluster.
    server: String,
}

/// Returns the identity of a cluster: the UID of its namespace `kube-system`.
pub(crate) async fn cluster_id(client: &Client) -> Option<String> {
    let request = http::Request::get("/api/v1/namespaces/kube-system").body(Vec::new()).ok()?;
    let found: Value = client.request(request).await.ok()?;
    found["metadata"]["uid"].as_str().map(str::to_owned)
}

impl Registration {
    /// Registers an operator. It runs without, too: an error is a note.
    pub(crate) fn new(address: &str, cluster: &str, server: &str) -> Option<Self> {
        let folder = state_directory().ok()?.join("operators");
        let entry = Entry { address: address.to_owned(), cluster: cluster.to_owned(), server: server.to_owned() };
        // A restarted operator may have the same address, and is registered before the previous one is removed.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("{process}-{count}.json"));
        let written = fs::create_dir_all(&folder).and_then(|()| {
            let text = serde_json::to_vec(&entry)?;
            private::write(&path, &text)
        });
        match written {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                print_labeled("note", &format!("flyball why does not find this operator: {}: {error}", path.display()));
                None
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the addresses of the operators on this machine that use this API server of a cluster. The file of a killed
/// process remains, so that nothing may respond at an address.
pub(crate) fn addresses(cluster: &str, server: &str) -> Vec<String> {
    let folder = state_directory().map(|folder| folder.join("operators")).unwrap_or_default();
    addresses_in(&folder, cluster, server)
}

fn addresses_in(folder: &Path, cluster: &str, server: &str) -> Vec<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |path: &PathBuf| {
        let size = fs::metadata(path).ok()?.len();
        let text = (size <= MAX_FILE_BYTES).then(|| fs::read(path).ok()).flatten()?;
        serde_json::from_slice::<Entry>(&text)
            .ok()
            .filter(|entry| entry.cluster == cluster && is_same_server(&entry.server, server))
    };
    files.iter().take(MAX_FILES).filter_map(read).map(|entry| entry.address).collect()
}

/// Returns true if two URLs are those of one API server.
fn is_same_server(one: &str, other: &str) -> bool {
    let normal = |url: &str| url.trim_end_matches('/').to_ascii_lowercase().replace("//localhost", "//127.0.0.1");
    normal(one) == normal(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_the_cluster_are_found() {
        let folder = std::env::temp_dir().join(format!("flyball-registry-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a temporary file");
        write("a.json", r#"{"address":"127.0.0.1:1","cluster":"c","server":"https://127.0.0.1:6443/"}"#);
        write("b.json", r#"{"address":"127.0.0.1:2","cluster":"other","server":"https://127.0.0.1:6443"}"#);
        write("c.json", "no JSON");
        write("d.txt", r#"{"address":"127.0.0.1:3","cluster":"c","server":"https://127.0.0.1:6443"}"#);
        // A fork has the identity of its cluster.
        write("e.json", r#"{"address":"127.0.0.1:4","cluster":"c","server":"https://127.0.0.1:7443"}"#);
        let server = "https://localhost:6443";
        assert_eq!(addresses_in(&folder, "c", server), ["127.0.0.1:1"]);
        assert_eq!(addresses_in(&folder, "c", "https://127.0.0.1:7443"), ["127.0.0.1:4"]);
        assert!(addresses_in(&folder.join("none"), "c", server).is_empty());
        fs::remove_dir_all(&folder).expect("a temporary directory");
    }
}
