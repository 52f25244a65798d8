//! Only one of several replicas is active, under faults of the replica, the lease and the API server.
//!
//! Each replica writes continuously: a secret changes several times a second. The server checks each write other than
//! to the lease when it arrives: its sender must be the holder of the lease.

use crate::cluster_of;
use flyball::{
    Action, Clock, Context, Controller, LeaderElection, Operator, Predicate, Reconcile, Result, Rng, RunError, Task,
};
use flyball_cluster::{Cluster, Faults, Options, Trace, User, simulated_clock};
use flyball_core::time::SignedDuration;
use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tower::service_fn;

const SECOND: Duration = Duration::from_secs(1);

/// Changes a secret each time.
struct Beat(&'static str, AtomicU64);

impl Reconcile for Beat {
    type Resource = ConfigMap;

    async fn reconcile(&self, map: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
        if map.metadata.name.as_deref() != Some("beat") {
            return Ok(Action::done());
        }
        let n = self.1.fetch_add(1, Ordering::Relaxed);
        let secret = json!({"metadata": {"name": self.0}, "stringData": {"n": format!("{} {n}", cx.rng().next())}});
        cx.apply::<Secret>(&serde_json::from_value(secret)?).await?;
        Ok(Action::requeue_after(Duration::from_millis(200)))
    }
}

fn operator() -> Operator {
    let controller = Controller::new(Beat("beat", AtomicU64::new(0))).owns::<Secret>().filter(mute());
    Operator::new("beats").leader_election(LeaderElection::default()).controller(controller)
}

/// Triggers no reconcile: the beat runs on a timer.
fn mute() -> Predicate<Secret> {
    Predicate::never()
}

/// The connection of one replica to the server.
#[derive(Default)]
struct Wire {
    /// Requests whose path contains this are blocked.
    blocked: Mutex<Option<&'static str>>,
    released: Notify,
}

impl Wire {
    fn hold(&self, part: &'static str) {
        *self.blocked.lock().unwrap() = Some(part);
    }

    fn release(&self) {
        *self.blocked.lock().unwrap() = None;
        self.released.notify_waiters();
    }

    async fn pass(&self, path: &str) {
        loop {
            let released = self.released.notified();
            if self.blocked.lock().unwrap().is_none_or(|part| !path.contains(part)) {
                return;
            }
            released.await;
        }
    }
}

/// A write other than to the lease.
#[derive(Clone, Debug)]
struct Write {
    at: Instant,
    by: String,
    path: String,
    /// The holder of the lease when it arrived.
    leader: String,
}

struct Stage {
    cluster: Cluster,
    clock: Clock,
    admin: Client,
    seed: u64,
    faults: Faults,
    /// The API groups in the replicas' roles.
    groups: &'static [&'static str],
    writes: Arc<Mutex<Vec<Write>>>,
}

struct Replica {
    wire: Arc<Wire>,
    /// Offset of this machine's wall clock, in seconds.
    off: Arc<AtomicI64>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), RunError>>,
}

impl Replica {
    async fn stop(mut self) -> Result<(), RunError> {
        drop(self.stop.take());
        self.running.await.unwrap()
    }
}

impl Stage {
    async fn new(seed: u64, faults: Faults) -> Self {
        let clock = simulated_clock();
        let cluster = cluster_of(Options::simulated(clock.clone(), seed));
        let admin = cluster.admin();
        let beat: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "beat"}})).unwrap();
        Api::namespaced(admin.clone(), "default").create(&PostParams::default(), &beat).await.unwrap();
        Self { cluster, clock, admin, seed, faults, groups: &["system:masters"], writes: Arc::default() }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), "default")
    }

    async fn lease(&self) -> Value {
        serde_json::to_value(self.leases().get_opt("beats").await.unwrap()).unwrap()
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.leases().patch("beats", &PatchParams::default(), &patch).await.unwrap();
    }

    fn start(&self, name: &'static str) -> Replica {
        self.start_with(name, |operator| operator)
    }

    /// Starts a replica that leads, and another one.
    async fn leader_and_successor(&self) -> (Replica, Replica) {
        let first = self.start("one");
        sleep(5 * SECOND).await;
        (first, self.start("two"))
    }

    fn start_with(&self, name: &'static str, set_up: impl FnOnce(Operator) -> Operator) -> Replica {
        let (wire, off) = (Arc::<Wire>::default(), Arc::<AtomicI64>::default());
        let rng = Rng::from_seed(self.seed).fork(name);
        let clock = Clock::new({
            let (clock, off) = (self.clock.clone(), off.clone());
            move || clock.now() + SignedDuration::from_secs(off.load(Ordering::Relaxed))
        });
        let operator = operator().instance(name).clock(clock).rng(rng.fork("operator"));
        let client = self.client(name, wire.clone(), &rng);
        let (stop, stopped) = oneshot::channel::<()>();
        let operator = set_up(operator);
        let running = tokio::spawn(async move { operator.run(client, async { drop(stopped.await) }).await });
        Replica { wire, off, stop: Some(stop), running }
    }

    fn client(&self, name: &'static str, wire: Arc<Wire>, rng: &Rng) -> Client {
        let user = User::new(name, self.groups);
        let server = self.cluster.simulated_client(user, self.faults, rng.fork("faults"), Trace::default());
        let (leases, writes, rng) = (self.leases(), self.writes.clone(), rng.fork("wire"));
        let pass = move |request: Request<Body>| {
            let (server, leases, writes, rng, wire) =
                (server.clone(), leases.clone(), writes.clone(), rng.clone(), wire.clone());
            async move {
                sleep(Duration::from_micros(rng.below(5000))).await;
                let path = request.uri().path().to_owned();
                wire.pass(&path).await;
                // Events about the lease also report its loss, and are harmless.
                if request.method() != Method::GET && !path.contains("/leases") && !path.contains("/events") {
                    let lease = leases.get_opt("beats").await?;
                    let leader = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
                    writes.lock().unwrap().push(Write { at: Instant::now(), by: name.to_owned(), path, leader });
                }
                server.send(request).await
            }
        };
        Client::new(service_fn(pass), "default")
    }

    /// Takes the writes since the last call, and checks that all of them came from the leader.
    fn writes(&self) -> Vec<Write> {
        let writes = std::mem::take(&mut *self.writes.lock().unwrap());
        for write in writes.iter().filter(|write| !write.path.contains("/free")) {
            assert!(write.leader.starts_with(&format!("{}_", write.by)), "seed {}: {write:?}", self.seed);
        }
        writes
    }

    /// Returns the writers since the last call.
    fn writers(&self) -> Vec<String> {
        let mut writers: Vec<String> = self.writes().into_iter().map(|write| write.by).collect();
        writers.sort();
        writers.dedup();
        writers
    }

    /// Waits until this replica writes, and returns the duration.
    async fn taken_over(&self, name: &str) -> Duration {
        let began = Instant::now();
        loop {
            if let Some(write) = self.writes().iter().find(|write| write.by == name) {
                return write.at - began;
            }
            assert!(began.elapsed() < 120 * SECOND, "seed {}: {name} does not take over", self.seed);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Plays a story in paused time, for several seeds.
fn play<F: Future<Output = ()>>(seeds: u64, story: impl Fn(u64) -> F) {
    for seed in 0..seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(story(seed));
    }
}

const FAULTS: Faults = Faults {
    conflict: 0.05,
    server_error: 0.05,
    lost_response: 0.05,
    broken_watch: 0.05,
    late: 0.05,
    repeated: 0.05,
    ..Faults::NONE
};

fn is_lost(result: &Result<(), RunError>) -> bool {
    matches!(result, Err(RunError::LeadershipLost { lease, .. }) if lease == "default/beats")
}

#[test]
fn one_of_concurrently_started_replicas_leads_and_a_crash_hands_over() {
    play(10, |seed| async move {
        let stage = Stage::new(seed, FAULTS).await;
        let names = ["one", "two", "three"];
        // With half as many tries, a leader would lose its lease after four consecutive faults, which occurs.
        let often = LeaderElection { retry_period: SECOND, ..LeaderElection::default() };
        let start = |name| (name, stage.start_with(name, |operator| operator.leader_election(often.clone())));
        let mut replicas: Vec<_> = names.map(start).into();
        sleep(60 * SECOND).await;
        for round in 0..3 {
            let writers = stage.writers();
            assert_eq!(writers.len(), 1, "seed {seed}, round {round}: {writers:?}");
            if round == 2 {
                break;
            }
            let at = replicas.iter().position(|(name, _)| *name == writers[0]).unwrap();
            let (_, leader) = replicas.remove(at);
            let before = stage.lease().await["spec"]["leaseTransitions"].as_i64().unwrap();
            leader.running.abort();
            sleep(10 * SECOND).await;
            assert_eq!(stage.writers(), [""; 0], "seed {seed}: the lease has not lapsed yet");
            sleep(30 * SECOND).await;
            assert_eq!(stage.lease().await["spec"]["leaseTransitions"], before + 1);
        }
    });
}

#[test]
fn graceful_stop_drains_and_releases_the_lease_within_a_second() {
    play(8, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let (first, second) = stage.leader_and_successor().await;
        sleep(20 * SECOND).await;
        assert_eq!(stage.writers(), ["one"]);
        let acquired = stage.lease().await["spec"]["acquireTime"].clone();
        let stopped = Instant::now();
        first.stop().await.unwrap();
        assert!(stopped.elapsed() < SECOND, "no write was in progress");
        assert!(stage.taken_over("two").await < SECOND);
        let lease = stage.lease().await;
        assert!(lease["spec"]["holderIdentity"].as_str().unwrap().starts_with("two_"));
        assert_eq!(lease["spec"]["leaseTransitions"], 1);
        assert_ne!(lease["spec"]["acquireTime"], acquired);
        second.stop().await.unwrap();
        let lease = stage.lease().await;
        assert_eq!(
            (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]),
            (&json!(""), &json!(1)),
            "{lease}"
        );
    });
}

#[test]
fn followers_have_synced_caches() {
    play(4, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let (first, second) = stage.leader_and_successor().await;
        sleep(20 * SECOND).await;
        assert_eq!(stage.writers(), ["one"]);
        // Its caches are filled: no list is needed before it acts.
        second.wire.hold("/api/v1/configmaps");
        first.running.abort();
        assert!(stage.taken_over("two").await < 20 * SECOND);
    });
}

#[test]
fn leader_that_cannot_renew_stops_writing_and_ends() {
    play(8, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let (first, _second) = stage.leader_and_successor().await;
        sleep(20 * SECOND).await;
        // Its other requests pass: only the write gate blocks its writes.
        first.wire.hold("/leases");
        let start = Instant::now();
        let result = first.running.await.unwrap();
        assert!(is_lost(&result), "{result:?}");
        let after = start.elapsed();
        assert!(after > 7 * SECOND && after <= 10 * SECOND, "{after:?}");
        assert!(stage.taken_over("two").await + after < 16 * SECOND);
    });
}

#[test]
fn leader_paused_beyond_its_lease_writes_nothing_on_resume() {
    play(8, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let first = stage.start("one");
        sleep(20 * SECOND).await;
        assert_eq!(stage.writers(), ["one"]);
        // Time stands still for the paused process, while another one acquires the lease.
        stage.patch(json!({"holderIdentity": "another", "leaseTransitions": 1})).await;
        advance(20 * SECOND).await;
        let result = first.running.await.unwrap();
        assert!(is_lost(&result), "{result:?}");
        assert_eq!(stage.writers(), [""; 0]);
    });
}

#[test]
fn outage_past_the_renew_deadline_ends_only_the_leader() {
    play(8, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let (first, second) = (stage.start("one"), stage.start("two"));
        sleep(20 * SECOND).await;
        let leads = stage.writers();
        for replica in [&first, &second] {
            replica.wire.hold("/");
        }
        sleep(60 * SECOND).await;
        assert_eq!(stage.writers(), [""; 0]);
        let (leader, follower, name) = if leads == ["one"] { (first, second, "two") } else { (second, first, "one") };
        assert!(is_lost(&leader.running.await.unwrap()) && !follower.running.is_finished());
        follower.wire.release();
        // Its watches recover after their maximum backoff; the lease is checked every few seconds.
        assert!(stage.taken_over(name).await < 60 * SECOND);

        // A shorter outage has no effect.
        follower.wire.hold("/");
        sleep(7 * SECOND).await;
        follower.wire.release();
        stage.writes();
        sleep(60 * SECOND).await;
        assert_eq!(stage.writers(), [name]);
    });
}

#[test]
fn wall_clock_does_not_affect_leadership() {
    play(10, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let (first, second) = stage.leader_and_successor().await;
        let offsets = [86_400, -86_400, 3600, -3600, 0];
        for offset in offsets {
            first.off.store(offset, Ordering::Relaxed);
            second.off.store(-2 * offset, Ordering::Relaxed);
            sleep(20 * SECOND).await;
        }
        assert_eq!(stage.writers(), ["one"]);
        assert_eq!(stage.lease().await["spec"]["leaseTransitions"], 0);
        first.running.abort();
        let took = stage.taken_over("two").await;
        assert!(took > 12 * SECOND && took <= 15 * SECOND + SECOND / 10, "within the lease: {took:?}");
    });
}

#[test]
fn foreign_changes_of_the_lease_cause_no_second_leader() {
    play(10, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let (first, second) = stage.leader_and_successor().await;
        sleep(10 * SECOND).await;

        // An annotation of the lease causes a conflict in the next renewal.
        for n in 0..20 {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"n": n.to_string()}}}));
            stage.leases().patch("beats", &PatchParams::default(), &patch).await.unwrap();
            sleep(SECOND).await;
        }
        assert_eq!(stage.writers(), ["one"]);
        assert_eq!(stage.lease().await["metadata"]["annotations"]["n"], "19");

        // If it is deleted, the leader recreates it; followers wait.
        stage.leases().delete("beats", &DeleteParams::default()).await.unwrap();
        sleep(SECOND).await;
        assert!(stage.lease().await["spec"]["holderIdentity"].as_str().unwrap().starts_with("one_"));
        sleep(20 * SECOND).await;
        let by_two: Vec<_> = std::mem::take(&mut *stage.writes.lock().unwrap());
        assert!(by_two.iter().all(|write| write.by == "one"));

        // If another holder is set, the leader ends at once, and all others wait for that holder.
        stage.patch(json!({"holderIdentity": "nobody"})).await;
        let start = Instant::now();
        assert!(is_lost(&first.running.await.unwrap()));
        assert!(start.elapsed() < SECOND);
        stage.writes.lock().unwrap().clear();
        let took = stage.taken_over("two").await;
        assert!(took > 14 * SECOND && took < 16 * SECOND, "{took:?}");
        drop(second);
    });
}

#[test]
fn tasks_may_run_without_leadership() {
    play(3, |seed| async move {
        let stage = Stage::new(seed, Faults::default()).await;
        let log = Arc::new(Mutex::new(Vec::new()));
        let set_up = |secret: &'static str, fails: bool| {
            let log = log.clone();
            move |operator: Operator| {
                let free =
                    Controller::new(Beat(secret, AtomicU64::new(0))).name("free").owns::<Secret>().filter(mute());
                let task = |role: &'static str| {
                    let log = log.clone();
                    Task::new(role, move |cx| async move {
                        log.lock().unwrap().push(format!("{role} {secret} begins"));
                        cx.stopped().await;
                        // Both may write until the end.
                        let map = json!({"metadata": {"name": format!("{role}-{secret}")}});
                        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client().clone());
                        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
                        log.lock().unwrap().push(format!("{role} {secret} ends"));
                        Ok(())
                    })
                };
                let late = Task::new("late", |_| async {
                    sleep(30 * SECOND).await;
                    Err("disk full".into())
                });
                let operator = operator
                    .controller(free.on_every_replica())
                    .task(task("leader"))
                    .task(task("everyone").on_every_replica());
                if fails { operator.task(late.on_every_replica()) } else { operator }
            }
        };
        let first = stage.start_with("one", set_up("free-1", false));
        sleep(5 * SECOND).await;
        let second = stage.start_with("two", set_up("free-2", true));
        sleep(10 * SECOND).await;
        let writes: Vec<_> = std::mem::take(&mut *stage.writes.lock().unwrap());
        let wrote = |by: &str, secret: &str| {
            writes.iter().any(|write| write.by == by && write.path.ends_with(&format!("/secrets/{secret}")))
        };
        assert!(wrote("one", "beat") && !wrote("two", "beat") && wrote("one", "free-1") && wrote("two", "free-2"));
        let started = ["everyone free-1 begins", "leader free-1 begins", "everyone free-2 begins"];
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()), started);

        // A task that fails ends its operator, and the other tasks in order.
        let end = second.running.await.unwrap();
        assert!(
            matches!(&end, Err(RunError::Task { name, source }) if name == "late" && source.to_string() == "disk full"),
            "{end:?}"
        );
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()), ["everyone free-2 ends"]);
        first.stop().await.unwrap();
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()).len(), 2);
        let maps: Api<ConfigMap> = Api::default_namespaced(stage.admin.clone());
        assert!(maps.get_opt("leader-free-1").await.unwrap().is_some());
    });
}

#[test]
fn roles_of_the_manifests_suffice() {
    play(1, |seed| async move {
        let mut stage = Stage::new(seed, Faults::default()).await;
        stage.groups = &[];
        let params = PostParams::default();
        for role in operator().manifests() {
            let kind = role["kind"].as_str().unwrap().to_owned();
            let binding = json!({
                "metadata": role["metadata"],
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "one"}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role["metadata"]["name"]},
            });
            if kind == "ClusterRole" {
                let (roles, bindings) = (Api::all(stage.admin.clone()), Api::all(stage.admin.clone()));
                roles.create(&params, &serde_json::from_value::<ClusterRole>(role).unwrap()).await.unwrap();
                bindings
                    .create(&params, &serde_json::from_value::<ClusterRoleBinding>(binding).unwrap())
                    .await
                    .unwrap();
            } else {
                let admin = || stage.admin.clone();
                let (roles, bindings) = (Api::namespaced(admin(), "default"), Api::namespaced(admin(), "default"));
                roles.create(&params, &serde_json::from_value::<Role>(role).unwrap()).await.unwrap();
                bindings.create(&params, &serde_json::from_value::<RoleBinding>(binding).unwrap()).await.unwrap();
            }
        }
        let replica = stage.start("one");
        assert!(stage.taken_over("one").await < SECOND);
        sleep(5 * SECOND).await;
        // The watch of the lease reports the new holder at once.
        stage.patch(json!({"holderIdentity": "another"})).await;
        let start = Instant::now();
        assert!(is_lost(&replica.running.await.unwrap()) && start.elapsed() < SECOND / 2);
        let events: Api<Event> = Api::default_namespaced(stage.admin.clone());
        let published = events.list(&Default::default()).await.unwrap().items.into_iter();
        let mut published: Vec<_> = published
            .filter(|event| event.regarding.as_ref().unwrap().kind.as_deref() == Some("Lease"))
            .map(|event| (event.reason.unwrap(), event.note.unwrap()))
            .collect();
        published.sort();
        let [(became, who), (lost, by)] = <[_; 2]>::try_from(published).unwrap();
        assert_eq!((became.as_str(), lost.as_str()), ("BecameLeader", "LostLeadership"));
        assert!(who.starts_with("one_") && who.ends_with(" became leader") && by.ends_with(" stopped leading"));
    });
}
