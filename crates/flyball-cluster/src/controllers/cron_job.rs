//! Creates jobs on a schedule.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>.

mod schedule;

use super::job::end;
use crate::workload::events::Events;
use crate::workload::owners::{self, reference_to};
use crate::workload::time;
use crate::workload::{pods, references};
use flyball::{Action, Context, Controller, Reconcile, Result, is_namespace_terminating};
use flyball_core::cron::Schedule;
use flyball_core::time::{SignedDuration, Timestamp, is_time_zone, rfc3339_in, saturating_add};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use schedule::DueTimes;
use std::time::Duration;

/// Annotation with the scheduled time of a job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Delay of a scheduled check, as a tolerance for clock skew.
const DELTA: SignedDuration = SignedDuration::from_millis(100);

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(CronJobs(Events::new("cronjob-controller"))).owns::<Job>().replaces::<CronJob>().while_deleting()
}

struct CronJobs(Events);

impl Reconcile for CronJobs {
    type Resource = CronJob;

    async fn reconcile(&self, cron_job: &CronJob, cx: &Context<CronJob>) -> Result<Action> {
        let spec = &cron_job.spec;
        let jobs = cx.children::<Job>().await?.into_iter().filter(|job| owners::controls(cron_job, job)).collect();
        let status = cron_job.status.clone().unwrap_or_default();
        let mut turn = Turn { cron_job, spec, cx, events: &self.0, jobs, status, now: cx.now() };
        turn.clean_up().await;
        let next = match turn.sync_active_jobs().await {
            Ok(()) => turn.start().await,
            Err(error) => Err(error),
        };
        if turn.status != cron_job.status.clone().unwrap_or_default() {
            let changed = CronJob { status: Some(turn.status), ..cron_job.clone() };
            owners::tolerate(cx.replace_status(&changed).await)?;
        }
        Ok(next?.map_or_else(Action::done, Action::requeue_after))
    }
}

/// One reconcile of a cron job.
struct Turn<'a> {
    cron_job: &'a CronJob,
    spec: &'a CronJobSpec,
    cx: &'a Context<CronJob>,
    events: &'a Events,
    jobs: Vec<Job>,
    status: CronJobStatus,
    now: Timestamp,
}

impl Turn<'_> {
    async fn publish(&self, reason: &str, message: String) {
        self.events.normal(self.cx, self.cron_job, reason, message).await;
    }

    async fn warn(&self, reason: &str, message: String) {
        self.events.warning(self.cx, self.cron_job, reason, message).await;
    }

    fn is_active(&self, uid: Option<&String>) -> bool {
        self.status.active.iter().flatten().any(|job| job.uid.as_ref() == uid)
    }

    /// Removes a job from the list of active jobs.
    fn remove_active(&mut self, uid: Option<&String>) {
        if let Some(active) = &mut self.status.active {
            active.retain(|job| job.uid.as_ref() != uid);
        }
        self.status.active.take_if(|active| active.is_empty());
    }

    /// Deletes the oldest finished jobs beyond the history limits.
    async fn clean_up(&mut self) {
        let limits =
            [("Complete", self.spec.successful_jobs_history_limit), ("Failed", self.spec.failed_jobs_history_limit)];
        for (kind, limit) in limits {
            let Some(limit) = limit else { continue };
            let mut finished: Vec<Job> =
                self.jobs.iter().filter(|job| end(job).is_some_and(|(of, _)| of == kind)).cloned().collect();
            finished.sort_by_cached_key(|job| {
                let start = job.status.as_ref().and_then(|status| status.start_time.as_ref().map(|time| time.0));
                (start.is_none(), start, job.name_any())
            });
            let excess = finished.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            for job in &finished[..excess] {
                self.delete(job).await;
            }
        }
    }

    async fn delete(&mut self, job: &Job) -> bool {
        match self.cx.delete(job).await {
            Ok(()) => {
                self.remove_active(job.metadata.uid.as_ref());
                self.publish("SuccessfulDelete", format!("Deleted job {}", job.name_any())).await;
                true
            }
            Err(error) => {
                self.warn("FailedDelete", format!("Deleted job: {}", pods::reason(&error))).await;
                false
            }
        }
    }

    /// Updates the list of active jobs: removes finished and missing ones, and reports unknown ones.
    async fn sync_active_jobs(&mut self) -> Result<()> {
        for job in self.jobs.clone() {
            let (is_known, name) = (self.is_active(job.metadata.uid.as_ref()), job.name_any());
            let Some((condition, _)) = end(&job) else {
                if !is_known {
                    let text = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.warn("UnexpectedJob", text).await;
                }
                continue;
            };
            if is_known {
                self.remove_active(job.metadata.uid.as_ref());
                self.publish("SawCompletedJob", format!("Saw completed job: {name}, condition: {condition}")).await;
            }
            let status = job.status.as_ref().filter(|_| condition == "Complete");
            let completed = status.and_then(|status| status.completion_time.clone());
            if completed > self.status.last_successful_time {
                self.status.last_successful_time = completed;
            }
        }
        for job in self.status.active.clone().unwrap_or_default() {
            let is_there = self.jobs.iter().any(|known| known.metadata.uid == job.uid);
            if !is_there && self.find(job.name.as_deref().unwrap_or_default()).await?.is_none() {
                self.publish("MissingJob", format!("Active job went missing: {}", job.name.unwrap_or_default())).await;
                self.remove_active(job.uid.as_ref());
            }
        }
        Ok(())
    }

    /// Reads a job from the API server.
    async fn find(&self, name: &str) -> Result<Option<Job>> {
        references::read(&self.cx.sibling(name), self.cx).await
    }

    /// Creates the job that is due, if there is one; returns the time until the next one.
    async fn start(&mut self) -> Result<Option<Duration>> {
        if pods::is_deleting(self.cron_job) {
            return Ok(None);
        }
        if let Some(zone) = self.spec.time_zone.as_deref().filter(|zone| !zone.is_empty() && !is_time_zone(zone)) {
            self.warn("UnknownTimeZone", format!("invalid timeZone: {zone:?}: unknown time zone {zone}")).await;
            return Ok(None);
        }
        if self.spec.suspend == Some(true) {
            return Ok(None);
        }
        let Some(schedule) = self.schedule().await else { return Ok(None) };
        let due = match DueTimes::find(self.cron_job, &schedule, self.now, self.spec.starting_deadline_seconds) {
            Ok(due) => due,
            Err(why) => {
                self.warn("InvalidSchedule", format!("invalid schedule: {} : {why}", self.spec.schedule)).await;
                return Ok(None);
            }
        };
        if let Some(at) = due.last {
            if due.missed > schedule::MANY {
                let text =
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                self.warn("TooManyMissedTimes", text.into()).await;
            }
            if !self.run(at).await? {
                return Ok(None);
            }
        }
        // The job that was just created is taken into account.
        let cron_job = CronJob { status: Some(self.status.clone()), ..self.cron_job.clone() };
        let next = schedule::next(&cron_job, &schedule, self.now);
        Ok(next.map(|next| saturating_add(next, DELTA).duration_since(self.now).unsigned_abs()))
    }

    async fn schedule(&self) -> Option<Schedule> {
        let text = &self.spec.schedule;
        let has_zone = text.contains("TZ");
        if has_zone {
            let docs = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            let note = format!(
                "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see {docs} for more details"
            );
            self.warn("UnsupportedSchedule", note).await;
        }
        let zone = self.spec.time_zone.as_deref().filter(|zone| !has_zone && !zone.is_empty());
        match Schedule::parse(&zone.map_or_else(|| text.clone(), |zone| format!("TZ={zone} {text}"))) {
            Ok(schedule) => Some(schedule),
            Err(why) => {
                self.warn("UnparseableSchedule", format!("unparseable schedule: {text:?} : {why}")).await;
                None
            }
        }
    }

    /// Creates the job of a time, unless it is too late, exists already or must wait for another one. Returns true if
    /// the schedule continues; otherwise another event triggers the next reconcile.
    async fn run(&mut self, at: Timestamp) -> Result<bool> {
        let deadline = self.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        if deadline.is_some_and(|deadline| saturating_add(at, deadline) < self.now) {
            let text = format!("Missed scheduled time to start a job: {}", at.strftime("%a, %d %b %Y %H:%M:%S +0000"));
            self.warn("MissSchedule", text).await;
            return Ok(true);
        }
        let name = format!("{}-{}", self.cron_job.name_any(), at.as_second() / 60);
        let is_active = self.status.active.iter().flatten().any(|job| job.name.as_ref() == Some(&name));
        if is_active || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == at) {
            return Ok(true);
        }
        match self.spec.concurrency_policy.as_deref() {
            Some("Forbid") if self.status.active.is_some() => {
                let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.publish("JobAlreadyActive", text.into()).await;
                return Ok(true);
            }
            Some("Replace") => {
                for job in self.status.active.clone().unwrap_or_default() {
                    let Some(job) = self.find(job.name.as_deref().unwrap_or_default()).await? else { continue };
                    if !self.delete(&job).await {
                        return Err(format!("could not replace job {}", job.name_any()).into());
                    }
                }
            }
            _ => {}
        }
        let Some(job) = self.make(&name, at).await? else { return Ok(false) };
        self.status.active.get_or_insert_default().push(job);
        self.status.last_schedule_time = Some(time(at));
        Ok(true)
    }

    /// Creates a job and returns a reference to it; `None` if a job of this name is already in the status, or has
    /// another owner.
    async fn make(&self, name: &str, at: Timestamp) -> Result<Option<ObjectReference>> {
        let template = &self.spec.job_template;
        let meta = template.metadata.clone().unwrap_or_default();
        let mut annotations = meta.annotations.unwrap_or_default();
        annotations.insert(SCHEDULED.into(), rfc3339_in(at, self.spec.time_zone.as_deref().unwrap_or_default()));
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: self.cron_job.namespace(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![reference_to(self.cron_job)]),
            ..ObjectMeta::default()
        };
        let job = match self.cx.create(&Job { metadata, spec: template.spec.clone(), status: None }).await {
            Ok(job) => {
                self.publish("SuccessfulCreate", format!("Created job {name}")).await;
                job
            }
            // It was created before, but the status was not updated.
            Err(error) if error.status().is_some_and(kube::core::Status::is_already_exists) => {
                let job = self.find(name).await?.filter(|job| owners::controls(self.cron_job, job));
                match job.filter(|job| !self.is_active(job.metadata.uid.as_ref())) {
                    Some(job) => job,
                    None => return Ok(None),
                }
            }
            Err(error) if error.downcast_ref().is_some_and(is_namespace_terminating) => return Ok(None),
            Err(error) => {
                self.warn("FailedCreate", format!("Error creating job: {}", pods::reason(&error))).await;
                return Err(error);
            }
        };
        Ok(Some(ObjectReference {
            api_version: Some("batch/v1".into()),
            kind: Some("Job".into()),
            name: job.metadata.name,
            namespace: job.metadata.namespace,
            resource_version: job.metadata.resource_version,
            uid: job.metadata.uid,
            field_path: None,
        }))
    }
}
