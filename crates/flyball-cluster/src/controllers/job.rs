//! Runs pods until enough of them have succeeded, or too many have failed.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/job/>.

mod counts;
mod indexes;
mod pod_facts;
mod policies;
mod retries;
mod tracking;

pub(super) use tracking::orphans;

use crate::workload::events::Events;
use crate::workload::owners::{self, Orphans, Selector};
use crate::workload::pods::{self, is_active};
use crate::workload::selection::{BySelector, Selects, candidates};
use crate::workload::time;
use counts::Counts;
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::{SignedDuration, Timestamp};
use indexes::Indexes;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use kube::ResourceExt;
use pod_facts::INDEX;
use std::borrow::Cow;
use std::time::Duration;
use tracking::{is_tracked, untrack};

/// Requeue delay while pods terminate.
const SOON: Duration = Duration::from_secs(1);

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Jobs(Events::new("job-controller")))
        .owns::<Pod>()
        .watches::<Pod>(candidates::<Job>)
        .index::<BySelector<Job>>()
        .index::<Orphans<Pod>>()
        .replaces::<Pod>()
        .replaces::<Job>()
        .while_deleting()
}

impl Selects for Job {
    fn selector(&self) -> Option<Selector> {
        Selector::new(self.spec.as_ref()?.selector.as_ref())
    }
}

struct Jobs(Events);

impl Reconcile for Jobs {
    type Resource = Job;

    async fn reconcile(&self, job: &Job, cx: &Context<Job>) -> Result<Action> {
        let (Some(spec), Some(selector)) = (&job.spec, job.selector()) else { return Ok(Action::done()) };
        if spec.managed_by.as_deref().is_some_and(|manager| manager != "kubernetes.io/job-controller") {
            return Ok(Action::done());
        }
        let mut pods: Vec<Pod> = owners::claim(job, &selector, cx).await?;
        if end(job).is_some() {
            for pod in pods.iter().filter(|pod| is_tracked(pod)) {
                untrack(pod, cx).await?;
            }
            return Ok(Action::done());
        }
        let now = cx.now();
        let mut job = job.clone();
        if let Some((reason, text)) = note_start(&mut job, spec, now) {
            self.0.normal(cx, &job, reason, text).await;
        }
        let is_ending = pods::is_deleting(&job) || is_decided(job.status.as_ref());
        let counts = Counts::of(&job, spec, &pods, is_ending);
        if !is_decided(job.status.as_ref())
            && let Some((kind, reason, message)) = verdict(&job, spec, &counts, &pods, now)
        {
            put(&mut job, kind, "True", reason, &message, now);
        }
        let wait = count_and_manage(&mut job, spec, &counts, &mut pods, &self.0, cx).await?;
        Ok(wait.map_or_else(Action::done, Action::requeue_after))
    }
}

fn has(status: Option<&JobStatus>, kind: &str) -> bool {
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Returns the final condition of a job, `Complete` or `Failed`, and its time.
pub(super) fn end(job: &Job) -> Option<(&str, Option<Timestamp>)> {
    let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let last = conditions.find(|is| matches!(&*is.type_, "Complete" | "Failed") && is.status == "True")?;
    Some((&last.type_, last.last_transition_time.as_ref().map(|time| time.0)))
}

/// Returns true if the result of the job is decided; its pods may still be terminating.
fn is_decided(status: Option<&JobStatus>) -> bool {
    has(status, "SuccessCriteriaMet") || has(status, "FailureTarget")
}

fn put(job: &mut Job, kind: &str, holds: &str, reason: &str, message: &str, now: Timestamp) {
    let now = Some(time(now));
    let condition = JobCondition {
        type_: kind.into(),
        status: holds.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: now.clone(),
        last_transition_time: now,
    };
    let conditions = job.status.get_or_insert_default().conditions.get_or_insert_default();
    match conditions.iter_mut().find(|known| known.type_ == kind) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Records the start, suspension and resumption of a job; returns the reason and message of the event.
fn note_start(job: &mut Job, spec: &JobSpec, now: Timestamp) -> Option<(&'static str, &'static str)> {
    let was_suspended = has(job.status.as_ref(), "Suspended");
    let mut event = None;
    match (spec.suspend == Some(true), was_suspended) {
        (true, false) => {
            put(job, "Suspended", "True", "JobSuspended", "Job suspended", now);
            event = Some(("Suspended", "Job suspended"));
        }
        (false, true) => {
            put(job, "Suspended", "False", "JobResumed", "Job resumed", now);
            job.status.get_or_insert_default().start_time = Some(time(now));
            event = Some(("Resumed", "Job resumed"));
        }
        _ => {}
    }
    let status = job.status.get_or_insert_default();
    match spec.suspend {
        Some(true) => status.start_time = None,
        _ => drop(status.start_time.get_or_insert_with(|| time(now))),
    }
    event
}

fn until_deadline(job: &Job, spec: &JobSpec, now: Timestamp) -> Option<SignedDuration> {
    let began = job.status.as_ref()?.start_time.as_ref()?.0;
    Some(SignedDuration::from_secs(spec.active_deadline_seconds?).saturating_sub(now.duration_since(began)))
}

/// Decides if the job has succeeded or failed.
fn verdict(
    job: &Job,
    spec: &JobSpec,
    counts: &Counts,
    pods: &[Pod],
    now: Timestamp,
) -> Option<(&'static str, &'static str, String)> {
    let limit = spec.backoff_limit.unwrap_or(6);
    let restarts = || -> i32 {
        let alive = pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
        let statuses = alive.filter_map(|pod| pod.status.as_ref());
        let containers =
            statuses.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses));
        containers.flatten().map(|container| container.restart_count).fold(0, i32::saturating_add)
    };
    let restarts_in_place =
        spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure");
    let waiting = counts.waiting.values().filter(|pod| policies::counts(spec, pod)).count();
    let failed = counts.failed.saturating_add(i32::try_from(waiting).unwrap_or(i32::MAX));
    let exceeds = failed > limit || restarts_in_place && restarts() > 0 && restarts() >= limit;
    let is_late = until_deadline(job, spec, now).is_some_and(|rest| rest <= SignedDuration::ZERO);
    let active = pods.iter().any(is_active);
    let is_complete = match spec.completions {
        Some(completions) => counts.succeeded >= completions,
        None => counts.succeeded > 0 && !active,
    };
    let (failed, succeeded) = ("FailureTarget", "SuccessCriteriaMet");
    let is_suspended = spec.suspend == Some(true);
    let lost = counts.lost.as_ref().map_or(0, Indexes::len);
    let has_lost = lost > 0 && lost.saturating_add(counts.completed.len()) >= spec.completions.unwrap_or(i32::MAX);
    if let Some(why) = policies::fails_job(spec, pods) {
        Some((failed, "PodFailurePolicy", why))
    } else if exceeds {
        Some((failed, "BackoffLimitExceeded", "Job has reached the specified backoff limit".into()))
    } else if is_late && !is_suspended {
        Some((failed, "DeadlineExceeded", "Job was active longer than specified deadline".into()))
    } else if spec.max_failed_indexes.is_some_and(|most| lost > most) {
        let text = "Job has exceeded the specified maximal number of failed indexes";
        Some((failed, "MaxFailedIndexesExceeded", text.into()))
    } else if has_lost {
        Some((failed, "FailedIndexes", "Job has failed indexes".into()))
    } else if let Some(why) = policies::has_succeeded(spec, &counts.completed) {
        Some((succeeded, "SuccessPolicy", why))
    } else if is_complete && !is_suspended {
        Some((succeeded, "CompletionsReached", "Reached expected number of succeeded pods".into()))
    } else {
        None
    }
}

/// Creates and deletes pods, counts terminated ones, and writes the status; returns the delay before the next sync.
async fn count_and_manage(
    job: &mut Job,
    spec: &JobSpec,
    counts: &Counts,
    pods: &mut Vec<Pod>,
    events: &Events,
    cx: &Context<Job>,
) -> Result<Option<Duration>> {
    let decided = is_decided(job.status.as_ref());
    let mut wait = None;
    let managed = match pods::is_deleting(job) {
        true => Ok(()),
        false => manage(job, spec, counts, pods, &mut wait, events, cx).await,
    };
    if counts.has_uncounted() {
        counts.list(job.status.get_or_insert_default());
        if !write(job, cx).await? {
            return Ok(None);
        }
    }
    for pod in pods.iter().filter(|pod| is_tracked(pod) && counts.is_accounted_for(pod)) {
        untrack(pod, cx).await?;
    }
    pods.retain(|pod| !(counts.lists(pod) && pods::is_deleting(pod)));
    counts.write_to_status(job.status.get_or_insert_default());
    let (active, ready, terminating) = counts::running(pods);
    let status = job.status.get_or_insert_default();
    status.active = (active > 0).then_some(active);
    (status.ready, status.terminating) = (Some(ready), Some(terminating));
    if decided && active == 0 && terminating == 0 && !counts.has_postponed() {
        finish(job, cx.now());
        publish_end(job, spec, events, cx).await;
    } else if decided || terminating > 0 || counts.has_postponed() {
        wait = Some(SOON);
    } else if let Some(rest) = until_deadline(job, spec, cx.now()) {
        let rest = rest.unsigned_abs().max(Duration::from_millis(1));
        wait = Some(wait.map_or(rest, |wait| rest.min(wait)));
    }
    write(job, cx).await?;
    managed.map(|()| wait)
}

/// Sets the final condition of the decision.
fn finish(job: &mut Job, now: Timestamp) {
    let conditions = job.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let decision =
        conditions.iter().find(|c| matches!(&*c.type_, "SuccessCriteriaMet" | "FailureTarget") && c.status == "True");
    let Some(decision) = decision else { return };
    let kind = if decision.type_ == "FailureTarget" { "Failed" } else { "Complete" };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    put(job, kind, "True", &text(&decision.reason), &text(&decision.message), now);
    if kind == "Complete" {
        job.status.get_or_insert_default().completion_time = Some(time(now));
    }
}

async fn publish_end(job: &Job, spec: &JobSpec, events: &Events, cx: &Context<Job>) {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let failed = conditions.into_iter().find(|condition| condition.type_ == "Failed");
    if let Some(failed) = failed {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return events.warning(cx, job, &text(&failed.reason), text(&failed.message)).await;
    }
    let succeeded = job.status.as_ref().and_then(|status| status.succeeded);
    if spec.completions.is_some() && succeeded > spec.completions {
        let text = "Too many succeeded pods running after completion count reached";
        events.warning(cx, job, "TooManySucceededPods", text).await;
    }
    events.normal(cx, job, "Completed", "Job completed").await;
}

/// Writes the status if it changed; returns true if the job still exists.
async fn write(job: &mut Job, cx: &Context<Job>) -> Result<bool> {
    let known = cx.get::<Job>(cx.key()).await?;
    if known.as_ref().is_some_and(|known| known.status == job.status) {
        return Ok(true);
    }
    match owners::tolerate(cx.replace_status(job).await)? {
        Some(written) => *job = written,
        None => return Ok(false),
    }
    Ok(true)
}

/// Adjusts the number of active pods.
async fn manage(
    job: &Job,
    spec: &JobSpec,
    counts: &Counts,
    pods: &mut Vec<Pod>,
    wait: &mut Option<Duration>,
    events: &Events,
    cx: &Context<Job>,
) -> Result<()> {
    let (active, _, terminating) = counts::running(pods);
    let desired = if is_decided(job.status.as_ref()) { 0 } else { counts::desired(spec, counts, active) };
    if active > desired {
        let mut victims: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
        pods::sort_for_deletion(&mut victims, cx.now(), |_| 0);
        let excess = usize::try_from(active - desired).unwrap_or(0).min(pods::BURST);
        for pod in &victims[..excess] {
            pods::delete(job, pod, events, cx).await?;
        }
        *wait = Some(SOON);
        return Ok(());
    }
    let missing = desired - active - counts::reserved(spec, terminating);
    // Pods that ended and are not counted yet have no replacement.
    if missing <= 0 || counts.has_postponed() {
        return Ok(());
    }
    let now = cx.now();
    if counts.lost.is_none()
        && let Some(backoff) = counts::backoff(pods, now)
    {
        *wait = Some(backoff);
        return Ok(());
    }
    let missing = usize::try_from(missing).unwrap_or(0);
    let (missing, is_cut) = (missing.min(pods::BURST), missing > pods::BURST);
    if is_cut {
        *wait = Some(pods::NEXT_BURST);
    }
    let (created, result) = match counts::is_indexed(spec) {
        true => {
            let holds =
                |pod: &&Pod| is_active(pod) || policies::replaces_failed_only(spec) && pods::is_terminating(pod);
            let running: Indexes = pods.iter().filter(holds).filter_map(pod_facts::index).collect();
            let used = running.union(&counts.completed).union(counts.lost.as_ref().unwrap_or(&Indexes::default()));
            let free = used.free(spec.completions.unwrap_or(0)).take(missing);
            let backoff = |index: &i32| retries::backoff(counts.waiting.get(index), now);
            let (late, due): (Vec<i32>, Vec<i32>) = free.partition(|index| backoff(index).is_some());
            if !is_cut {
                *wait = late.iter().filter_map(backoff).min();
            }
            let pod = |at: usize| Cow::Owned(indexed_pod(job, spec, due[at], counts));
            pods::create(job, due.len(), pod, events, cx).await
        }
        false => {
            let pod = pod(job, spec);
            pods::create(job, missing, |_| Cow::Borrowed(&pod), events, cx).await
        }
    };
    pods.extend(created);
    result
}

fn pod(job: &Job, spec: &JobSpec) -> Pod {
    let mut pod = pods::from_template(&spec.template, job);
    pod.finalizers_mut().push(tracking::FINALIZER.into());
    pod
}

/// Creates the pod of an index, with the index in its annotations, its labels, its environment and its name.
fn indexed_pod(job: &Job, spec: &JobSpec, index: i32, counts: &Counts) -> Pod {
    let mut pod = pod(job, spec);
    if counts.lost.is_some() {
        retries::annotate(&mut pod, spec, counts.waiting.get(&index));
    }
    let name = format!("{}-{index}", job.name_any());
    pod.metadata.generate_name = Some(format!("{name}-"));
    pod.annotations_mut().insert(INDEX.into(), index.to_string());
    pod.labels_mut().insert(INDEX.into(), index.to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    let from = format!("metadata.labels['{INDEX}']");
    let variable = serde_json::json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": from}}});
    if let Ok(variable) = serde_json::from_value::<EnvVar>(variable) {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let env = container.env.get_or_insert_default();
            if !env.iter().any(|known| known.name == variable.name) {
                env.push(variable.clone());
            }
        }
    }
    pod
}
