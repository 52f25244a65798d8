//! Scales workloads so that their metrics approach the targets.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/>. Each metric proposes a
//! number of [replicas], [limits] restrict the rate of change, and the result is written to the [scale] subresource of
//! the target.

mod limits;
mod measure;
mod replicas;
mod scale;

use crate::Metrics;
use crate::workload::events::Events;
use crate::workload::time;
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::selector::Demands;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use limits::{History, LimitedProposal};
use measure::{Measure, MetricError, Proposal};
use parking_lot::Mutex;
use scale::{Scale, Scales};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// Sync interval.
const PERIOD: Duration = Duration::from_secs(15);
/// Timeout of reading the target and the metrics, and of scaling the target.
const SCALE_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of autoscalers from which the state of deleted ones is dropped, each time that it doubled.
const MIN_SWEEP: usize = 16;

/// Creates the controller.
pub(super) fn controller(metrics: Metrics) -> Controller<impl Reconcile> {
    let autoscalers = Autoscalers {
        metrics,
        events: Events::new("horizontal-pod-autoscaler"),
        scales: Scales::default(),
        known: Mutex::default(),
    };
    Controller::new(autoscalers).replaces::<HorizontalPodAutoscaler>()
}

struct Autoscalers {
    metrics: Metrics,
    events: Events,
    scales: Scales,
    known: Mutex<States>,
}

/// The states of autoscalers, and of some deleted ones.
#[derive(Debug, Default)]
struct States {
    by_key: BTreeMap<ObjectKey, AutoscalerState>,
    /// Number of states at which those of deleted autoscalers are dropped.
    sweep_at: usize,
}

/// State of an autoscaler between syncs.
#[derive(Debug, Default)]
struct AutoscalerState {
    uid: Option<String>,
    history: History,
    /// The selector of the target's pods in the last sync.
    selector: Option<Demands>,
}

impl Reconcile for Autoscalers {
    type Resource = HorizontalPodAutoscaler;

    async fn reconcile(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        cx: &Context<HorizontalPodAutoscaler>,
    ) -> Result<Action> {
        let spec = &autoscaler.spec;
        self.forget_others(autoscaler, cx)?;
        let status = autoscaler.status.clone().unwrap_or_default();
        let mut turn = Turn { on: self, autoscaler, spec, status, cx };
        match timeout(SCALE_TIMEOUT, turn.scale()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(key = %cx.key(), error, "autoscaling"),
            Err(_) => {
                let why =
                    format!("no response to reads of the target and its metrics within {} s", SCALE_TIMEOUT.as_secs());
                turn.set("ScalingActive", false, "FailedGetScale", why);
            }
        }
        let status = Some(turn.status);
        if autoscaler.status != status {
            let changed = HorizontalPodAutoscaler { status, ..autoscaler.clone() };
            crate::workload::owners::tolerate(cx.replace_status(&changed).await)?;
        }
        Ok(Action::requeue_after(PERIOD))
    }
}

impl Autoscalers {
    /// Accesses the state of an autoscaler.
    fn with<T>(&self, key: &ObjectKey, work: impl FnOnce(&mut AutoscalerState) -> T) -> T {
        work(self.known.lock().by_key.entry(key.clone()).or_default())
    }

    /// Drops the state of deleted autoscalers, including one with the same name.
    fn forget_others(&self, autoscaler: &HorizontalPodAutoscaler, cx: &Context<HorizontalPodAutoscaler>) -> Result<()> {
        let mut known = self.known.lock();
        let States { by_key, sweep_at } = &mut *known;
        if by_key.get(cx.key()).is_some_and(|known| known.uid != autoscaler.metadata.uid) {
            by_key.remove(cx.key());
        }
        by_key.entry(cx.key().clone()).or_default().uid = autoscaler.metadata.uid.clone();
        // Rarely, since it takes time for all of them.
        if by_key.len() >= (*sweep_at).max(MIN_SWEEP) {
            let all: BTreeSet<ObjectKey> = cx.caches().keys::<HorizontalPodAutoscaler>(None)?.into_iter().collect();
            by_key.retain(|key, _| key == cx.key() || all.contains(key));
            *sweep_at = 2 * by_key.len();
        }
        Ok(())
    }
}

/// One sync of an autoscaler.
struct Turn<'a> {
    on: &'a Autoscalers,
    autoscaler: &'a HorizontalPodAutoscaler,
    spec: &'a HorizontalPodAutoscalerSpec,
    status: HorizontalPodAutoscalerStatus,
    cx: &'a Context<HorizontalPodAutoscaler>,
}

/// Combined proposal of all metrics of an autoscaler.
struct Outcome {
    replicas: i32,
    metric: String,
    statuses: Vec<MetricStatus>,
}

impl Turn<'_> {
    async fn warn(&self, reason: &str, message: &str) {
        self.on.events.warning(self.cx, self.autoscaler, reason, message).await;
    }

    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let conditions = self.status.conditions.get_or_insert_default();
        let at = conditions.iter().position(|condition| condition.type_ == kind).unwrap_or_else(|| {
            conditions.push(HorizontalPodAutoscalerCondition { type_: kind.into(), ..Default::default() });
            conditions.len() - 1
        });
        let condition = &mut conditions[at];
        if condition.status != status {
            condition.last_transition_time = Some(time(self.cx.now()));
        }
        condition.status = status.into();
        (condition.reason, condition.message) = (Some(reason.into()), Some(message.into()));
    }

    fn set_numbers(&mut self, current: i32, desired: i32, statuses: Option<Vec<MetricStatus>>) {
        (self.status.current_replicas, self.status.desired_replicas) = (Some(current), desired);
        self.status.current_metrics = statuses;
    }

    /// Reads the target and the metrics, and scales the target.
    async fn scale(&mut self) -> Result<(), String> {
        let scale = match self.on.scales.get(&self.spec.scale_target_ref, self.cx).await {
            Ok(scale) => scale,
            Err(why) => {
                self.warn("FailedGetScale", &why).await;
                let text = format!("the HPA controller was unable to get the target's current scale: {why}");
                self.set("AbleToScale", false, "FailedGetScale", text);
                return Err(why);
            }
        };
        let text = "the HPA controller was able to get the target's current scale";
        self.set("AbleToScale", true, "SucceededGetScale", text);
        let (current, now) = (scale.replicas(), self.cx.now());
        self.on.with(self.cx.key(), |known| known.history.begin(current, now));
        let (least, most) = (self.spec.min_replicas.unwrap_or(1), self.spec.max_replicas);
        let (desired, reason, statuses) = if current == 0 {
            let text = "scaling is disabled since the replica count of the target is zero";
            self.set("ScalingActive", false, "ScalingDisabled", text);
            (0, String::new(), None)
        } else if current > most {
            (most, "Current number of replicas above Spec.MaxReplicas".into(), None)
        } else if current < least {
            (least, "Current number of replicas below Spec.MinReplicas".into(), None)
        } else {
            let outcome = match self.measure(&scale).await {
                Ok(outcome) => outcome,
                Err((why, statuses)) => {
                    self.set_numbers(current, self.status.desired_replicas, statuses);
                    self.warn("FailedComputeMetricsReplicas", &why).await;
                    return Err(why);
                }
            };
            let reason = if outcome.replicas > current {
                format!("{} above target", outcome.metric)
            } else {
                "All metrics below target".into()
            };
            (self.limit(current, outcome.replicas.max(0)), reason, Some(outcome.statuses))
        };
        if desired != current {
            self.rescale(scale, current, desired, &reason, &statuses).await?;
            self.status.last_scale_time = Some(time(now));
        }
        self.set_numbers(current, desired, statuses);
        Ok(())
    }

    /// Applies the bounds and the rate limits to a number.
    fn limit(&mut self, current: i32, proposed: i32) -> i32 {
        let (spec, now) = (self.spec, self.cx.now());
        let LimitedProposal { desired, stabilized, limited } =
            self.on.with(self.cx.key(), |known| known.history.limit(spec, current, proposed, now));
        match stabilized {
            Some((reason, message)) => self.set("AbleToScale", true, reason, message),
            None => self.set("AbleToScale", true, "ReadyForNewScale", "recommended size matches current size"),
        }
        match limited {
            Some((reason, message)) => self.set("ScalingLimited", true, reason, message),
            None => {
                let text = "the desired count is within the acceptable range";
                self.set("ScalingLimited", false, "DesiredWithinRange", text);
            }
        }
        desired
    }

    async fn rescale(
        &mut self,
        scale: Scale,
        current: i32,
        desired: i32,
        reason: &str,
        statuses: &Option<Vec<MetricStatus>>,
    ) -> Result<(), String> {
        if let Err(why) = scale.set(desired, self.cx).await {
            self.warn("FailedRescale", &format!("New size: {desired}; reason: {reason}; error: {why}")).await;
            let text = format!("the HPA controller was unable to update the target scale: {why}");
            self.set("AbleToScale", false, "FailedUpdateScale", text);
            self.set_numbers(current, self.status.desired_replicas, statuses.clone());
            return Err(why);
        }
        let text = format!("the HPA controller was able to update the target scale to {desired}");
        self.set("AbleToScale", true, "SucceededRescale", text);
        let message = format!("New size: {desired}; reason: {reason}");
        self.on.events.normal(self.cx, self.autoscaler, "SuccessfulRescale", message).await;
        let (spec, now) = (self.spec, self.cx.now());
        self.on.with(self.cx.key(), |known| known.history.note(spec, current, desired, now));
        Ok(())
    }

    /// Evaluates all metrics and returns the largest proposal. If a metric fails, the target is not scaled down.
    async fn measure(&mut self, scale: &Scale) -> Result<Outcome, (String, Option<Vec<MetricStatus>>)> {
        let pods = self.pods(scale).await.map_err(|why| (why, None))?;
        let metrics = self.spec.metrics.clone().unwrap_or_default();
        let measure = Measure::new(&self.on.metrics, self.autoscaler, scale, &pods, &self.on.scales, self.cx);
        let (mut best, mut failed): (Option<(i32, String)>, Vec<MetricError>) = (None, Vec::new());
        let mut statuses = vec![MetricStatus::default(); metrics.len()];
        for (metric, status) in metrics.iter().zip(&mut statuses) {
            match measure.propose(metric).await {
                Ok(Proposal { replicas, metric, status: measured }) => {
                    *status = measured;
                    if best.as_ref().is_none_or(|(most, _)| *most == 0 || replicas > *most) {
                        best = Some((replicas, metric));
                    }
                }
                Err(failure) => {
                    self.warn(failure.reason, &failure.condition).await;
                    failed.push(failure);
                }
            }
        }
        let replicas = best.as_ref().map_or(0, |(replicas, _)| *replicas);
        let is_too_little = best.is_none() || !failed.is_empty() && replicas < scale.replicas();
        if let Some(first) = failed.first().filter(|_| is_too_little) {
            let text = format!("the HPA was unable to compute the replica count: {}", first.condition);
            self.set("ScalingActive", false, first.reason, text);
            let (bad, all) = (failed.len(), metrics.len());
            let text = format!("invalid metrics ({bad} invalid out of {all}), first error is: {}", first.error);
            return Err((text, Some(statuses)));
        }
        let metric = best.map(|(_, metric)| metric).unwrap_or_default();
        let text = format!("the HPA was able to successfully calculate a replica count from {metric}");
        self.set("ScalingActive", true, "ValidMetricFound", text);
        Ok(Outcome { replicas, metric, statuses })
    }

    /// Finds the pods of the target, which no other autoscaler may select.
    async fn pods(&mut self, scale: &Scale) -> Result<Vec<Pod>, String> {
        let text = scale.selector();
        if text.is_empty() {
            let why = "selector is required";
            self.warn("SelectorRequired", why).await;
            self.set("ScalingActive", false, "InvalidSelector", "the HPA target's scale is missing a selector");
            return Err(why.into());
        }
        let selector = match flyball_core::LabelSelector::parse(text) {
            Ok(selector) => Demands::from(&selector),
            Err(error) => {
                let why = format!("couldn't convert selector into a corresponding internal selector object: {error}");
                self.warn("InvalidSelector", &why).await;
                self.set("ScalingActive", false, "InvalidSelector", why.clone());
                return Err(why);
            }
        };
        let namespace = self.cx.key().namespace().unwrap_or_default();
        let all = Api::<Pod>::namespaced(self.cx.client().clone(), namespace);
        let pods = all.list(&ListParams::default().labels(text)).await.map_err(|error| scale::text(&error))?.items;
        // Most pods of a target have the same labels.
        let labels: BTreeSet<&BTreeMap<String, String>> = pods.iter().map(ResourceExt::labels).collect();
        let matches = |selector: &Demands| {
            let mut labels = labels.iter().map(|labels| labels.iter());
            labels.any(|labels| selector.match_labels(labels.map(|(key, value)| (key.as_str(), value.as_str()))))
        };
        self.on.with(self.cx.key(), |known| known.selector = Some(selector));
        let mut selecting: Vec<ObjectKey> = {
            let known = self.on.known.lock();
            let from = known.by_key.range(ObjectKey::new(Some(namespace), "")..);
            let here = from.take_while(|(key, _)| key.namespace() == Some(namespace));
            let selecting = here.filter(|(_, known)| known.selector.as_ref().is_some_and(matches));
            selecting.map(|(key, _)| key.clone()).collect()
        };
        if selecting.len() > 1 {
            let existing = self.cx.caches().keys::<HorizontalPodAutoscaler>(Some(namespace));
            let existing: BTreeSet<ObjectKey> = existing.map_err(|error| error.to_string())?.into_iter().collect();
            selecting.retain(|key| existing.contains(key));
        }
        if selecting.len() > 1 {
            let names: Vec<String> = selecting.iter().map(|key| format!("{{{} {namespace}}}", key.name())).collect();
            let list = names.join(" ");
            let why = format!("pods by selector {text} are controlled by multiple HPAs: [{list}]");
            self.warn("AmbiguousSelector", &why).await;
            self.set("ScalingActive", false, "AmbiguousSelector", why.clone());
            return Err(why);
        }
        Ok(pods)
    }
}
