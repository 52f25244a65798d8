//! Tests of the session with a small model of the API server: after any faults, the cache converges to the state of the
//! server.

use super::WatchCounters;
use super::frame::{List, ListMeta};
use super::session::{End, Pause, ResponseFormat, Session, Step};
use crate::cache::{Change, DeclaredIndex, DecodedEntry, Delta, Entry, IndexId, Listener, Store, StoreId, Writer};
use crate::kind::Kind;
use flyball_core::{ObjectKey, Rng};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::Status;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Objects by name, with the revision of their last change.
type Objects = BTreeMap<u8, u64>;

#[derive(Default)]
struct Server {
    revision: u64,
    objects: Objects,
    /// Revision, object, and true if it exists.
    history: Vec<(u64, u8, bool)>,
    compacted: u64,
    /// The kind is not installed.
    absent: bool,
}

/// A fault of an exchange.
#[derive(Clone, Debug)]
enum Fault {
    Refuse(u16),
    Unreachable,
    Lost,
    Late,
    Silent,
    /// The response ends after this number of parts.
    Cut(usize),
    /// This part of the response is invalid.
    Garble(usize),
}

#[derive(Clone, Debug)]
enum Move {
    Put(u8),
    /// Like `Put`, by the operator, which gets a response.
    Write(u8),
    Delete(u8),
    Compact,
    /// The kind is removed, with all its objects.
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

    /// Removes the kind without notifying watches.
    fn uninstall(&mut self) {
        self.revision += 1;
        self.objects.clear();
        self.history.clear();
        (self.compacted, self.absent) = (self.revision, true);
    }

    /// Responds to a request with an error, or with the lines of a watch or the parts of a list.
    fn respond(&self, uri: &str) -> Result<Vec<String>, u16> {
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
        // This model only serves pages of the current revision.
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

/// Records the calls of a listener, like a cache.
#[derive(Debug, Default)]
struct Mirror(Mutex<BTreeMap<String, u64>>);

impl Listener for Mirror {
    fn changed(&self, change: &Change<'_>) {
        let mut mirror = self.0.lock();
        let before = match change.new {
            Some(new) => mirror.insert(change.key.to_string(), new.resource_version()),
            None => mirror.remove(change.key.as_str()),
        };
        assert_eq!(before, change.old.map(|old| old.resource_version()), "{change:?}");
    }

    fn observed(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {}
}

fn apply_step(step: Step, session: &mut Session, writer: &mut Writer) -> Option<Pause> {
    match step {
        Step::Stop(status) => Some(session.rejected(&status, Duration::from_secs(60))),
        step => super::apply_step(step, session, writer, &WatchCounters::default()),
    }
}

/// Sends the next request and processes the response; returns the wait of the session.
fn exchange(session: &mut Session, writer: &mut Writer, server: &Server, fault: Option<Fault>) -> Pause {
    let pause = exchanged(session, writer, server, fault);
    if session.is_absent() {
        writer.apply(Delta::Absent);
    }
    pause
}

fn exchanged(session: &mut Session, writer: &mut Writer, server: &Server, fault: Option<Fault>) -> Pause {
    if session.begins_list() {
        writer.apply(Delta::Restart);
    }
    let request = session.request();
    let refused = |code: u16| Status::failure("no", "").with_code(code);
    let mut parts = match (&fault, server.respond(&request.uri)) {
        (Some(Fault::Unreachable), _) => return session.ended(End::Unreachable("no".into()), Duration::ZERO),
        (Some(Fault::Lost), _) => return session.ended(End::Lost, Duration::ZERO),
        (Some(Fault::Late), _) => return session.ended(End::Late, Duration::ZERO),
        (Some(Fault::Refuse(code)), _) => return session.rejected(&refused(*code), Duration::ZERO),
        (_, Err(code)) => return session.rejected(&refused(code), Duration::ZERO),
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
    if request.format == ResponseFormat::Events {
        for line in &parts {
            let step = session.line(line.as_bytes());
            if let Some(pause) = apply_step(step, session, writer) {
                return pause;
            }
        }
        return session.ended(end, Duration::from_secs(60));
    }
    let mut list = List::default();
    for part in &parts {
        if list.push(part.as_bytes(), |item| _ = apply_step(session.item(item), session, writer)).is_err() {
            return session.ended(End::Broken("unreadable".into()), Duration::ZERO);
        }
    }
    match (end, list.finish()) {
        (End::Closed, Ok(page)) => {
            let step = session.page(page);
            apply_step(step, session, writer).unwrap_or(Pause::For(Duration::ZERO))
        }
        (End::Closed, Err(_)) => session.ended(End::Broken("unreadable".into()), Duration::ZERO),
        (end, _) => session.ended(end, Duration::ZERO),
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        prop::sample::select(vec![400, 401, 403, 404, 410, 413, 422, 429, 500, 503, 504]).prop_map(Fault::Refuse),
        Just(Fault::Unreachable),
        Just(Fault::Lost),
        Just(Fault::Late),
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
    fn cache_converges_to_the_server(moves in prop::collection::vec(step(), 0..60), seed in any::<u64>()) {
        let (store, mut writer) = Store::new(0, Kind::of::<Namespace>(), None);
        let mirror = Arc::new(Mirror::default());
        writer.subscribe(mirror.clone());
        let parity = |_: &ObjectKey, shown: &DecodedEntry<'_>| vec![shown.resource_version() % 2];
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
                    let pause = exchange(&mut session, &mut writer, &server, fault);
                    prop_assert!(is_within(&pause, MAX_PAUSE), "{pause:?}");
                    for parity in 0..2 {
                        let all = store.list(None).into_iter();
                        let found = all.filter(|(_, entry)| entry.resource_version() % 2 == parity).map(|(key, _)| key);
                        prop_assert_eq!(store.keys_by(&by_parity.id, &parity), Some(found.collect()));
                    }
                }
            }
        }
        // The faults are over. A list with all pages, and a watch are enough to catch up.
        for _ in 0..8 {
            exchange(&mut session, &mut writer, &server, None);
        }
        prop_assert!(store.is_synced());
        prop_assert_eq!((session.last_error().is_some(), store.is_absent()), (server.absent, server.absent));
        let cached = store.list(None).into_iter().map(|(key, entry)| (key.to_string(), entry.resource_version()));
        let cached: BTreeMap<String, u64> = cached.collect();
        let expected = server.objects.iter().map(|(name, revision)| (format!("n{name}"), *revision)).collect();
        prop_assert_eq!(&cached, &expected);
        prop_assert_eq!(&*mirror.0.lock(), &expected);
    }
}

#[test]
fn write_response_is_cached_without_parsing_the_event() {
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

/// A list of objects with these names, at a revision.
fn listed(session: &mut Session, writer: &mut Writer, names: std::ops::Range<u8>, revision: u64) -> Option<Pause> {
    writer.apply(Delta::Restart);
    session.request();
    session.accepted();
    for name in names {
        apply_step(session.item(object(name, 1).as_bytes()), session, writer);
    }
    apply_step(session.page(ListMeta { revision, next: String::new() }), session, writer)
}

fn is_within(pause: &Pause, longest: Duration) -> bool {
    matches!(pause, Pause::For(wait) | Pause::Server(wait) if *wait <= longest)
}

fn store_of(objects: u8) -> (Arc<Store>, Writer, Session) {
    let (store, mut writer) = Store::new(0, Kind::of::<Namespace>(), None);
    let mut session = Session::new(&store, "me".into(), Rng::from_seed(1));
    assert_eq!(listed(&mut session, &mut writer, 0..objects, 5), None);
    (store, writer, session)
}

/// Expires the watch, so that the kind is listed again.
fn expire(session: &mut Session) {
    session.rejected(&Status::failure("too old", "").with_code(410), Duration::from_secs(60));
}

#[test]
fn list_that_lacks_many_objects_needs_confirmation() {
    let check = |objects: u8, remaining: u8, is_doubted: bool| {
        let (store, mut writer, mut session) = store_of(objects);
        expire(&mut session);
        let pause = listed(&mut session, &mut writer, 0..remaining, 6);
        assert_eq!(pause.is_some(), is_doubted, "{remaining} of {objects}");
        assert_eq!(store.len(), usize::from(if is_doubted { objects } else { remaining }), "{remaining} of {objects}");
        assert_eq!(session.begins_list(), is_doubted);
    };
    check(100, 69, true);
    check(100, 70, false);
    check(100, 0, true);
    check(10, 0, false);
    check(11, 0, true);
    check(36, 25, true);
    check(37, 26, false);
}

#[test]
fn only_a_confirmed_list_deletes_many_objects() {
    let (store, mut writer, mut session) = store_of(100);
    expire(&mut session);
    let pause = listed(&mut session, &mut writer, 0..20, 6).expect("the list must be confirmed");
    assert!(matches!(pause, Pause::For(wait) if wait >= Duration::from_secs(2)), "{pause:?}");
    assert!(session.last_error().is_some_and(|why| why.contains("lacks 80 of 100")));
    assert_eq!(listed(&mut session, &mut writer, 0..100, 6), None);
    assert_eq!((store.len(), session.last_error()), (100, None));
    // They are really deleted, for example with their namespace.
    expire(&mut session);
    assert!(listed(&mut session, &mut writer, 0..20, 7).is_some());
    assert_eq!(listed(&mut session, &mut writer, 0..20, 8), None);
    assert_eq!(store.len(), 20);
}

#[test]
fn lists_that_differ_do_not_confirm_each_other() {
    let (store, mut writer, mut session) = store_of(100);
    expire(&mut session);
    for names in [0..50, 50..100, 0..50] {
        assert!(listed(&mut session, &mut writer, names, 6).is_some());
        assert_eq!(store.len(), 100);
    }
    assert_eq!(listed(&mut session, &mut writer, 0..50, 6), None);
    assert_eq!(store.len(), 50);
}

#[test]
fn expired_watch_relists_at_once_and_repeated_expiry_backs_off() {
    let (_, mut writer, mut session) = store_of(1);
    let gone = Status::failure("too old", "").with_code(410);
    assert_eq!(session.rejected(&gone, Duration::ZERO), Pause::For(Duration::ZERO));
    assert_eq!(session.last_error(), None, "it is part of a restart");
    listed(&mut session, &mut writer, 0..1, 6);
    let step = session.line(event("MODIFIED", &object(0, 7)).as_bytes());
    apply_step(step, &mut session, &mut writer);
    let pause = session.rejected(&gone, Duration::from_millis(5));
    assert!(
        matches!(pause, Pause::For(wait) if wait >= Duration::from_millis(500)),
        "an event does not reset failures: {pause:?}"
    );
}

#[test]
fn watch_closed_early_reconnects_with_jitter() {
    let (_, _, mut session) = store_of(1);
    session.request();
    let pauses: Vec<Pause> = (0..20).map(|_| session.ended(End::Closed, Duration::from_secs(100))).collect();
    assert!(pauses.iter().all(|pause| is_within(pause, SECOND)), "{pauses:?}");
    assert!(pauses[0] != pauses[1] && !pauses.contains(&Pause::For(Duration::ZERO)), "{pauses:?}");
    // The requested timeout of each watch is random already.
    assert_eq!(session.ended(End::Closed, Duration::from_secs(330)), Pause::For(Duration::ZERO));
}

#[test]
fn list_without_response_falls_back_with_growing_backoff() {
    let (store, _writer) = Store::new(0, Kind::of::<Namespace>(), None);
    let mut session = Session::new(&store, "me".into(), Rng::from_seed(1));
    let attempts: Vec<(String, Pause)> =
        (0..7).map(|_| (session.request().uri, session.ended(End::Late, Duration::ZERO))).collect();
    assert!(attempts[1].0.contains("sendInitialEvents") && attempts[2].0.contains("limit="), "{attempts:?}");
    assert_eq!(attempts[0].0, attempts[3].0);
    assert!(matches!(attempts[6].1, Pause::For(wait) if wait >= 15 * SECOND), "{attempts:?}");
}

#[test]
fn event_of_another_kind_is_rejected() {
    let (_, _, mut session) = store_of(1);
    for (kind, is_taken) in [("Namespace", true), ("PartialObjectMetadata", true), ("Pod", false)] {
        for event_type in ["ADDED", "MODIFIED", "DELETED"] {
            let object = object(0, 7).replacen('{', &format!(r#"{{"kind":"{kind}","#), 1);
            let step = session.line(event(event_type, &object).as_bytes());
            assert_eq!(matches!(step, Step::Apply(_)), is_taken, "{event_type} {kind}: {step:?}");
        }
    }
    session.ended(End::Closed, Duration::from_secs(100));
    assert!(session.begins_list(), "a list follows the lost event");
}

#[test]
fn repeated_502_or_503_counts_as_outage() {
    for (code, is_unavailable) in [(500, false), (502, true), (503, true), (429, false)] {
        let (_, _, mut session) = store_of(1);
        let mut refused = || session.rejected(&Status::failure("no", "").with_code(code), Duration::ZERO);
        assert!([refused(), refused()].iter().all(|pause| matches!(pause, Pause::For(_))), "{code}");
        assert_eq!(matches!(refused(), Pause::Server(_)), is_unavailable, "{code}");
    }
}
