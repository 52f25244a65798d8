//! Backups: snapshots that are taken once, on demand or on schedule, and deleted with their objects.

use crate::NAME;
use crate::api::etcdbackup_v1beta2::{DeletionPolicy, EtcdBackup, EtcdBackupStatus};
use crate::api::etcdcluster_v1beta2::{BackupPolicy, EtcdCluster};
use crate::etcd::{Error, Etcd};
use crate::objects::{CLUSTER, client_url};
use crate::snapshots::Snapshots;
use flyball::{Action, Context, Controller, Event, Reconcile, Result};
use flyball_core::time::{Timestamp, rfc3339};
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The label of scheduled backups, with its value.
const SCHEDULED: (&str, &str) = ("etcd_backup", "scheduled");
/// Delay before the next try if a cluster cannot provide a snapshot.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Timeout of a backup.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Reconciles each `EtcdBackup`.
#[derive(Debug)]
pub struct EtcdBackupReconciler<E, S> {
    etcd: Arc<E>,
    snapshots: Arc<S>,
}

/// Returns the controller, which takes snapshots of `etcd` to `snapshots`.
pub fn controller<E: Etcd, S: Snapshots>(etcd: Arc<E>, snapshots: Arc<S>) -> Controller<EtcdBackupReconciler<E, S>> {
    Controller::new(EtcdBackupReconciler { etcd, snapshots }).reads::<EtcdCluster>().deadline(DEADLINE)
}

/// Returns the name of a backup's snapshot, which is stable across retries and unique.
fn snapshot_name(backup: &EtcdBackup) -> String {
    format!("{}_{}_{}.db", backup.namespace().unwrap_or_default(), backup.name_any(), backup.uid().unwrap_or_default())
}

impl<E: Etcd, S: Snapshots> Reconcile for EtcdBackupReconciler<E, S> {
    type Resource = EtcdBackup;
    const FINALIZER: Option<&'static str> = Some("etcd.database.coreos.com/snapshot");

    async fn reconcile(&self, backup: &EtcdBackup, cx: &Context<EtcdBackup>) -> Result<Action> {
        if backup.status.as_ref().is_some_and(|status| status.succeeded) {
            return Ok(Action::done());
        }
        let name = &backup.spec.etcd_cluster.name;
        let cluster = cx.get::<EtcdCluster>(&cx.sibling(name)).await?;
        let ready =
            cluster.iter().filter_map(|cluster| cluster.status.as_ref()).flat_map(|status| &status.members.ready);
        let (Some(cluster), Some(member)) = (&cluster, ready.last()) else {
            let reason = format!("cluster {name} has no healthy member");
            cx.set_status(&EtcdBackupStatus { reason, ..EtcdBackupStatus::default() }).await?;
            return Ok(Action::requeue_after(RETRY_DELAY));
        };
        match self.save(backup, cluster, member, cx).await {
            Ok(status) => {
                cx.set_status(&status).await?;
                cx.event(Event::normal("BackedUp", format!("{} bytes are in {}", status.bytes, status.snapshot)));
                Ok(Action::done())
            }
            Err(error) => {
                cx.event(Event::warning("Failed", error.to_string()));
                let reason = error.to_string();
                cx.set_status(&EtcdBackupStatus { reason, ..EtcdBackupStatus::default() }).await?;
                Err(error)
            }
        }
    }

    async fn finalize(&self, backup: &EtcdBackup, _: &Context<EtcdBackup>) -> Result<Action> {
        if backup.spec.deletion_policy == DeletionPolicy::Delete {
            self.snapshots.delete(&snapshot_name(backup)).await?;
        }
        Ok(Action::done())
    }
}

impl<E: Etcd, S: Snapshots> EtcdBackupReconciler<E, S> {
    async fn save(
        &self,
        backup: &EtcdBackup,
        cluster: &EtcdCluster,
        member: &str,
        cx: &Context<EtcdBackup>,
    ) -> Result<EtcdBackupStatus> {
        let (endpoint, snapshot) = (client_url(cluster, member), snapshot_name(backup));
        let status = self.etcd.status(&endpoint).await?;
        // A member without a leader may have missed committed writes.
        if status.leader == 0 {
            return Err(Error::Nobody.into());
        }
        let bytes = self.snapshots.save(&snapshot, self.etcd.snapshot(&endpoint).await?).await?;
        Ok(EtcdBackupStatus {
            succeeded: true,
            reason: String::new(),
            snapshot,
            bytes,
            etcd_version: status.version,
            etcd_revision: status.revision,
            last_success_date: rfc3339(cx.now()),
            cluster_uid: cluster.uid().unwrap_or_default(),
        })
    }
}

/// Returns the backups of a cluster, oldest first.
pub(crate) async fn of_cluster(cluster: &EtcdCluster, cx: &Context<EtcdCluster>) -> Result<Vec<EtcdBackup>> {
    let mut backups = cx.list::<EtcdBackup>(cx.key().namespace()).await?;
    backups.retain(|backup| backup.spec.etcd_cluster.name == cluster.name_any());
    backups.sort_by_key(|backup| (creation_time(backup), backup.name_any()));
    Ok(backups)
}

/// Returns the most recent snapshot of this cluster.
pub(crate) fn latest<'a>(backups: &'a [EtcdBackup], cluster: &EtcdCluster) -> Option<&'a str> {
    let existing = backups.iter().filter(|backup| backup.metadata.deletion_timestamp.is_none());
    let existing = existing
        .filter_map(|backup| backup.status.as_ref())
        .filter(|status| status.succeeded && Some(&status.cluster_uid) == cluster.metadata.uid.as_ref());
    existing.max_by_key(|status| status.last_success_date.as_str()).map(|status| status.snapshot.as_str())
}

fn creation_time(backup: &EtcdBackup) -> Option<Timestamp> {
    backup.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Creates the next backup when it is due, and deletes the oldest; returns the delay before the next one.
///
/// They have no owner reference, so that they outlive the cluster.
pub(crate) async fn schedule(
    cluster: &EtcdCluster,
    backups: &[EtcdBackup],
    cx: &Context<EtcdCluster>,
) -> Result<Option<Duration>> {
    let Some(BackupPolicy { backup_interval_in_second, max_backups }) = cluster.spec.backup_policy else {
        return Ok(None);
    };
    let interval = Duration::from_secs(backup_interval_in_second.into());
    let ours = |backup: &&EtcdBackup| backup.labels().get(SCHEDULED.0).is_some_and(|value| value == SCHEDULED.1);
    let (done, pending): (Vec<&EtcdBackup>, Vec<&EtcdBackup>) = backups
        .iter()
        .filter(ours)
        .filter(|backup| backup.metadata.deletion_timestamp.is_none())
        .partition(|backup| backup.status.as_ref().is_some_and(|status| status.succeeded));
    for old in done.iter().take(done.len().saturating_sub(max_backups as usize)) {
        cx.delete(*old).await?;
    }
    // A failing backup is retried, and no other backups are created in the meantime.
    if !pending.is_empty() {
        return Ok(None);
    }
    let age = done.last().and_then(|last| creation_time(last)).map(|time| cx.now().duration_since(time).unsigned_abs());
    if let Some(wait) = age.and_then(|age| interval.checked_sub(age)).filter(|wait| !wait.is_zero()) {
        return Ok(Some(wait));
    }
    let labels = json!({CLUSTER: cluster.name_any(), SCHEDULED.0: SCHEDULED.1, "app.kubernetes.io/managed-by": NAME});
    let backup: EtcdBackup = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdBackup",
        "metadata": {
            "generateName": format!("{}-", cluster.name_any()),
            "namespace": cx.key().namespace(),
            "labels": labels,
        },
        "spec": {"etcdCluster": {"name": cluster.name_any()}},
    }))?;
    cx.create_unowned(&backup).await?;
    Ok(Some(interval))
}
