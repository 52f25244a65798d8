//! A model of etcd for tests.
//!
//! It enforces the rules that an operator can violate: an added member counts for the quorum before it starts; a
//! process that has lost its data is no longer a member; without a quorum, reads, writes and membership changes fail.
//! Processes are started with the flags of the real etcd, and their data has the lifetime of a pod. Raft is not
//! modeled: all members of a cluster share one database.
//!
//! Runs are deterministic: identifiers are counted, maps are sorted, and faults are seeded.

use crate::etcd::{Chunks, Error, Etcd, Member, MemberStatus, Result};
use crate::snapshots::{self, Snapshots};
use bytes::Bytes;
use flyball_core::Rng;
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Latency of a call.
const CALL: Duration = Duration::from_millis(2);

/// Probabilities of faults, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A call fails without being executed.
    pub rejected: f64,
    /// A call is executed, but returns an error.
    pub lost: f64,
}

/// All etcd processes of a network, and their snapshots; clones share the state.
#[derive(Clone)]
pub struct Model(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    faults: Faults,
    next_id: u64,
    /// The clusters, by their tokens.
    clusters: BTreeMap<String, Cluster>,
    /// Disks of pods, by UID.
    disks: BTreeMap<String, Disk>,
    snapshots: BTreeMap<String, Vec<u8>>,
    calls: BTreeMap<&'static str, u64>,
}

#[derive(Default)]
struct Cluster {
    members: BTreeMap<u64, ListedMember>,
    database: Database,
    raft_index: u64,
    /// Bytes written to the file of each member, without freed space.
    files: BTreeMap<u64, u64>,
}

struct ListedMember {
    name: String,
    peer_url: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Database {
    keys: BTreeMap<String, String>,
    revision: i64,
}

impl Database {
    fn size(&self) -> u64 {
        self.keys.iter().map(|(key, value)| key.len() as u64 + value.len() as u64).sum::<u64>() + 1
    }
}

/// Disk of one pod.
#[derive(Default)]
struct Disk {
    snapshot: Option<Database>,
    restored: Option<Database>,
    /// The cluster and the member that the data belongs to.
    joined: Option<(String, u64)>,
    /// Name and version of the running member.
    running: Option<(String, String)>,
}

impl State {
    fn is_running(&self, token: &str, id: u64) -> bool {
        self.process(token, id).is_some()
    }

    fn process(&self, token: &str, id: u64) -> Option<&Disk> {
        let ours =
            |disk: &&Disk| disk.running.is_some() && disk.joined.as_ref().is_some_and(|at| at.0 == token && at.1 == id);
        self.disks.values().find(ours)
    }

    fn has_quorum(&self, token: &str) -> bool {
        let Some(cluster) = self.clusters.get(token) else { return false };
        let running = cluster.members.keys().filter(|id| self.is_running(token, **id)).count();
        running > cluster.members.len() / 2
    }

    /// Shares the names of running members, if they form a quorum.
    fn share_members(&mut self) {
        let tokens: Vec<String> = self.clusters.keys().cloned().collect();
        for token in tokens.iter().filter(|token| self.has_quorum(token)).cloned().collect::<Vec<_>>() {
            let running: Vec<(u64, String)> = self
                .disks
                .values()
                .filter_map(|disk| Some((disk.joined.as_ref()?, disk.running.as_ref()?)))
                .filter(|((of, _), _)| *of == token)
                .map(|((_, id), (name, _))| (*id, name.clone()))
                .collect();
            let Some(cluster) = self.clusters.get_mut(&token) else { continue };
            for (id, name) in running {
                if let Some(listed) = cluster.members.get_mut(&id)
                    && listed.name.is_empty()
                {
                    listed.name = name;
                    cluster.files.insert(id, cluster.database.size());
                    cluster.raft_index += 1;
                }
            }
        }
    }

    /// Finds the process behind a URL: its cluster, its member, and its version.
    fn reach(&self, endpoint: &str) -> Option<(String, u64, String)> {
        let pod = crate::plan::pod_of(endpoint)?;
        self.disks.values().find_map(|disk| {
            let (name, version) = disk.running.as_ref().filter(|(name, _)| name == pod)?;
            let (token, id) = disk.joined.as_ref()?;
            let is_member = self.clusters.get(token).is_some_and(|cluster| cluster.members.contains_key(id));
            debug_assert_eq!(name, pod);
            is_member.then(|| (token.clone(), *id, version.clone()))
        })
    }

    /// Returns the leader: the first running member.
    fn leader(&self, token: &str) -> u64 {
        let Some(cluster) = self.clusters.get(token).filter(|_| self.has_quorum(token)) else { return 0 };
        cluster.members.keys().find(|id| self.is_running(token, **id)).copied().unwrap_or(0)
    }

    fn start(&mut self, pod: &str, command: &[String], version: &str) -> Result<(), String> {
        let [name, peers, state, token] = ["name", "initial-cluster", "initial-cluster-state", "initial-cluster-token"]
            .map(|name| flag(command, name).unwrap_or_default());
        let peers: Vec<&str> = peers.split(',').filter_map(|peer| Some(peer.split_once('=')?.1)).collect();
        let own = flag(command, "initial-advertise-peer-urls").unwrap_or_default();
        let disk = self.disks.get(pod);
        let joined = match disk.and_then(|disk| disk.joined.clone()) {
            Some((token, id)) => match self.clusters.get(&token).is_some_and(|known| known.members.contains_key(&id)) {
                true => (token, id),
                false => return Err("the member has been permanently removed from the cluster".into()),
            },
            None if state == "new" => {
                let (database, id) = (disk.and_then(|disk| disk.restored.clone()).unwrap_or_default(), self.id());
                let listed = ListedMember { name: String::new(), peer_url: own.into() };
                let files = [(id, database.size())].into();
                let cluster = Cluster { members: [(id, listed)].into(), database, raft_index: 1, files };
                self.clusters.insert(token.into(), cluster);
                (token.to_owned(), id)
            }
            None => {
                let Some(cluster) =
                    self.clusters.get(token).filter(|known| known.members.keys().any(|id| self.is_running(token, *id)))
                else {
                    return Err("cannot fetch cluster info from peer urls".into());
                };
                let mut known: Vec<&str> = cluster.members.values().map(|member| member.peer_url.as_str()).collect();
                let mut sorted_peers = peers.clone();
                known.sort_unstable();
                sorted_peers.sort_unstable();
                let member = cluster.members.iter().find(|(_, member)| member.peer_url == own);
                match member.filter(|_| known == sorted_peers) {
                    Some((_, member)) if !member.name.is_empty() => {
                        return Err("member has already been bootstrapped".into());
                    }
                    Some((id, _)) => (token.to_owned(), *id),
                    None => return Err("error validating peerURLs: member count is unequal".into()),
                }
            }
        };
        let disk = self.disks.entry(pod.into()).or_default();
        (disk.joined, disk.running) = (Some(joined), Some((name.into(), version.into())));
        Ok(())
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl Model {
    /// Creates a network without processes and without faults.
    pub fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng,
            faults: Faults::default(),
            next_id: 0,
            clusters: BTreeMap::new(),
            disks: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            calls: BTreeMap::new(),
        })))
    }

    /// Injects faults into all further calls of the operator.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Returns the number of calls of the operator by method.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.state().calls.clone()
    }

    /// Returns the names of the stored snapshots.
    pub fn snapshots(&self) -> Vec<String> {
        self.state().snapshots.keys().cloned().collect()
    }

    /// Runs a program in the pod with this UID.
    ///
    /// # Errors
    ///
    /// Returns the error message of a program that ends immediately.
    pub fn run(&self, pod: &str, command: &[String], version: &str) -> Result<(), String> {
        let mut state = self.state();
        match command.first().map_or("", |program| program.rsplit('/').next().unwrap_or_default()) {
            "etcd" => {
                state.start(pod, command, version)?;
                state.share_members();
            }
            "wget" => {
                let url = command.last().map_or("", String::as_str);
                let name = url.strip_prefix("model://").ok_or("no such host")?;
                let bytes = state.snapshots.get(name).ok_or("404 not found")?;
                let snapshot = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                state.disks.entry(pod.into()).or_default().snapshot = Some(snapshot);
            }
            "etcdutl" | "etcdctl" => {
                let disk = state.disks.entry(pod.into()).or_default();
                disk.restored = Some(disk.snapshot.clone().ok_or("no such file")?);
            }
            other => return Err(format!("{other:?}: no such program")),
        }
        Ok(())
    }

    /// Ends the process in a pod. Its data remains for a restart.
    pub fn end(&self, pod: &str) {
        if let Some(disk) = self.state().disks.get_mut(pod) {
            disk.running = None;
        }
    }

    /// Returns true if the member in a pod passes its readiness probe.
    pub fn is_ready(&self, pod: &str) -> bool {
        let mut state = self.state();
        state.share_members();
        let joined = state.disks.get(pod).filter(|disk| disk.running.is_some()).and_then(|disk| disk.joined.clone());
        joined.is_some_and(|(token, id)| state.clusters[&token].members.contains_key(&id) && state.has_quorum(&token))
    }

    /// Writes a key as a client with these endpoints: it tries one after the other until one succeeds.
    pub fn put(&self, endpoints: &[String], key: &str, value: &str) -> Result<i64> {
        self.with_quorum(endpoints, |cluster| {
            cluster.database.keys.insert(key.into(), value.into());
            cluster.database.revision += 1;
            cluster.raft_index += 1;
            let size = (key.len() + value.len()) as u64;
            cluster.files.values_mut().for_each(|file| *file += size);
            cluster.database.revision
        })
    }

    /// Reads a key; see [`put`](Self::put).
    pub fn get(&self, endpoints: &[String], key: &str) -> Result<Option<String>> {
        self.with_quorum(endpoints, |cluster| cluster.database.keys.get(key).cloned())
    }

    /// Returns the number of members of each cluster, and the number of running ones.
    pub fn member_counts(&self) -> Vec<(usize, usize)> {
        let state = self.state();
        let running =
            |token: &str, cluster: &Cluster| cluster.members.keys().filter(|id| state.is_running(token, **id)).count();
        state.clusters.iter().map(|(token, cluster)| (cluster.members.len(), running(token, cluster))).collect()
    }

    fn with_quorum<T>(&self, endpoints: &[String], work: impl FnOnce(&mut Cluster) -> T) -> Result<T> {
        let mut state = self.state();
        let found =
            endpoints.iter().find_map(|endpoint| state.reach(endpoint).filter(|(token, ..)| state.has_quorum(token)));
        let cluster = found.and_then(|(token, ..)| state.clusters.get_mut(&token));
        cluster.map(work).ok_or(Error::Nobody)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Executes a call of the operator, unless a fault is injected.
    async fn call<T>(
        &self,
        name: &'static str,
        endpoint: &str,
        work: impl FnOnce(&mut State, String, u64, String) -> Result<T, (u16, &'static str)> + Send,
    ) -> Result<T> {
        tokio::time::sleep(CALL).await;
        let mut state = self.state();
        *state.calls.entry(name).or_default() += 1;
        let (rejected, lost) = (state.rng.fraction() < state.faults.rejected, state.rng.fraction() < state.faults.lost);
        let reject = |code, message: &str| Error::Rejected { endpoint: endpoint.into(), code, message: message.into() };
        if rejected {
            return Err(reject(503, "simulated: etcdserver: request timed out"));
        }
        state.share_members();
        let Some((token, id, version)) = state.reach(endpoint) else {
            return Err(Error::Unreachable { endpoint: endpoint.into(), source: "connection refused".into() });
        };
        let response = work(&mut state, token, id, version).map_err(|(code, message)| reject(code, message))?;
        if lost { Err(reject(500, "simulated: executed, but the response was lost")) } else { Ok(response) }
    }
}

const NO_LEADER: (u16, &str) = (503, "etcdserver: no leader");

impl Etcd for Model {
    async fn members(&self, endpoint: &str, consistent: bool) -> Result<Vec<Member>> {
        let list = |state: &mut State, token: String, _, _| {
            if consistent && !state.has_quorum(&token) {
                return Err(NO_LEADER);
            }
            let member = |(id, listed): (&u64, &ListedMember)| Member {
                id: *id,
                name: listed.name.clone(),
                peer_urls: vec![listed.peer_url.clone()],
            };
            Ok(state.clusters[&token].members.iter().map(member).collect())
        };
        self.call("members", endpoint, list).await
    }

    async fn add_member(&self, endpoint: &str, peer_url: &str) -> Result<()> {
        let add = |state: &mut State, token: String, _, _| {
            if !state.has_quorum(&token) {
                return Err(NO_LEADER);
            }
            let members = &state.clusters[&token].members;
            // As with strict-reconfig-check, which is enabled by default.
            if members.len() > 1 && members.keys().any(|id| !state.is_running(&token, *id)) {
                return Err((503, "etcdserver: unhealthy cluster"));
            }
            if members.values().any(|member| member.peer_url == peer_url) {
                return Err((400, "etcdserver: Peer URLs already exists"));
            }
            let id = state.id();
            let listed = ListedMember { name: String::new(), peer_url: peer_url.into() };
            state.clusters.entry(token).or_default().members.insert(id, listed);
            Ok(())
        };
        self.call("add_member", endpoint, add).await
    }

    async fn remove_member(&self, endpoint: &str, id: u64) -> Result<()> {
        let remove = |state: &mut State, token: String, _, _| {
            if !state.has_quorum(&token) {
                return Err(NO_LEADER);
            }
            let cluster = state.clusters.entry(token).or_default();
            cluster.files.remove(&id);
            cluster.members.remove(&id).map(drop).ok_or((404, "etcdserver: member not found"))
        };
        self.call("remove_member", endpoint, remove).await
    }

    async fn status(&self, endpoint: &str) -> Result<MemberStatus> {
        let status = |state: &mut State, token: String, id: u64, version: String| {
            let (leader, cluster) = (state.leader(&token), &state.clusters[&token]);
            Ok(MemberStatus {
                id,
                leader,
                version,
                db_size: cluster.files.get(&id).copied().unwrap_or_default(),
                db_size_in_use: cluster.database.size(),
                revision: cluster.database.revision,
                raft_index: cluster.raft_index,
            })
        };
        self.call("status", endpoint, status).await
    }

    async fn snapshot(&self, endpoint: &str) -> Result<Chunks> {
        let read = |state: &mut State, token: String, _, _| {
            serde_json::to_vec(&state.clusters[&token].database).map_err(|_| (500, "no JSON"))
        };
        let bytes = Bytes::from(self.call("snapshot", endpoint, read).await?);
        let half = bytes.len() / 2;
        Ok(stream::iter([Ok(bytes.slice(..half)), Ok(bytes.slice(half..))]).boxed())
    }

    async fn defragment(&self, endpoint: &str) -> Result<()> {
        let defragment = |state: &mut State, token: String, id: u64, _| {
            let cluster = state.clusters.entry(token).or_default();
            cluster.files.insert(id, cluster.database.size());
            Ok(())
        };
        self.call("defragment", endpoint, defragment).await
    }
}

impl Snapshots for Model {
    async fn save(&self, name: &str, snapshot: Chunks) -> snapshots::Result<u64> {
        let pieces: Result<Vec<Bytes>> = snapshot.try_collect().await;
        let bytes = pieces.map_err(|source| snapshots::Error::Source { name: name.into(), source })?.concat();
        let size = bytes.len() as u64;
        self.state().snapshots.insert(name.into(), bytes);
        Ok(size)
    }

    async fn delete(&self, name: &str) -> snapshots::Result<()> {
        self.state().snapshots.remove(name);
        Ok(())
    }

    fn url(&self, name: &str) -> String {
        format!("model://{name}")
    }
}

/// Returns the value of a command-line flag.
fn flag<'a>(command: &'a [String], name: &str) -> Option<&'a str> {
    command.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
}
