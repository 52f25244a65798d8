//! Calculation of replicas from measured values and targets.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#algorithm-details>.

use crate::workload::pods::{is_deleting, is_ready, phase};
use flyball_core::Quantity;
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// Period after the start of a pod in which its CPU usage is ignored until it is ready.
const START: SignedDuration = SignedDuration::from_mins(5);
/// A pod whose last transition to unready is within this time after its start has never been ready.
const FIRST_READY: SignedDuration = SignedDuration::from_secs(30);

/// Measured values of pods by name, in thousandths.
pub(super) type Samples = BTreeMap<String, i64>;

/// Tolerated difference of the ratio of measured value and target from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerance {
    fn covers(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// Target usage of pods.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// An average in thousandths.
    Value(i64),
    /// A percentage of the pods' requests, by pod name.
    Utilization(i32, &'a BTreeMap<String, i64>),
}

/// The usage of pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    ratio: f64,
    /// In percent of the requests.
    pub(super) utilization: Option<i32>,
    /// Average in thousandths.
    pub(super) value: i64,
}

/// Rounds up to a number of replicas, saturating.
pub(super) fn round_up(replicas: f64) -> i32 {
    replicas.ceil() as i32
}

impl Target<'_> {
    fn usage(self, samples: &Samples) -> Result<Usage, String> {
        let total = |samples: &mut dyn Iterator<Item = i64>| samples.fold(0, i64::saturating_add);
        match self {
            Self::Value(target) => {
                let count = i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
                let value = total(&mut samples.values().copied()) / count;
                Ok(Usage { ratio: value as f64 / target as f64, utilization: None, value })
            }
            Self::Utilization(target, requests) => {
                let known = || samples.iter().filter_map(|(pod, value)| Some((*value, *requests.get(pod)?)));
                let requested = total(&mut known().map(|(_, request)| request));
                if requested == 0 {
                    return Err("no metrics returned matched known pods".into());
                }
                let used = total(&mut known().map(|(value, _)| value));
                let percent = i128::from(used) * 100 / i128::from(requested);
                let utilization = i32::try_from(percent).unwrap_or(i32::MAX);
                let count = i64::try_from(known().count()).unwrap_or(i64::MAX).max(1);
                let ratio = f64::from(utilization) / f64::from(target);
                Ok(Usage { ratio, utilization: Some(utilization), value: used / count })
            }
        }
    }

    /// Returns the assumed usage of a pod without samples, to scale down conservatively.
    fn assumed(self, pod: &str) -> i64 {
        match self {
            Self::Value(target) => target,
            Self::Utilization(target, requests) => {
                requests.get(pod).map_or(0, |request| request.saturating_mul(i64::from(target.max(100))) / 100)
            }
        }
    }
}

/// Proposes a number of replicas for pods with these samples.
pub(super) fn by_pods(
    pods: &[Pod],
    mut samples: Samples,
    is_cpu: bool,
    target: Target<'_>,
    current: i32,
    tolerance: Tolerance,
    now: Timestamp,
) -> Result<(i32, Usage), String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".into());
    }
    let groups = Groups::of(pods, &samples, is_cpu, now);
    samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let usage = target.usage(&samples)?;
    let grows_with_unready = !groups.unready.is_empty() && usage.ratio > 1.0;
    if !grows_with_unready && groups.missing.is_empty() {
        let proposal = match tolerance.covers(usage.ratio) {
            true => current,
            false => round_up(usage.ratio * f64::from(groups.ready)),
        };
        return Ok((proposal, usage));
    }
    // Missing samples are assumed to counteract the change.
    for pod in groups.missing {
        if usage.ratio < 1.0 {
            let assumed = target.assumed(&pod);
            samples.insert(pod, assumed);
        } else if usage.ratio > 1.0 {
            samples.insert(pod, 0);
        }
    }
    if grows_with_unready {
        samples.extend(groups.unready.into_iter().map(|pod| (pod, 0)));
    }
    let ratio = target.usage(&samples)?.ratio;
    let turns = |ratio: f64| usage.ratio < 1.0 && ratio > 1.0 || usage.ratio > 1.0 && ratio < 1.0;
    if tolerance.covers(ratio) || turns(ratio) {
        return Ok((current, usage));
    }
    let proposal = round_up(ratio * samples.len() as f64);
    let is_against = ratio < 1.0 && proposal > current || ratio > 1.0 && proposal < current;
    Ok((if is_against { current } else { proposal }, usage))
}

/// Proposes a number of replicas for a metric of all pods together.
pub(super) fn by_ratio(pods: &[Pod], ratio: f64, current: i32, tolerance: Tolerance) -> Result<i32, String> {
    if tolerance.covers(ratio) {
        return Ok(current);
    }
    if pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let ready = pods.iter().filter(|pod| phase(pod) == "Running" && is_ready(pod)).count();
    Ok(round_up(ratio * ready as f64))
}

/// Proposes a number of replicas for an average target, and returns the current average.
pub(super) fn by_share(value: i64, target: i64, present: i32, tolerance: Tolerance) -> (i32, i64) {
    let ratio = value as f64 / (target as f64 * f64::from(present));
    let proposal = if tolerance.covers(ratio) { present } else { round_up(value as f64 / target as f64) };
    (proposal, (value as f64 / f64::from(present)).ceil() as i64)
}

/// Pods by the state of their samples.
#[derive(Debug, Default)]
struct Groups {
    ready: i32,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Groups {
    fn of(pods: &[Pod], samples: &Samples, is_cpu: bool, now: Timestamp) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let name = pod.name_any();
            if is_deleting(pod) || phase(pod) == "Failed" {
                groups.ignored.insert(name);
            } else if phase(pod) == "Pending" || samples.contains_key(&name) && is_cpu && is_starting(pod, now) {
                groups.unready.insert(name);
            } else if !samples.contains_key(&name) {
                groups.missing.insert(name);
            } else {
                groups.ready += 1;
            }
        }
        groups
    }
}

/// Returns true if the CPU usage of a pod is not representative yet.
fn is_starting(pod: &Pod, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|conditions| conditions.iter().find(|condition| condition.type_ == "Ready"));
    let began = status.and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(began)) = (ready, began) else { return true };
    let changed = ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let is_unready = ready.status == "False";
    is_unready && (began.0 + START > now || began.0 + FIRST_READY > changed)
}

/// Returns the requests of a resource by pod name, in thousandths.
pub(super) fn requests(pods: &[Pod], resource: &str, container: Option<&str>) -> Result<BTreeMap<String, i64>, String> {
    pods.iter().map(|pod| Ok((pod.name_any(), request(pod, resource, container)?))).collect()
}

fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, String> {
    let of = |resources: Option<&ResourceRequirements>| {
        let amount: Quantity = resources?.requests.as_ref()?.get(resource)?.0.parse().ok()?;
        Some(amount.milli_value())
    };
    let Some(spec) = &pod.spec else { return Ok(0) };
    if container.is_none()
        && let Some(amount) = of(spec.resources.as_ref())
    {
        return Ok(amount);
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut all = spec.containers.iter().chain(sidecars);
    let amount = |container: &Container| {
        of(container.resources.as_ref()).ok_or_else(|| {
            format!("missing request for {resource} in container {} of Pod {}", container.name, pod.name_any())
        })
    };
    match container {
        Some(name) => match all.find(|container| container.name == name) {
            Some(container) => amount(container),
            None => Err(format!("container {name} not found in Pod {}", pod.name_any())),
        },
        None => all.try_fold(0_i64, |sum, container| Ok(sum.saturating_add(amount(container)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TOLERANCE: Tolerance = Tolerance { down: 0.1, up: 0.1 };

    /// Creates a pod that is ready (`r`), not ready (`u`), pending (`p`) or being deleted (`d`), by its first letter.
    fn pod(name: &str) -> Pod {
        let status = |phase: &str, ready: &str| {
            json!({"phase": phase, "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:10Z"}]})
        };
        let (status, deleted) = match name.as_bytes()[0] {
            b'u' => (status("Running", "False"), Value::Null),
            b'p' => (status("Pending", "False"), Value::Null),
            b'd' => (status("Running", "True"), "2026-01-01T00:00:00Z".into()),
            _ => (status("Running", "True"), Value::Null),
        };
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
        let metadata = json!({"name": name, "deletionTimestamp": deleted});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": containers}, "status": status}))
            .unwrap()
    }

    /// Checks the proposal for pods with their usage; a negative one is unknown.
    fn check(pods: &[(&str, i64)], percent: i32, expect: Result<(i32, i32), &str>) {
        let (now, samples) = ("2026-01-01T00:10:00Z".parse().unwrap(), pods.iter().filter(|(_, usage)| *usage >= 0));
        let samples = samples.map(|(name, usage)| ((*name).to_owned(), *usage)).collect();
        let all: Vec<Pod> = pods.iter().map(|(name, _)| pod(name)).collect();
        let requests = requests(&all, "cpu", None).unwrap();
        let current = i32::try_from(pods.len()).unwrap();
        let found = by_pods(&all, samples, true, Target::Utilization(percent, &requests), current, TOLERANCE, now);
        let found = found.map(|(replicas, usage)| (replicas, usage.utilization.unwrap()));
        assert_eq!(found, expect.map_err(str::to_owned), "{pods:?}");
    }

    #[test]
    fn replicas_follow_usage() {
        check(&[("r0", 300), ("r1", 500), ("r2", 700)], 30, Ok((5, 50)));
        check(&[("r0", 310), ("r1", 300), ("r2", 290)], 30, Ok((3, 30)));
        check(&[("r0", 100), ("r1", 100), ("r2", 100)], 50, Ok((1, 10)));
        // When scaling up, starting pods are assumed to use nothing.
        check(&[("r0", 900), ("p1", -1), ("p2", -1)], 60, Ok((3, 90)));
        check(&[("r0", 1000), ("r1", 1000), ("p2", -1)], 30, Ok((7, 100)));
        check(&[("u0", 400), ("r1", 500), ("r2", 700)], 30, Ok((4, 60)));
        // When scaling down, pods without samples are assumed to use their full requests.
        check(&[("r0", 100), ("r1", 100), ("r2", -1)], 50, Ok((3, 10)));
        check(&[("r0", 100), ("r1", 100), ("r2", 100), ("r3", -1)], 100, Ok((2, 10)));
        check(&[("r0", 500), ("d1", 900)], 50, Ok((2, 50)));
        check(&[("p0", -1)], 50, Err("did not receive metrics for targeted pods (pods might be unready)"));
        check(&[], 50, Err("no pods returned by selector while calculating replica count"));
    }

    #[test]
    fn replicas_follow_averages_and_ratios() {
        assert_eq!(by_share(70_000, 10_000, 3, TOLERANCE), (7, 23_334));
        assert_eq!(by_share(31_000, 10_000, 3, TOLERANCE), (3, 10_334));
        let ready = [pod("r0"), pod("r1"), pod("u2")];
        assert_eq!(by_ratio(&ready, 1.6, 3, TOLERANCE), Ok(4));
        assert_eq!(by_ratio(&ready, 1.05, 3, TOLERANCE), Ok(3));
    }
}
