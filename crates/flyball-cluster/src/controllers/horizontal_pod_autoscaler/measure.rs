//! Evaluation of each kind of metric: its value and the proposed replicas.

use super::replicas::{self, Samples, Target, Tolerance, Usage};
use super::scale::{Scale, Scales};
use crate::Metrics;
use flyball::Context;
use flyball_core::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, HorizontalPodAutoscaler,
    MetricIdentifier, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource,
    ObjectMetricStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Api, ResourceExt};

const TOLERANCE: f64 = 0.1;
const NO_PODS: &str = "unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
const NO_CUSTOM: &str =
    "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";

/// Proposal of one metric.
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The metric in messages.
    pub(super) metric: String,
    pub(super) status: MetricStatus,
}

/// The reason why a metric has no proposal.
pub(super) struct MetricError {
    pub(super) reason: &'static str,
    pub(super) condition: String,
    pub(super) error: String,
}

/// Input shared by all metrics of an autoscaler.
pub(super) struct Measure<'a> {
    metrics: &'a Metrics,
    scale: &'a Scale,
    pods: &'a [Pod],
    scales: &'a Scales,
    tolerance: Tolerance,
    cx: &'a Context<HorizontalPodAutoscaler>,
}

fn milli(amount: &Amount) -> i64 {
    amount.0.parse().map_or(0, |amount: Quantity| amount.milli_value())
}

fn amount(milli: i64) -> Amount {
    Amount(Quantity::from_milli(milli).to_string())
}

/// Writes an amount of a resource: memory in powers of two, if it is a whole number of bytes.
fn amount_of(resource: &str, milli: i64) -> Amount {
    let mut bytes = milli / 1000;
    if resource != "memory" || milli % 1000 != 0 || bytes.abs() < 1024 {
        return amount(milli);
    }
    let mut unit = "";
    for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if bytes % 1024 != 0 {
            break;
        }
        (bytes, unit) = (bytes / 1024, larger);
    }
    Amount(format!("{bytes}{unit}"))
}

/// Formats a selector for messages.
fn format_selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".into() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let (labels, expressions) = (labels.collect::<String>(), expressions.collect::<String>());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

impl<'a> Measure<'a> {
    pub(super) fn new(
        metrics: &'a Metrics,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &'a Scale,
        pods: &'a [Pod],
        scales: &'a Scales,
        cx: &'a Context<HorizontalPodAutoscaler>,
    ) -> Self {
        let behavior = autoscaler.spec.behavior.as_ref();
        let share = |amount: &Amount| milli(amount) as f64 / 1000.0;
        let up = behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref());
        let down = behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref());
        let tolerance = Tolerance { down: down.map_or(TOLERANCE, share), up: up.map_or(TOLERANCE, share) };
        Self { metrics, scale, pods, scales, tolerance, cx }
    }

    /// Evaluates one metric.
    pub(super) async fn propose(&self, metric: &MetricSpec) -> Result<Proposal, MetricError> {
        let status = MetricStatus { type_: metric.type_.clone(), ..MetricStatus::default() };
        if let Some(source) = &metric.resource {
            let (replicas, current, metric) = self.resource(&source.name, None, &source.target).map_err(|error| {
                let outer = format!("failed to get {} resource metric value", source.name);
                failure("FailedGetResourceMetric", &outer, error.clone(), error)
            })?;
            let resource = Some(ResourceMetricStatus { name: source.name.clone(), current });
            return Ok(Proposal { replicas, metric, status: MetricStatus { resource, ..status } });
        }
        if let Some(source) = &metric.container_resource {
            let container = &source.container;
            let proposed = self.resource(&source.name, Some(container), &source.target);
            let (replicas, current, metric) = proposed.map_err(|error| {
                let outer = format!("failed to get {container} container metric value");
                failure("FailedGetContainerResourceMetric", &outer, error.clone(), error)
            })?;
            let name = source.name.clone();
            let of = ContainerResourceMetricStatus { name, container: container.clone(), current };
            return Ok(Proposal { replicas, metric, status: MetricStatus { container_resource: Some(of), ..status } });
        }
        if let Some(source) = &metric.pods {
            return self.of_pods(source, status);
        }
        if let Some(source) = &metric.object {
            return self.of_object(source, status).await;
        }
        if let Some(source) = &metric.external {
            return self.external(source, status).await;
        }
        let error = format!("unknown metric source type {:?}", metric.type_);
        Err(MetricError { reason: "InvalidMetricSourceType", condition: error.clone(), error })
    }

    /// Returns the usage of a resource by pods.
    fn usage(&self, resource: &str, container: Option<&str>) -> Samples {
        let sample = |pod: &Pod| {
            let of = |container: &str| self.metrics.get(pod, &format!("{resource}-usage.{container}"));
            if let Some(container) = container {
                return of(container);
            }
            let containers = pod.spec.as_ref()?.containers.iter();
            let sum =
                || containers.map(|container| of(&container.name)).try_fold(0_i64, |sum, of| sum.checked_add(of?));
            self.metrics.get(pod, &format!("{resource}-usage")).or_else(sum)
        };
        self.pods.iter().filter_map(|pod| Some((pod.name_any(), sample(pod)?))).collect()
    }

    fn by_pods(&self, samples: Samples, is_cpu: bool, target: Target<'_>) -> Result<(i32, Usage), String> {
        replicas::by_pods(self.pods, samples, is_cpu, target, self.scale.replicas(), self.tolerance, self.cx.now())
    }

    fn resource(
        &self,
        resource: &str,
        container: Option<&str>,
        target: &MetricTarget,
    ) -> Result<(i32, MetricValueStatus, String), String> {
        let samples = self.usage(resource, container);
        let is_cpu = resource == "cpu";
        if let Some(value) = &target.average_value {
            if samples.is_empty() {
                let why = format!("unable to get metrics for resource {resource}: {NO_PODS}");
                return Err(format!("failed to get {resource} usage: {why}"));
            }
            let proposed = self.by_pods(samples, is_cpu, Target::Value(milli(value)));
            let (replicas, usage) = proposed.map_err(|why| format!("failed to get {resource} usage: {why}"))?;
            let average_value = Some(amount_of(resource, usage.value));
            let status = MetricValueStatus { average_value, ..MetricValueStatus::default() };
            return Ok((replicas, status, format!("{resource} resource")));
        }
        let Some(percent) = target.average_utilization else {
            let none = "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {none}"));
        };
        let propose = || {
            if samples.is_empty() {
                return Err(format!("unable to get metrics for resource {resource}: {NO_PODS}"));
            }
            let requests = replicas::requests(self.pods, resource, container)?;
            self.by_pods(samples, is_cpu, Target::Utilization(percent, &requests))
        };
        let (replicas, usage) = propose().map_err(|why| format!("failed to get {resource} utilization: {why}"))?;
        let status = MetricValueStatus {
            average_utilization: usage.utilization,
            average_value: Some(amount_of(resource, usage.value)),
            value: None,
        };
        let of = if container.is_some() { "container resource" } else { "resource" };
        Ok((replicas, status, format!("{resource} {of} utilization (percentage of request)")))
    }

    fn of_pods(&self, source: &PodsMetricSource, status: MetricStatus) -> Result<Proposal, MetricError> {
        let name = &source.metric.name;
        let sample = |pod: &Pod| Some((pod.name_any(), self.metrics.get(pod, &format!("metric.{name}"))?));
        let samples: Samples = self.pods.iter().filter_map(sample).collect();
        let target = source.target.average_value.as_ref().map_or(0, milli);
        let proposed = match samples.is_empty() {
            true => Err(format!("unable to get metric {name}: {NO_CUSTOM}")),
            false => self.by_pods(samples, false, Target::Value(target)),
        };
        let (replicas, usage) = proposed
            .map_err(|error| failure("FailedGetPodsMetric", "failed to get pods metric value", error.clone(), error))?;
        let current = MetricValueStatus { average_value: Some(amount(usage.value)), ..MetricValueStatus::default() };
        let pods = Some(PodsMetricStatus { current, metric: source.metric.clone() });
        let metric = format!("pods metric {name}");
        Ok(Proposal { replicas, metric, status: MetricStatus { pods, ..status } })
    }

    async fn of_object(&self, source: &ObjectMetricSource, status: MetricStatus) -> Result<Proposal, MetricError> {
        let (name, object) = (&source.metric.name, &source.described_object);
        let namespace = self.cx.key().namespace().unwrap_or_default();
        let found = self.scales.describe(object, self.cx).await.ok();
        let value = found.and_then(|found| self.metrics.get_dynamic(&object.kind, &found, &format!("metric.{name}")));
        let value = value.ok_or_else(|| {
            format!("unable to get metric {name}: {} on {namespace} {}/{NO_CUSTOM}", object.kind, object.name)
        });
        let fail = |why: String, error: String| {
            failure("FailedGetObjectMetric", "failed to get object metric value", why, error)
        };
        let (replicas, current, metric) = match (&source.target.value, &source.target.average_value) {
            (Some(target), _) if source.target.type_ == "Value" => {
                let value = value.map_err(|why| fail(why.clone(), why))?;
                let replicas = self.by_ratio(value, milli(target)).map_err(|why| fail(why.clone(), why))?;
                (replicas, whole_value(value), format!("{} metric {name}", object.kind))
            }
            (_, Some(target)) if source.target.type_ == "AverageValue" => {
                let value = value.map_err(|why| {
                    let error = format!("failed to get {name} object metric: {why}");
                    fail(why, error)
                })?;
                let (replicas, current) = self.by_share(value, milli(target));
                (replicas, current, external_name(&source.metric))
            }
            _ => {
                let why = "neither a value target nor an average value target was set";
                let why = format!("invalid object metric source: {why}");
                return Err(fail(why.clone(), why));
            }
        };
        let described_object = object.clone();
        let object = Some(ObjectMetricStatus { current, described_object, metric: source.metric.clone() });
        Ok(Proposal { replicas, metric, status: MetricStatus { object, ..status } })
    }

    async fn external(&self, source: &ExternalMetricSource, status: MetricStatus) -> Result<Proposal, MetricError> {
        let name = &source.metric.name;
        let namespace = self.cx.key().namespace().unwrap_or_default();
        let found = Api::<Namespace>::all(self.cx.client().clone()).get_opt(namespace).await.ok().flatten();
        let value = found.and_then(|found| self.metrics.get(&found, &format!("external.{name}")));
        let value = value.ok_or_else(|| {
            let what = format!("{namespace}/{name}/{}", format_selector(source.metric.selector.as_ref()));
            let why = format!("the server could not find the requested resource (get {name}.external.metrics.k8s.io)");
            format!("unable to get external metric {what}: unable to fetch metrics from external metrics API: {why}")
        });
        let fail = |why: String, error: String| {
            failure("FailedGetExternalMetric", &format!("failed to get {name} external metric value"), why, error)
        };
        let (replicas, current, metric) = match (&source.target.average_value, &source.target.value) {
            (Some(target), _) => {
                let value = value.map_err(|why| {
                    let error = format!("failed to get {name} external metric: {why}");
                    fail(why, error)
                })?;
                let (replicas, current) = self.by_share(value, milli(target));
                (replicas, current, external_name(&source.metric))
            }
            (None, Some(target)) => {
                let replicas = value.and_then(|value| Ok((self.by_ratio(value, milli(target))?, value)));
                let (replicas, value) = replicas.map_err(|why| {
                    let error = format!("failed to get external metric {name}: {why}");
                    fail(why, error)
                })?;
                (replicas, whole_value(value), external_name(&source.metric))
            }
            (None, None) => {
                let why = "neither a value target nor an average value target was set";
                let why = format!("invalid external metric source: {why}");
                return Err(fail(why.clone(), why));
            }
        };
        let external = Some(ExternalMetricStatus { current, metric: source.metric.clone() });
        Ok(Proposal { replicas, metric, status: MetricStatus { external, ..status } })
    }

    fn by_ratio(&self, value: i64, target: i64) -> Result<i32, String> {
        replicas::by_ratio(self.pods, value as f64 / target as f64, self.scale.replicas(), self.tolerance)
    }

    fn by_share(&self, value: i64, target: i64) -> (i32, MetricValueStatus) {
        let (replicas, share) = replicas::by_share(value, target, self.scale.present(), self.tolerance);
        (replicas, MetricValueStatus { average_value: Some(amount(share)), ..MetricValueStatus::default() })
    }
}

fn whole_value(value: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(amount(value)), ..MetricValueStatus::default() }
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, format_selector(metric.selector.as_ref()))
}

fn failure(reason: &'static str, outer: &str, condition: String, error: String) -> MetricError {
    MetricError { reason, condition, error: format!("{outer}: {error}") }
}
