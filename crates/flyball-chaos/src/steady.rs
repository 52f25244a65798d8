//! The steady state: the operator is ready, and its objects equal those before the fault.
//!
//! A snapshot has no times, counters and values that the API server assigns. Fields that change without a fault are
//! learned from snapshots before the first experiment. Differences name objects and fields, never values.

mod fields;

use crate::api::{Cluster, Reference};
use crate::error::Result;
use crate::experiment::Check;
use crate::operator::Operator;
use crate::text::clean;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of differences of a comparison.
const MAX_DIFFERENCES: usize = 20;

/// Fields that change without a fault.
pub(crate) type Volatile = BTreeSet<(Reference, String)>;

/// State of an operator and its objects.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The reasons why the operator is not ready.
    unready: Vec<Difference>,
    /// The sum of the restarts of all containers.
    pub(crate) restarts: u64,
    objects: BTreeMap<Reference, ObjectState>,
}

#[derive(Clone, Debug)]
struct ObjectState {
    uid: String,
    fields: BTreeMap<String, String>,
}

/// A difference from the steady state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub object: String,
    /// The field, empty for the object.
    pub field: String,
    /// The difference.
    pub problem: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, problem } = self;
        if field.is_empty() { write!(f, "{object} {problem}") } else { write!(f, "{object}: {field} {problem}") }
    }
}

impl Snapshot {
    /// Reads the state of the cluster.
    pub(crate) async fn read(cluster: &Cluster, operator: &mut Operator, checks: &[Check]) -> Result<Self> {
        operator.refresh(cluster).await?;
        let pods = operator.pods(cluster).await?;
        let mut unready = readiness(operator, &pods);
        unready.extend(leadership(cluster, operator, &pods).await?);
        for check in checks {
            unready.extend(failure_of(cluster, operator, check).await?);
        }
        let mut fixed: Vec<Value> = (!operator.is_process()).then(|| operator.deployment.clone()).into_iter().collect();
        for known in operator.bindings.iter().chain(&operator.webhooks) {
            fixed.extend(cluster.get(&Reference::of(known)).await?);
        }
        let all = fixed.iter().chain(&operator.resources).chain(&operator.children);
        let objects = all.map(|object| {
            let state = ObjectState { uid: crate::change::uid(object), fields: fields::of(object) };
            (Reference::of(object), state)
        });
        Ok(Self { objects: objects.collect(), restarts: pods.iter().map(restarts).sum(), unready })
    }

    /// Returns the differences from the steady state that this snapshot is.
    pub(crate) fn differences(&self, now: &Self, volatile: &Volatile) -> Vec<Difference> {
        let mut found = now.unready.clone();
        for (reference, before) in &self.objects {
            let difference = |field: &str, problem: &str| Difference {
                object: reference.to_string(),
                field: clean(field),
                problem: problem.to_owned(),
            };
            let Some(after) = now.objects.get(reference) else {
                // An object that lost its owner is not listed as a child.
                found.push(difference("", "is missing, or has another owner"));
                continue;
            };
            for path in changed(&before.fields, &after.fields) {
                if !volatile.contains(&(reference.clone(), path.clone())) {
                    found.push(difference(&path, "differs"));
                }
            }
        }
        found.truncate(MAX_DIFFERENCES);
        found
    }

    /// Returns the fields that differ, which change without a fault.
    pub(crate) fn learn(&self, later: &Self, volatile: &mut Volatile) {
        for (reference, before) in &self.objects {
            if let Some(after) = later.objects.get(reference) {
                volatile.extend(changed(&before.fields, &after.fields).map(|path| (reference.clone(), path)));
            }
        }
    }

    /// Removes objects that exist only here, which come and go without a fault.
    pub(crate) fn retain_common(&mut self, later: &Self) {
        self.objects.retain(|reference, _| later.objects.contains_key(reference));
    }

    /// Returns the objects that were created or replaced since, other than those of the fault.
    pub(crate) fn collateral(&self, now: &Self, expected: &[Reference]) -> Vec<Difference> {
        let mut found = Vec::new();
        for (reference, after) in &now.objects {
            let problem = match self.objects.get(reference) {
                None => "was created in addition",
                Some(before) if before.uid != after.uid => "was deleted and created again",
                Some(_) => continue,
            };
            if !expected.contains(reference) {
                let (object, field) = (reference.to_string(), String::new());
                found.push(Difference { object, field, problem: problem.to_owned() });
            }
        }
        found.truncate(MAX_DIFFERENCES);
        found
    }

    /// Adds the state of an operator that runs as a process.
    pub(crate) fn with_process(mut self, is_running: bool, crashes: u64) -> Self {
        self.restarts = crashes;
        if !is_running {
            let (object, field, problem) = ("the process".to_owned(), String::new(), "does not run".to_owned());
            self.unready.push(Difference { object, field, problem });
        }
        self
    }

    /// Returns the reasons why the operator is not ready.
    pub(crate) fn unready(&self) -> &[Difference] {
        &self.unready
    }
}

/// Returns the paths of fields that are only in one of two objects, or differ.
fn changed<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = String> + 'a {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).cloned()
}

/// Returns the reasons why the Deployment is not ready. Pods are counted, because the status of a Deployment is late.
fn readiness(operator: &Operator, pods: &[Value]) -> Vec<Difference> {
    let deployment = &operator.deployment;
    if operator.is_process() {
        return Vec::new();
    }
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let ready = pods.iter().filter(is_ready).count() as u64;
    let is_observed = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
    let updated = deployment["status"]["updatedReplicas"].as_u64().unwrap_or(0);
    let problem = match () {
        () if replicas == 0 => "is scaled to zero".to_owned(),
        () if ready < replicas => format!("has {ready} of {replicas} pods ready"),
        () if !is_observed || updated < replicas => "is being rolled out".to_owned(),
        () => return Vec::new(),
    };
    vec![Difference { object: operator.deployment_reference().to_string(), field: String::new(), problem }]
}

/// Returns the known leases that no pod of the operator holds.
async fn leadership(cluster: &Cluster, operator: &Operator, pods: &[Value]) -> Result<Vec<Difference>> {
    let mut found = Vec::new();
    for lease in &operator.leases {
        let reference = Reference::of(lease);
        let live = cluster.get(&reference).await?;
        let holder = live.as_ref().and_then(|live| live["spec"]["holderIdentity"].as_str()).unwrap_or_default();
        let is_held = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).any(|pod| holder.starts_with(pod));
        if !is_held {
            let problem = "is held by none of the operator's pods".to_owned();
            found.push(Difference { object: reference.to_string(), field: String::new(), problem });
        }
    }
    Ok(found)
}

/// Returns the reason if a check of an experiment fails.
async fn failure_of(cluster: &Cluster, operator: &Operator, check: &Check) -> Result<Option<Difference>> {
    let name = &check.object;
    let difference = |problem: String| Difference {
        object: format!("{} {}", clean(&name.kind), clean(&name.name)),
        field: String::new(),
        problem,
    };
    let object = match operator.object(cluster, name).await {
        Ok(object) => object,
        Err(crate::error::Error::NotApplicable(_)) => return Ok(Some(difference("does not exist".to_owned()))),
        Err(error) => return Err(error),
    };
    let Some(condition) = &check.condition else { return Ok(None) };
    let conditions = object["status"]["conditions"].as_array();
    let holds =
        conditions.into_iter().flatten().any(|one| one["type"] == condition.as_str() && one["status"] == "True");
    Ok((!holds).then(|| difference(format!("does not have the condition {}", clean(condition)))))
}

fn restarts(pod: &Value) -> u64 {
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses.into_iter().flatten().filter_map(|status| status["restartCount"].as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(objects: &[Value]) -> Snapshot {
        let objects = objects.iter().map(|object| {
            let state = ObjectState { uid: crate::change::uid(object), fields: fields::of(object) };
            (Reference::of(object), state)
        });
        Snapshot { unready: Vec::new(), restarts: 0, objects: objects.collect() }
    }

    fn map(uid: &str, value: &str, time: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b", "uid": uid, "resourceVersion": uid},
            "data": {"key": value, "at": time}})
    }

    #[test]
    fn differences_name_fields_and_no_values() {
        let before = snapshot(&[map("1", "x", "p")]);
        let mut volatile = Volatile::new();
        before.learn(&snapshot(&[map("1", "x", "q")]), &mut volatile);
        let after = snapshot(&[map("2", "secret", "r")]);
        let found: Vec<String> = before.differences(&after, &volatile).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["ConfigMap b/a: /data/key differs"]);
        let collateral: Vec<String> = before.collateral(&after, &[]).iter().map(ToString::to_string).collect();
        assert_eq!(collateral, ["ConfigMap b/a was deleted and created again"]);
        assert!(before.collateral(&after, &[Reference::new("", "ConfigMap", Some("b"), "a")]).is_empty());
        let missing = before.differences(&snapshot(&[]), &volatile);
        assert_eq!(missing[0].to_string(), "ConfigMap b/a is missing, or has another owner");
    }
}
