//! Deletes the volumes of the wrong database: they are found by the name of their owner, which a later database of the
//! same name shares. Seen in rabbitmq/cluster-operator #648 and datastax/cass-operator #412.

use crate::finalizers::set_finalizer;
use crate::objects::{STORAGE_CLASS, api, rule, stateful_set};
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle, Scenario};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const FINALIZER: &str = "databases.example.com/volumes";
const SAMPLE: &str = "
apiVersion: databases.example.com/v1
kind: Database
metadata: {name: a}
spec: {replicas: 1}
";

/// Desired state of a `Database`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "databases.example.com", version = "v1", kind = "Database", namespaced)]
pub(crate) struct DatabaseSpec {
    /// Number of pods, each with a volume.
    #[schemars(range(min = 0, max = 3))]
    replicas: i32,
}

struct Databases<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Databases<FIXED> {
    type Resource = Database;

    async fn reconcile(&self, database: &Database, cx: &Context<Database>) -> Result<Action> {
        if database.metadata.deletion_timestamp.is_some() {
            return self.clean_up(database, cx).await;
        }
        set_finalizer(database, cx, FINALIZER, true).await?;
        let name = database.name_any();
        let labels = json!({"database": name, "database-uid": database.uid()});
        cx.apply(&stateful_set(&name, database.spec.replicas, 10, &json!({"database": name}), &labels)?).await?;
        Ok(Action::done())
    }
}

impl<const FIXED: bool> Databases<FIXED> {
    /// Deletes the volumes, which outlive the pods.
    async fn clean_up(&self, database: &Database, cx: &Context<Database>) -> Result<Action> {
        if !database.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Action::done());
        }
        if FIXED && !is_deleted(database, cx).await? {
            return Ok(Action::requeue());
        }
        let (label, value) = match FIXED {
            true => ("database-uid", database.uid().unwrap_or_default()),
            false => ("database", database.name_any()),
        };
        // Read from the API server, since the cache may lack a new one.
        let claims: Api<PersistentVolumeClaim> = api(cx);
        for claim in claims.list(&ListParams::default().labels(&format!("{label}={value}"))).await? {
            if FIXED {
                cx.delete(&claim).await?;
                continue;
            }
            match claims.delete(&claim.name_any(), &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => drop(deleted?),
            }
        }
        set_finalizer(database, cx, FINALIZER, false).await?;
        Ok(Action::done())
    }
}

/// Returns true if the API server has this very object, and it is being deleted.
async fn is_deleted(database: &Database, cx: &Context<Database>) -> Result<bool> {
    let live = api::<Database, Database>(cx).get_opt(&database.name_any()).await?;
    Ok(live.is_some_and(|live| live.uid() == database.uid() && live.metadata.deletion_timestamp.is_some()))
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Databases::<FIXED>)
        .owns::<StatefulSet>()
        .owns::<PersistentVolumeClaim>()
        .allows(rule("databases.example.com", "databases", &["get", "patch"]))
        .while_deleting();
    Operator::new("database-operator").crd(Database::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).prerequisites(STORAGE_CLASS).scenario(
        Scenario::new("recreate")
            .apply(SAMPLE)
            .settle()
            .delete("databases.databases.example.com/a")
            .settle()
            .apply(SAMPLE)
            .settle(),
    )
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::StaleDelete,
    object: "persistentvolumeclaims/data-a-0",
    schedule: "recreate; seed=1; steps=1,2,3,5,6; step:7 restart-stale=watch:databases.example.com/databases/a%232",
};
