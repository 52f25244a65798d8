//! The session against a small model of the API server: whatever goes wrong on the way, the cache ends up as the server.

use super::frame::List;
use super::session::{Answer, End, Session, Step};
use crate::cache::{Change, DeclaredIndex, Delta, Entry, IndexId, Listener, Shown, Store, StoreId, Writer};
use crate::kind::Kind;
use flyball_core::{ObjectKey, Rng};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::Status;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Objects by name, with the revision at which they became what they are.
type Objects = BTreeMap<u8, u64>;

#[derive(Default)]
struct Server {
    revision: u64,
    objects: Objects,
    /// What became of which object at each revision.
    history: Vec<(u64, u8, bool)>,
    compacted: u64,
    /// The kind is not installed.
    absent: bool,
}

/// What goes wrong with an exchange.
#[derive(Clone, Debug)]
enum Fault {
    Refuse(u16),
    Unreachable,
    Silent,
    /// The answer ends after so many parts.
    Cut(usize),
    /// This part of the answer is nonsense.
    Garble(usize),
}

#[derive(Clone, Debug)]
enum Move {
    Put(u8),
    /// As `Put`, by the operator, which gets an answer.
    Write(u8),
    Delete(u8),
    Compact,
    /// The kind goes, with all its objects.
    Uninstall,
    Install,
    Exchange(Option<Fault>),
}

fn object(name: u8, revision: u64) -> String {
    format!(r#"{{"metadata":{{"name":"n{name}","uid":"u{name}","resourceVersion":"{revision}"}}}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

impl Server {
    fn put(&mut self, name: u8) {
        self.revision += 1;
        self.objects.insert(name, self.revision);
        self.history.push((self.revision, name, true));
    }

    fn delete(&mut self, name: u8) {
        if self.objects.remove(&name).is_some() {
            self.revision += 1;
            self.history.push((self.revision, name, false));
        }
    }

    /// Forgets the kind: nobody hears of what becomes of its objects.
    fn uninstall(&mut self) {
        self.revision += 1;
        self.objects.clear();
        self.history.clear();
        (self.compacted, self.absent) = (self.revision, true);
    }

    /// Answers a request by a refusal, or by the lines of a watch or the parts of a list.
    fn answer(&self, uri: &str) -> Result<Vec<String>, u16> {
        let param = |name: &str| uri.split(['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        let number = |name: &str| param(name).map(|value| value.parse::<u64>().unwrap());
        if self.absent {
            return Err(404);
        }
        if param("watch").is_some() {
            let initial = self.objects.iter().map(|(name, revision)| event("ADDED", &object(*name, *revision)));
            if param("sendInitialEvents").is_some() {
                let annotation = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
                let end = format!(r#"{{"metadata":{{"resourceVersion":"{}",{annotation}}}}}"#, self.revision);
                return Ok(initial.chain([event("BOOKMARK", &end)]).collect());
            }
            let from = number("resourceVersion").unwrap();
            if from < self.compacted {
                return Ok(vec![event("ERROR", r#"{"code":410,"message":"too old"}"#)]);
            }
            let since = self.history.iter().filter(|(revision, ..)| *revision > from);
            return Ok(since
                .map(|(revision, name, put)| {
                    event(if *put { "MODIFIED" } else { "DELETED" }, &object(*name, *revision))
                })
                .collect());
        }
        let (from, revision) = match param("continue").and_then(|token| token.split_once('.')) {
            Some((from, revision)) => (from.parse().unwrap(), revision.parse().unwrap()),
            None => (0, self.revision),
        };
        // A page that goes on from a revision that is not the present one cannot be had here.
        if revision != self.revision {
            return Err(410);
        }
        let limit = number("limit").map_or(usize::MAX, |_| 2);
        let items = self.objects.iter().skip(from).take(limit).map(|(name, revision)| object(*name, *revision));
        let next = from.saturating_add(limit);
        let next = if next < self.objects.len() { format!("{next}.{revision}") } else { String::new() };
        let head = format!(r#"{{"metadata":{{"resourceVersion":"{revision}","continue":"{next}"}},"items":["#);
        let mut parts = vec![head];
        for item in items {
            parts.push(if parts.len() > 1 { format!(",{item}") } else { item });
        }
        parts.push("]}".into());
        Ok(parts)
    }
}

/// Keeps what a listener hears, as a cache of its own.
#[derive(Debug, Default)]
struct Mirror(Mutex<BTreeMap<String, u64>>);

impl Listener for Mirror {
    fn changed(&self, change: &Change<'_>) {
        let mut mirror = self.0.lock().unwrap();
        let before = match change.new {
            Some(new) => mirror.insert(change.key.to_string(), new.resource_version()),
            None => mirror.remove(change.key.as_str()),
        };
        assert_eq!(before, change.old.map(|old| old.resource_version()), "{change:?}");
    }

    fn seen(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {}
}

fn take(step: Step, writer: &mut Writer) -> Option<Duration> {
    match step {
        Step::Apply(delta) => writer.apply(delta),
        Step::Stop(wait) => return Some(wait),
        Step::Nothing | Step::Lost(_) => {}
    }
    None
}

/// Sends the next request and takes in what comes; gives how long the session wants to wait.
fn exchange(session: &mut Session, writer: &mut Writer, server: &Server, fault: Option<Fault>) -> Duration {
    let wait = exchanged(session, writer, server, fault);
    if session.is_absent() {
        writer.apply(Delta::Absent);
    }
    wait
}

fn exchanged(session: &mut Session, writer: &mut Writer, server: &Server, fault: Option<Fault>) -> Duration {
    if session.begins_list() {
        writer.apply(Delta::Restart);
    }
    let request = session.request();
    let mut parts = match (&fault, server.answer(&request.uri)) {
        (Some(Fault::Unreachable), _) => return session.ended(End::Unreachable("no".into()), Duration::ZERO),
        (Some(Fault::Refuse(code)), _) => return session.refused(&Status::failure("no", "").with_code(*code)),
        (_, Err(code)) => return session.refused(&Status::failure("no", "").with_code(code)),
        (_, Ok(parts)) => parts,
    };
    session.accepted();
    let end = match fault {
        Some(Fault::Cut(after)) if after < parts.len() => {
            parts.truncate(after);
            End::Broken("cut".into())
        }
        Some(Fault::Garble(at)) if at < parts.len() => {
            parts[at].replace_range(1.., "}]");
            End::Closed
        }
        Some(Fault::Silent) => End::Silent,
        _ => End::Closed,
    };
    if request.answer == Answer::Events {
        let stop = parts.iter().find_map(|line| take(session.line(line.as_bytes()), writer));
        return stop.unwrap_or_else(|| session.ended(end, Duration::from_secs(60)));
    }
    let mut list = List::default();
    for part in &parts {
        if list.push(part.as_bytes(), |item| _ = take(session.item(item), writer)).is_err() {
            return session.ended(End::Broken("unreadable".into()), Duration::ZERO);
        }
    }
    match (end, list.finish()) {
        (End::Closed, Ok(page)) => take(session.page(page), writer).unwrap_or_default(),
        (End::Closed, Err(_)) => session.ended(End::Broken("unreadable".into()), Duration::ZERO),
        (end, _) => session.ended(end, Duration::ZERO),
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        prop::sample::select(vec![400, 401, 403, 404, 410, 413, 422, 429, 500, 503, 504]).prop_map(Fault::Refuse),
        Just(Fault::Unreachable),
        Just(Fault::Silent),
        (0..8usize).prop_map(Fault::Cut),
        (0..8usize).prop_map(Fault::Garble),
    ]
}

fn step() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0..6u8).prop_map(Move::Put),
        2 => (0..6u8).prop_map(Move::Write),
        2 => (0..6u8).prop_map(Move::Delete),
        1 => Just(Move::Compact),
        1 => prop::sample::select(vec![Move::Uninstall, Move::Install]),
        3 => Just(Move::Exchange(None)),
        4 => fault().prop_map(|fault| Move::Exchange(Some(fault))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_cache_ends_up_as_the_server(moves in prop::collection::vec(step(), 0..60), seed in any::<u64>()) {
        let (store, mut writer) = Store::new(0, Kind::of::<Namespace>(), None);
        let mirror = Arc::new(Mirror::default());
        writer.subscribe(mirror.clone());
        let parity = |_: &ObjectKey, shown: &Shown<'_>| vec![shown.resource_version() % 2];
        let by_parity = DeclaredIndex::new(IndexId::Own(Arc::default()), parity);
        writer.index(&by_parity);
        let mut session = Session::new(&store, "me".into(), Rng::from_seed(seed));
        let mut server = Server::default();
        for next in moves {
            match next {
                Move::Put(_) | Move::Write(_) if server.absent => {}
                Move::Put(name) => server.put(name),
                Move::Write(name) => {
                    server.put(name);
                    let answer = object(name, server.revision).into_bytes();
                    let (key, entry) = Entry::parse(&answer, "me").unwrap();
                    store.expect(answer, &key, &Arc::new(entry));
                }
                Move::Delete(name) => server.delete(name),
                Move::Compact => server.compacted = server.revision,
                Move::Uninstall => server.uninstall(),
                Move::Install => server.absent = false,
                Move::Exchange(fault) => {
                    let wait = exchange(&mut session, &mut writer, &server, fault);
                    prop_assert!(wait <= Duration::from_secs(60), "{wait:?}");
                    for parity in 0..2 {
                        let all = store.list(None).into_iter();
                        let found = all.filter(|(_, entry)| entry.resource_version() % 2 == parity).map(|(key, _)| key);
                        prop_assert_eq!(store.keys_by(&by_parity.id, &parity), Some(found.collect()));
                    }
                }
            }
        }
        // The faults are over. A list, all pages of it, and a watch are enough to catch up.
        for _ in 0..8 {
            exchange(&mut session, &mut writer, &server, None);
        }
        prop_assert!(store.is_synced());
        prop_assert_eq!((session.trouble().is_some(), store.is_absent()), (server.absent, server.absent));
        let cached = store.list(None).into_iter().map(|(key, entry)| (key.to_string(), entry.resource_version()));
        let cached: BTreeMap<String, u64> = cached.collect();
        let expected = server.objects.iter().map(|(name, revision)| (format!("n{name}"), *revision)).collect();
        prop_assert_eq!(&cached, &expected);
        prop_assert_eq!(&*mirror.0.lock().unwrap(), &expected);
    }
}

#[test]
fn what_a_write_was_answered_with_is_not_read_again() {
    let (store, mut writer) = Store::new(0, Kind::of::<Namespace>(), None);
    let mut session = Session::new(&store, "me".into(), Rng::from_seed(1));
    let mut server = Server::default();
    while !store.is_synced() {
        exchange(&mut session, &mut writer, &server, None);
    }
    server.put(1);
    let answer = object(1, server.revision).into_bytes();
    let (key, entry) = Entry::parse(&answer, "me").unwrap();
    let entry = Arc::new(entry);
    store.expect(answer, &key, &entry);
    exchange(&mut session, &mut writer, &server, None);
    assert!(store.get(&key).is_some_and(|cached| Arc::ptr_eq(&cached, &entry)));
}

#[test]
fn waits_grow_and_are_drawn_from_the_seed() {
    let (store, _) = Store::new(0, Kind::of::<Namespace>(), None);
    let waits = |seed| {
        let mut session = Session::new(&store, "me".into(), Rng::from_seed(seed));
        let status = Status::failure("busy", "").with_code(500);
        (0..10).map(|_| session.refused(&status)).collect::<Vec<_>>()
    };
    let drawn = waits(1);
    assert_eq!(drawn[0], Duration::ZERO);
    for (n, wait) in drawn[1..].iter().enumerate() {
        let most = Duration::from_millis(500 << n).min(Duration::from_secs(30));
        assert!(*wait > most / 2 && *wait <= most, "{wait:?} after {n}");
    }
    assert_eq!(drawn, waits(1));
    assert_ne!(drawn, waits(2));
}
