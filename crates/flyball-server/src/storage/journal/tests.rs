//! Tests of the journal with crashes and disk faults.

use super::super::tests::{entry, limits, number, table};
use super::super::{Entry, Error, Revision, Store};
use super::*;
use crate::storage::frame;
use flyball_core::ObjectKey;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

/// A temporary directory, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flyball-journal-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self) -> Result<Store, DataDirError> {
        self.open_with(1 << 20)
    }

    fn open_with(&self, compact_after: u64) -> Result<Store, DataDirError> {
        let directory = DataDir::open_with(&self.0, compact_after)?;
        let (store, recovered) = Store::recover(&directory, limits())?;
        store.keep(directory, &recovered)?;
        Ok(store)
    }

    /// Recovers a copy of the directory.
    fn read(&self) -> Result<State, DataDirError> {
        let directory = DataDir::open(&self.0)?;
        Store::recover(&directory, limits()).map(|(store, _)| state(&store))
    }

    fn log(&self) -> PathBuf {
        self.0.join("000000000001.log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type State = (Revision, BTreeMap<String, u64>);

fn state(store: &Store) -> State {
    let objects = store.list(&table(), None).entries;
    (store.revision(), objects.iter().map(|entry| (entry.key.to_string(), number(entry))).collect())
}

async fn write(store: &Store, name: &str, n: u64) -> Result<(), Error> {
    let key = ObjectKey::new(Some("ns"), name);
    let current = store.get(&table(), &key);
    store.put(&table(), &key, current.as_ref(), entry(&key, n)).await.map(drop)
}

async fn remove(store: &Store, name: &str) {
    let key = ObjectKey::new(Some("ns"), name);
    let current = store.get(&table(), &key).expect("there is one");
    store.remove(&table(), &key, &current, |revision| current.at(revision)).await.expect("it is as it was");
}

#[tokio::test]
async fn reopened_store_recovers_its_state() {
    let folder = Folder::new("again");
    let before = {
        let store = folder.open().unwrap();
        for n in 0..20 {
            write(&store, &format!("x-{}", n % 7), n).await.unwrap();
        }
        remove(&store, "x-3").await;
        state(&store)
    };
    let store = folder.open().unwrap();
    assert_eq!(state(&store), before);
    let past = store.events_after(&table(), before.0 - 1, 10).unwrap_err();
    assert_eq!(past, Error::Compacted { requested: before.0 - 1, oldest: before.0 });
    assert!(store.list_at(&table(), None, before.0 - 1).is_err());
    assert_eq!(store.events_after(&table(), before.0, 10).unwrap().0.len(), 0, "a watch that was up to date goes on");
    write(&store, "x-3", 1).await.unwrap();
    assert_eq!(store.revision(), before.0 + 1);
}

#[tokio::test]
async fn concurrent_writers_of_an_object_are_serialized() {
    let folder = Folder::new("turns");
    let store = Arc::new(folder.open().unwrap());
    let writers = (0..16).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                loop {
                    let key = ObjectKey::new(Some("ns"), "counter");
                    let current = store.get(&table(), &key);
                    let n = current.as_ref().map_or(0, |entry| number(entry));
                    match store.put(&table(), &key, current.as_ref(), entry(&key, n + 1)).await {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error, Error::Changed),
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(state(&store).1, BTreeMap::from([("ns/counter".to_owned(), 80)]));
}

/// Writes ten frames; returns the log, and the content of the store for each length of the log.
async fn ten_writes(folder: &Folder) -> (Vec<u8>, Vec<(usize, State)>) {
    let mut states = Vec::new();
    let length = || usize::try_from(fs::metadata(folder.log()).unwrap().len()).unwrap();
    for n in 0..10 {
        let store = folder.open().unwrap();
        if n == 0 {
            states.push((frame::HEADER, state(&store)));
        }
        if n == 6 {
            remove(&store, "x-2").await
        } else {
            write(&store, &format!("x-{}", n % 4), n).await.unwrap()
        }
        let now = state(&store);
        drop(store);
        states.push((length(), now));
    }
    (fs::read(folder.log()).unwrap(), states)
}

#[tokio::test]
async fn truncated_log_recovers_complete_records() {
    let folder = Folder::new("cut");
    let (log, states) = ten_writes(&folder).await;
    for length in frame::HEADER..=log.len() {
        let expected = states.iter().rev().find(|(at, _)| *at <= length).unwrap();
        // With and without preallocated space.
        for room in [0, 5000] {
            let mut cut = log[..length].to_vec();
            cut.resize(length + room, 0);
            fs::write(folder.log(), cut).unwrap();
            assert_eq!(folder.read().unwrap(), expected.1, "{length} bytes and {room}");
        }
    }
    fs::write(folder.log(), &log[..20]).unwrap();
    assert_eq!(folder.read().unwrap(), states[0].1, "a log that was only begun is empty");
}

#[tokio::test]
async fn changed_bytes_are_detected() {
    let folder = Folder::new("changed");
    let (log, _) = ten_writes(&folder).await;
    for at in 0..log.len() {
        // With and without preallocated space.
        for room in [0, 5000] {
            let mut changed = log.clone();
            changed[at] ^= 1 << (at % 8);
            changed.resize(log.len() + room, 0);
            fs::write(folder.log(), changed).unwrap();
            let read = folder.read();
            assert!(matches!(read, Err(DataDirError::Damaged { .. })), "byte {at}, {room} bytes of room: {read:?}");
        }
    }
}

#[tokio::test]
async fn torn_writes_are_dropped() {
    let folder = Folder::new("sectors");
    let (log, states) = ten_writes(&folder).await;
    let before = {
        let store = folder.open().unwrap();
        let key = ObjectKey::new(Some("ns"), "large");
        let body = json!({"kind": "X", "data": "x".repeat(5000)}).to_string();
        let large = |revision| Ok(Entry { body: body.clone().into(), ..entry(&key, 1)(revision)? });
        store.put(&table(), &key, None, large).await.unwrap();
        states[states.len() - 1].1.clone()
    };
    let (from, whole) = (log.len(), fs::read(folder.log()).unwrap());
    let end = whole.len();
    // The disk writes sectors in any order: a single sector may be missing, or be the only one.
    let first = from / 512;
    for sector in first..=end / 512 {
        let span = (sector * 512).max(from)..(sector * 512 + 512).min(end);
        let mut without = whole.clone();
        without[span.clone()].fill(0);
        let mut alone = whole.clone();
        alone[from..span.start].fill(0);
        alone[span.end..].fill(0);
        for torn in [without, alone] {
            fs::write(folder.log(), torn).unwrap();
            assert_eq!(folder.read().unwrap(), before, "sector {sector}");
        }
    }
    let mut rotten = whole.clone();
    rotten[from + 3000] ^= 1;
    fs::write(folder.log(), rotten).unwrap();
    assert!(matches!(folder.read(), Err(DataDirError::Damaged { at, .. }) if at == from as u64));
}

#[tokio::test]
async fn frames_after_a_torn_write_are_ignored() {
    let folder = Folder::new("nested");
    let (log, states) = ten_writes(&folder).await;
    // A copy of the last frame at another position, in a write that was torn before it.
    let (from, to) = (states[states.len() - 2].0, log.len());
    let mut longer = log.clone();
    longer.extend_from_slice(&[0; 1000]);
    longer.extend_from_slice(&log[from..to]);
    fs::write(folder.log(), longer).unwrap();
    assert_eq!(folder.read().unwrap(), states[states.len() - 1].1);
}

#[tokio::test]
async fn failed_snapshot_is_retried_in_the_same_log() {
    let folder = Folder::new("retried");
    let in_the_way = folder.0.join("000000000002.snapshot.new");
    let names = || {
        let files = fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = files.filter(|name| name.starts_with('0')).collect();
        names.sort();
        names
    };
    let store = folder.open_with(2000).unwrap();
    fs::create_dir(&in_the_way).unwrap();
    for n in 0..600 {
        write(&store, &format!("x-{}", n % 9), n).await.unwrap();
        if n % 50 == 3 {
            remove(&store, "x-1").await;
            write(&store, "x-1", n).await.unwrap();
        }
    }
    remove(&store, "x-2").await;
    assert_eq!(names(), ["000000000001.log", "000000000002.log", "000000000002.snapshot.new"]);
    fs::remove_dir(&in_the_way).unwrap();
    // The snapshot was postponed until the log has grown.
    for n in 0..10_000 {
        write(&store, "y", n).await.unwrap();
        if !names().contains(&"000000000001.log".to_owned()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(!names().contains(&"000000000001.log".to_owned()), "{:?}", names());
    let before = state(&store);
    drop(store);
    // The snapshot contains a part of its log's records.
    assert_eq!(folder.read().unwrap(), before);
    let store = folder.open_with(2000).unwrap();
    write(&store, "z", 1).await.unwrap();
    let before = state(&store);
    drop(store);
    assert_eq!(folder.read().unwrap(), before);
}

#[tokio::test]
async fn snapshots_replace_logs() {
    let folder = Folder::new("compact");
    let mut before = None;
    for round in 0..4 {
        let store = folder.open_with(2000).unwrap();
        assert!(before.is_none_or(|before| before == state(&store)), "round {round}");
        for n in 0..100 {
            write(&store, &format!("x-{}", n % 9), round * 100 + n).await.unwrap();
        }
        if round == 2 {
            remove(&store, "x-1").await;
        }
        before = Some(state(&store));
    }
    let mut names: Vec<String> =
        fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let count = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
    assert_eq!((count(".snapshot"), count(".new")), (1, 0), "{names:?}");
    assert!(count(".log") <= 2, "{names:?}");

    let snapshot = names.iter().find(|name| name.ends_with(".snapshot")).unwrap();
    let path = folder.0.join(snapshot);
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, changed).unwrap();
        assert!(matches!(folder.read(), Err(DataDirError::Damaged { .. })), "byte {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert!(matches!(folder.read(), Err(DataDirError::Damaged { .. })), "{at} bytes");
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(folder.read(), Err(DataDirError::Missing { .. })));
    crate::data_dir::REPLACE.write(&path, &whole).unwrap();
    assert_eq!(Some(folder.read().unwrap()), before);
}

#[tokio::test]
async fn a_directory_has_one_process_and_one_format() {
    let folder = Folder::new("held");
    let store = folder.open().unwrap();
    let error = folder.open().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("data directory {} is in use by process {}", folder.0.display(), std::process::id())
    );
    drop(store);
    folder.open().unwrap();
    fs::write(folder.0.join("format"), "2\n").unwrap();
    assert!(folder.open().unwrap_err().to_string().contains("has format 2; this release supports formats up to 1"));
    fs::write(folder.0.join("format"), "?").unwrap();
    assert!(matches!(folder.open(), Err(DataDirError::Damaged { .. })));
    fs::remove_file(folder.0.join("format")).unwrap();
    assert!(matches!(folder.open(), Err(DataDirError::Foreign { .. })), "there is a log in it");
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("modes");
    let store = folder.open_with(500).unwrap();
    for n in 0..20 {
        write(&store, "x", n).await.unwrap();
    }
    drop(store);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0), 0o700);
    for file in fs::read_dir(&folder.0).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}
