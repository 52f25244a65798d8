//! The driver of a run: performs the steps of the scenario, and the faults that occur between them.

use crate::fault::Fault;
use crate::history::{Actor, Change, Meta, TRANSIENT, stable_name};
use crate::hub::{AdminRequest, Hub, IncidentKind};
use crate::process::Activity;
use crate::scenario::{Scenario, Step};
use crate::schedule::Schedule;
use crate::site::{NAMESPACE, Port, name_at};
use crate::stage::{ServedResource, Stage};
use flyball_cluster::StoredObject;
use flyball_core::pointer;
use http::Method;
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance, sleep, sleep_until};

/// Number of exits of a process after which it is not expected to start.
const MAX_EXITS: u32 = 3;
/// Time in which revoked roles are restored.
const REVOCATION: Duration = Duration::from_secs(1);

/// The end of a step, or of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Step,
    /// A run in its expected state.
    Brief,
    Quiet,
}

/// Performs the steps of a run.
pub(crate) struct Driver<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) schedule: &'a Schedule,
    pub(crate) hub: &'a Arc<Hub>,
    /// The activity of an operator in another process.
    pub(crate) activity: Option<Arc<Activity>>,
    /// The last change that was noticed.
    pub(crate) noticed: Cell<Option<(u64, Instant)>>,
}

impl Driver<'_> {
    /// Plays the scenario, and ends the phase with faults. Returns the steps that the API server rejected.
    pub(crate) async fn play(&self) -> Vec<String> {
        let mut rejections = Vec::new();
        let empty = Scenario::new("");
        let scenario = self.stage.scenarios.get(&self.schedule.scenario).unwrap_or(&empty);
        for (n, step) in scenario.steps.iter().enumerate() {
            self.hub.begin_step(n + 1);
            self.disturb(n + 1).await;
            if self.schedule.has_step(n + 1)
                && let Err(why) = self.perform(step).await
            {
                rejections.push(format!("step {}: {why}", n + 1));
            }
        }
        let end = scenario.steps.len() + 1;
        self.hub.begin_step(end);
        self.disturb(end).await;
        self.wait_idle(Wait::Step).await;
        // Faults with a duration run their course.
        while self.hub.busy_until() > Instant::now() && !self.hub.is_exhausted() {
            sleep_until(self.hub.busy_until()).await;
        }
        self.hub.end_faults();
        rejections
    }

    /// Waits until nothing changes, and further until the world is as expected. Returns false if it never rests. A run
    /// that has an expected state, and is in it, ends after a shorter time.
    pub(crate) async fn calm_down(&self, has_expected: bool, is_expected: impl Fn() -> bool) -> bool {
        if has_expected && self.wait_idle(Wait::Brief).await && is_expected() {
            return true;
        }
        let mut is_quiet = self.wait_idle(Wait::Quiet).await;
        for _ in 0..self.hub.pace.graces {
            if !is_quiet || is_expected() {
                break;
            }
            sleep(self.hub.pace.grace).await;
            is_quiet = self.wait_idle(Wait::Quiet).await;
        }
        is_quiet
    }

    /// Waits for a resync of the operator, and restarts it; returns its writes since then.
    pub(crate) async fn restart(&self) -> Vec<String> {
        self.read_history();
        let before = self.hub.history_len();
        sleep(self.hub.pace.resync).await;
        (0..self.stage.replicas).for_each(|process| self.hub.crash(process, Duration::from_secs(1)));
        self.wait_idle(Wait::Quiet).await;
        self.read_history();
        let is_own = |change: &&Change| matches!(change.actor, Actor::Operator(_));
        self.hub.history_from(before).iter().filter(is_own).map(Change::stable_name).collect()
    }

    fn read_history(&self) {
        self.hub.read_history(Actor::ControlPlane, |_| false);
    }

    /// Waits until nothing has changed for a time. Returns false after the timeout.
    async fn wait_idle(&self, wait: Wait) -> bool {
        let pace = self.hub.pace;
        let (idle, timeout) = match wait {
            Wait::Step => (pace.step_idle, pace.step_timeout),
            Wait::Brief => (pace.brief, pace.quiet_timeout),
            Wait::Quiet => (pace.quiet, pace.quiet_timeout),
        };
        let began = Instant::now();
        // In real time, the time that earlier waits have taken counts.
        let noticed = self.noticed.get().filter(|_| !pace.is_virtual());
        let (mut last, mut since) = noticed.unwrap_or((0, began));
        let (mut revision, mut change) = (0, 0);
        loop {
            // Most polls follow no write.
            let latest = self.hub.server.revision();
            if latest != revision {
                (revision, change) = (latest, self.hub.server.last_change(&TRANSIENT));
            }
            if change != last {
                (last, since) = (change, Instant::now());
                self.noticed.set(Some((last, since)));
                self.read_history();
            } else if self.idle_time(since) >= idle && (wait == Wait::Step || self.hub.is_calm()) {
                return true;
            }
            if began.elapsed() > timeout || self.hub.is_exhausted() {
                return false;
            }
            sleep(pace.poll).await;
        }
    }

    /// Returns the time for which neither objects change, since a time, nor the operator starts up.
    fn idle_time(&self, since: Instant) -> Duration {
        match &self.activity {
            None => since.elapsed(),
            Some(activity) => activity.last_new().map_or(Duration::ZERO, |last| last.max(since).elapsed()),
        }
    }

    /// Waits until an operator in another process has started. Returns false if it does not start.
    pub(crate) async fn wait_for_start(&self, activity: &Activity) -> bool {
        let (pace, began) = (self.hub.pace, Instant::now());
        while began.elapsed() < pace.step_timeout && activity.exits() < MAX_EXITS {
            if self.idle_time(began) >= pace.step_idle / 2 {
                return true;
            }
            sleep(pace.poll).await;
        }
        false
    }

    /// Waits until nothing changes, and the custom resources satisfy the condition of the operator's command.
    async fn settle_step(&self) {
        let began = Instant::now();
        loop {
            self.wait_idle(Wait::Step).await;
            if self.is_ready() || began.elapsed() > self.hub.pace.step_timeout {
                return;
            }
            sleep(self.hub.pace.poll).await;
        }
    }

    fn is_ready(&self) -> bool {
        let Some(ready) = self.stage.subject.process().and_then(|command| command.ready.as_ref()) else { return true };
        let customs = self.custom_resources();
        customs.iter().all(|object| serde_json::from_slice(&object.body).is_ok_and(|object| ready(&object)))
    }

    async fn perform(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Apply(object) => self.apply(object).await,
            Step::Delete(name) => {
                let path = self.stage.locate_name(name).map_err(|error| error.to_string())?;
                self.delete(&path).await
            }
            Step::Remove(object) => {
                let (path, _) = self.stage.locate(object).map_err(|error| error.to_string())?;
                self.delete(&path).await
            }
            Step::DeleteNamespace => self.delete(&format!("/api/v1/namespaces/{NAMESPACE}")).await,
            Step::Settle => {
                self.settle_step().await;
                Ok(())
            }
            Step::Wait(time) => {
                sleep(*time).await;
                Ok(())
            }
        }
    }

    async fn apply(&self, object: &Value) -> Result<(), String> {
        let (path, served) = self.stage.locate(object).map_err(|error| error.to_string())?;
        let mut object = object.clone();
        if served.is_custom {
            self.schedule.without.iter().for_each(|pointer| remove(&mut object, pointer));
            self.hub.set_primary(path.clone(), object.clone());
        }
        let uri = format!("{path}?fieldManager=user&force=true");
        let content_type = "application/apply-patch+yaml";
        let mut why = String::new();
        let (interval, attempts) = self.hub.pace.retry;
        for _ in 0..attempts {
            let request = AdminRequest { method: Method::PATCH, path: &uri, content_type, body: &object };
            let (code, response) = self.hub.request(Actor::User, request).await;
            why = format!("{path} is rejected with {code}: {}", response["message"].as_str().unwrap_or_default());
            match code {
                200 | 201 => return Ok(()),
                // A webhook is down, or the definition is about to be created again.
                404 | 409 | 429 | 500.. => sleep(interval).await,
                _ => return Err(why),
            }
        }
        Err(why)
    }

    async fn delete(&self, path: &str) -> Result<(), String> {
        let (pace, began, mut is_sent) = (self.hub.pace, Instant::now(), false);
        while began.elapsed() < pace.delete_timeout && !self.hub.is_exhausted() {
            let method = if is_sent { Method::GET } else { Method::DELETE };
            let (code, response) = self.hub.request(Actor::User, AdminRequest::json(method, path, &Value::Null)).await;
            match code {
                404 => return Ok(()),
                400..=499 if code != 409 && code != 429 => return Err(format!("{path}: {}", response["message"])),
                _ => is_sent |= code < 300,
            }
            sleep(pace.poll).await;
        }
        let text = format!("it still exists {} s after its deletion", pace.delete_timeout.as_secs());
        if !self.hub.is_exhausted() {
            self.hub.record_incident(IncidentKind::Stuck, name_at(path), text.clone());
        }
        Err(format!("{path}: {text}"))
    }

    /// Carries out the faults that occur before a step.
    async fn disturb(&self, step: usize) {
        for process in 0..self.stage.replicas {
            let (site, faults) = self.hub.cross(process, Port::Step, step.to_string());
            for fault in faults {
                self.hub.trace(format_args!("{site} {fault}"), b"");
                self.inject(process, &fault).await;
            }
        }
    }

    async fn inject(&self, process: u8, fault: &Fault) {
        let (hub, time) = (self.hub, |seconds: &u32| Duration::from_secs((*seconds).into()));
        match fault {
            Fault::Restart => hub.crash(process, crate::hub::RESTART),
            Fault::RestartStale(site) => {
                if let Some(revision) = hub.revision_of(site) {
                    hub.freeze(process, revision);
                    hub.crash(process, crate::hub::RESTART);
                }
            }
            Fault::Absent(seconds) => {
                hub.crash(process, time(seconds));
                // Let the process end before the time passes.
                sleep(Duration::from_millis(1)).await;
                if hub.pace.is_virtual() {
                    advance(time(seconds)).await;
                }
            }
            Fault::Partition(seconds) => hub.partition(process, time(seconds)),
            Fault::PartitionWatches(seconds) => hub.silence_watches(process, time(seconds)),
            Fault::RestartServer(seconds) => hub.restart_server(time(seconds)),
            Fault::BlockLease(seconds) => hub.block_lease(process, time(seconds)),
            Fault::SilenceWebhooks(seconds) => hub.silence_webhooks(time(seconds)),
            Fault::Skew(seconds) => hub.skew(process, *seconds),
            Fault::Revoke(seconds) => self.revoke(time(seconds)).await,
            Fault::DeleteLease => self.delete_lease().await,
            Fault::RecreateDefinition => self.recreate_definitions().await,
            Fault::DeleteNamespace => {
                let path = format!("/api/v1/namespaces/{NAMESPACE}");
                hub.request(Actor::Fault, AdminRequest::json(Method::DELETE, &path, &Value::Null)).await;
            }
            _ => {}
        }
    }

    /// Removes the bindings of the operator's roles, and restores them later.
    async fn revoke(&self, time: Duration) {
        let bindings = self.stage.bindings.clone();
        for (collection, binding) in &bindings {
            let path = format!("{collection}/{}", binding["metadata"]["name"].as_str().unwrap_or_default());
            self.hub.request(Actor::Fault, AdminRequest::json(Method::DELETE, &path, &Value::Null)).await;
        }
        let until = self.hub.lasts(time);
        self.hub.lasts(time + REVOCATION);
        let hub = self.hub.clone();
        tokio::spawn(async move {
            sleep_until(until).await;
            for (collection, binding) in &bindings {
                hub.request(Actor::Fault, AdminRequest::json(Method::POST, collection, binding)).await;
            }
        });
    }

    async fn delete_lease(&self) {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", crate::stage::OPERATOR_NAMESPACE);
        self.hub.request(Actor::Fault, AdminRequest::json(Method::DELETE, &path, &Value::Null)).await;
    }

    /// Deletes the definitions of the custom resources, creates them again, and applies the custom resources again.
    async fn recreate_definitions(&self) {
        let root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let existing = self.custom_resources();
        for definition in &self.stage.definitions {
            let path = format!("{root}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
            // The request would wait for the end of its objects.
            if self.delete(&path).await.is_ok() {
                let mut fresh = definition.clone();
                fresh["metadata"] = json!({"name": definition["metadata"]["name"]});
                fresh["status"].take();
                self.hub.request(Actor::Fault, AdminRequest::json(Method::POST, root, &fresh)).await;
            }
        }
        for object in existing {
            let Some(manifest) = self.manifest(&object) else { continue };
            if let Err(why) = self.apply(&manifest).await {
                self.hub.record_error(why);
            }
        }
    }

    /// Returns the custom resources that are not being deleted.
    fn custom_resources(&self) -> Vec<StoredObject> {
        let mut objects = self.hub.server.stored_objects();
        objects.retain(|object| {
            let meta = Meta::of(&object.body);
            !meta.is_deleting() && self.stage.is_custom(&stable_name(&object.resource, &object.key, &meta))
        });
        objects
    }

    /// Returns a stored custom resource as a user applies it.
    fn manifest(&self, stored: &StoredObject) -> Option<Value> {
        let is_kind = |served: &ServedResource| {
            (&*served.group, &*served.plural) == (&*stored.resource.group, &*stored.resource.resource)
        };
        let (kind, served) = self.stage.served.iter().find(|(_, served)| is_kind(served))?;
        let mut object: Value = serde_json::from_slice(&stored.body).ok()?;
        let kept = ["name", "namespace", "labels", "annotations"];
        object["metadata"].as_object_mut()?.retain(|field, _| kept.contains(&&**field));
        remove(&mut object, "/status");
        object["apiVersion"] = served.api_version.as_str().into();
        object["kind"] = kind.as_str().into();
        Some(object)
    }
}

/// Removes a field from an object.
pub(crate) fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    let field = pointer::unescape(field);
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&*field)),
        Some(Value::Array(items)) => {
            if let Some(n) = field.parse().ok().filter(|n| *n < items.len()) {
                items.remove(n);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_removed_by_pointer() {
        let mut object = json!({"spec": {"a/b": 1, "list": [1, 2]}});
        for pointer in ["/spec/a~1b", "/spec/list/0", "/spec/list/9", "/missing/x", "x"] {
            remove(&mut object, pointer);
        }
        assert_eq!(object, json!({"spec": {"list": [2]}}));
    }
}
