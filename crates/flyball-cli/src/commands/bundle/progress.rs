//! The wait of `flyball bundle run` until the operator runs. It ends as soon as a failure is final.

use crate::cluster::connection::Connection;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::commands::olm::manager::ManagedCluster;
use crate::commands::olm::refusal::{Refusal, failure_of, operator_problem, plan_problem};
use crate::commands::olm::unread::Unread;
use crate::commands::olm::{self, absence, pods};
use crate::error::{Error, Result, ResultExt};
use crate::render::progress::Progress;
use flyball_lifecycle::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase, Subscription,
};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Time without a change after which the manager does nothing more by itself.
const IDLE_TIME: Duration = Duration::from_secs(15);

/// An operator that is being installed.
pub(super) struct Awaited<'a> {
    pub(super) place: &'a ManagedCluster,
    /// The name of the Subscription.
    pub(super) subscription: &'a str,
    /// The name of the ClusterServiceVersion.
    pub(super) csv: &'a str,
}

/// The objects of an installation at one moment.
#[derive(Clone, Debug, Default)]
struct Moment {
    subscription: Option<Subscription>,
    csv: Option<ClusterServiceVersion>,
    plans: Vec<InstallPlan>,
    /// The problem of its pods.
    pods: Option<String>,
}

/// A reason why an operator does not run, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    why: String,
    remedy: Option<String>,
}

impl Moment {
    fn is_complete(&self) -> bool {
        self.csv.as_ref().is_some_and(|csv| csv.status.phase == Phase::Succeeded)
    }

    /// Returns the failure of this version.
    fn failure(&self, csv: &str) -> Option<String> {
        let own = plan_problem(&self.plans, csv).or_else(|| self.pods.clone());
        own.or_else(|| operator_problem(self.csv.as_ref()))
    }

    /// Returns the reason why nothing happens any more.
    fn standstill(&self, csv: &str, namespace: &str) -> Option<Problem> {
        let installs = |plan: &&InstallPlan| {
            let names = &plan.spec.cluster_service_version_names;
            plan.status.phase == InstallPlanPhase::RequiresApproval
                && !plan.spec.approved
                && names.iter().any(|name| name == csv)
        };
        if let Some(plan) = self.plans.iter().find(installs) {
            let name = plan.name_any();
            let remedy = format!("approve it: flyball olm approve {name} -n {namespace}");
            return Some(Problem { why: format!("InstallPlan {name} waits for approval"), remedy: Some(remedy) });
        }
        let subscription = self.subscription.as_ref()?;
        let holds = |kind: &str| {
            let mut conditions = subscription.status.conditions.iter();
            conditions.find(|condition| condition.kind == kind && condition.status == "True")
        };
        let without_path = || Some(holds("UpgradePathMissing")?.message.clone());
        let why = failure_of(subscription).or_else(without_path)?;
        Some(Problem { why, remedy: None })
    }

    /// Returns the part of the state that changes with each step of the manager.
    fn progress(&self) -> String {
        let status = |of: &Subscription| json!(of.status);
        let phase = |of: &ClusterServiceVersion| json!(of.status);
        let plans: Vec<_> = self.plans.iter().map(|plan| (plan.name_any(), json!(plan.status.phase))).collect();
        json!([self.subscription.as_ref().map(status), self.csv.as_ref().map(phase), plans]).to_string()
    }

    fn text(&self) -> String {
        match (&self.csv, self.subscription.as_ref().and_then(failure_of)) {
            (Some(csv), _) => format!("{:?}: {}", csv.status.phase, csv.status.message),
            (None, Some(failure)) => format!("it does not exist yet: {failure}"),
            (None, None) => "it does not exist yet".to_owned(),
        }
    }
}

impl Awaited<'_> {
    fn connection(&self) -> &Connection {
        &self.place.connection
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.connection().client.clone(), &self.connection().namespace)
    }

    /// Waits until the version runs.
    ///
    /// # Errors
    ///
    /// If it does not run after the timeout, or a failure is final: the manager repeats it, nothing changes any more,
    /// or no manager runs.
    pub(super) async fn until_succeeded(&self, timeout: Duration) -> Result<()> {
        let name = self.csv;
        let mut progress = Progress::new(&format!("waiting for {name}"));
        // A failure from before may still be there.
        let earlier = self.moment().await?.subscription.as_ref().and_then(failure_of);
        let (mut refusal, mut known, mut changed) = (Refusal::default(), String::new(), Instant::now());
        let reached = poll_until(timeout, POLL_INTERVAL, async || {
            let moment = self.moment().await?;
            if moment.is_complete() {
                return Ok(Ok(()));
            }
            progress.show(format!("{name}: {}", moment.text()));
            let selection = moment.subscription.as_ref().and_then(failure_of);
            let failure = moment.failure(name).or_else(|| selection.filter(|of| earlier.as_ref() != Some(of)));
            match &failure {
                Some(why) if refusal.persists(why, Instant::now()) => {
                    return Err(self.error(Problem { why: why.clone(), remedy: None }));
                }
                Some(_) => {}
                None => refusal.clear(),
            }
            let now = moment.progress();
            if now != known {
                (known, changed) = (now, Instant::now());
            } else if changed.elapsed() >= IDLE_TIME {
                let standstill = moment.standstill(name, &self.connection().namespace);
                if let Some(problem) = self.absence().await?.or(standstill) {
                    return Err(self.error(problem));
                }
                changed = Instant::now();
            }
            Ok(Err(moment.text()))
        });
        reached.await?.map_err(|state| {
            Error::new(format!("{name} does not run after {} s: {state}", timeout.as_secs())).hint(self.why())
        })
    }

    async fn moment(&self) -> Result<Moment> {
        let (subscription, csv) = (self.subscription, self.csv);
        let csv = self.api::<ClusterServiceVersion>().get_opt(csv).await;
        let csv = csv.context(format!("cannot read ClusterServiceVersion {}", self.csv))?;
        let subscription = self.api::<Subscription>().get_opt(subscription).await;
        let subscription = subscription.context(format!("cannot read Subscription {}", self.subscription))?;
        let mut unread = Unread::default();
        let plans = self.api::<InstallPlan>().list(&ListParams::default()).await.map(|list| list.items);
        let plans = unread.or_default("InstallPlans", plans.context("cannot list InstallPlans"))?;
        let pods = match csv.as_ref().filter(|csv| pods::waits_for_pods(csv)) {
            Some(csv) => unread.or_none("pods", pods::problem(&self.connection().client, csv).await)?.flatten(),
            None => None,
        };
        Ok(Moment { subscription, csv, plans, pods: pods.map(|problem| problem.to_string()) })
    }

    /// Returns the problem that no manager runs, or that it is not ready.
    async fn absence(&self) -> Result<Option<Problem>> {
        let state = absence::state(self.place, olm::NAMESPACE, &mut Unread::default()).await?;
        if state.ready || state.is_unknown() {
            return Ok(None);
        }
        let remedy = "see flyball olm status; install one: flyball olm install; or run it here: flyball olm run";
        Ok(Some(Problem {
            why: format!("nothing acts on Subscriptions: {}", state.problem),
            remedy: Some(remedy.to_owned()),
        }))
    }

    fn error(&self, Problem { why, remedy }: Problem) -> Error {
        let error = Error::new(format!("{} cannot be installed: {why}", self.csv));
        match remedy {
            Some(remedy) => error.hint(remedy),
            None => error.hint(self.why()),
        }
    }

    fn why(&self) -> String {
        format!("find out why: flyball olm why {} -n {}", self.subscription, self.connection().namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn moment(csv: Value, subscription: Value, plan: Value) -> Moment {
        let object = |value: Value| json!({"metadata": {"name": "memo"}, "status": value, "spec": {}});
        let some = |value: Value| (!value.is_null()).then(|| object(value));
        let plan = some(plan).map(|mut plan| {
            plan["spec"] = json!({"clusterServiceVersionNames": ["memo.v2"], "approval": "Manual"});
            serde_json::from_value(plan).unwrap()
        });
        Moment {
            csv: some(csv).map(|value| serde_json::from_value(value).unwrap()),
            subscription: some(subscription).map(|value| serde_json::from_value(value).unwrap()),
            plans: plan.into_iter().collect(),
            pods: None,
        }
    }

    #[test]
    fn failures_of_plan_pods_and_version_are_found() {
        let failed = json!({"phase": "Failed", "reason": "InterOperatorGroupOwnerConflict", "message": "same apis"});
        let mut of = moment(failed, Value::Null, Value::Null);
        assert_eq!(of.failure("memo.v2").unwrap(), "Failed, InterOperatorGroupOwnerConflict: same apis");
        of.pods = Some("Deployment memo: it crashes".into());
        assert_eq!(of.failure("memo.v2").unwrap(), "Deployment memo: it crashes");
        let refused = json!({"phase": "Installing", "message": "retrying execution due to error: a CRD is refused"});
        let of = moment(Value::Null, Value::Null, refused);
        assert_eq!(of.failure("memo.v2").unwrap(), "InstallPlan memo: a CRD is refused");
        let of = moment(json!({"phase": "Installing"}), json!({}), json!({"phase": "Installing"}));
        assert_eq!(of.failure("memo.v2"), None);
        assert!(moment(json!({"phase": "Succeeded"}), json!({}), Value::Null).is_complete());
    }

    #[test]
    fn standstill_has_a_reason() {
        let why = |of: &Moment| of.standstill("memo.v2", "demo").map(|problem| problem.why);
        let waiting = moment(Value::Null, json!({}), json!({"phase": "RequiresApproval"}));
        assert_eq!(why(&waiting).unwrap(), "InstallPlan memo waits for approval");
        let condition = |kind: &str| {
            let condition = json!({"type": kind, "status": "True", "reason": "No", "message": "no upgrade"});
            json!({"conditions": [condition]})
        };
        assert_eq!(why(&moment(Value::Null, condition("UpgradePathMissing"), Value::Null)).unwrap(), "no upgrade");
        assert_eq!(why(&moment(Value::Null, condition("ResolutionFailed"), Value::Null)).unwrap(), "No: no upgrade");
        assert_eq!(why(&moment(Value::Null, json!({}), Value::Null)), None);
    }

    #[test]
    fn each_step_of_the_manager_is_progress() {
        let before = moment(json!({"phase": "Pending"}), json!({}), Value::Null);
        let after = moment(json!({"phase": "Installing"}), json!({}), Value::Null);
        assert_ne!(before.progress(), after.progress());
        assert_eq!(before.progress(), before.clone().progress());
    }
}
