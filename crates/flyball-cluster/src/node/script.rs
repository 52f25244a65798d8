//! Scripts of simulated containers: timing and exit codes, from annotations of their pods, rules or defaults.
//!
//! See `docs/nodes.md`.

use crate::workload::owners::Selector;
use flyball_core::Rng;
use flyball_core::time::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

const PREFIX: &str = "flyball.dev/";
/// Run time of containers that exit by themselves.
const DEFAULT_RUN_TIME: SignedDuration = SignedDuration::from_secs(1);

/// A fixed duration, a random one from a range, or an infinite one.
///
/// It is written as `500ms`, `2s`, `1m30s`, `2s..5s` or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Uniformly distributed between the two.
    Between(SignedDuration, SignedDuration),
    /// Never ends.
    Never,
}

impl Delay {
    /// Creates a fixed duration.
    pub const fn of(span: SignedDuration) -> Self {
        Self::Between(span, span)
    }

    /// Draws a duration; `None` is infinite.
    pub(super) fn draw(self, rng: &Rng) -> Option<SignedDuration> {
        let Self::Between(from, to) = self else { return None };
        let micros = u64::try_from((to - from).as_micros()).unwrap_or(0);
        let more = if micros == 0 { 0 } else { rng.below(micros.saturating_add(1)) };
        Some(from + SignedDuration::from_micros(i64::try_from(more).unwrap_or(0)))
    }
}

/// Error of parsing a [`Delay`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: use 500ms, 2s, 1m30s, 2s..5s or never")]
pub struct DelayParseError(String);

impl FromStr for Delay {
    type Err = DelayParseError;

    fn from_str(text: &str) -> Result<Self, DelayParseError> {
        let error = || DelayParseError(text.to_owned());
        if text == "never" {
            return Ok(Self::Never);
        }
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let (from, to) = (span(from).ok_or_else(error)?, span(to).ok_or_else(error)?);
        if from <= to { Ok(Self::Between(from, to)) } else { Err(error()) }
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Reads numbers with their units, one after the other; a number alone is seconds.
fn span(text: &str) -> Option<SignedDuration> {
    const YEAR: i64 = 365 * 24 * 3600;
    let (mut rest, mut sum) = (text.trim(), SignedDuration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: i64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let milli = match &unit[..end] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        sum = sum.checked_add(SignedDuration::from_millis(number.checked_mul(milli)?))?;
        rest = &unit[end..];
    }
    (sum.as_secs() <= YEAR).then_some(sum)
}

/// Timing and exit of a simulated container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerScript {
    /// Delay before the container starts, as for pulling its image; none by default.
    pub start_after: Option<Delay>,
    /// Delay from start to ready; by default the initial delay of its probes.
    pub ready_after: Option<Delay>,
    /// Run time until it exits by itself; by default forever with restart policy `Always`, else a second.
    pub complete_after: Option<Delay>,
    /// Exit code, 0 by default. A container with another one exits after a second by default.
    pub exit_code: Option<i32>,
    /// Number of starts that fail; later starts follow the other fields.
    pub crashes: Option<i32>,
    /// Delay from the stop signal to the exit, at most the grace period; none by default.
    pub stop_after: Option<Delay>,
}

/// Scripts for the containers of selected pods. The first rule that matches a pod applies; annotations of the pod take
/// precedence.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerRule {
    /// The namespace of the pods; any if absent.
    pub namespace: Option<String>,
    /// Their labels; any if absent.
    pub selector: Option<LabelSelector>,
    /// Their annotations.
    pub annotations: BTreeMap<String, String>,
    /// Values of their fields, by path, such as `spec.nodeName` or `metadata.ownerReferences.0.kind`.
    pub fields: BTreeMap<String, Value>,
    /// The name of the container; any if absent.
    pub container: Option<String>,
    /// Script of the containers.
    pub script: ContainerScript,
}

impl ContainerRule {
    fn is_about(&self, pod: &Pod, container: &str) -> bool {
        let labels = || Selector::new(self.selector.as_ref()).is_none_or(|selector| selector.matches(pod));
        let annotations = pod.annotations();
        self.namespace.as_ref().is_none_or(|namespace| pod.metadata.namespace.as_ref() == Some(namespace))
            && self.container.as_ref().is_none_or(|name| name == container)
            && self.annotations.iter().all(|(key, value)| annotations.get(key) == Some(value))
            && labels()
            && (self.fields.is_empty() || self.has_fields(pod))
    }

    fn has_fields(&self, pod: &Pod) -> bool {
        let Ok(pod) = serde_json::to_value(pod) else { return false };
        self.fields.iter().all(|(path, value)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            pod.pointer(&pointer) == Some(value)
        })
    }
}

/// The rules of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules(Arc<[ContainerRule]>);

impl FromIterator<ContainerRule> for Rules {
    fn from_iter<I: IntoIterator<Item = ContainerRule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

/// Script of one container, after rules and annotations are merged.
#[derive(Clone, Debug)]
pub(super) struct ResolvedScript {
    pub(super) start_after: Delay,
    pub(super) stop_after: Delay,
    ready_after: Option<Delay>,
    complete_after: Option<Delay>,
    exit_code: Option<i32>,
    crashes: Option<i32>,
}

impl Rules {
    /// Returns the script of a container.
    pub(super) fn script(&self, pod: &Pod, container: &str) -> ResolvedScript {
        let mut script = annotated(pod, container);
        for rule in self.0.iter().filter(|rule| rule.is_about(pod, container)) {
            let override_script = &rule.script;
            script.start_after = script.start_after.or(override_script.start_after);
            script.ready_after = script.ready_after.or(override_script.ready_after);
            script.complete_after = script.complete_after.or(override_script.complete_after);
            script.exit_code = script.exit_code.or(override_script.exit_code);
            script.crashes = script.crashes.or(override_script.crashes);
            script.stop_after = script.stop_after.or(override_script.stop_after);
        }
        let at_once = Delay::of(SignedDuration::ZERO);
        ResolvedScript {
            start_after: script.start_after.unwrap_or(at_once),
            stop_after: script.stop_after.unwrap_or(at_once),
            ready_after: script.ready_after,
            complete_after: script.complete_after,
            exit_code: script.exit_code,
            crashes: script.crashes,
        }
    }
}

/// Reads the script of a container from annotations: those with its name after a dot take precedence over those of the
/// whole pod.
fn annotated(pod: &Pod, container: &str) -> ContainerScript {
    let annotations = pod.annotations();
    let text = |what: &str| {
        let own = annotations.get(&format!("{PREFIX}{what}.{container}"));
        own.or_else(|| annotations.get(&format!("{PREFIX}{what}"))).map(|text| text.trim())
    };
    let delay = |what: &str| {
        let parsed = text(what)?.parse();
        parsed
            .inspect_err(|error| tracing::warn!(pod = pod.name_any(), what, %error, "invalid annotation is ignored"))
            .ok()
    };
    ContainerScript {
        start_after: delay("start-after"),
        ready_after: delay("ready-after"),
        complete_after: delay("complete-after"),
        exit_code: text("fail").and_then(|text| match text {
            "true" => Some(1),
            "false" => Some(0),
            code => code.parse().ok(),
        }),
        crashes: text("crash-loop").and_then(|text| match text {
            "true" => Some(i32::MAX),
            "false" => Some(0),
            times => times.parse().ok(),
        }),
        stop_after: delay("stop-after"),
    }
}

impl ResolvedScript {
    /// Returns the delay before a container is ready.
    pub(super) fn ready(&self, container: &Container) -> Delay {
        let begins =
            |probe: Option<&k8s_openapi::api::core::v1::Probe>| probe.and_then(|probe| probe.initial_delay_seconds);
        let probes = begins(container.startup_probe.as_ref()).max(begins(container.readiness_probe.as_ref()));
        self.ready_after.unwrap_or_else(|| Delay::of(SignedDuration::from_secs(probes.unwrap_or(0).max(0).into())))
    }

    /// Returns the delay and the exit code with which a container exits by itself, if it does.
    pub(super) fn ending(&self, pod: &Pod, container: &Container, attempt: i32) -> Option<(Delay, i32)> {
        let spec = pod.spec.as_ref()?;
        let usual = Delay::of(DEFAULT_RUN_TIME);
        if self.crashes.is_some_and(|crashes| attempt < crashes) {
            return Some((self.complete_after.unwrap_or(usual), self.exit_code.unwrap_or(1)));
        }
        let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always");
        let is_init = spec.init_containers.iter().flatten().any(|init| init.name == container.name);
        let runs_on = policy == "Always" && (!is_init || container.restart_policy.is_some());
        match (self.crashes, self.exit_code) {
            // Failing starts were handled above.
            (Some(_), _) | (None, None) if runs_on => self.complete_after.map(|after| (after, 0)),
            (Some(_), _) | (None, None) if is_init => {
                Some((self.complete_after.unwrap_or(Delay::of(SignedDuration::ZERO)), 0))
            }
            (Some(_), _) | (None, None) => Some((self.complete_after.unwrap_or(usual), 0)),
            (None, Some(0)) if runs_on => self.complete_after.map(|after| (after, 0)),
            (None, Some(code)) => Some((self.complete_after.unwrap_or(usual), code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn delays_are_parsed() {
        let millis = |from, to| Ok(Delay::Between(SignedDuration::from_millis(from), SignedDuration::from_millis(to)));
        let check = |text: &str, expected: Result<Delay, ()>| {
            assert_eq!(text.parse::<Delay>().map_err(drop), expected, "{text}");
        };
        check("5s", millis(5000, 5000));
        check("5", millis(5000, 5000));
        check("1m30s", millis(90_000, 90_000));
        check("250ms..2s", millis(250, 2000));
        check("never", Ok(Delay::Never));
        for bad in ["", "s", "5d", "2s..1s", "-1s", "1s..", "99999999999999999h", "1.5s"] {
            check(bad, Err(()));
        }
    }

    #[test]
    fn annotations_override_rules_and_containers_override_pods() {
        let rule: ContainerRule = serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "web"}},
            "fields": {"spec.nodeName": "n"},
            "script": {"startAfter": "3s", "crashes": 2},
        }))
        .unwrap();
        let rules: Rules = [rule].into_iter().collect();
        let annotations =
            json!({"flyball.dev/start-after": "1s", "flyball.dev/start-after.a": "2s", "flyball.dev/fail": "oh"});
        let pod = |node: &str, annotations: &Value| -> Pod {
            let spec = json!({"nodeName": node, "containers": [{"name": "a"}, {"name": "b"}]});
            let metadata = json!({"name": "p", "labels": {"app": "web"}, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let seconds = |secs| Delay::of(SignedDuration::from_secs(secs));
        let check = |pod: &Pod, container: &str, start: Delay, crashes: Option<i32>| {
            let script = rules.script(pod, container);
            assert_eq!((script.start_after, script.crashes, script.exit_code), (start, crashes, None));
        };
        check(&pod("n", &annotations), "a", seconds(2), Some(2));
        check(&pod("n", &annotations), "b", seconds(1), Some(2));
        check(&pod("n", &json!({})), "b", seconds(3), Some(2));
        check(&pod("m", &json!({})), "b", seconds(0), None);
    }
}
