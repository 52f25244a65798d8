//! The reconciler of clusters: observes the state, plans one step, reports it, and executes it.
//!
//! The prerequisites of a step are stored in the status before it is executed, and the next incarnation of a cluster
//! before the last one is deleted. All errors of etcd are retried with backoff.

use super::{etcdbackup, etcdrestore};
use crate::api::etcdbackup_v1beta2::EtcdBackup;
use crate::api::etcdcluster_v1beta2::{EtcdCluster, EtcdClusterStatus, Incarnation, Members, Phase};
use crate::api::etcdrestore_v1beta2::EtcdRestore;
use crate::etcd::{Error, Etcd};
use crate::metrics::ClusterMetrics;
use crate::objects::{self, CLIENT_PORT, Start, client_url, peer_url};
use crate::plan::{DesiredState, Membership, ObservedPod, Step, View, pod_name};
use crate::snapshots::Snapshots;
use flyball::policy::{Policy, Rule};
use flyball::{Action, Condition, Context, Controller, Event, ObjectKey, Reconcile, Result};
use flyball_core::time::{SignedDuration, Timestamp, rfc3339};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Requeue delay after a step.
const STEP_DELAY: Duration = Duration::from_millis(500);
/// Requeue delay while a step waits for a change without a watch event.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of checks of a healthy cluster, because etcd does not report failures.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Time after which a cluster without quorum is rebuilt from a backup.
const LOST_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);
/// Minimum time between two defragmentations of a member.
const DEFRAGMENT_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Random characters in the name of a member.
const SUFFIX_LENGTH: usize = 5;

/// Reconciles each `EtcdCluster`.
#[derive(Debug)]
pub struct EtcdClusterReconciler<E, S> {
    etcd: Arc<E>,
    snapshots: Arc<S>,
    metrics: ClusterMetrics,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<E: Etcd, S: Snapshots>(
    etcd: Arc<E>,
    snapshots: Arc<S>,
    metrics: ClusterMetrics,
) -> Controller<EtcdClusterReconciler<E, S>> {
    Controller::new(EtcdClusterReconciler { etcd, snapshots, metrics })
        .owns::<Pod>()
        .owns::<Service>()
        .owns::<PodDisruptionBudget>()
        .owns::<EtcdBackup>()
        .watches::<EtcdBackup>(|backup, _| Ok(vec![sibling(backup, &backup.spec.etcd_cluster.name)]))
        .watches::<EtcdRestore>(|restore, _| Ok(vec![sibling(restore, &restore.spec.etcd_cluster.name)]))
}

/// Creates the policy that rejects names that are invalid in host names.
pub fn policy() -> Policy<EtcdCluster> {
    Policy::new().validates(Rule::new(
        "object.metadata.name.size() <= 52 && !object.metadata.name.contains('.')",
        "the name of a cluster has at most 52 characters and no dot, for its members' host names begin with it",
    ))
}

fn sibling(object: &impl ResourceExt, name: &str) -> ObjectKey {
    ObjectKey::new(object.meta().namespace.as_deref(), name)
}

impl<E: Etcd, S: Snapshots> Reconcile for EtcdClusterReconciler<E, S> {
    type Resource = EtcdCluster;

    async fn reconcile(&self, cluster: &EtcdCluster, cx: &Context<EtcdCluster>) -> Result<Action> {
        self.metrics.retain(&cx.list::<EtcdCluster>(None).await?);
        let paused = cluster.spec.paused;
        if !paused {
            for service in objects::services(cluster)? {
                cx.apply(&service).await?;
            }
            cx.apply(&objects::disruption_budget(cluster)?).await?;
        }
        let before = cluster.status.clone().unwrap_or_default();
        let backups = etcdbackup::of_cluster(cluster, cx).await?;
        let mut life = before.incarnation.clone().unwrap_or(Incarnation { number: 1, ..Incarnation::default() });
        if !paused && let Some(requested) = etcdrestore::requested_restore(cluster, &life, cx).await? {
            cx.event(Event::warning("Restore", format!("restoring the cluster from snapshot {}", requested.0)));
            life = next_incarnation(&life, requested.0, Some(requested.1));
        }

        let view = self.observe(cluster, &before, &life, cx).await?;
        life.formed |= view.membership.as_ref().is_some_and(|membership| membership.is_consistent);
        let view = View { formed: life.formed, ..view };
        let mut step = if paused { Step::Wait("paused".into()) } else { view.next(&desired_state(cluster)) };
        let mut lost_since = None;
        if step == Step::Rebuild {
            let since = time(before.lost_since.as_deref()).unwrap_or(cx.now());
            lost_since = Some(rfc3339(since));
            step = match etcdbackup::latest(&backups, cluster) {
                None => Step::Wait("the quorum is permanently lost, and there is no backup to restore".into()),
                Some(_) if cx.now().duration_since(since) < LOST_TIMEOUT => Step::Wait("the quorum is lost".into()),
                Some(snapshot) => {
                    life = next_incarnation(&life, snapshot.into(), None);
                    Step::Rebuild
                }
            };
        }

        let mut status = status(cluster, &before, &view, &step);
        (status.incarnation, status.lost_since) = (Some(life.clone()), lost_since);
        status.defragmented.retain(|name, _| view.pods.iter().any(|pod| pod.name == *name));
        if let Step::Defragment(name) = &step {
            status.defragmented.insert(name.clone(), rfc3339(cx.now()));
        }
        self.metrics.record(cluster, &view, status.phase == Phase::Running && view.is_available(), &backups);
        cx.set_status(&status).await?;
        if let Step::Wait(_) | Step::Rest = &step {
            let due = match paused || status.phase != Phase::Running {
                true => None,
                false => etcdbackup::schedule(cluster, &backups, cx).await?,
            };
            let pause = if step == Step::Rest { RESYNC_INTERVAL } else { POLL_INTERVAL };
            return Ok(Action::requeue_after(due.map_or(pause, |due| pause.min(due))));
        }
        let event = if step == Step::Rebuild { Event::warning } else { Event::normal };
        cx.event(event(step.name(), step.to_string()));
        self.metrics.count_step(cluster, &step);
        match self.execute(&step, cluster, &life, &view, cx).await {
            Ok(()) => Ok(Action::requeue_after(STEP_DELAY)),
            Err(error) => {
                cx.event(Event::warning("Failed", format!("{step}: {error}")));
                Err(error)
            }
        }
    }
}

impl<E: Etcd, S: Snapshots> EtcdClusterReconciler<E, S> {
    /// Observes the pods of a cluster and the state of etcd.
    async fn observe(
        &self,
        cluster: &EtcdCluster,
        before: &EtcdClusterStatus,
        life: &Incarnation,
        cx: &Context<EtcdCluster>,
    ) -> Result<View> {
        let (pods, leftovers): (Vec<Pod>, Vec<Pod>) =
            cx.children::<Pod>().await?.into_iter().partition(|pod| objects::incarnation_of(pod) == Some(life.number));
        let ask = async |pod: &Pod| {
            let observed = objects::observe(pod);
            let status = match observed.is_alive() {
                true => self.etcd.status(&client_url(cluster, &observed.name)).await,
                false => Err(Error::Nobody),
            };
            ObservedPod {
                status: status.inspect_err(|error| tracing::debug!(pod = observed.name, %error)).ok(),
                ..observed
            }
        };
        let pods = join_all(pods.iter().map(ask)).await;
        let same_life = before.incarnation.as_ref().is_some_and(|before| before.number == life.number);
        let known = before.members.ready.iter().chain(&before.members.unready).filter(|_| same_life).cloned().collect();
        let is_rested = |at: &str| time(Some(at)).is_some_and(|at| cx.now().duration_since(at) < DEFRAGMENT_INTERVAL);
        let rested = before.defragmented.iter().filter(|(_, at)| is_rested(at)).map(|(name, _)| name.clone()).collect();
        let membership = self.membership(cluster, &pods).await;
        let leftovers = leftovers.iter().map(objects::observe).collect();
        Ok(View { formed: life.formed, pods, leftovers, membership, known, rested })
    }

    /// Reads the members: from all responding members with a quorum, otherwise from the most advanced one.
    async fn membership(&self, cluster: &EtcdCluster, pods: &[ObservedPod]) -> Option<Membership> {
        let mut responding: Vec<&ObservedPod> = pods.iter().filter(|pod| pod.status.is_some()).collect();
        responding.sort_by_key(|pod| std::cmp::Reverse(pod.status.as_ref().map(|status| status.raft_index)));
        for is_consistent in [true, false] {
            for pod in &responding {
                match self.etcd.members(&client_url(cluster, &pod.name), is_consistent).await {
                    Ok(members) => return Some(Membership { members, is_consistent }),
                    Err(error) => tracing::debug!(pod = pod.name, %error, "does not list the members"),
                }
            }
        }
        None
    }

    /// Executes a step.
    async fn execute(
        &self,
        step: &Step,
        cluster: &EtcdCluster,
        life: &Incarnation,
        view: &View,
        cx: &Context<EtcdCluster>,
    ) -> Result<()> {
        let draw = || format!("{}-{}", cluster.name_any(), cx.rng().suffix(SUFFIX_LENGTH));
        // The removed member executes the call only if there is no other member.
        let ask = |other_than: Option<&str>| {
            let well = view.well().max_by_key(|pod| Some(pod.name.as_str()) != other_than);
            well.map(|pod| client_url(cluster, &pod.name)).ok_or(Error::Nobody)
        };
        match step {
            Step::Seed => {
                let url = life.snapshot.as_ref().map(|snapshot| self.snapshots.url(snapshot));
                let start = Start::New(url.as_deref());
                cx.create(&objects::pod(cluster, life, &draw(), &cluster.spec.version, &start)?).await?;
            }
            Step::Start(name) => {
                let members = view.membership.iter().flat_map(|membership| &membership.members);
                let others = members.filter_map(pod_name).filter(|other| other != name).collect();
                let version = view.joining_version(&cluster.spec.version);
                cx.create(&objects::pod(cluster, life, name, version, &Start::Existing(others))?).await?;
            }
            Step::Add => self.etcd.add_member(&ask(None)?, &peer_url(cluster, &draw())).await?,
            Step::Remove(member) => self.etcd.remove_member(&ask(pod_name(member))?, member.id).await?,
            Step::Discard(name) => {
                let pods = cx.children::<Pod>().await?;
                if let Some(pod) = pods.iter().find(|pod| pod.name_any() == *name) {
                    cx.delete(pod).await?;
                }
            }
            Step::Upgrade(name) => drop(cx.apply(&objects::upgraded(cluster, name)?).await?),
            Step::Defragment(name) => self.etcd.defragment(&client_url(cluster, name)).await?,
            // The next reconcile finds the pods of the earlier incarnation.
            Step::Rebuild | Step::Wait(_) | Step::Rest => {}
        }
        Ok(())
    }
}

fn desired_state(cluster: &EtcdCluster) -> DesiredState<'_> {
    let spec = &cluster.spec;
    let defragment =
        spec.autopilot.as_ref().map(|pilot| (pilot.defragment_above_percent, pilot.defragment_above_bytes));
    DesiredState { size: usize::from(spec.size), version: &spec.version, defragment }
}

fn next_incarnation(life: &Incarnation, snapshot: String, restore: Option<String>) -> Incarnation {
    Incarnation { number: life.number + 1, formed: false, snapshot: Some(snapshot), restore }
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// Returns the status of a cluster.
fn status(cluster: &EtcdCluster, before: &EtcdClusterStatus, view: &View, step: &Step) -> EtcdClusterStatus {
    let well: Vec<String> = view.well().map(|pod| pod.name.clone()).collect();
    let listed = view.membership.iter().flat_map(|membership| &membership.members);
    let started: Vec<String> = match &view.membership {
        None => view.known.clone(),
        Some(_) => listed.filter(|member| !member.name.is_empty()).map(|member| member.name.clone()).collect(),
    };
    let unready: Vec<String> = started.into_iter().filter(|name| !well.contains(name)).collect();
    // For members that do not respond, the last reported version remains.
    let version = |pod: &ObservedPod| {
        let reported = pod.status.as_ref().map(|status| status.version.clone());
        Some((pod.name.clone(), reported.or_else(|| before.versions.get(&pod.name).cloned())?))
    };
    let versions: BTreeMap<String, String> = view.pods.iter().filter_map(version).collect();
    let parts =
        |version: &&String| version.split(['.', '-']).map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    let current = versions.values().min_by_key(parts).cloned().unwrap_or_default();
    let is_full = view.is_available() && well.len() >= usize::from(cluster.spec.size);
    let phase = match before.phase {
        _ if view.formed && is_full => Phase::Running,
        Phase::Creating => Phase::Creating,
        _ if *step == Step::Rebuild || !view.formed => Phase::Recovering,
        phase => phase,
    };
    let available = match (phase, view.is_available()) {
        (Phase::Running, true) => Condition::new("Available", true, "Quorum"),
        (Phase::Running, false) => Condition::new("Available", false, "NoQuorum"),
        _ => Condition::new("Available", false, "Incomplete"),
    };
    let size = view.membership.as_ref().map_or(before.size, |membership| membership.members.len());
    let available = available.message(format!("{} of {size} members are healthy", well.len()));
    let progressing = Condition::new("Progressing", *step != Step::Rest, step.name()).message(step.to_string());
    let is_upgraded = versions.values().all(|version| cluster.spec.version.starts_with(version.as_str()));
    EtcdClusterStatus {
        phase,
        control_paused: cluster.spec.paused,
        size,
        members: Members { ready: well, unready },
        versions,
        current_version: current,
        target_version: if is_upgraded { String::new() } else { cluster.spec.version.clone() },
        service_name: format!("{}-client", cluster.name_any()),
        client_port: CLIENT_PORT,
        incarnation: None,
        lost_since: None,
        defragmented: before.defragmented.clone(),
        conditions: vec![available, progressing],
    }
}
