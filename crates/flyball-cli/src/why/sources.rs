//! The investigation: reads the object, its owners and the ledgers, and builds the answer.

use super::answer::{Answer, Field, Question, Source, Step, StepKind};
use super::chain;
use super::claims::{self, Choice, Claim, Recorded};
use super::evidence::{self, Evidence, Moment, Search};
use super::fields::{self, Manager, Segment};
use super::operators::{Operator, OperatorArgs, Operators};
use super::page::{Cause, Object, ObjectPage, Reconcile, time};
use super::reasons::{Reasons, is_unscheduled, waits};
use super::schema;
use super::versions::{Change, History};
use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Error, Result, ResultExt};
use flyball_console::hide_values;
use flyball_console::{Claimant, LoggedWrite, WriteTarget, is_manager, logged_writes};
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of the steps of a chain.
const MAX_STEPS: usize = 32;
/// Limit of the controllers above an object.
const MAX_OWNERS: usize = 8;
/// Limit of permissions that the API server is asked for claims to one write.
const MAX_REVIEWS: usize = 32;
/// Difference of clocks up to which the local one is used, which is more precise than the server's time.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);
/// Status codes of failed requests.
const FORBIDDEN: u16 = StatusCode::FORBIDDEN.as_u16();
const NOT_FOUND: u16 = StatusCode::NOT_FOUND.as_u16();

/// The findings while a chain is followed.
struct Investigation<'a> {
    client: &'a Client,
    kinds: &'a Kinds,
    operators: Operators,
    answer: Answer,
    history: History<'a>,
    visited: BTreeSet<(Object, Option<String>, Option<u64>)>,
}

/// Answers a question about an object. `server` is the URL of the API server.
///
/// # Errors
///
/// If the object cannot be read, or the path of a field is invalid.
pub(crate) async fn investigate(
    (client, server): (&Client, &str),
    kinds: &Kinds,
    (kind, namespace, name): (&Kind, &str, &str),
    args: &OperatorArgs,
    question: &Question,
) -> Result<Answer> {
    let path = match question {
        Question::Field(path) => Some(fields::parse(path)?),
        Question::Object | Question::Not => None,
    };
    let live = get(client, &kind.path(kind.namespaced.then_some(namespace), Some(name))).await;
    let live = live.context(format!("cannot read {} {name}", kind.kind))?;
    if let (Question::Field(text), Some(path)) = (question, &path)
        && fields::value(&live, path).is_null()
        && schema::is_unknown(client, &Object::of(&live), path).await
    {
        return Err(Error::usage(format!("the schema of {} has no field {text}", kind.kind))
            .hint("use a path such as spec.replicas or spec.containers[name=web].image"));
    }
    let operators = Operators::find(client, server, args).await?;
    let (now, object) = (now(client).await, Object::of(&live));
    let (state, since) = state(&live);
    let sources: Vec<Source> = operators.sources.clone();
    let (chain, waits, reasons, excluded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let field = None;
    let answer = Answer { object, state, since, field, chain, waits, reasons, excluded, sources, now };
    let history = History::new(client, kinds);
    let mut investigation = Investigation { client, kinds, operators, answer, history, visited: BTreeSet::new() };
    match question {
        Question::Not => investigation.explain_inaction(&live).await,
        Question::Object => {
            investigation.follow(live.clone(), Moment::default(), None).await;
            investigation.explain_state(&live).await;
        }
        Question::Field(text) => {
            let path = path.unwrap_or_default();
            investigation.answer.field = Some(field_of(&live, text, &path));
            investigation.follow(live, Moment::default(), Some(&path)).await;
        }
    }
    Ok(investigation.answer)
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let mut object = client.request(request).await?;
    if fields::is_secret(&object) {
        hide_values(&mut object);
    }
    Ok(object)
}

/// Returns the time of the cluster, whose clock may be simulated: that of the answer to the question who asks. It needs
/// no permission and writes nothing.
async fn now(client: &Client) -> Timestamp {
    let local = Clock::system().now();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes());
    let Ok(request) = request else { return local };
    let answer = client.request::<Value>(request).await.unwrap_or_default();
    let server = answer["metadata"]["creationTimestamp"].as_str().and_then(parse_rfc3339);
    server.filter(|server| server.duration_since(local).abs() > MAX_CLOCK_SKEW).unwrap_or(local)
}

fn field_of(live: &Value, text: &str, path: &[Segment]) -> Field {
    let value = fields::value(live, path).clone();
    let managers = fields::managers(live, Some(path)).into_iter().map(|manager| manager.name);
    Field { path: text.to_owned(), value, managers: managers.collect() }
}

/// Returns the state of an object in a word or two, and since when it has it.
fn state(live: &Value) -> (String, Option<Timestamp>) {
    let at = |value: &Value| value.as_str().and_then(parse_rfc3339);
    let created = at(&live["metadata"]["creationTimestamp"]);
    if live["metadata"]["deletionTimestamp"].is_string() {
        return ("being deleted".to_owned(), at(&live["metadata"]["deletionTimestamp"]));
    }
    if let Some(phase) = live["status"]["phase"].as_str() {
        let started = at(&live["status"]["startTime"]).filter(|_| phase == "Running");
        return (phase.to_owned(), started.or(created));
    }
    let conditions = live["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let decisive = conditions.iter().find(|condition| condition["type"] == "Ready" || condition["type"] == "Available");
    match decisive {
        Some(condition) => {
            let name = condition["type"].as_str().unwrap_or_default().to_lowercase();
            let state = if condition["status"] == "True" { name } else { format!("not {name}") };
            (state, at(&condition["lastTransitionTime"]))
        }
        None => (String::new(), created),
    }
}

impl Investigation<'_> {
    /// Follows the chain of causes from a moment of an object.
    async fn follow(&mut self, mut live: Value, mut moment: Moment, path: Option<&[Segment]>) {
        let mut path = path;
        while self.answer.chain.len() < MAX_STEPS {
            let object = Object::of(&live);
            if !self.visited.insert((object.clone(), moment.version.clone(), moment.newest)) {
                return;
            }
            let log = self.logged_writes(&object).await;
            let mut own = log.as_deref().map(|log| evidence::of_this_object(&live, log));
            let managers = fields::managers(&live, path);
            let recorded = self.operators.reconciles(&object).await;
            let (facts, claims): (Vec<_>, Vec<_>) =
                recorded.into_iter().partition(|recorded| recorded.claimant.is_none());
            if let (Some(log), None) = (&mut own, &moment.version) {
                match path {
                    Some(path) => moment.version = self.write_of_field(&live, log, path, &managers).await,
                    None => {
                        let is_admitted = |write: &LoggedWrite| moment.admits(Some(&write.revision), time(&write.time));
                        log.retain(is_admitted);
                        let at = self.write_of_spec(&live, log, &facts, false).await;
                        log.drain(..at.unwrap_or(log.len()));
                    }
                }
            }
            let search = Search { live: &live, object: &object, moment: &moment, path, managers: &managers };
            let next = match search.evidence(&facts, own.as_deref()) {
                Evidence::Ledger(recorded, write) => {
                    self.answer.chain.push(chain::write(recorded, write));
                    self.cause(recorded).await
                }
                evidence => {
                    self.add_claim(&claims, &search, log.as_deref()).await;
                    self.without_ledger(&search, evidence, log.as_deref()).await
                }
            };
            let Some((next, at)) = next else { return };
            (live, moment, path) = (next, at, None);
        }
    }

    /// Adds the cause of a reconcile, and returns the object to continue with.
    async fn cause(&mut self, recorded: &Recorded) -> Option<(Value, Moment)> {
        let reconcile = &recorded.reconcile;
        let cause = self.main_cause(reconcile).await?;
        self.answer.chain.push(chain::caused_by(recorded, cause));
        let before = time(&reconcile.began);
        let newest = |version: &Option<String>| version.as_deref().and_then(|version| version.parse().ok());
        if cause.kind == "change" {
            if cause.after.is_none() {
                self.deletion(&cause.object, &Moment { before, ..Moment::default() }).await;
                return None;
            }
            let live = self.read(&cause.object).await?;
            let version = self.decisive_version(&live, cause).await.or_else(|| cause.after.clone());
            let newest = newest(&version);
            return Some((live, Moment { version, newest, before }));
        }
        // A retry or a timer continues an earlier reconcile of the same object, whose spec is the origin.
        let live = self.read(&reconcile.object).await?;
        Some((live, Moment { version: None, newest: newest(&reconcile.resource_version), before }))
    }

    /// Chooses the cause that explains a reconcile best: the newest change of a specification, of the reconciled object
    /// before others, then the newest change that is more than one of a status.
    async fn main_cause<'r>(&mut self, reconcile: &'r Reconcile) -> Option<&'r Cause> {
        let first = chain::main_cause(reconcile)?;
        let changes = || reconcile.causes.iter().rev().filter(|cause| cause.kind == "change");
        if changes().nth(1).is_none() {
            return Some(first);
        }
        let is_own = |cause: &&Cause| cause.object.is_same(&reconcile.object);
        let (own, others): (Vec<&Cause>, Vec<&Cause>) = changes().partition(is_own);
        for group in [own, others] {
            let mut newest = None;
            for cause in group {
                match self.change(cause).await {
                    Some(Change::Spec) => return Some(cause),
                    Some(Change::Status | Change::Finalizers) => {}
                    Some(Change::Metadata) | None => newest = newest.or(Some(cause)),
                }
            }
            if newest.is_some() {
                return newest;
            }
        }
        Some(first)
    }

    /// Returns what a change touched; `None` if that is unknown. Besides the versions, the ledgers of writers prove it.
    async fn change(&mut self, cause: &Cause) -> Option<Change> {
        let (Some(before), Some(after)) = (&cause.before, &cause.after) else { return Some(Change::Spec) };
        let (before, after) = (before.parse().ok()?, after.parse().ok()?);
        if let Some(versions) = self.history.between(&cause.object, before, after).await {
            return Some(versions.change());
        }
        let is_since = |version: &str| version.parse::<u64>().is_ok_and(|version| before < version && version <= after);
        let recorded = self.operators.reconciles(&cause.object).await;
        let writes = recorded.iter().filter(|known| known.claimant.is_none()).flat_map(|known| &known.reconcile.writes);
        let mut writes =
            writes.filter(|write| write.object.is_same(&cause.object) && write.after.as_deref().is_some_and(is_since));
        let is_of_spec = |field: &String| !field.starts_with("metadata") && !field.starts_with("status");
        if writes.any(|write| write.fields.iter().any(is_of_spec)) {
            return Some(Change::Spec);
        }
        let log = self.logged_writes(&cause.object).await.unwrap_or_default();
        let mut since = log.iter().filter(|write| is_since(&write.revision)).peekable();
        let is_of_status = since.peek().is_some() && since.all(|write| write.subresource == "status");
        is_of_status.then_some(Change::Status)
    }

    /// Returns the version of a change that explains the specification, if the control plane keeps the writes: a change
    /// may contain several, such as that of a user and that of a finalizer. After a pause, all earlier writes count.
    async fn decisive_version(&mut self, live: &Value, cause: &Cause) -> Option<String> {
        let after: u64 = cause.after.as_ref()?.parse().ok()?;
        let before: u64 = cause.before.as_ref().and_then(|before| before.parse().ok()).unwrap_or_default();
        let mut log = evidence::of_this_object(live, &self.logged_writes(&cause.object).await?);
        let is_resumed = before > 0
            && self.history.between(&cause.object, before, after).await.is_some_and(|versions| versions.resumes());
        let since = if is_resumed { 0 } else { before };
        log.retain(|write| write.revision.parse::<u64>().is_ok_and(|revision| since < revision && revision <= after));
        let recorded = self.operators.reconciles(&cause.object).await;
        let facts: Vec<Recorded> = recorded.into_iter().filter(|known| known.claimant.is_none()).collect();
        let at = self.write_of_spec(live, &log, &facts, is_resumed).await?;
        Some(log.swap_remove(at).revision)
    }

    /// Finds the newest write that explains the specification of an object: none of its status, nor of finalizers, nor
    /// of metadata by an operator that reconciles the object.
    async fn write_of_spec(
        &mut self,
        live: &Value,
        log: &[LoggedWrite],
        facts: &[Recorded],
        is_resumed: bool,
    ) -> Option<usize> {
        let object = Object::of(live);
        let mut seen = BTreeSet::new();
        for (at, write) in log.iter().enumerate() {
            if evidence::is_of_part(&write.subresource) {
                continue;
            }
            let is_newest = seen.insert((&write.manager, &write.subresource));
            let known = facts.iter().flat_map(|known| &known.reconcile.writes);
            let mut known = known.filter(|known| known.object.is_same(&object));
            if known.any(|known| known.verb == "finalizer" && known.after.as_ref() == Some(&write.revision)) {
                continue;
            }
            let is_own = || {
                facts
                    .iter()
                    .any(|known| known.reconcile.object.is_same(&object) && is_manager(&known.manager, &write.manager))
            };
            let versions = self.history.of_write(&object, &write.revision).await;
            let is_of_spec = match versions.map(|versions| versions.change()) {
                Some(Change::Spec) => true,
                Some(Change::Metadata) => !is_resumed && !is_own(),
                Some(Change::Finalizers | Change::Status) => false,
                None => !(is_newest && fields::owns_only_finalizers(live, &write.manager, &write.subresource)),
            };
            if is_of_spec {
                return Some(at);
            }
        }
        None
    }

    /// Returns the version of the write that changed a field last, if the API server proves it. Without proof, writes
    /// of a manager that has made several are removed from the log: managed fields contain only that it owns the field.
    async fn write_of_field(
        &mut self,
        live: &Value,
        log: &mut Vec<LoggedWrite>,
        path: &[Segment],
        managers: &[Manager],
    ) -> Option<String> {
        let object = Object::of(live);
        let is_of_status = fields::begins_with(path, "status");
        let is_possible = |write: &&LoggedWrite| is_of_status || write.subresource != "status";
        for write in log.iter().filter(is_possible) {
            match self.history.of_write(&object, &write.revision).await {
                // A field of a new object without an owner may be a default.
                Some(versions) if versions.changes(path) => {
                    let is_default = managers.is_empty() && evidence::is_creation(write);
                    return (!is_default).then(|| write.revision.clone());
                }
                Some(_) => {}
                None => break,
            }
        }
        let is_of = |write: &LoggedWrite, manager: &Manager| {
            (&write.manager, &write.subresource) == (&manager.name, &manager.subresource)
        };
        let count = |manager: &Manager| log.iter().filter(|write| is_of(write, manager)).count();
        let several: Vec<&Manager> = managers.iter().filter(|manager| count(manager) > 1).collect();
        log.retain(|write| !several.iter().any(|manager| is_of(write, manager)));
        None
    }

    /// Adds the user that deleted an object.
    async fn deletion(&mut self, object: &Object, moment: &Moment) {
        let log = self.logged_writes(object).await.unwrap_or_default();
        let step = match evidence::deletion(&log, moment) {
            Some(write) => chain::logged(object, write, StepKind::Origin),
            None => chain::unknown(object, format!("no log contains who deleted {object}")),
        };
        self.answer.chain.push(step);
    }

    /// Returns true if a claimant may write an object; `None` if that is unknown.
    async fn may_write(&self, claimant: &Claimant, object: &Object, subresource: &str) -> Option<bool> {
        match self.kinds.of(&object.api_version(), &object.kind) {
            Some(kind) => {
                let (group, version, plural) = (&object.group, &object.version, &kind.plural);
                let (namespace, name) = (object.namespace.as_deref().unwrap_or_default(), &object.name);
                let target = WriteTarget { group, version, plural, subresource, namespace, name };
                claimant.may_write(self.client, &target).await
            }
            None => Some(false),
        }
    }

    /// Adds what a discovered operator says about a write and its cause.
    async fn add_claim(&mut self, claims: &[Recorded], search: &Search<'_>, log: Option<&[LoggedWrite]>) {
        let managers = fields::managers(search.live, None);
        let (mut found, mut reviews) = (Vec::new(), BTreeMap::new());
        for (recorded, write) in search.writes(claims) {
            let Some(claimant) = &recorded.claimant else { continue };
            if !claims::is_verifiable(recorded, write) {
                continue;
            }
            let managers = (!self.operators.share_manager(&recorded.manager, claimant)).then_some(&*managers);
            let mut is_confirmed = claims::is_confirmed(recorded, claimant, write, managers, log);
            if is_confirmed {
                let permission = (claimant, &*write.subresource);
                if !reviews.contains_key(&permission) && reviews.len() < MAX_REVIEWS {
                    let may_write = self.may_write(claimant, search.object, &write.subresource).await;
                    reviews.insert(permission, may_write == Some(true));
                }
                is_confirmed = reviews.get(&permission).copied().unwrap_or_default();
            }
            let is_answer = search.is_answer(recorded, write);
            found.push(Claim { recorded, claimant, write, is_answer, is_confirmed });
        }
        let Some(choice) = claims::choose(&found, log.is_some()) else { return };
        let Choice { claim: Claim { recorded, claimant, write, is_confirmed, .. }, others, omitted } = choice;
        let cause = chain::main_cause(&recorded.reconcile).filter(|_| others.is_empty());
        self.answer.chain.push(Step {
            claimed_by: Some(claimant.deployment.clone()),
            confirmed: is_confirmed,
            also_claimed_by: others,
            claims_omitted: omitted,
            ..chain::write(recorded, write)
        });
        self.answer.chain.extend(cause.map(|cause| chain::caused_by(recorded, cause)));
    }

    /// Returns the Deployment of an operator whose page about an object is a claim.
    async fn claimed_by(&self, operator: &Operator, live: &Value, object: &Object) -> Option<String> {
        let claimant = operator.claimant()?;
        let manager = operator.overview.manager();
        let manages =
            claims::manages(manager, &fields::managers(live, None)) && !self.operators.share_manager(manager, claimant);
        let may_write = async |subresource: &str| self.may_write(claimant, object, subresource).await == Some(true);
        let is_witness = manages && (may_write("").await || may_write("status").await);
        (!is_witness).then(|| claimant.deployment.clone())
    }

    /// Adds the write of an object, and returns its owner unless the writer acts for no owner.
    async fn without_ledger(
        &mut self,
        search: &Search<'_>,
        evidence: Evidence<'_>,
        log: Option<&[LoggedWrite]>,
    ) -> Option<(Value, Moment)> {
        let Search { live, object, moment, path, .. } = *search;
        let manager = match evidence {
            Evidence::Logged(write) => write.manager.as_str(),
            Evidence::Managed(manager) => manager.name.as_str(),
            Evidence::Ledger(..) | Evidence::OnlyLater | Evidence::Missing => "",
        };
        let owners = live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let owner = owners.iter().find(|owner| owner["controller"] == true).or_else(|| owners.first());
        // A person who edits a child acts for no owner, nor do a scheduler and the writer of a status.
        let is_of_part = path.is_some_and(|path| fields::begins_with(path, "status") || fields::is_bound_node(path));
        let owner = owner.filter(|_| !manager.starts_with("kubectl") && !is_of_part);
        let kind = if owner.is_some() { StepKind::Write } else { StepKind::Origin };
        let mut next = Moment { version: None, ..moment.clone() };
        match evidence {
            Evidence::Logged(write) => {
                let step = chain::logged(object, write, kind);
                next = Moment { newest: write.revision.parse().ok(), before: step.time.or(moment.before), ..next };
                self.answer.chain.push(step);
                if owner.is_some() && evidence::is_creation(write) {
                    let earlier = Moment { newest: next.newest, ..Moment::default() };
                    let deletion = evidence::deletion(log.unwrap_or_default(), &earlier);
                    self.answer.chain.extend(deletion.map(|deletion| chain::recreated_after(object, deletion)));
                }
            }
            Evidence::Managed(manager) => {
                next.before = manager.time.map(Moment::end_of_second).or(moment.before);
                self.answer.chain.push(chain::managed(object, manager, kind));
            }
            Evidence::OnlyLater => {
                let text = format!("the managed fields of {object} contain only later writes");
                self.answer.chain.push(chain::unknown(object, text));
            }
            Evidence::Ledger(..) | Evidence::Missing => {
                let text = match path {
                    Some(path) if fields::is_bound_node(path) => "managed fields do not contain bindings of schedulers",
                    Some(_) => "no manager owns the field: it may be a default, or its writer is not recorded",
                    None => "no managed fields and no log contain who wrote it",
                };
                self.answer.chain.push(chain::unknown(object, text.to_owned()));
            }
        }
        let owner = owner?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&owner["apiVersion"]);
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let owner = Object {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(&owner["kind"]),
            namespace: object.namespace.clone(),
            name: text(&owner["name"]),
        };
        self.answer.chain.push(chain::owned_by(&owner));
        let live = self.read(&owner).await?;
        Some((live, next))
    }

    /// Returns the writes of an object with their users, newest first. Embedded control planes keep them, for
    /// administrators; `None` on other clusters.
    async fn logged_writes(&self, object: &Object) -> Option<Vec<LoggedWrite>> {
        let kind = self.kinds.of(&object.api_version(), &object.kind)?;
        let place = (object.namespace.as_deref().unwrap_or_default(), object.name.as_str());
        logged_writes(self.client, (&object.group, &kind.plural), place).await
    }

    /// Reads an object; one that cannot be read ends the chain with the reason.
    async fn read(&mut self, object: &Object) -> Option<Value> {
        let text = match self.kinds.of(&object.api_version(), &object.kind) {
            None => format!("the cluster has no kind {} in {}", object.kind, object.api_version()),
            Some(kind) => match get(self.client, &kind.path(object.namespace.as_deref(), Some(&object.name))).await {
                Ok(mut live) => {
                    kind.set_type(&mut live);
                    return Some(live);
                }
                Err(kube::Error::Api(status)) if status.code == FORBIDDEN => {
                    let namespace = object.namespace.as_deref().filter(|_| kind.namespaced);
                    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
                    format!("you may not get {}{place}", kind.plural)
                }
                Err(kube::Error::Api(status)) if status.code == NOT_FOUND => format!("{object} does not exist"),
                Err(error) => format!("cannot read {object}: {error}"),
            },
        };
        self.answer.chain.push(chain::unknown(object, text));
        None
    }

    /// Returns why a pod has no node, if no scheduler has reported it: there are no nodes.
    async fn unscheduled(&self, live: &Value) -> Option<String> {
        if !is_unscheduled(live) {
            return None;
        }
        let nodes = get(self.client, "/api/v1/nodes?limit=1").await.ok()?;
        let text = match nodes["items"].as_array().is_some_and(Vec::is_empty) {
            true => {
                "not scheduled: the cluster has no nodes; add one, such as with flyball cluster node add".to_owned()
            }
            false => {
                let scheduler = live["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
                format!("not scheduled: {scheduler} has reported no result, check that it runs")
            }
        };
        Some(text)
    }

    /// Adds what an object waits for, and when it is reconciled next.
    async fn explain_state(&mut self, live: &Value) {
        let events = self.events(live).await;
        self.answer.waits = waits(live, &events);
        self.answer.waits.extend(self.unscheduled(live).await);
        let mut reasons = Reasons::new(self.answer.now);
        let target = self.answer.object.clone();
        reasons.of_pause(live, &[]);
        let states = self.operators.states(&target).await;
        self.explain_with(&mut reasons, &states, &target, live).await;
        self.answer.reasons = reasons.found;
        self.answer.excluded = reasons.excluded;
    }

    /// Returns the controllers of an object that can be read, the nearest first.
    async fn owners(&self, live: &Value) -> Vec<Value> {
        let (mut owners, mut owned) = (Vec::new(), live.clone());
        while owners.len() < MAX_OWNERS {
            let mut references = owned["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let Some(owner) = references.rfind(|owner| owner["controller"] == true) else { break };
            let text = |name: &str| owner[name].as_str().unwrap_or_default();
            let Some(kind) = self.kinds.of(text("apiVersion"), text("kind")) else { break };
            let path = kind.path(owned["metadata"]["namespace"].as_str(), Some(text("name")));
            let Ok(mut read) = get(self.client, &path).await else { break };
            kind.set_type(&mut read);
            owners.push(read.clone());
            owned = read;
        }
        owners
    }

    /// Adds the reasons why nothing happens.
    async fn explain_inaction(&mut self, live: &Value) {
        let events = self.events(live).await;
        self.answer.waits = waits(live, &events);
        self.answer.waits.extend(self.unscheduled(live).await);
        let mut reasons = Reasons::new(self.answer.now);
        reasons.of_object(live, &self.owners(live).await);
        let target = self.answer.object.clone();
        let states = self.operators.states(&target).await;
        self.explain_with(&mut reasons, &states, &target, live).await;
        let is_fact = |operator: &&Operator| operator.claimant().is_none();
        let is_reconciled = states.iter().any(|(of, page)| is_fact(of) && !page.controllers.is_empty());
        let names: Vec<&str> =
            self.operators.reached.iter().filter(is_fact).map(|of| of.overview.operator.as_str()).collect();
        if !is_reconciled && !names.is_empty() {
            reasons.excluded.push(format!("{} do not reconcile this kind", names.join(", ")));
        }
        if states.iter().all(|(_, page)| page.controllers.is_empty()) {
            reasons.without_operator(&target);
        }
        self.answer.reasons = reasons.found;
        self.answer.excluded = reasons.excluded;
    }

    /// Adds what the operators say about an object that they reconcile.
    async fn explain_with(
        &self,
        reasons: &mut Reasons,
        states: &[(&Operator, ObjectPage)],
        target: &Object,
        live: &Value,
    ) {
        for (operator, page) in states.iter().filter(|(_, page)| !page.controllers.is_empty()) {
            reasons.claimed_by = self.claimed_by(operator, live, target).await;
            reasons.of_operator(operator, page, target, live);
        }
    }

    /// Reads the events about an object. Without permission there are none.
    async fn events(&self, live: &Value) -> Vec<Value> {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let namespace = live["metadata"]["namespace"].as_str().unwrap_or("default");
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.uid%3D{uid}");
        let mut list = get(self.client, &path).await.unwrap_or_default();
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }
}

/// Parses `KIND/NAME`, or `KIND` and `NAME`, and an optional field.
///
/// # Errors
///
/// If the words do not name an object.
pub(crate) fn parse_target(words: &[String]) -> Result<(String, String, Option<String>)> {
    let wrong = || {
        Error::usage(format!("{:?} does not name an object", words.join(" ")))
            .hint("use kind/name, such as deployment/web, and for a field its path: deployment/web spec.replicas")
    };
    let (kind, name, rest) = match words {
        [object, rest @ ..] if object.contains('/') => {
            let (kind, name) = object.split_once('/').ok_or_else(wrong)?;
            (kind, name, rest)
        }
        [kind, name, rest @ ..] => (kind.as_str(), name.as_str(), rest),
        _ => return Err(wrong()),
    };
    // A key with a slash is in brackets: a field with one is a second object.
    let is_object = |word: &String| word.split('[').next().is_some_and(|field| field.contains('/'));
    if kind.is_empty() || name.is_empty() || name.contains('/') || rest.len() > 1 || rest.iter().any(is_object) {
        return Err(wrong());
    }
    Ok((kind.to_owned(), name.to_owned(), rest.first().cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_fields_are_parsed() {
        let parse = |words: &[&str]| parse_target(&words.iter().map(ToString::to_string).collect::<Vec<_>>()).ok();
        let target = |field: Option<&str>| Some(("pod".to_owned(), "a".to_owned(), field.map(str::to_owned)));
        assert_eq!((parse(&["pod/a"]), parse(&["pod", "a"])), (target(None), target(None)));
        assert_eq!(parse(&["pod/a", "spec.nodeName"]), target(Some("spec.nodeName")));
        assert_eq!(parse(&["pod", "a", "spec.nodeName"]), target(Some("spec.nodeName")));
        let key = "metadata.labels[a/b]";
        assert_eq!(parse(&["pod/a", key]), target(Some(key)));
        for bad in [&["pod"][..], &["/a"], &["pod/"], &["a/b/c"], &["pod", "a", "b", "c"], &["pod/a", "pod/b"]] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
