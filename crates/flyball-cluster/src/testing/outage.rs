//! Outages of an operator, during and after which its objects must not change.

use super::Test;
use super::report::{ChaosRun, InjectedFault};
use crate::Inventory;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;

impl Test {
    /// Asserts that an outage of the operator changes nothing: waits until it has converged, crashes it, and restarts
    /// it after this time. All objects must exist with the same UID, no container may have restarted, and no object may
    /// be created after the restart.
    ///
    /// The outage is limited to an hour of paused time, or to five minutes on a real cluster; a shorter outage than
    /// requested is printed. Events, leases, endpoints and the jobs of cron jobs are ignored.
    ///
    /// ```
    /// # use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
    /// # use flyball_cluster::testing::Test;
    /// # use k8s_openapi::api::core::v1::{Pod, Secret};
    /// # use std::time::Duration;
    /// # struct Pods;
    /// # impl Reconcile for Pods {
    /// #     type Resource = Secret;
    /// #     async fn reconcile(&self, secret: &Secret, cx: &Context<Secret>) -> Result<Action> {
    /// #         let spec = serde_json::json!({"containers": [{"name": "a", "image": "a"}]});
    /// #         let pod = serde_json::json!({"metadata": {"name": secret.metadata.name}, "spec": spec});
    /// #         cx.apply(&serde_json::from_value::<Pod>(pod)?).await?;
    /// #         Ok(Action::done())
    /// #     }
    /// # }
    /// # fn operator() -> Operator { Operator::new("pods").controller(Controller::new(Pods).owns::<Pod>()) }
    /// # fn main() {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// // #[tokio::test(start_paused = true)]
    /// let mut test = Test::of(operator).nodes(1).start().await;
    /// test.apply("{apiVersion: v1, kind: Secret, metadata: {name: web}}").await;
    /// test.assert_outage_is_harmless(Duration::from_secs(600)).await;
    /// # }) }
    /// ```
    ///
    /// # Panics
    ///
    /// If an object was deleted, replaced, restarted or created, with its name, or if the operator does not converge.
    pub async fn assert_outage_is_harmless(&mut self, outage: Duration) {
        let (requested, outage) = (outage, outage.min(self.installed.target.convergence_times().1));
        self.assert_converges().await;
        let before = self.inventory().await;
        let pods = before.names().filter(|name| name.starts_with("pods ")).count();
        let mut chaos_run =
            ChaosRun::new(&self.installed.operator, InjectedFault::Outage { seconds: outage.as_secs(), pods });
        if outage < requested {
            chaos_run.record_skipped(format!("an outage of more than {outage:?}: {requested:?} was asked for"));
        }

        self.crash().await;
        sleep(outage).await;
        let remaining = self.inventory().await;
        let harmed = before.disruptions(&remaining);
        assert!(harmed.is_empty(), "during the outage of {outage:?}:{}", list(&harmed));

        self.restart().await;
        self.assert_converges().await;
        let after = self.inventory().await;
        let mut harmed = remaining.disruptions(&after);
        harmed.extend(after.without(&remaining).names().map(|name| format!("{name} was made")));
        assert!(harmed.is_empty(), "after the restart of the operator:{}", list(&harmed));
        chaos_run.passed();
    }

    async fn inventory(&self) -> Inventory {
        let mut objects = self.objects().await;
        // Cron jobs create and delete jobs and pods by the clock.
        let owned =
            |object: &DynamicObject, by: &dyn Fn(&OwnerReference) -> bool| object.owner_references().iter().any(by);
        let jobs = objects.extract_if(.., |(_, object)| owned(object, &|owner| owner.kind == "CronJob"));
        let jobs: BTreeSet<Option<String>> = jobs.map(|(_, job)| job.uid()).collect();
        objects.retain(|(_, object)| !owned(object, &|owner| jobs.contains(&Some(owner.uid.clone()))));
        objects.iter().map(|(plural, object)| (format!("{plural} {}", object.name_any()), object)).collect()
    }
}

/// Joins the texts, one per line.
fn list(all: &[String]) -> String {
    all.iter().map(|one| format!("\n  {one}")).collect()
}
