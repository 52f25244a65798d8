//! What an operator made has to go on without it, and to be left alone when it comes back.

use super::Test;
use super::report::{Done, Ordeal};
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::sleep;

/// What tells whether an object is the one that it was.
#[derive(Clone, Debug, Default, PartialEq)]
struct Identity {
    uid: String,
    /// How often each container of a pod was restarted.
    restarts: BTreeMap<String, i32>,
}

/// All objects by resource and name.
type Identities = BTreeMap<String, Identity>;

impl Test {
    /// Lets things come to rest, crashes the operator, starts it again after this time, and expects that all was left alone: what
    /// was there before is there with its UID, no container was restarted, and nothing was made since the operator came back.
    ///
    /// At most an hour of paused time passes, or five minutes on a real cluster. Events, leases and endpoints are not looked
    /// at, nor is what cron jobs make.
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
    /// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
    /// // #[tokio::test(start_paused = true)]
    /// let mut test = Test::of(operator).nodes(1).start().await;
    /// test.apply("{apiVersion: v1, kind: Secret, metadata: {name: web}}").await;
    /// test.assert_outage_is_harmless(Duration::from_secs(600)).await;
    /// # }) }
    /// ```
    ///
    /// # Panics
    ///
    /// When something is gone, was replaced, restarted or made, which the message names; when things do not come to rest.
    pub async fn assert_outage_is_harmless(&mut self, outage: Duration) {
        let outage = outage.min(self.installed.target.patience().1);
        self.assert_converges().await;
        let before = self.identities().await;
        let pods = before.keys().filter(|name| name.starts_with("pods ")).count();
        let ordeal = Ordeal::new(&self.installed.operator, Done::Outage { seconds: outage.as_secs(), pods });

        self.crash().await;
        sleep(outage).await;
        let left = self.identities().await;
        let changed = changes(&before, &left);
        assert!(changed.is_empty(), "while the operator was away for {outage:?}:{}", changed.concat());

        self.restart().await;
        self.assert_converges().await;
        let after = self.identities().await;
        let mut changed = changes(&left, &after);
        let new = after.keys().filter(|name| !left.contains_key(*name));
        changed.extend(new.map(|name| format!("\n  {name} was made")));
        assert!(changed.is_empty(), "after the operator came back:{}", changed.concat());
        ordeal.passed();
    }

    async fn identities(&self) -> Identities {
        let mut objects = self.objects().await;
        // What cron jobs make comes and goes by the clock: jobs, and the pods of these.
        let owned =
            |object: &DynamicObject, by: &dyn Fn(&OwnerReference) -> bool| object.owner_references().iter().any(by);
        let jobs = objects.extract_if(.., |(_, object)| owned(object, &|owner| owner.kind == "CronJob"));
        let jobs: BTreeSet<Option<String>> = jobs.map(|(_, job)| job.uid()).collect();
        objects.retain(|(_, object)| !owned(object, &|owner| jobs.contains(&Some(owner.uid.clone()))));
        objects
            .iter()
            .map(|(plural, object)| (format!("{plural} {}", object.name_any()), Identity::of(object)))
            .collect()
    }
}

impl Identity {
    fn of(object: &DynamicObject) -> Self {
        let status: PodStatus = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
        let containers = [status.init_container_statuses, status.container_statuses].into_iter().flatten().flatten();
        let restarts = containers.map(|container| (container.name, container.restart_count)).collect();
        Self { uid: object.uid().unwrap_or_default(), restarts }
    }
}

/// Says what became of objects that are not as they were.
fn changes(before: &Identities, after: &Identities) -> Vec<String> {
    let mut changes = Vec::new();
    for (name, was) in before {
        match after.get(name) {
            None => changes.push(format!("\n  {name} is gone")),
            Some(is) if is.uid != was.uid => {
                changes.push(format!("\n  {name} was replaced by another one of its name"))
            }
            Some(is) => {
                let restarted = |(container, count): (&String, &i32)| {
                    let before = was.restarts.get(container).copied().unwrap_or_default();
                    (before != *count)
                        .then(|| format!("\n  {name}: restarts of container {container} went from {before} to {count}"))
                };
                changes.extend(is.restarts.iter().filter_map(restarted));
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_change_is_told() {
        let identity =
            |uid: &str, restarts: i32| Identity { uid: uid.into(), restarts: [("web".to_owned(), restarts)].into() };
        let state = |of: &[(&str, Identity)]| of.iter().map(|(name, is)| ((*name).into(), is.clone())).collect();
        let before: Identities = state(&[("a", identity("1", 0)), ("b", identity("2", 0)), ("c", identity("3", 1))]);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let after = state(&[("b", identity("9", 0)), ("c", identity("3", 2)), ("d", identity("4", 0))]);
        let expected = [
            "\n  a is gone",
            "\n  b was replaced by another one of its name",
            "\n  c: restarts of container web went from 1 to 2",
        ];
        assert_eq!(changes(&before, &after), expected);
    }
}
