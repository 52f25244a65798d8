//! Tests of recordings: restored states, limits, and files that were damaged or made by others.

use super::file::RecordingFile;
use super::*;
use crate::data_dir::DataDir;
use crate::storage::Revision;
use crate::storage::frame::{FRAME, HEADER, Header};
use crate::storage::record;
use crate::storage::recorded::{Origin, RecordingEnd};
use crate::storage::recorder_queue::RecorderQueue;
use crate::storage::tests::limits;
use crate::storage::{Change, Entry, SelectableFields, Store};
use flyball_core::time::Timestamp;
use flyball_core::{GroupResource, Object, ObjectKey, Rng};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

/// A temporary directory, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flyball-recording-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("recording")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MANY: u64 = 1 << 30;

fn table() -> GroupResource {
    GroupResource::new("example.com", "things")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("ns"), name)
}

fn entry(name: &str, n: u64, revision: Revision) -> Entry {
    let object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "namespace": "ns"}, "n": n});
    let object = Object::try_from(object).unwrap();
    Entry::new(key(name), object, revision, SelectableFields::default(), 0)
}

fn origin(revision: Revision) -> Origin {
    let time = Timestamp::from_second(1_800_000_000).unwrap();
    let text = |text: &str| text.into();
    let (user, agent, manager, verb) = (text("anna"), text("kubectl/v1"), text("edit"), text("patch"));
    Origin { revision, time, subresource: "status", user, agent, manager, verb }
}

async fn write(store: &Store, name: &str, n: u64) {
    let current = store.get(&table(), &key(name));
    let made = |revision| Ok(entry(name, n, revision));
    let entry = store.put(&table(), &key(name), current.as_ref(), made).await.unwrap();
    store.record_origin(&Arc::new(origin(entry.revision)));
}

async fn remove(store: &Store, name: &str) {
    let current = store.get(&table(), &key(name)).unwrap();
    store.remove(&table(), &key(name), &current, |revision| current.at(revision)).await.unwrap();
}

type State = BTreeMap<String, Vec<u8>>;

fn state(store: &Store) -> State {
    let objects = store.list(&table(), None).entries;
    objects.iter().map(|entry| (entry.key.to_string(), entry.body.to_vec())).collect()
}

/// Changes a store that is being recorded; returns all of its states.
async fn change(store: &Store, count: u64) -> BTreeMap<Revision, State> {
    let mut states = BTreeMap::from([(store.revision(), state(store))]);
    for n in 0..count {
        if n % 5 == 4 {
            remove(store, &format!("x-{}", n % 4)).await;
        } else {
            write(store, &format!("x-{}", n % 4), n).await;
        }
        states.insert(store.revision(), state(store));
    }
    states
}

fn restore(path: &Path, at: Revision) -> Result<Store, RecordingError> {
    Store::restore(&Recording::open(path)?, at, limits())
}

fn history(path: &Path) -> Result<RecordingHistory, RecordingError> {
    Recording::open(path)?.history()
}

async fn check_all(path: &Path, states: &BTreeMap<Revision, State>) {
    for (revision, expected) in states {
        let store = restore(path, *revision).unwrap();
        assert_eq!((store.revision(), &state(&store)), (*revision, expected));
        write(&store, "later", 1).await;
        assert_eq!(store.revision(), revision + 1);
    }
}

#[tokio::test]
async fn each_recorded_revision_is_restored() {
    let folder = Folder::new("each");
    let store = Store::new(limits());
    change(&store, 7).await;
    store.record(&folder.file(), MANY).unwrap();
    assert!(matches!(store.record(&folder.0.join("other"), MANY), Err(RecordingError::Recorded)));
    let states = change(&store, 20).await;
    store.close();
    let unrecorded = store.revision();
    write(&store, "x-0", 1).await;
    check_all(&folder.file(), &states).await;
    let (first, last) = (*states.first_key_value().unwrap().0, unrecorded);
    for at in [first - 1, last + 1] {
        let error = restore(&folder.file(), at).unwrap_err().to_string();
        assert!(error.contains(&format!("revision {at} is not recorded")), "{error}");
        assert!(error.ends_with(&format!("contains revisions {first} to {last}")), "{error}");
    }
    let history = history(&folder.file()).unwrap();
    assert_eq!((history.first, history.last, history.end), (first, last, RecordingEnd::Closed));
    let revisions = history.writes.iter().map(|write| write.revision);
    assert!(revisions.eq(first + 1..=last), "{history:?}");
    let (put, removal) = (&history.writes[0], &history.writes[4]);
    assert_eq!((put.key.as_str(), put.resource.to_string()), ("ns/x-0", "things.example.com".into()));
    let found = put.origin.as_deref().unwrap();
    let texts = [&found.subresource, &found.user, &found.agent, &found.manager, &found.verb];
    assert_eq!(texts.map(|text| text.to_string()), ["status", "anna", "kubectl/v1", "edit", "patch"]);
    assert!(removal.is_removal && removal.origin.is_none() && !put.is_removal);
}

#[tokio::test]
async fn writes_of_a_journaled_store_are_recorded() {
    let folder = Folder::new("journaled");
    let directory = DataDir::open(folder.0.join("data")).unwrap();
    let (store, recovered) = Store::recover(&directory, limits()).unwrap();
    store.keep(directory, &recovered).unwrap();
    store.record(&folder.file(), MANY).unwrap();
    let states = change(&store, 12).await;
    store.close();
    check_all(&folder.file(), &states).await;
}

#[tokio::test]
async fn recording_ends_at_its_limit_and_the_store_continues() {
    let folder = Folder::new("limit");
    let store = Store::new(limits());
    write(&store, "before", 1).await;
    assert!(matches!(store.record(&folder.file(), 150), Err(RecordingError::TooSmall { limit: 150 })));
    assert!(!folder.file().exists(), "an incomplete file does not remain");
    store.record(&folder.file(), 4000).unwrap();
    let mut states = change(&store, 100).await;
    store.close();
    let history = history(&folder.file()).unwrap();
    assert_eq!(history.end, RecordingEnd::Limit);
    assert!(history.last > history.first + 5 && history.last < store.revision(), "{history:?}");
    assert!(fs::metadata(folder.file()).unwrap().len() <= 4000);
    states.retain(|revision, _| *revision <= history.last);
    check_all(&folder.file(), &states).await;
}

#[test]
fn queue_is_bounded() {
    let queue = RecorderQueue::default();
    let change = Change::Put(Arc::new(entry("x", 1, 1)));
    // More than the queue may contain; no thread takes the records.
    (0..200_000).for_each(|_| queue.push_change(&table(), &change));
    let (records, end) = (queue.next().unwrap(), queue.next().unwrap_err());
    assert!(records.len() < 150_000, "{}", records.len());
    assert_eq!(end, RecordingEnd::Overload);
}

#[tokio::test]
async fn existing_file_is_not_replaced() {
    let folder = Folder::new("existing");
    fs::write(folder.file(), "mine").unwrap();
    let error = Store::new(limits()).record(&folder.file(), MANY).unwrap_err();
    assert!(matches!(error, RecordingError::Exists { .. }));
    assert_eq!(fs::read_to_string(folder.file()).unwrap(), "mine");
    assert!(matches!(Recording::open(folder.file()), Err(RecordingError::Foreign { .. })));
    assert!(matches!(Recording::open(&folder.0), Err(RecordingError::Foreign { .. })));
    assert!(matches!(Recording::open(folder.0.join("none")), Err(RecordingError::Io { .. })));
    fs::write(folder.file(), "flyball recording 2\n").unwrap();
    let error = Recording::open(folder.file()).unwrap_err().to_string();
    assert!(error.ends_with("has format \"2\"; this release reads format 1"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn recording_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("private");
    let store = Store::new(limits());
    store.record(&folder.file(), MANY).unwrap();
    assert_eq!(fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn cut_and_changed_files_are_detected() {
    let folder = Folder::new("damaged");
    let store = Store::new(limits());
    write(&store, "before", 1).await;
    store.record(&folder.file(), MANY).unwrap();
    let states = change(&store, 9).await;
    store.close();
    let (whole, all) = (fs::read(folder.file()).unwrap(), history(&folder.file()).unwrap());
    let mut cuts = 0;
    for length in 0..whole.len() {
        fs::write(folder.file(), &whole[..length]).unwrap();
        // All writes before the cut remain.
        if let Ok(history) = history(&folder.file()) {
            assert!(history.end == RecordingEnd::Open || history.last == all.last, "{length}");
            let store = restore(&folder.file(), history.last).unwrap();
            assert_eq!(state(&store), states[&history.last], "{length}");
            cuts += 1;
        }
    }
    assert!(cuts > 100, "{cuts}");
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(folder.file(), changed).unwrap();
        // A longer frame looks like the last one of a crashed process, unless others follow it.
        if let Ok(history) = history(&folder.file()) {
            assert_eq!(history.end, RecordingEnd::Open, "byte {at}");
        }
    }
}

/// Writes a recording with any records.
fn forge(path: &Path, encode: impl FnOnce(&mut Vec<u8>)) {
    let _ = fs::remove_file(path);
    let mut file = RecordingFile::create(path, MANY).unwrap();
    assert!(file.add(encode).unwrap());
    file.flush().unwrap();
}

/// Returns the errors of reading and restoring a recording, in that order.
fn errors(path: &Path) -> Vec<String> {
    let read = history(path).map(|history| history.last);
    let restored = read.as_ref().map_or(Ok(()), |last| restore(path, *last).map(drop));
    [read.map(drop), restored].into_iter().filter_map(|result| result.err().map(|error| error.to_string())).collect()
}

fn put(out: &mut Vec<u8>, entry: &Entry) {
    record::put(out, &table(), entry);
}

fn removal(out: &mut Vec<u8>, name: &str, revision: Revision) {
    record::change(out, &table(), &Change::Remove(Arc::new(entry(name, 1, revision))));
}

#[test]
fn invalid_entries_are_named() {
    let folder = Folder::new("forged");
    let path = folder.file();
    let check = |expected: &str, encode: &dyn Fn(&mut Vec<u8>)| {
        forge(&path, |out| encode(out));
        let errors = errors(&path);
        assert!(errors.len() == 1 && errors[0].contains(expected), "{expected}: {errors:?}");
    };
    let begin = |out: &mut Vec<u8>| {
        put(out, &entry("a", 1, 101));
        record::end(out, 101, 1);
    };
    check("ends before all objects", &|out| put(out, &entry("a", 1, 101)));
    check("entry 2 is invalid: it contradicts the objects", &|out| {
        put(out, &entry("a", 1, 101));
        record::end(out, 101, 2);
    });
    check("entry 2 is invalid: it contradicts the objects", &|out| {
        put(out, &entry("a", 1, 101));
        record::end(out, 100, 1);
    });
    check("entry 1 (\"things.example.com ns/a\" at revision 101) is invalid: it is out of place", &|out| {
        removal(out, "a", 101)
    });
    check("(\"things.example.com ns/a\" at revision 101) is invalid: its revision does not follow 101", &|out| {
        begin(out);
        put(out, &entry("a", 1, 101));
    });
    check("entry 3 (\"things.example.com ns/b\" at revision 102) is invalid: it removes an object that", &|out| {
        begin(out);
        removal(out, "b", 102);
    });
    check("its revision is too large", &|out| {
        begin(out);
        put(out, &entry("a", 1, u64::MAX));
    });
    check("entry 3 (origin of revision 7) is invalid", &|out| {
        begin(out);
        record::origin(out, &origin(7));
    });
    check("a text has more than 256 bytes", &|out| {
        begin(out);
        put(out, &entry("a", 1, 102));
        record::origin(out, &Origin { user: "x".repeat(257).into(), ..origin(102) });
    });
    check("its reason of the end is unknown", &|out| {
        begin(out);
        record::stop(out, 9);
    });
    check("entry 4 is invalid: it is out of place", &|out| {
        begin(out);
        record::stop(out, 1);
        record::stop(out, 1);
    });
    check("entry 3, in the frame before byte", &|out| {
        begin(out);
        out.extend([9, 9, 9]);
    });
    check("its metadata names \"ns/b\"", &|out| {
        begin(out);
        put(out, &Entry { key: key("c"), ..entry("b", 1, 102) });
    });
    check("its metadata has resource version \"103\"", &|out| {
        begin(out);
        put(out, &Entry { revision: 102, ..entry("b", 1, 103) });
    });
    check("it has no valid name", &|out| {
        begin(out);
        put(out, &Entry { key: ObjectKey::new(Some("../.."), "b"), ..entry("b", 1, 102) });
    });
    check("its resource has no valid name", &|out| record::put(out, &GroupResource::new("", "A b"), &entry("a", 1, 1)));
    let large = |out: &mut Vec<u8>| {
        begin(out);
        put(out, &Entry { body: vec![b'x'; 4 << 20].into(), ..entry("b", 1, 102) });
    };
    check("at most 3145728 are stored", &large);
    let dense = format!("{{\"metadata\":{{}},\"a\":[{}0]}}", "{\"a\":{}},".repeat(200_000));
    check("MiB of memory", &|out| {
        begin(out);
        put(out, &Entry { body: dense.clone().into(), ..entry("b", 1, 102) });
    });
}

#[test]
fn objects_of_a_restored_store_are_bounded() {
    let folder = Folder::new("large");
    forge(&folder.file(), |out| {
        record::end(out, 100, 0);
        (0..100).for_each(|n| put(out, &entry(&format!("x-{n}"), n, 101 + n)));
    });
    let recording = Recording::open(folder.file()).unwrap();
    let limits = crate::storage::Limits { stored_bytes: 2000, ..limits() };
    let error = Store::restore(&recording, 200, limits).unwrap_err().to_string();
    assert!(error.contains("take more than 2000 bytes"), "{error}");
}

/// Changes bytes of a valid recording at random, with valid checksums: it is read or rejected, and nothing panics.
#[tokio::test]
async fn forged_recordings_are_read_or_rejected() {
    let folder = Folder::new("fuzzed");
    let store = Store::new(limits());
    store.record(&folder.file(), MANY).unwrap();
    change(&store, 9).await;
    store.close();
    let whole = fs::read(folder.file()).unwrap();
    let start = MAGIC.len() + FORMAT.len() + 1;
    let header = Header::read(&whole[start..]).unwrap();
    let first = start + HEADER;
    let (rng, mut outcomes) = (Rng::from_seed(7), [0; 2]);
    for _ in 0..3000 {
        let mut changed = whole.clone();
        for _ in 0..=rng.next() % 3 {
            let at = first + usize::try_from(rng.next()).unwrap_or_default() % (changed.len() - first);
            changed[at] = [0, 1, 2, 5, 0xff, rng.next().to_le_bytes()[0]][usize::from(rng.next().to_le_bytes()[0]) % 6];
        }
        let mut at = first;
        while let Some(length) = frame_length(&whole, at) {
            let end = at + FRAME + length;
            header.seal(at as u64, &mut changed[at..end]);
            at = end;
        }
        fs::write(folder.file(), changed).unwrap();
        outcomes[usize::from(errors(&folder.file()).is_empty())] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 100), "{outcomes:?}");
}

fn frame_length(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at + 8..at + 12)?;
    Some(u32::from_le_bytes(length.try_into().ok()?) as usize)
}
