//! The operators that run as processes on this machine: each has a file with the address of its debug pages.
//!
//! The command that runs an operator holds a lock of the file. The file of a killed command is not locked; readers
//! remove it, since any process may listen at its address by now.

use crate::files::private::state_directory;
use crate::render::terminal::print_labeled;
use flyball_files::{Lock, try_lock};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Limit of files that are read.
const MAX_FILES: usize = 64;
/// Size limit of a file.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The file of an operator, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    path: PathBuf,
    /// Held for as long as the operator may run.
    _lock: Lock,
}

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
        match Self::write(path.clone(), &entry) {
            Ok(registration) => Some(registration),
            Err(error) => {
                print_labeled("note", &format!("flyball why does not find this operator: {}: {error}", path.display()));
                None
            }
        }
    }

    fn write(path: PathBuf, entry: &Entry) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Renamed when it is locked: readers remove files without a lock.
        let unlocked = path.with_extension("new");
        let mut lock = try_lock(&unlocked)?.ok_or_else(|| io::Error::other("another process writes the file"))?;
        lock.write(serde_json::to_vec(entry)?)?;
        fs::rename(&unlocked, &path)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the addresses of the operators on this machine that use this API server of a cluster, and removes the files
/// of killed commands. Addresses at which a process of another user listens are omitted.
pub(crate) fn addresses(cluster: &str, server: &str) -> Vec<String> {
    let folder = state_directory().map(|folder| folder.join("operators")).unwrap_or_default();
    let mut addresses = addresses_in(&folder, cluster, server);
    let tables: String = SOCKET_TABLES.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let user = rustix::process::geteuid().as_raw();
    addresses.retain(|address| !is_of_another_user(&tables, address, user));
    addresses
}

/// The TCP sockets of this machine, on Linux; see proc_net_tcp(5).
const SOCKET_TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State of a socket that listens.
const LISTENING: &str = "0A";

/// Returns true if only another user listens at an address, or at its port of all interfaces.
fn is_of_another_user(tables: &str, address: &str, user: u32) -> bool {
    let Some(SocketAddr::V4(address)) = address.parse().ok() else { return false };
    let port = format!(":{:04X}", address.port());
    // The tables contain addresses in the byte order of the machine.
    let exact = format!("{:08X}", u32::from_ne_bytes(address.ip().octets()));
    let is_reached = |host: &str| host == exact || host.bytes().all(|digit| digit == b'0') || host.ends_with(&exact);
    let users = tables.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTENING, _, _, _, uid, ..] = fields[..] else { return None };
        local.strip_suffix(&port).filter(|host| is_reached(host)).and_then(|_| uid.parse::<u32>().ok())
    });
    let users: Vec<u32> = users.collect();
    !users.is_empty() && !users.contains(&user)
}

fn addresses_in(folder: &Path, cluster: &str, server: &str) -> Vec<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.retain(|path| {
        let is_running = is_locked(path);
        if !is_running {
            let _ = fs::remove_file(path);
        }
        is_running
    });
    let read = |path: &PathBuf| {
        let size = fs::metadata(path).ok()?.len();
        let text = (size <= MAX_FILE_BYTES).then(|| fs::read(path).ok()).flatten()?;
        serde_json::from_slice::<Entry>(&text)
            .ok()
            .filter(|entry| entry.cluster == cluster && is_same_server(&entry.server, server))
    };
    files.iter().take(MAX_FILES).filter_map(read).map(|entry| entry.address).collect()
}

/// Returns true if a running command holds the lock of a file.
fn is_locked(path: &Path) -> bool {
    // Shared, so that two readers do not take each other for the holder.
    File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
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
        let locks = ["a.json", "b.json", "c.json", "e.json"].map(|name| try_lock(&folder.join(name)).unwrap().unwrap());
        let server = "https://localhost:6443";
        assert_eq!(addresses_in(&folder, "c", server), ["127.0.0.1:1"]);
        assert_eq!(addresses_in(&folder, "c", "https://127.0.0.1:7443"), ["127.0.0.1:4"]);
        assert!(addresses_in(&folder.join("none"), "c", server).is_empty());
        drop(locks);
        fs::remove_dir_all(&folder).expect("a temporary directory");
    }

    #[test]
    fn files_of_killed_commands_are_removed() {
        let folder = std::env::temp_dir().join(format!("flyball-registry-killed-{}", std::process::id()));
        let entry = |address: &str| Entry { address: address.into(), cluster: "c".into(), server: "https://s".into() };
        let running = Registration::write(folder.join("1-0.json"), &entry("127.0.0.1:1")).unwrap();
        // As a process leaves it that was killed: locks end with it.
        fs::write(folder.join("2-0.json"), serde_json::to_vec(&entry("127.0.0.1:2")).unwrap()).unwrap();
        assert_eq!(addresses_in(&folder, "c", "https://s"), ["127.0.0.1:1"]);
        let names = || fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(names(), ["1-0.json"]);
        drop(running);
        assert!(names().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn listeners_of_other_users_are_recognized() {
        let line = |host: &str, state: &str, uid: u32| {
            format!(
                "   0: {host}:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {uid}        0 1\n"
            )
        };
        let local = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let is_foreign = |table: &str| is_of_another_user(table, "127.0.0.1:8080", 7);
        let any_v6 = "0".repeat(32);
        for host in [&*local, "00000000", &*any_v6] {
            assert!(is_foreign(&line(host, LISTENING, 8)) && !is_foreign(&line(host, LISTENING, 7)), "{host}");
            assert!(!is_foreign(&line(host, "01", 8)), "{host}: a connection");
        }
        let elsewhere = format!("{:08X}", u32::from_ne_bytes([10, 0, 0, 1]));
        assert!(!is_foreign(&line(&elsewhere, LISTENING, 8)) && !is_foreign(""));
        assert!(!is_of_another_user(&line(&local, LISTENING, 8), "127.0.0.1:8081", 7));
    }
}
