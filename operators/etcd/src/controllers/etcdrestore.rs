//! Restores of clusters from backups.
//!
//! Only the reconciler of clusters changes a cluster, and it finds restores itself. This reconciler updates the status
//! of restores.

use crate::api::etcdbackup_v1beta2::EtcdBackup;
use crate::api::etcdcluster_v1beta2::{EtcdCluster, Incarnation, Phase};
use crate::api::etcdrestore_v1beta2::{EtcdRestore, EtcdRestoreStatus};
use flyball::{Action, Context, Controller, Event, Reconcile, Result};
use kube::ResourceExt;
use std::time::Duration;

/// Requeue delay of a pending restore.
const REQUEUE_DELAY: Duration = Duration::from_secs(2);

/// Reconciles each `EtcdRestore`.
#[derive(Debug)]
pub struct EtcdRestoreReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<EtcdRestoreReconciler> {
    Controller::new(EtcdRestoreReconciler).reads::<EtcdCluster>().reads::<EtcdBackup>()
}

impl Reconcile for EtcdRestoreReconciler {
    type Resource = EtcdRestore;

    async fn reconcile(&self, restore: &EtcdRestore, cx: &Context<EtcdRestore>) -> Result<Action> {
        if restore.status.as_ref().is_some_and(|status| status.succeeded) {
            return Ok(Action::done());
        }
        let (cluster, backup) = (&restore.spec.etcd_cluster.name, &restore.spec.backup);
        let status = match cx.get::<EtcdCluster>(&cx.sibling(cluster)).await? {
            None => waiting(format!("there is no cluster {cluster}")),
            Some(found) if is_done(restore, &found) => EtcdRestoreStatus { succeeded: true, reason: String::new() },
            Some(found) if found.spec.paused => waiting(format!("cluster {cluster} is paused")),
            Some(_) => match cx.get::<EtcdBackup>(&cx.sibling(backup)).await? {
                None => waiting(format!("there is no backup {backup}")),
                Some(found) if snapshot(&found).is_none() => waiting(format!("backup {backup} has no snapshot yet")),
                Some(_) => waiting(format!("cluster {cluster} is being restored")),
            },
        };
        cx.set_status(&status).await?;
        if status.succeeded {
            cx.event(Event::normal("Restored", format!("restored cluster {cluster} from backup {backup}")));
            return Ok(Action::done());
        }
        Ok(Action::requeue_after(REQUEUE_DELAY))
    }
}

fn waiting(reason: String) -> EtcdRestoreStatus {
    EtcdRestoreStatus { succeeded: false, reason }
}

fn is_done(restore: &EtcdRestore, cluster: &EtcdCluster) -> bool {
    let Some(status) = &cluster.status else { return false };
    let began = status.incarnation.as_ref().and_then(|life| life.restore.as_ref());
    began.is_some() && began == restore.metadata.uid.as_ref() && status.phase == Phase::Running
}

fn snapshot(backup: &EtcdBackup) -> Option<&str> {
    let status = backup.status.as_ref().filter(|status| status.succeeded)?;
    Some(&status.snapshot)
}

/// Finds the oldest pending restore of a cluster, and returns its snapshot and its UID.
pub(crate) async fn requested_restore(
    cluster: &EtcdCluster,
    life: &Incarnation,
    cx: &Context<EtcdCluster>,
) -> Result<Option<(String, String)>> {
    let mut restores = cx.list::<EtcdRestore>(cx.key().namespace()).await?;
    restores.retain(|restore| {
        restore.spec.etcd_cluster.name == cluster.name_any()
            && restore.metadata.deletion_timestamp.is_none()
            && !restore.status.as_ref().is_some_and(|status| status.succeeded)
    });
    restores
        .sort_by_key(|restore| (restore.metadata.creation_timestamp.as_ref().map(|time| time.0), restore.name_any()));
    let Some(restore) = restores.first() else { return Ok(None) };
    let Some(uid) = restore.metadata.uid.clone().filter(|uid| life.restore.as_ref() != Some(uid)) else {
        return Ok(None);
    };
    let backup = cx.get::<EtcdBackup>(&cx.sibling(&restore.spec.backup)).await?;
    Ok(backup.as_ref().and_then(snapshot).map(|snapshot| (snapshot.to_owned(), uid)))
}
