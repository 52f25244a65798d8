//! The investigation: reads the object, its owners and the ledgers, and builds the answer.

use super::answer::{Answer, Field, Question, Source, Step, StepKind};
use super::chain;
use super::claims::{self, Claim, Recorded};
use super::evidence::{self, Evidence, Moment, Search};
use super::fields::{self, Segment};
use super::operators::{Operator, OperatorArgs, Operators};
use super::page::{Object, ObjectPage, time};
use super::reasons::{Reasons, is_unscheduled, waits};
use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Error, Result, ResultExt};
use flyball_console::hide_values;
use flyball_console::{Claimant, LoggedWrite, WriteTarget, logged_writes};
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Limit of the steps of a chain.
const MAX_STEPS: usize = 32;
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
    let operators = Operators::find(client, server, args).await?;
    let (now, object) = (now(client).await, Object::of(&live));
    let (state, since) = state(&live);
    let sources: Vec<Source> = operators.sources.clone();
    let (chain, waits, reasons, excluded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let field = None;
    let answer = Answer { object, state, since, field, chain, waits, reasons, excluded, sources, now };
    let mut investigation = Investigation { client, kinds, operators, answer, visited: BTreeSet::new() };
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
            let own = log.as_deref().map(|log| evidence::of_this_object(&live, log));
            let managers = fields::managers(&live, path);
            let search = Search { live: &live, object: &object, moment: &moment, path, managers: &managers };
            let recorded = self.operators.reconciles(&object).await;
            let (facts, claims): (Vec<_>, Vec<_>) =
                recorded.into_iter().partition(|recorded| recorded.claimant.is_none());
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
        let cause = chain::main_cause(reconcile)?;
        self.answer.chain.push(chain::caused_by(recorded, cause));
        let before = time(&reconcile.began);
        let newest = |version: &Option<String>| version.as_deref().and_then(|version| version.parse().ok());
        if cause.kind == "change" {
            if cause.after.is_none() {
                self.deletion(&cause.object, &Moment { before, ..Moment::default() }).await;
                return None;
            }
            let live = self.read(&cause.object).await?;
            let (version, newest) = (cause.after.clone(), newest(&cause.after));
            return Some((live, Moment { version, newest, before }));
        }
        // A retry or a timer continues an earlier reconcile of the same object, whose spec is the origin.
        let live = self.read(&reconcile.object).await?;
        Some((live, Moment { version: None, newest: newest(&reconcile.resource_version), before }))
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
        let (managers, mut found) = (fields::managers(search.live, None), Vec::new());
        for (recorded, write) in search.claims_of(claims) {
            let Some(claimant) = &recorded.claimant else { continue };
            let managers = (!self.operators.share_manager(&recorded.manager, claimant)).then_some(&*managers);
            let is_confirmed = claims::is_confirmed(recorded, claimant, write, managers, log)
                && self.may_write(claimant, search.object, &write.subresource).await == Some(true);
            found.push(Claim { recorded, claimant, write, is_confirmed });
        }
        let Some((Claim { recorded, claimant, write, is_confirmed }, others)) = claims::choose(&found) else { return };
        let cause = chain::main_cause(&recorded.reconcile).filter(|_| others.is_empty());
        self.answer.chain.push(Step {
            claimed_by: Some(claimant.deployment.clone()),
            confirmed: is_confirmed,
            also_claimed_by: others,
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
        let states = self.operators.states(&target).await;
        self.explain_with(&mut reasons, &states, &target, live).await;
        self.answer.reasons = reasons.found;
        self.answer.excluded = reasons.excluded;
    }

    /// Adds the reasons why nothing happens.
    async fn explain_inaction(&mut self, live: &Value) {
        let events = self.events(live).await;
        self.answer.waits = waits(live, &events);
        self.answer.waits.extend(self.unscheduled(live).await);
        let mut reasons = Reasons::new(self.answer.now);
        reasons.of_object(live);
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
    if kind.is_empty() || name.is_empty() || name.contains('/') || rest.len() > 1 {
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
        for bad in [&["pod"][..], &["/a"], &["pod/"], &["a/b/c"], &["pod", "a", "b", "c"]] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
