//! Limits of scaling: bounds, rates of the behavior, and stabilization.
//!
//! See
//! <https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#configurable-scaling-behavior>.

use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerSpec};

/// Default stabilization window for scaling down, in seconds.
const DOWN_WINDOW: i32 = 300;
/// Without a behavior, the size may at most double, or grow to this number.
const LEAST_GROWTH: i32 = 4;

/// A reason and a message.
type Why = (&'static str, &'static str);

/// Proposal after all limits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitedProposal {
    pub(super) desired: i32,
    /// Reason why the newest proposal was replaced by an older one.
    pub(super) stabilized: Option<Why>,
    /// Reason why the proposal was limited.
    pub(super) limited: Option<Why>,
}

/// Recent proposals and scale events.
#[derive(Debug, Default)]
pub(super) struct History {
    proposals: Vec<(Timestamp, i32)>,
    added: Vec<(Timestamp, i32)>,
    removed: Vec<(Timestamp, i32)>,
}

fn before(now: Timestamp, seconds: i32) -> Timestamp {
    now.checked_sub(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MIN)
}

impl History {
    /// Records the initial size as the first recommendation.
    pub(super) fn begin(&mut self, current: i32, now: Timestamp) {
        if self.proposals.is_empty() {
            self.proposals.push((now, current));
        }
    }

    /// Limits a proposal, and records it.
    pub(super) fn limit(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        current: i32,
        proposed: i32,
        now: Timestamp,
    ) -> LimitedProposal {
        let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let behavior = spec.behavior.as_ref();
        let up = behavior.and_then(|behavior| behavior.scale_up.as_ref());
        let down = behavior.and_then(|behavior| behavior.scale_down.as_ref());
        let window = |rules: Option<&HPAScalingRules>| rules.and_then(|rules| rules.stabilization_window_seconds);
        let (up_window, down_window) = (window(up).unwrap_or(0), window(down).unwrap_or(DOWN_WINDOW));
        let since = |window: i32| {
            let (cut, proposals) = (before(now, window), &self.proposals);
            proposals.iter().filter(move |(at, _)| *at > cut || behavior.is_none() && *at == cut).map(|(_, of)| *of)
        };
        let highest = since(down_window).fold(proposed, i32::max);
        let stable = match behavior {
            None => highest,
            Some(_) => current.max(since(up_window).fold(proposed, i32::min)).min(highest),
        };
        let longest = before(now, up_window.max(down_window));
        self.proposals.retain(|(at, _)| *at >= longest);
        self.proposals.push((now, proposed));
        let stabilized = (stable != proposed).then_some(match behavior {
            Some(_) if proposed >= current => (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
            _ => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
        });
        let (desired, why) = match behavior {
            None => plain(current, stable, least, most),
            Some(_) => self.paced(up, down, current, stable, (least, most), now),
        };
        LimitedProposal { desired, stabilized, limited: Some(why).filter(|_| desired != stable) }
    }

    /// Records a change of size, for the rate limits.
    pub(super) fn note(&mut self, spec: &HorizontalPodAutoscalerSpec, from: i32, to: i32, now: Timestamp) {
        let Some(behavior) = &spec.behavior else { return };
        let (changes, rules) = match to > from {
            true => (&mut self.added, &behavior.scale_up),
            false => (&mut self.removed, &behavior.scale_down),
        };
        let policies = rules.iter().flat_map(|rules| rules.policies.iter().flatten());
        let longest = before(now, policies.map(|policy| policy.period_seconds).max().unwrap_or(0));
        changes.retain(|(at, _)| *at >= longest);
        changes.push((now, to.abs_diff(from).try_into().unwrap_or(i32::MAX)));
    }

    fn paced(
        &self,
        up: Option<&HPAScalingRules>,
        down: Option<&HPAScalingRules>,
        current: i32,
        proposed: i32,
        (least, most): (i32, i32),
        now: Timestamp,
    ) -> (i32, Why) {
        if proposed > current {
            let rate = self.rate(up, current, true, now).max(current);
            let why = match most > rate {
                true => TOO_FAST_UP,
                false => TOO_MANY,
            };
            (proposed.min(most.min(rate)), why)
        } else if proposed < current {
            let rate = self.rate(down, current, false, now).min(current);
            let why = match least < rate {
                true => {
                    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
                }
                false => TOO_FEW,
            };
            (proposed.max(least.max(rate)), why)
        } else {
            (proposed, TOO_MANY)
        }
    }

    /// Returns the size limit of the policies, by `selectPolicy`.
    fn rate(&self, rules: Option<&HPAScalingRules>, current: i32, grows: bool, now: Timestamp) -> i32 {
        let select = rules.and_then(|rules| rules.select_policy.as_deref());
        if select == Some("Disabled") {
            return current;
        }
        let sum = |changes: &[(Timestamp, i32)], cut: Timestamp| -> i32 {
            changes.iter().filter(|(at, _)| *at > cut).map(|(_, of)| *of).fold(0, i32::saturating_add)
        };
        let size = |kind: &str, value: i32, period: i32| {
            let cut = before(now, period);
            let start = current.saturating_sub(sum(&self.added, cut)).saturating_add(sum(&self.removed, cut));
            let share = f64::from(value) / 100.0;
            match (kind, grows) {
                ("Percent", true) => (f64::from(start) * (1.0 + share)).ceil() as i32,
                ("Percent", false) => (f64::from(start) * (1.0 - share)) as i32,
                (_, true) => start.saturating_add(value),
                (_, false) => start.saturating_sub(value),
            }
        };
        let policies = rules.and_then(|rules| rules.policies.as_deref());
        let sizes: Vec<i32> = match (policies, grows) {
            (Some(policies), _) => policies.iter().map(|p| size(&p.type_, p.value, p.period_seconds)).collect(),
            (None, true) => vec![size("Percent", 100, 15), size("Pods", 4, 15)],
            (None, false) => vec![size("Percent", 100, 15)],
        };
        let (low, high) = (sizes.iter().min().copied(), sizes.iter().max().copied());
        (if (select == Some("Min")) == grows { low } else { high }).unwrap_or(current)
    }
}

const TOO_FAST_UP: Why = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_MANY: Why = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Why = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

/// Applies the limits without a behavior.
fn plain(current: i32, proposed: i32, least: i32, most: i32) -> (i32, Why) {
    let rate = current.saturating_mul(2).max(LEAST_GROWTH);
    if proposed < least {
        (least, TOO_FEW)
    } else if most > rate {
        (proposed.min(rate), TOO_FAST_UP)
    } else {
        (proposed.min(most), TOO_MANY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Proposes numbers in sequence, each at its second, and applies the results.
    fn check(behavior: Value, start: i32, steps: &[(i64, i32, i32)]) {
        let mut spec = json!({"maxReplicas": 100, "minReplicas": 1, "scaleTargetRef": {"kind": "K", "name": "n"}});
        if !behavior.is_null() {
            spec["behavior"] = behavior;
        }
        let spec: HorizontalPodAutoscalerSpec = serde_json::from_value(spec).unwrap();
        let (mut history, mut current) = (History::default(), start);
        history.begin(start, Timestamp::UNIX_EPOCH - SignedDuration::from_hours(1));
        for (second, proposed, expect) in steps {
            let now = Timestamp::from_second(*second).unwrap();
            let limited = history.limit(&spec, current, *proposed, now);
            assert_eq!(limited.desired, *expect, "at {second}: {limited:?}");
            if limited.desired != current {
                history.note(&spec, current, limited.desired, now);
                current = limited.desired;
            }
        }
    }

    #[test]
    fn scale_up_is_limited_and_scale_down_is_stabilized() {
        check(Value::Null, 1, &[(0, 50, 4), (15, 50, 8), (30, 50, 16), (45, 2, 32), (400, 2, 2), (701, 0, 1)]);
    }

    #[test]
    fn policies_limit_the_rate() {
        let pods = |value: i32| json!([{"type": "Pods", "value": value, "periodSeconds": 60}]);
        let up = json!({"scaleUp": {"policies": pods(3), "selectPolicy": "Max", "stabilizationWindowSeconds": 0}});
        check(up, 1, &[(0, 50, 4), (15, 50, 4), (59, 50, 4), (61, 50, 7)]);
        let down = json!({"scaleDown": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 30}],
            "stabilizationWindowSeconds": 0}});
        check(down, 10, &[(0, 1, 5), (15, 1, 5), (31, 1, 2)]);
        check(json!({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}), 10, &[(0, 1, 10)]);
        check(
            json!({"scaleUp": {"stabilizationWindowSeconds": 60}}),
            2,
            &[(0, 2, 2), (15, 4, 2), (30, 8, 2), (61, 8, 4)],
        );
    }
}
