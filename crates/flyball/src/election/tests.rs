//! Replicas against a minimal server, step by step, in any order.

use super::*;
use flyball_core::time::Timestamp;
use proptest::prelude::*;

const REPLICAS: usize = 3;

fn time() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// The lease, and the API server's handling of writes to it.
#[derive(Default)]
struct Server {
    lease: Option<Value>,
    revision: u64,
}

impl Server {
    fn write(&mut self, mut lease: Value) -> Option<Value> {
        let there = self.lease.as_ref().map(|lease| &lease["metadata"]["resourceVersion"]);
        if there.unwrap_or(&Value::Null) != &lease["metadata"]["resourceVersion"] {
            return None;
        }
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.lease = Some(lease.clone());
        Some(lease)
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        if let Some(mut lease) = self.lease.clone() {
            edit(&mut lease);
            self.write(lease);
        }
    }
}

/// A replica, and its pending request.
struct Replica {
    elector: Elector,
    waits: Waits,
}

enum Waits {
    Nothing,
    /// The response to a read is pending.
    Look(Option<Value>),
    /// A write is in transit to the server, sent at this time.
    Write(Value, Instant),
    /// The response to a write is pending.
    Answer(Option<Value>, Instant),
    /// The release is in transit; the replica no longer acts.
    Release(Value),
}

/// The next event of a run.
#[derive(Clone, Debug)]
enum Event {
    /// Time passes, in milliseconds.
    Pass(u64),
    /// A replica makes one step.
    Step(usize),
    /// A request of a replica times out; a write in transit may still arrive.
    Lose(usize),
    /// A write that timed out reaches the server.
    Arrive,
    /// A replica stops, and another one starts in its place.
    Release(usize),
    /// A user annotates the lease.
    Annotate,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let replica = || 0..REPLICAS;
    let event = prop_oneof![
        4 => (1u64..1500).prop_map(Event::Pass),
        1 => (1500u64..30_000).prop_map(Event::Pass),
        12 => replica().prop_map(Event::Step),
        2 => replica().prop_map(Event::Lose),
        2 => Just(Event::Arrive),
        1 => replica().prop_map(Event::Release),
        1 => Just(Event::Annotate),
    ];
    proptest::collection::vec(event, 1..300)
}

struct Fixture {
    server: Server,
    replicas: Vec<Replica>,
    late: Vec<Value>,
    now: Instant,
    made: usize,
}

impl Fixture {
    fn new() -> Self {
        let (server, now) = (Server::default(), Instant::now());
        let mut fixture = Self { server, replicas: Vec::new(), late: Vec::new(), now, made: 0 };
        fixture.replicas = (0..REPLICAS).map(|_| fixture.replica()).collect();
        fixture
    }

    fn replica(&mut self) -> Replica {
        self.made += 1;
        let elector = Elector::new(format!("replica-{}", self.made), LeaderElection::default());
        Replica { elector, waits: Waits::Nothing }
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Pass(millis) => self.now += Duration::from_millis(*millis),
            Event::Step(n) => self.step(*n),
            Event::Lose(n) => {
                let replica = &mut self.replicas[*n];
                match std::mem::replace(&mut replica.waits, Waits::Nothing) {
                    Waits::Nothing => return,
                    Waits::Write(lease, _) | Waits::Release(lease) => self.late.push(lease),
                    Waits::Look(_) | Waits::Answer(..) => {}
                }
                replica.elector.failed();
            }
            Event::Arrive => {
                if !self.late.is_empty() {
                    self.server.write(self.late.remove(0));
                }
            }
            Event::Release(n) => {
                let lease = match self.replicas[*n].elector.is_current() {
                    true => self.replicas[*n].elector.released(time()),
                    false => None,
                };
                // A new process has a new identity and remembers nothing.
                let next = self.replica();
                let replica = &mut self.replicas[*n];
                *replica = next;
                if let Some(lease) = lease {
                    replica.waits = Waits::Release(lease);
                }
            }
            Event::Annotate => self.server.edit(|lease| lease["metadata"]["annotations"] = json!({"a": "b"})),
        }
    }

    fn step(&mut self, n: usize) {
        let (now, server) = (self.now, &mut self.server);
        let Replica { elector, waits } = &mut self.replicas[n];
        *waits = match std::mem::replace(waits, Waits::Nothing) {
            // The process exits at this time; here another process replaces it.
            Waits::Nothing if elector.until().is_some_and(|until| now >= until) => {
                self.replicas[n] = self.replica();
                return;
            }
            Waits::Nothing if elector.is_current() => match elector.next(now, time()) {
                Some(lease) => Waits::Write(lease, now),
                None => Waits::Nothing,
            },
            Waits::Nothing => Waits::Look(server.lease.clone()),
            Waits::Look(found) => {
                elector.record_lease(found, now);
                elector.next(now, time()).map_or(Waits::Nothing, |lease| Waits::Write(lease, now))
            }
            Waits::Write(lease, sent) => Waits::Answer(server.write(lease), sent),
            Waits::Answer(written, sent) => {
                match written {
                    Some(lease) => elector.record_write_response(lease, sent),
                    None => elector.failed(),
                }
                Waits::Nothing
            }
            Waits::Release(lease) => {
                server.write(lease);
                Waits::Nothing
            }
        };
    }

    fn leaders(&self) -> Vec<&str> {
        let leads = |replica: &&Replica| replica.elector.until().is_some_and(|until| self.now < until);
        self.replicas.iter().filter(leads).map(|replica| replica.elector.identity()).collect()
    }

    /// Runs one replica alone, with the retry period of a follower.
    fn runs_alone(&mut self, n: usize, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            for _ in 0..4 {
                self.step(n);
            }
            self.now += Duration::from_secs(2);
        }
    }
}

proptest! {
    #[test]
    fn at_most_one_replica_leads_and_the_last_one_becomes_leader(events in events()) {
        let mut fixture = Fixture::new();
        let (mut transitions, mut holder) = (0, String::new());
        for event in &events {
            fixture.happens(event);
            let leaders = fixture.leaders();
            prop_assert!(leaders.len() <= 1, "{leaders:?}");
            let Some(lease) = &fixture.server.lease else { continue };
            // The leader is the holder in the lease, and each change of holders is counted.
            let held_by = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            prop_assert!(leaders.iter().all(|leader| *leader == held_by), "{leaders:?} {held_by}");
            let count = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
            let changed = !held_by.is_empty() && held_by != holder && !holder.is_empty();
            prop_assert_eq!(count, transitions + i64::from(changed), "{}", lease);
            transitions = count;
            if !held_by.is_empty() {
                holder = held_by.to_owned();
            }
        }
        fixture.runs_alone(0, Duration::from_secs(40));
        prop_assert_eq!(fixture.leaders(), [fixture.replicas[0].elector.identity()]);
    }
}

#[test]
fn deleted_lease_is_respected_until_it_expires() {
    let (now, second) = (Instant::now(), Duration::from_secs(1));
    let mut elector = Elector::new("me".into(), LeaderElection::default());
    let foreign =
        json!({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}});
    elector.record_lease(Some(foreign), now);
    elector.record_lease(None, now + 5 * second);
    assert_eq!(elector.next(now + 14 * second, time()), None, "its holder may recreate it");
    let created = elector.next(now + 15 * second, time()).expect("the lease has expired");
    assert_eq!((&created["metadata"], &created["spec"]["leaseTransitions"]), (&Value::Null, &json!(0)));
}

#[test]
fn lease_matches_client_go() {
    let now = Instant::now();
    let mut elector = Elector::new("me".into(), LeaderElection::default());
    elector.record_lease(None, now);
    let created = elector.next(now, time()).expect("the lease is free");
    let time_text = "2026-01-01T00:00:00.000000Z";
    let spec = |transitions: i64| {
        json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": time_text, "renewTime": time_text,
            "leaseTransitions": transitions})
    };
    assert_eq!(created, json!({"spec": spec(0)}));

    // The lease of another holder is respected until it has not changed for its duration.
    let foreign = |renewed: &str| {
        json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}, "spec": {"holderIdentity": "other",
            "leaseDurationSeconds": 7, "leaseTransitions": 4, "renewTime": renewed, "strategy": "x"}})
    };
    elector.record_lease(Some(foreign("long ago")), now);
    elector.record_lease(Some(foreign("in a hundred years")), now + Duration::from_secs(5));
    assert_eq!(elector.next(now + Duration::from_secs(11), time()), None);
    let acquired = elector.next(now + Duration::from_secs(12), time()).expect("the lease has expired");
    assert_eq!(acquired, json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}, "spec": spec(5)}));

    // Renewals keep the acquire time.
    elector.record_write_response(acquired.clone(), now);
    let later = time() + Duration::from_secs(3);
    let renewed = elector.next(now, later).expect("this replica holds the lease");
    let mut expected = acquired;
    expected["spec"]["renewTime"] = "2026-01-01T00:00:03.000000Z".into();
    assert_eq!(renewed, expected);
    assert_eq!(elector.until(), Some(now + Duration::from_secs(10)));

    let released = elector.released(later).expect("this replica holds the lease");
    let nobody = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "2026-01-01T00:00:03.000000Z",
        "renewTime": "2026-01-01T00:00:03.000000Z", "leaseTransitions": 5});
    assert_eq!(released["spec"], nobody);
    elector.record_lease(Some(foreign("now")), now);
    assert_eq!((elector.until(), elector.released(later)), (None, None));
}

#[test]
fn settings_that_allow_two_leaders_are_rejected() {
    let check = |lease: u64, renew: u64, retry: u64, expected: &str| {
        let millis = Duration::from_millis;
        let settings = LeaderElection {
            lease_duration: millis(lease),
            renew_deadline: millis(renew),
            retry_period: millis(retry),
            ..LeaderElection::default()
        };
        assert!(settings.validation_error().unwrap_or("fine").contains(expected), "{settings:?}");
    };
    check(15_000, 10_000, 2000, "fine");
    check(10_900, 10_000, 2000, "lease duration");
    check(15_000, 2400, 2000, "renew deadline");
    check(15_000, 10_000, 0, "retry period");
}
